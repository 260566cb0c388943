//! Mistakes of users and administrators. Each is reported where they look, and harms nobody else.

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use lictor_api::ElectionClass;
use lictor_testing::kubernetes::{Cluster, Lab, Operator, PodSpec, User, eventually};
use serde_json::{Value, json};

/// Creates a ready pod that the election `web` does not select.
async fn other_pod(lab: &Lab, name: &str) {
    lab.pod(name, PodSpec { labels: json!({"app": "other"}), ..PodSpec::default() }).await;
    lab.wait_ready(name, true).await;
}

/// Applies an election that does not select the pods of the election `web`.
async fn elect_other(lab: &Lab, name: &str, spec: Value) {
    let mut all = json!({"selector": {"matchLabels": {"app": "other"}}});
    for (key, value) in spec.as_object().expect("a spec is an object") {
        all[key] = value.clone();
    }
    lab.elect_as(name, all).await;
}

/// Checks that the election `web` still works: it gets a new leader after it lost one.
async fn assert_fails_over(lab: &Lab) {
    let leader = lab.wait_any_leader().await;
    lab.kill_pod(&leader).await;
    // The pod gets another name, because what deletes pods here may be late, and deletes by name.
    let next = format!("{leader}-next");
    lab.pod(&next, PodSpec::default()).await;
    lab.wait_ready(&next, true).await;
    lab.wait_any_leader().await;
}

/// Creates an election `web` that works.
async fn healthy_neighbour(lab: &Lab) {
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    lab.wait_any_leader().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_wish_for_who_leads_is_refused_when_it_is_applied() {
    let lab = Lab::new("bad-choice").await;
    let with = |field: &str, value: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        spec[field] = value;
        spec
    };
    let mut circular = with("preferences", json!([{"byAnnotation": "a.io/lag", "order": "Lowest"}]));
    circular["follower"] = json!({"annotations": {"a.io/lag": "9"}});
    lab.assert_refused([
        (
            with("eligibility", json!({"minReadySeconds": -1})),
            "minReadySeconds in body should be greater than or equal to 0",
        ),
        (with("eligibility", json!({"minReadySeconds": 86401})), "should be less than or equal to 86400"),
        (with("eligibility", json!({"conditions": ["Ready"]})), "for example example.com/caught-up"),
        (with("eligibility", json!({"conditions": ["caught up"]})), "for example example.com/caught-up"),
        (with("eligibility", json!({"conditions": [""]})), "should be at least 1 chars long"),
        (with("eligibility", json!({"conditions": ["a.io/x", "a.io/x"]})), "Duplicate value"),
        (with("eligibility", json!({"conditions": ["a", "b", "c", "d", "e"]})), "must have at most 4 items"),
        (
            with("preferences", json!([{"weight": 1}])),
            "write for example {weight: 10, zone: eu-1a}, {byAnnotation: example.com/lag, order: Lowest} or {spread: {group: shards}}",
        ),
        (
            with("preferences", json!([{"weight": 1, "zone": "a", "nodeSelector": {"x": "y"}}])),
            "exactly one of zone and nodeSelector",
        ),
        (with("preferences", json!([{"byAnnotation": "a.io/lag"}])), "or byAnnotation with order, or spread"),
        (
            with("preferences", json!([{"byAnnotation": "a.io/lag", "order": "Lowest", "weight": 1}])),
            "or byAnnotation with order, or spread",
        ),
        (with("preferences", json!([{"byAnnotation": "a.io/lag", "order": "Least"}])), "\"Lowest\", \"Highest\""),
        (with("preferences", json!([{"byAnnotation": "my lag", "order": "Lowest"}])), "for example example.com/lag"),
        (
            with("preferences", json!([{"byAnnotation": "lictor.dev/priority", "order": "Highest"}])),
            "begins with lictor.dev/, which is reserved",
        ),
        (
            with("preferences", json!([{"spread": {"group": "a"}, "zone": "a"}])),
            "or byAnnotation with order, or spread",
        ),
        (with("preferences", json!([{"spread": {}}])), "spec.preferences[0].spread.group: Required value"),
        (with("preferences", json!([{"spread": {"group": "My_Shards"}}])), "for example shards"),
        (
            with("preferences", json!([{"spread": {"group": "a", "topologyKey": "my zone"}}])),
            "for example topology.kubernetes.io/zone",
        ),
        (circular, "names an annotation that this election writes itself"),
        (with("preferences", json!([{"weight": 0, "zone": "a"}])), "should be greater than or equal to 1"),
    ]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_election_is_refused_when_it_is_applied() {
    let lab = Lab::new("refused").await;
    let selector = json!({"matchLabels": {"app": "web"}});
    let with = |field: &str, value: Value| {
        let mut spec = json!({"selector": selector});
        spec[field] = value;
        spec
    };
    let candidates = |lock: Value, more: Value| {
        let mut spec = json!({"selector": selector, "electedBy": "Candidates", "followedLock": lock});
        for (field, value) in more.as_object().expect("fields") {
            spec[field] = value.clone();
        }
        spec
    };
    let long = "x".repeat(64);
    let cases = [
        (json!({"selector": {}}), "write matchLabels, for example {app: web}"),
        (json!({"selector": {"matchLabels": {}}}), "write matchLabels, for example {app: web}"),
        (json!({"selector": {"matchLabels": {"role": "leader"}}}), "select the pods by another label, such as app"),
        (
            json!({"selector": {"matchExpressions": [{"key": "role", "operator": "Exists"}]}}),
            "select the pods by another label, such as app",
        ),
        (json!({"selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}}), "need at least one value"),
        (
            json!({"selector": {"matchExpressions": [{"key": "app", "operator": "Is"}]}}),
            "\"In\", \"NotIn\", \"Exists\", \"DoesNotExist\"",
        ),
        (with("electedBy", json!("Candidates")), "goes with spec.electedBy: Candidates: write both, or leave both out"),
        (with("followedLock", json!({"lease": {"name": "l"}})), "write both, or leave both out"),
        (candidates(json!({}), json!({})), "write for example lease: {name: web-lock}"),
        (candidates(json!({"lease": {"name": "l"}, "key": "a/.lock"}), json!({})), "exactly one of lease and key"),
        (candidates(json!({"lease": {"name": "L_"}}), json!({})), "not a valid name for a Lease"),
        (candidates(json!({"lease": {"name": "l"}}), json!({"preemption": "HigherPriority"})), "leave them out"),
        (candidates(json!({"lease": {"name": "l"}}), json!({"probe": {"tcpSocket": {"port": 80}}})), "leave them out"),
        (candidates(json!({"lease": {"name": "l"}}), json!({"selector": null})), "needs spec.selector"),
        (
            candidates(json!({"lease": {"name": "l"}, "identity": {"from": "Annotation"}}), json!({})),
            "write for example {from: Annotation, annotation: example.com/member}",
        ),
        (
            candidates(json!({"lease": {"name": "l"}, "identity": {"pattern": "prefix-only-*"}}), json!({})),
            "must contain {identity} exactly once",
        ),
        (with("follower", json!({"labels": {"role": "leader"}})), "for example role: leader and role: follower"),
        (with("leader", json!({"labels": {"my role": "x"}})), "labels has a name that is not valid in Kubernetes"),
        (with("leader", json!({"labels": {"role": "not legal"}})), "a value that is not valid in Kubernetes"),
        (
            with("leader", json!({"labels": {"role": long}})),
            "spec.leader.labels.role: Too long: may not be more than 63",
        ),
        (with("leader", json!({"labels": {"r": "x"}, "annotations": {"a b": "x"}})), "for example example.com/role"),
        (with("leader", json!({"labels": {"lictor.dev/role": "leader"}})), "choose another prefix"),
        (with("follower", json!({"annotations": {"lictor.dev/term": "1"}})), "choose another prefix"),
        (with("handover", json!({"failoverDelaySeconds": 3601})), "should be less than or equal to 3600"),
        (with("handover", json!({"order": "Both"})), "\"DemoteFirst\", \"PromoteFirst\""),
        (with("handover", json!({"formerLeader": "Kill"})), "\"Keep\", \"Delete\", \"DeleteFirst\""),
        (with("handover", json!({"formerLeader": "DeleteFirst", "order": "PromoteFirst"})), "leave one of the two out"),
        (with("preemption", json!("Always")), "\"Never\", \"HigherPriority\""),
        (with("key", json!("")), "spec.key"),
        (with("sharedStore", json!({"whenLost": "Wait"})), "\"Demote\", \"Keep\""),
        (with("service", json!({})), "spec.service.name: Required value"),
        (with("service", json!({"name": "Web_1"})), "for example web-leader"),
        (with("service", json!({"name": long})), "may not be more than 63"),
        (
            with("service", json!({"name": "web", "type": "NodePort"})),
            "write the ports, or write these fields into your own",
        ),
        (with("service", json!({"name": "web", "ports": [{"port": 80}, {"port": 81}]})), "write service.ports[].name"),
        (with("service", json!({"name": "web", "ports": [{"port": 0}]})), "should be greater than or equal to 1"),
        (
            with("service", json!({"name": "web", "ports": [{"port": 80}], "type": "ExternalName"})),
            "\"ClusterIP\", \"NodePort\"",
        ),
        (
            with("service", json!({"name": "web", "ports": [{"port": 80}], "labels": {"lictor.dev/x": "y"}})),
            "write another name",
        ),
        (
            with("sharedStore", json!({"consulService": {"port": 80}})),
            "spec.sharedStore.consulService.name: Required value",
        ),
        (
            with("sharedStore", json!({"consulService": {"name": "web"}})),
            "spec.sharedStore.consulService.port: Required value",
        ),
        (
            with("sharedStore", json!({"consulService": {"name": "Web_1", "port": 80}})),
            "letter or digit, for example web",
        ),
        (with("sharedStore", json!({"consulService": {"name": long, "port": 80}})), "may not be more than 63"),
        (
            with("sharedStore", json!({"consulService": {"name": "web", "port": 0}})),
            "should be greater than or equal to 1",
        ),
        // kubectl finds this by itself, because the schema names every field.
        (with("selektor", json!({})), "unknown field \"spec.selektor\""),
    ];
    lab.assert_refused(cases);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_probe_is_refused_when_it_is_applied() {
    let lab = Lab::new("refused-probe").await;
    let probe = |probe: Value| json!({"selector": {"matchLabels": {"app": "web"}}, "probe": probe});
    let one_question = "only one of httpGet, tcpSocket, grpc and likeReadiness: leave the others out";
    let which_port = "write for example 8080 or http";
    let cases = [
        (probe(json!({})), "write for example httpGet: {path: /leader, port: 8080}"),
        (probe(json!({"httpGet": {"port": 1}, "tcpSocket": {"port": 1}})), one_question),
        (probe(json!({"likeReadiness": {}, "grpc": {"port": 1}, "connection": {"port": 1}})), one_question),
        (probe(json!({"likeReadiness": {"timeoutSeconds": 2}})), "shorten the timeout or lengthen the period"),
        (probe(json!({"likeReadiness": {"failureThreshold": 0}})), "should be greater than or equal to 1"),
        (probe(json!({"connection": {"port": 0}})), which_port),
        (probe(json!({"tcpSocket": {"port": "8080"}})), which_port),
        (probe(json!({"grpc": {"port": "Web"}})), which_port),
        (probe(json!({"httpGet": {"port": "a-name-of-16-char"}})), which_port),
        (probe(json!({"httpGet": {"port": true}})), "spec.probe.httpGet.port"),
        (probe(json!({"httpGet": {"port": 1, "scheme": "ftp"}})), "\"HTTP\", \"HTTPS\""),
        (probe(json!({"httpGet": {"port": 1, "host": "10.0.0.1"}})), "httpGet.host is a host name"),
        (probe(json!({"httpGet": {"port": 1, "host": "a.example:1"}})), "httpGet.host is a host name"),
        (probe(json!({"httpGet": {"port": 1, "httpHeaders": [{"name": "a b", "value": ""}]}})), "for example X-Role"),
        (
            probe(json!({"httpGet": {"port": 1, "httpHeaders": [{"name": "a", "value": "b\r\nc: d"}]}})),
            "printable characters of ASCII only",
        ),
        (probe(json!({"connection": {}})), "probe.connection needs a port, because there is no spec.service"),
        (probe(json!({"tcpSocket": {"port": 1}, "timeoutSeconds": 3})), "shorten the timeout or lengthen the period"),
        (probe(json!({"tcpSocket": {"port": 1}, "periodSeconds": 0})), "should be greater than or equal to 1"),
        (probe(json!({"tcpSocket": {"port": 65536}})), which_port),
        (probe(json!({"httpGet": {"port": 1, "path": "leader"}})), "should match '^/'"),
    ];
    lab.assert_refused(cases);
}

/// A controller would lose each pod that lictor writes to, and make another one.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_controllers_own_are_refused_when_the_election_is_applied() {
    let lab = Lab::new("owned-names").await;
    let labels = [
        "pod-template-hash",
        "controller-revision-hash",
        "pod-template-generation",
        "job-name",
        "controller-uid",
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/controller-uid",
        "kubernetes.io/role",
        "leaderworkerset.sigs.k8s.io/name",
    ];
    let annotations = ["pod-template-hash", "batch.kubernetes.io/job-completion-index"];
    let spec = |role: &str, kind: &str, name: &str| {
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
        spec[role][kind] = json!({"example.com/own": role, name: "x"});
        spec
    };
    let mut cases = Vec::new();
    for role in ["leader", "follower"] {
        let owned = "labels has a name that Kubernetes reserves for its own controllers";
        cases.extend(labels.map(|name| (spec(role, "labels", name), owned)));
        let owned = "annotations has a name that Kubernetes' own controllers write";
        cases.extend(annotations.map(|name| (spec(role, "annotations", name), owned)));
    }
    lab.assert_refused(cases);
}

/// What looks like a name of Kubernetes' own, and is left to users, or has to be.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_left_to_users_are_accepted() {
    let lab = Lab::new("own-names").await;
    lab.elect(json!({
        "leader": {
            "labels": {"app.kubernetes.io/component": "leader", "kubernetes.io.example.com/role": "leader"},
            "annotations": {"controller.kubernetes.io/pod-deletion-cost": "5", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        },
        "follower": {"labels": {"app.kubernetes.io/component": "follower"}},
    }))
    .await;
}

/// Sends a class to the API server without keeping it, and returns what the API server says.
async fn dry_run(classes: &Api<ElectionClass>, name: &str, spec: &Value) -> Result<(), String> {
    let object = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": name}, "spec": spec,
    });
    let parameters = PatchParams { dry_run: true, ..PatchParams::apply("test") };
    let applied = classes.patch(name, &parameters, &Patch::Apply(object)).await;
    applied.map(drop).map_err(|error| error.to_string())
}

/// Returns the cases that are not refused with the right words.
async fn not_refused(
    classes: &Api<ElectionClass>,
    name: &str,
    cases: impl IntoIterator<Item = (Value, &str)>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (spec, says) in cases {
        match dry_run(classes, name, &spec).await {
            Ok(()) => wrong.push(format!("{spec}\n  should say: {says}\n  is accepted")),
            Err(message) if message.contains(says) => {}
            Err(message) => wrong.push(format!("{spec}\n  should say: {says}\n  says: {message}")),
        }
    }
    wrong
}

/// Makes a class for Consul with these fields of `consul`, besides the required ones.
fn consul(fields: &Value) -> Value {
    let mut spec = json!({"consul": {"address": "http://consul.example:8500", "clusterName": "west"}});
    for (key, value) in fields.as_object().expect("an object") {
        spec["consul"][key] = value.clone();
    }
    spec
}

/// Makes such a class with another field of its spec.
fn consul_and(field: &str, value: Value) -> Value {
    let mut spec = consul(&json!({}));
    spec[field] = value;
    spec
}

/// Makes a class for a bucket with these fields of `bucket`, besides the required ones.
fn bucket(fields: &Value) -> Value {
    let mut spec = json!({"bucket": {"url": "s3://locks/lictor", "clusterName": "west"}});
    for (key, value) in fields.as_object().expect("an object") {
        spec["bucket"][key] = value.clone();
    }
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_class_is_refused_when_it_is_applied() {
    let classes: Api<ElectionClass> = Api::all(Cluster::shared().client().await);
    let one_store = "exactly one store: write lease: {}, or for example consul: {address:";
    let wrong = not_refused(
        &classes,
        "bad",
        [
            (json!({}), one_store),
            (
                json!({"lease": {}, "consul": {"address": "http://consul.example:8500", "clusterName": "west"}}),
                one_store,
            ),
            (json!({"lease": {}, "keyTemplate": "same-for-all"}), "keyTemplate must contain {name}"),
            (json!({"lease": {}, "keyTemplate": "{name}_{pod}"}), "for example {name}-leader"),
            (json!({"lease": {}, "keyTemplate": "services/{name}"}), "for example {name}-leader"),
            (json!({"lease": {}, "keyPattern": "a b"}), "for example {name}-*"),
            (json!({"lease": {}, "controller": ""}), "spec.controller"),
            (json!({"lease": {}, "allowedWorkloads": "Some"}), "\"All\", \"Existing\", \"None\""),
        ],
    )
    .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_consul_in_a_class_is_refused_when_it_is_applied() {
    let classes: Api<ElectionClass> = Api::all(Cluster::shared().client().await);
    let (address, port) = ("nothing after it, for example http://consul.example:8500", "must be from 1 to 65535");
    let tls = |tls: Value| consul(&json!({"address": "https://consul.example", "tls": tls}));
    let wrong = not_refused(
        &classes,
        "bad",
        [
            (json!({"consul": {"clusterName": "west"}}), "spec.consul.address: Required value"),
            (json!({"consul": {"address": "http://consul.example:8500"}}), "spec.consul.clusterName: Required value"),
            (consul(&json!({"address": "consul.example:8500"})), address),
            (consul(&json!({"address": "unix:///run/consul.sock"})), address),
            (consul(&json!({"address": "http://"})), address),
            (consul(&json!({"address": "http://me:secret@consul.example"})), address),
            (consul(&json!({"address": "http://consul.example:8500/v1"})), address),
            (consul(&json!({"address": "http://consul.example:0"})), port),
            (consul(&json!({"address": "http://consul.example:65536"})), port),
            (consul(&json!({"clusterName": "West"})), "for example west"),
            (consul(&json!({"clusterName": "west-"})), "for example west"),
            (consul(&json!({"clusterName": "w".repeat(64)})), "may not be more than 63"),
            (consul(&json!({"datacenter": "dc 1"})), "for example dc1"),
            (consul(&json!({"namespace": "a/b"})), "consul.namespace may have"),
            (consul(&json!({"partition": "a.b"})), "consul.partition may have"),
            (consul(&json!({"tls": {}})), "write https:// there, or leave tls out"),
            (tls(json!({"serverName": "https://x"})), "for example server.dc1.consul"),
            (tls(json!({"caSecretRef": {}})), "spec.consul.tls.caSecretRef.name: Required value"),
            (tls(json!({"certSecretRef": {"name": "A"}})), "not a valid Secret name"),
            (consul(&json!({"tokenSecretRef": {"name": "a,b"}})), "not a valid Secret name"),
            (consul(&json!({"tokenSecretRef": {"name": "a", "namespace": "a.b"}})), "not a valid namespace"),
            (consul(&json!({"tokenSecretRef": {"name": "a", "key": "a/b"}})), "not a valid Secret key"),
            (
                consul(&json!({"tokenSecretRef": {"name": "a"}, "login": {"authMethodName": "kubernetes"}})),
                "leave out consul.tokenSecretRef or consul.login",
            ),
            (consul(&json!({"login": {"authMethodName": "a"}})), "write https:// into consul.address"),
            (
                consul(&json!({"address": "http://localhost.example", "login": {"authMethodName": "a"}})),
                "write https:// into consul.address",
            ),
            (consul(&json!({"login": {}})), "spec.consul.login.authMethodName: Required value"),
            (consul(&json!({"login": {"authMethodName": "a b"}})), "for example kubernetes"),
            (consul(&json!({"login": {"authMethodName": "a", "tokenPath": "token"}})), "must be an absolute path"),
            (consul(&json!({"node": {"name": "lictor west"}})), "for example lictor-west"),
            (consul(&json!({"node": {"name": "a", "useAgent": true}})), "leave one of the two out"),
            (consul(&json!({"sessions": {"count": 0}})), "should be greater than or equal to 1"),
            (consul(&json!({"sessions": {"count": 17}})), "should be less than or equal to 16"),
            (consul(&json!({"sessions": {"ttlSeconds": 9}})), "should be greater than or equal to 10"),
            (consul(&json!({"sessions": {"ttlSeconds": 86401}})), "should be less than or equal to 86400"),
            (consul(&json!({"sessions": {"lockDelaySeconds": 61}})), "should be less than or equal to 60"),
            (consul(&json!({"servicePattern": "Web.*"})), "for example {namespace}-{name}"),
            (consul(&json!({"record": "Text"})), "\"Record\", \"LeaderName\""),
            (consul(&json!({"whenClusterIsLost": {"policy": "Wait"}})), "\"Hold\", \"Release\""),
            (
                consul(&json!({"whenClusterIsLost": {"releaseAfterSeconds": 9}})),
                "should be greater than or equal to 10",
            ),
            (consul(&json!({"whenOperatorStops": "Wait"})), "\"Hold\", \"Release\""),
        ],
    )
    .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_bucket_in_a_class_is_refused_when_it_is_applied() {
    let classes: Api<ElectionClass> = Api::all(Cluster::shared().client().await);
    let (url, endpoint) = ("for example s3://locks/lictor", "for example https://minio.example:9000");
    let poll = "pollSeconds may be at most a third of ttlSeconds";
    let mut cases = vec![
        (json!({"bucket": {"clusterName": "west"}}), "spec.bucket.url: Required value"),
        (json!({"bucket": {"url": "s3://locks"}}), "spec.bucket.clusterName: Required value"),
        (bucket(&json!({"url": format!("s3://locks/{}", "x".repeat(246))})), "may not be more than 256"),
        (
            bucket(&json!({"url": "gs://locks", "region": "europe-west3"})),
            "bucket.region is only for a url that begins",
        ),
        (bucket(&json!({"region": "eu central"})), "for example eu-central-1"),
        (bucket(&json!({"endpoint": "minio.example:9000"})), endpoint),
        (bucket(&json!({"endpoint": "https://me:secret@minio.example"})), endpoint),
        (
            bucket(&json!({"endpoint": "https://minio.example:0"})),
            "the port in bucket.endpoint must be from 1 to 65535",
        ),
        (bucket(&json!({"secretRef": {}})), "spec.bucket.secretRef.name: Required value"),
        (bucket(&json!({"secretRef": {"name": "a,b"}})), "not a valid Secret name"),
        (bucket(&json!({"secretRef": {"name": "a", "namespace": "a.b"}})), "not a valid namespace"),
        (bucket(&json!({"clusterName": "West"})), "for example west"),
        (bucket(&json!({"sessions": {"ttlSeconds": 4}})), "should be greater than or equal to 5"),
        (bucket(&json!({"sessions": {"ttlSeconds": 86401}})), "should be less than or equal to 86400"),
        (bucket(&json!({"sessions": {"pollSeconds": 0}})), "should be greater than or equal to 1"),
        (bucket(&json!({"sessions": {"pollSeconds": 11}})), poll),
        (bucket(&json!({"sessions": {"ttlSeconds": 5, "pollSeconds": 2}})), poll),
        (bucket(&json!({"whenClusterIsLost": {"policy": "Wait"}})), "\"Hold\", \"Release\""),
        (bucket(&json!({"whenOperatorStops": "Wait"})), "\"Hold\", \"Release\""),
    ];
    let urls = [
        "locks",
        "s3://",
        "s3:///lictor",
        "s3://locks/",
        "s3://locks//lictor",
        "s3://locks/../lictor",
        "s3://locks/./lictor",
        "s3://locks/.",
        "s3://locks/a b",
        "s3://Locks",
        "file:///locks",
        "https://locks.s3.amazonaws.com",
        "az://locks/lictor",
        "az://account1/locks/lictor",
        "az://locks@account1/lictor",
    ];
    cases.extend(urls.map(|wrong| (bucket(&json!({"url": wrong})), url)));
    let template = |value: &str| {
        let mut spec = bucket(&json!({}));
        spec["keyTemplate"] = json!(value);
        spec
    };
    cases.push((template("{namespace}/{name}"), "keyTemplate for Consul, a bucket or a hub may have"));
    cases.push((template("services/../{name}"), "keyTemplate for Consul, a bucket or a hub may have"));
    let hub = |fields: Value| {
        let mut hub = json!({"namespace": "lictor-locks", "clusterName": "west"});
        fields.as_object().into_iter().flatten().for_each(|(name, value)| hub[name] = value.clone());
        json!({"hub": hub})
    };
    let mut pattern = hub(json!({}));
    pattern["followPattern"] = json!("services/*");
    cases.push((pattern, "followPattern is for classes with consul or bucket"));
    cases.push((hub(json!({"namespace": "Locks"})), "for example lictor-locks"));
    cases.push((hub(json!({"clusterName": "West"})), "hub.clusterName may have lower-case letters"));
    cases.push((hub(json!({"sessions": {"ttlSeconds": 15, "pollSeconds": 6}})), "at most a third of ttlSeconds"));
    let mut pattern = bucket(&json!({"url": "gs://locks"}));
    pattern["keyPattern"] = json!("service/*");
    cases.push((pattern, "keyPattern and keyTemplate must begin with the same fixed part"));
    let wrong = not_refused(&classes, "bad", cases).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_name_for_keys_in_consul_is_refused_when_it_is_applied() {
    let classes: Api<ElectionClass> = Api::all(Cluster::shared().client().await);
    let (template, pattern) =
        ("at its end, for example services/{namespace}/{name}/leader", "for example services/{namespace}/*");
    let templates = [
        "{namespace}/{name}",
        "locks-{name}",
        "/locks/{name}",
        "locks//{name}",
        "locks/{name}/",
        "locks/../{name}",
        "locks/./{name}",
        "./{name}",
        "locks/{name}/.",
        "locks/{pod}/{name}",
        "Locks/{name}",
    ];
    let patterns =
        ["*", "services*", "*/x", "services/", "services//*", "services/../*", "services/*/./x", "services/a b"];
    let mut cases: Vec<(Value, &str)> =
        templates.iter().map(|value| (consul_and("keyTemplate", json!(value)), template)).collect();
    cases.extend(patterns.iter().map(|value| (consul_and("keyPattern", json!(value)), pattern)));
    cases.push((consul_and("keyTemplate", json!("locks/{namespace}")), "keyTemplate must contain {name}"));
    let same = "keyPattern and keyTemplate must begin with the same fixed part";
    cases.push((consul_and("keyPattern", json!("service/{namespace}/*")), same));
    let mut both = consul_and("keyTemplate", json!("locks/{name}"));
    both["keyPattern"] = json!("services/*");
    cases.push((both, same));
    let mut record = consul(&json!({"record": "LeaderName"}));
    record["keyTemplate"] = json!("locks/{name}/record");
    cases.push((record, "keyTemplate ends with /record"));
    let wrong = not_refused(&classes, "bad", cases).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_class_may_say_is_accepted() {
    let classes: Api<ElectionClass> = Api::all(Cluster::shared().client().await);
    let mut all = consul(&json!({
        "address": "https://10.0.0.1:8501/", "clusterName": "w", "datacenter": "dc1", "namespace": "team-a",
        "partition": "default", "tls": {
            "caSecretRef": {"namespace": "lictor", "name": "consul-ca", "key": "tls.crt"}, "certSecretRef": {"name": "client"},
            "serverName": "server.dc1.consul",
        },
        "tokenSecretRef": {"name": "consul.token", "key": "token"}, "node": {"name": "k8s.west_1"},
        "sessions": {"count": 16, "ttlSeconds": 86400, "lockDelaySeconds": 0}, "record": "LeaderName",
        "whenClusterIsLost": {"policy": "Release", "releaseAfterSeconds": 10}, "whenOperatorStops": "Release",
    }));
    all["keyTemplate"] = json!("a.b_c-1/{namespace}/x-{name}.lock/.lock");
    all["keyPattern"] = json!("a.b_c-1/{namespace}/*");
    let specs = [
        all,
        bucket(&json!({})),
        bucket(&json!({
            "url": "s3://locks.example/a_b/c=1.d", "region": "eu-central-1", "endpoint": "http://[::1]:9000/",
            "secretRef": {"namespace": "lictor", "name": "minio"}, "sessions": {"ttlSeconds": 86400, "pollSeconds": 28800},
            "whenClusterIsLost": {"policy": "Release"}, "whenOperatorStops": "Release",
        })),
        bucket(&json!({"url": "gs://locks", "sessions": {"ttlSeconds": 5}})),
        bucket(&json!({
            "url": "az://locks@account1.blob.core.windows.net/lictor",
            "endpoint": "http://azurite.example:10000/account1",
        })),
        consul(&json!({})),
        consul(&json!({"address": "http://[::1]:8500"})),
        consul(&json!({"address": "https://consul.example", "tls": {}})),
        consul(&json!({
            "address": "https://consul.example:8501", "node": {"useAgent": true}, "login": {"authMethodName": "kubernetes"},
        })),
        consul(&json!({"address": "http://[::1]:8500", "login": {"authMethodName": "kubernetes"}})),
        consul(&json!({"address": "http://localhost:8500", "login": {"authMethodName": "kubernetes"}})),
        consul_and("keyPattern", json!("services/*")),
        consul(&json!({"servicePattern": "{namespace}-{name}-*"})),
        json!({"lease": {}, "allowedWorkloads": "None"}),
        consul_and("keyTemplate", json!(format!("{}/{{name}}", "x".repeat(505)))),
        json!({"lease": {}}),
        json!({"lease": {}, "keyTemplate": "{namespace}.{name}-leader", "keyPattern": "*"}),
    ];
    for spec in specs {
        assert_eq!(dry_run(&classes, "good", &spec).await, Ok(()), "{spec}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_the_locks_of_a_class_can_not_be_changed() {
    let classes: Api<ElectionClass> = Api::all(Cluster::shared().client().await);
    let apply = async |name: &str, spec: &Value| {
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": name}, "spec": spec,
        });
        classes.patch(name, &PatchParams::apply("test"), &Patch::Apply(object)).await.expect("a class can be applied");
    };
    let (lease, of_consul, of_bucket) = ("immutable-lease", "immutable-consul", "immutable-bucket");
    apply(lease, &json!({"lease": {}})).await;
    apply(of_consul, &consul(&json!({"datacenter": "dc1"}))).await;
    apply(of_bucket, &bucket(&json!({}))).await;
    let (store, template) = ("the store of a class can't be changed", "keyTemplate can't be changed");
    let place = "datacenter, namespace, partition and record of consul can't be changed";
    let template_is = |value: &str| {
        let mut spec = consul(&json!({"datacenter": "dc1"}));
        spec["keyTemplate"] = json!(value);
        spec
    };
    let mut wrong = not_refused(
        &classes,
        lease,
        [(consul(&json!({})), store), (json!({"lease": {}, "keyTemplate": "{name}-leader"}), template)],
    )
    .await;
    let cases = [
        (json!({"lease": {}}), store),
        (template_is("services/{name}"), template),
        (consul(&json!({"datacenter": "dc1", "clusterName": "east"})), "consul.clusterName can't be changed"),
        (consul(&json!({"datacenter": "dc1", "node": {"name": "other"}})), "consul.node can't be changed"),
        (consul(&json!({"datacenter": "dc2"})), place),
        (consul(&json!({})), place),
        (consul(&json!({"datacenter": "dc1", "namespace": "a"})), place),
        (consul(&json!({"datacenter": "dc1", "partition": "a"})), place),
        (consul(&json!({"datacenter": "dc1", "record": "LeaderName"})), place),
    ];
    wrong.extend(not_refused(&classes, of_consul, cases).await);
    wrong.extend(not_refused(&classes, of_consul, [(bucket(&json!({})), store)]).await);
    let cases = [
        (json!({"lease": {}}), store),
        (consul(&json!({})), store),
        (bucket(&json!({"url": "s3://locks/other"})), "bucket.url can't be changed"),
        (bucket(&json!({"clusterName": "east"})), "bucket.clusterName can't be changed"),
    ];
    wrong.extend(not_refused(&classes, of_bucket, cases).await);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The same in other words, and changes that name no lock.
    let same = [
        (lease, json!({"lease": {}, "keyTemplate": "{name}", "keyPattern": "*"})),
        (of_consul, template_is("services/{namespace}/{name}/leader")),
        (
            of_consul,
            consul(&json!({"datacenter": "dc1", "address": "https://other.example", "sessions": {"count": 2}})),
        ),
        (of_bucket, bucket(&json!({"region": "eu-central-1", "endpoint": "https://other.example"}))),
    ];
    for (name, spec) in same {
        assert_eq!(dry_run(&classes, name, &spec).await, Ok(()), "{spec}");
    }
    for name in [lease, of_consul, of_bucket] {
        classes.delete(name, &DeleteParams::default()).await.expect("it can be deleted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_operator_can_know_is_told_by_the_condition_accepted() {
    let lab = Lab::new("not-accepted").await;
    let _operator = lab.operator(&[]);
    healthy_neighbour(&lab).await;
    other_pod(&lab, "x").await;

    // A class that does not exist. The election works as soon as it names one that does.
    elect_other(&lab, "class", json!({"className": "gold"})).await;
    let message = lab.wait_condition("class", "Accepted", "False", "UnknownClass").await;
    assert!(
        message.contains("\"gold\"") && message.contains("lease") && message.contains("spec.className"),
        "{message}"
    );
    lab.wait_event("LeaderElection", "class", "UnknownClass").await;
    elect_other(&lab, "class", json!({"className": "lease"})).await;
    lab.wait_condition("class", "Elected", "True", "Elected").await;
    lab.delete_election("class").await;

    // A key that the class does not allow.
    let classes: Api<ElectionClass> = Api::all(lab.client.clone());
    let class = format!("strict-{}", lab.namespace);
    let object = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {"name": class},
        "spec": {"lease": {}, "keyPattern": "{name}-*", "allowedWorkloads": "Existing"},
    });
    let object = serde_json::from_value(object).expect("a class");
    classes.create(&PostParams::default(), &object).await.expect("a class can be made");
    elect_other(&lab, "key", json!({"className": class, "key": "web"})).await;
    let message = lab.wait_condition("key", "Accepted", "False", "KeyNotAllowed").await;
    assert!(message.contains("\"key-*\"") && message.contains("leave spec.key out"), "{message}");
    elect_other(&lab, "key", json!({"className": class, "key": "key-1"})).await;
    lab.wait_condition("key", "Elected", "True", "Elected").await;

    // A workload that the class does not allow.
    let made = json!({"kind": "Job", "name": "made", "jobTemplate": {"spec": {"template": {}}}});
    elect_other(&lab, "key", json!({"className": class, "key": "key-1", "workloads": [made]})).await;
    let message = lab.wait_condition("key", "Stalled", "True", "WorkloadsNotAllowed").await;
    assert!(message.contains("Job/made with a jobTemplate") && message.contains("spec.allowedWorkloads"), "{message}");
    lab.delete_election("key").await;
    classes.delete(&class, &DeleteParams::default()).await.expect("it can be deleted");

    // A key that an older election has.
    elect_other(&lab, "web-taken", json!({"key": "web"})).await;
    let message = lab.wait_condition("web-taken", "Accepted", "False", "KeyTaken").await;
    assert!(message.contains(&format!("{}/web", lab.namespace)) && message.contains("another spec.key"), "{message}");
    assert_fails_over(&lab).await;
    elect_other(&lab, "web-taken", json!({"key": "free"})).await;
    lab.wait_condition("web-taken", "Elected", "True", "Elected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_somebody_else_made_is_left_alone() {
    let lab = Lab::new("foreign-lock").await;
    let _operator = lab.operator(&[]);
    healthy_neighbour(&lab).await;
    other_pod(&lab, "x").await;
    let lease = json!({
        "metadata": {"name": "other"}, "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 1, "leaseTransitions": 7},
    });
    let lease: Lease = serde_json::from_value(lease).expect("a Lease");
    let made = lab.leases_api().create(&PostParams::default(), &lease).await.expect("a Lease can be made");
    elect_other(&lab, "other", json!({})).await;
    let message = lab.wait_condition("other", "Elected", "False", "LockNotOurs").await;
    for part in [&format!("{}/other", lab.namespace), "held by somebody", "delete it", "spec.key"] {
        assert!(message.contains(part), "{message}");
    }
    assert_fails_over(&lab).await;
    let found = lab.leases_api().get("other").await.expect("the Lease exists");
    assert_eq!(found.resource_version(), made.resource_version());
    assert!(!lab.pods_api().get("x").await.expect("the pod exists").labels().contains_key("role"));
    lab.leases_api().delete("other", &DeleteParams::default()).await.expect("it can be deleted");
    lab.wait_condition("other", "Elected", "True", "Elected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_somebody_wrote_nonsense_into_keeps_nobody_from_being_served() {
    let lab = Lab::new("odd-status").await;
    let mut operator = Some(lab.operator(&[]));
    healthy_neighbour(&lab).await;
    // The values have the types that the CRD requires, but make no sense.
    let nonsense = json!({"status": {
        "term": i64::MAX, "candidates": {"total": 5_000_000_000_i64, "eligible": 0, "summary": ""},
        "leader": {"acquireTime": "2026-01-01T00:00:00x5Z"},
        "workloads": {"windDownSeconds": 5_000_000_000_i64},
        "conditions": [{
            "type": "Elected", "status": "True", "reason": "Elected", "message": "", "lastTransitionTime": "2026-01-01T00:00:00+99:99",
        }],
    }});
    for name in ["while-it-runs", "before-it-starts"] {
        if name == "before-it-starts" {
            operator = None;
        }
        let elections = lab.elections_api();
        let written = elections.patch_status("web", &PatchParams::default(), &Patch::Merge(&nonsense)).await;
        // This client can't read what is written, either.
        assert!(!matches!(written, Err(kube::Error::Api(_))), "{written:?}");
        operator = operator.or_else(|| Some(lab.operator(&[])));
        other_pod(&lab, name).await;
        elect_other(&lab, name, json!({})).await;
        lab.wait_condition(name, "Elected", "True", "Elected").await;
        elections.delete(name, &DeleteParams::default()).await.expect("it can be deleted");
        assert_fails_over(&lab).await;
        lab.wait_condition("web", "Elected", "True", "Elected").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_priority_counts_as_none_and_is_told() {
    let lab = Lab::new("malformed").await;
    let _operator = lab.operator(&[]);
    for (name, priority) in [("a", "-1"), ("b", "very high"), ("c", "-1")] {
        let annotations = json!({"lictor.dev/priority": priority});
        lab.pod(name, PodSpec { annotations, ..PodSpec::default() }).await;
        lab.wait_ready(name, true).await;
    }
    lab.elect(json!({})).await;
    lab.wait_leader("b").await;
    for (kind, name) in [("LeaderElection", "web"), ("Pod", "b")] {
        let note = lab.wait_event(kind, name, "MalformedAnnotation").await;
        assert!(note.contains("\"very high\"") && note.contains("write for example"), "{note}");
    }
    lab.kill_pod("b").await;
    lab.wait_any_leader().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own"]
async fn without_the_crds_the_operator_says_how_to_install_them_and_waits() {
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&format!("bare-{}", std::process::id()), 1)));
    let lab = Lab::of(cluster, "bare").await;
    let mut operator = lab.operator(&[]);
    let install = "install the CRDs with `lictor crd | kubectl apply -f -`";
    let waits = eventually("/readyz says what is missing", || async {
        let (status, text) = operator.get("/readyz").await;
        if status == 503 && text.contains(install) { Ok(text) } else { Err(text) }
    });
    let waits = waits.await;
    assert!(waits.contains("leaderelections"), "{waits}");
    assert_eq!(operator.get("/healthz").await, (200, "ok\n".to_owned()));
    let kinds = ["leaderelections", "electionclasses", "switchovers"];
    for kind in kinds {
        operator.logs(&format!("the cluster does not know {kind}: {install}")).await;
    }
    // The operator tries again and again, but reports it once. The metric shows that it has tried again.
    eventually("it looks again", || async {
        let failures = operator.metric("lictor_api_errors_total{resource=\"leaderelections\"").await;
        if failures >= Some(3.0) { Ok(()) } else { Err(format!("{failures:?}")) }
    })
    .await;
    for kind in kinds {
        assert_eq!(
            operator.log().matches(&format!("\"message\":\"the cluster does not know {kind}")).count(),
            1,
            "{}",
            operator.log()
        );
    }

    cluster.install_crds();
    healthy_neighbour(&lab).await;
    assert_eq!(operator.get("/readyz").await.0, 200);

    // This control plane has no other tests, so a test may mark classes as the default here.
    let classes: Api<ElectionClass> = Api::all(lab.client.clone());
    let default_class = async |name: &str, default: &str| {
        let object = json!({
            "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass",
            "metadata": {"name": name, "annotations": {"lictor.dev/is-default-class": default}},
            "spec": {"lease": {}, "keyTemplate": format!("{name}.{{name}}")},
        });
        let parameters = PatchParams::apply("test").force();
        classes.patch(name, &parameters, &Patch::Apply(object)).await.expect("a class can be applied");
    };
    default_class("gold", "true").await;
    other_pod(&lab, "x").await;
    elect_other(&lab, "other", json!({})).await;
    lab.wait_status("other", "the default class serves it", |election| {
        let status = election.status.clone().unwrap_or_default();
        status.class_name.as_deref() == Some("gold") && status.leader.is_some()
    })
    .await;
    assert!(lab.leases_api().get("gold.other").await.is_ok(), "its lock is named as the class says");
    default_class("silver", "true").await;
    for name in ["web", "other"] {
        let message = lab.wait_condition(name, "Accepted", "False", "AmbiguousDefaultClass").await;
        assert!(message.contains("gold, silver") && message.contains("spec.className"), "{message}");
    }
    default_class("silver", "false").await;
    for name in ["web", "other"] {
        lab.wait_condition(name, "Accepted", "True", "Accepted").await;
    }
    assert_fails_over(&lab).await;

    // Only the youngest kind is missing, as after an upgrade that left the CRDs alone.
    cluster.kubectl(&["delete", "crd", "switchovers.lictor.dev"]);
    assert!(operator.stop().await.success());
    let operator = lab.operator(&[]);
    let missing = format!("the cluster does not know switchovers: {install}");
    operator.logs(&missing).await;
    eventually("it is ready all the same", || async {
        let (status, text) = operator.get("/readyz").await;
        if status == 200 { Ok(()) } else { Err(text) }
    })
    .await;
    assert_fails_over(&lab).await;
    eventually("it looks again", || async {
        let failures = operator.metric("lictor_api_errors_total{resource=\"switchovers\"").await;
        if failures >= Some(3.0) { Ok(()) } else { Err(format!("{failures:?}")) }
    })
    .await;
    assert_eq!(operator.log().matches(&missing).count(), 1, "{}", operator.log());
    cluster.install_crds();
    let switchover = json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "Switchover", "metadata": {"name": "late"},
        "spec": {"electionName": "nobody", "fromTerm": 1},
    });
    lab.try_kubectl(&["create", "-f", "-"], Some(&switchover.to_string())).expect("it can be made");
    lab.try_kubectl(&["wait", "--for=condition=Failed", "swo/late", "--timeout=60s"], None).expect("it is looked at");
}

async fn is_not_ready(operator: &Operator, says: &[&str]) {
    eventually(&format!("/readyz says {says:?}"), || async {
        let (status, text) = operator.get("/readyz").await;
        if status == 503 && says.iter().all(|part| text.contains(part)) { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_the_operator_says_what_to_grant_and_waits() {
    let lab = Lab::new("no-rights").await;
    let user = User::new(&lab).await;
    let operator = user.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    is_not_ready(&operator, &["not allowed to list leases", "grant it"]).await;
    for resource in ["pods", "leaderelections", "leases", "nodes", "electionclasses", "switchovers"] {
        operator.logs(&format!("not allowed to list {resource}")).await;
    }
    assert_eq!(operator.get("/healthz").await.0, 200);
    // Then it may use its own Lease, and nothing else.
    user.may(|_, resource| resource == "leases").await;
    is_not_ready(&operator, &["not allowed to list pods", "not allowed to list leaderelections"]).await;
    user.may(|_, _| true).await;
    lab.wait_any_leader().await;
    assert_eq!(operator.get("/readyz").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_patch_pods_the_condition_says_so() {
    let lab = Lab::new("no-patch").await;
    let user = User::new(&lab).await;
    user.may(|verb, resource| (verb, resource) != ("patch", "pods")).await;
    let _operator = user.operator(&[]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let message = lab.wait_condition("web", "Elected", "False", "HandoverFails").await;
    assert!(message.contains("not allowed to patch pods") && message.contains("grant it"), "{message}");
    user.may(|_, _| true).await;
    lab.wait_any_leader().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
    user.may(|verb, resource| (verb, resource) != ("patch", "pods")).await;
    lab.pod("c", PodSpec::default()).await;
    let message = lab.wait_condition("web", "Elected", "True", "LabellingFails").await;
    assert!(message.contains("not allowed to patch pods") && message.contains("grant it"), "{message}");
    user.may(|_, _| true).await;
    lab.wait_any_leader().await;
    lab.wait_condition("web", "Elected", "True", "Elected").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_in_one_of_two_namespaces_are_enough_there() {
    let (lab, other) = (Lab::new("rights-here").await, Lab::new("rights-there").await);
    let user = User::new(&lab).await;
    user.may(|_, _| true).await;
    let operator = user.operator(&["--namespaces", &format!("{},{}", lab.namespace, other.namespace)]);
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    lab.wait_any_leader().await;
    assert_fails_over(&lab).await;
    operator.logs(&format!("in the namespace \\\"{}\\\"", other.namespace)).await;
    is_not_ready(&operator, &["not allowed to list pods", &other.namespace]).await;
}
