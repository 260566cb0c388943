//! Valid objects, as the API server has them.

use serde_json::{Value, json};

pub fn metadata(name: &str) -> Value {
    json!({
        "name": name, "namespace": "shop", "uid": format!("uid of {name}"), "resourceVersion": "12", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    })
}

pub fn pod(name: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["labels"] = json!({"app": "web", "role": "leader"});
    metadata["annotations"] = json!({"lictor.dev/term": "7", "lictor.dev/election": "web", "lictor.dev/priority": "1"});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": "n", "containers": [{
            "name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 8080}],
            "readinessProbe": {"httpGet": {"path": "/", "port": "web", "httpHeaders": [{"name": "a", "value": "b"}]}},
        }]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:02Z"},
        ]},
    })
}

pub fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(name),
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.0.0.9", "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}],
        },
    })
}

pub fn slice(name: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["labels"] = json!({
        "kubernetes.io/service-name": "web-leader", "endpointslice.kubernetes.io/managed-by": "lictor.dev",
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "targetRef": {"kind": "Pod", "name": "a"}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

pub fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata(name),
        "spec": {"unschedulable": true, "taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}]},
    })
}

/// Makes an election with every field.
pub fn election(name: &str) -> Value {
    json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": metadata(name),
        "spec": {
            "className": "gold", "key": "services/shop/web/leader",
            "selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [{"key": "canary", "operator": "In", "values": ["a"]}],
            },
            "leader": {"labels": {"role": "leader"}, "annotations": {"example.com/since": "election"}},
            "follower": {"labels": {"role": "follower"}},
            "eligibility": {"requireReady": true, "minReadySeconds": 3, "conditions": ["example.com/caught-up"]},
            "preferences": [{"weight": 10, "zone": "eu-1a"}, {"weight": 5, "nodeSelector": {"disk": "ssd"}}, {"byAnnotation": "example.com/lag", "order": "Lowest"}, {"spread": {"group": "shards", "topologyKey": "topology.kubernetes.io/zone"}}],
            "preemption": "HigherPriority",
            "handover": {"order": "DemoteFirst", "failoverDelaySeconds": 4},
            "probe": {
                "httpGet": {
                    "path": "/leader", "port": "web", "scheme": "HTTPS", "host": "web.example",
                    "httpHeaders": [{"name": "X-Role", "value": "leader"}],
                },
                "grpc": {"port": 9000, "service": "web"}, "connection": {"port": "web"},
                "likeReadiness": {"periodSeconds": 1, "failureThreshold": 3}, "periodSeconds": 2,
            },
            "sharedStore": {"whenLost": "Demote", "consulService": {"name": "web", "port": 80}}, "service": {
                "name": "web-leader", "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}],
                "type": "ClusterIP", "labels": {"a": "b"}, "annotations": {"c": "d"}, "ipFamilyPolicy": "SingleStack",
                "ipFamilies": ["IPv4"],
            },
            "workloads": [
                {"kind": "CronJob", "name": "report", "whenDisabled": "Suspend"},
                {"kind": "Deployment", "name": "importer", "replicas": 2, "whenReleased": "Restore"},
                {"kind": "Job", "name": "settle", "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}}},
            ],
            "paused": false,
        },
        "status": election_status(),
    })
}

pub fn election_status() -> Value {
    json!({
        "observedGeneration": 3, "className": "gold", "term": 7, "worstCaseFailoverSeconds": 15,
        "leader": {"name": "a", "podName": "a", "podUID": "u", "clusterName": "west", "nodeName": "n", "podIP": "10.0.0.1", "acquireTime": "2026-01-01T00:00:00Z"},
        "candidates": {"total": 3, "eligible": 2, "summary": "2/3"},
        "workloads": {"windDownSeconds": 30, "items": [{"kind": "CronJob", "name": "report", "state": "Enabled"}]},
        "conditions": [{
            "type": "Elected", "status": "True", "reason": "Elected", "message": "", "observedGeneration": 3,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
        "history": [{"term": 7, "leaderName": "a", "previousLeaderName": "b", "reason": "Vacant", "completionTime": "2026-01-01T00:00:00Z", "durationMilliseconds": 5}],
    })
}

/// Makes a class with every field.
pub fn class(name: &str) -> Value {
    json!({
        "apiVersion": "lictor.dev/v1alpha1", "kind": "ElectionClass", "metadata": {
            "name": name, "uid": "u", "resourceVersion": "12", "annotations": {"lictor.dev/is-default-class": "true"},
        },
        "spec": {
            "controller": "lictor.dev/operator", "keyTemplate": "services/{namespace}/{name}/leader", "keyPattern": "services/*",
            "followPattern": "services/*", "allowedNamespaces": {"names": ["shop"]}, "allowedWorkloads": "All",
            "consul": {
                "address": "https://consul.example:8501", "clusterName": "west", "datacenter": "dc1", "namespace": "a", "partition": "b",
                "tls": {"caSecretRef": {"namespace": "x", "name": "ca", "key": "k"}, "certSecretRef": {"name": "c"}, "serverName": "s"},
                "tokenSecretRef": {"name": "t"}, "servicePattern": "{name}",
                "node": {"name": "lictor-west", "useAgent": false},
                "sessions": {"count": 2, "ttlSeconds": 15, "lockDelaySeconds": 1},
                "record": "Record", "whenClusterIsLost": {"policy": "Release", "releaseAfterSeconds": 60}, "whenOperatorStops": "Hold",
            },
        },
        "status": {
            "observedGeneration": 3, "consul": {"version": "1.20.0", "nodeName": "n", "sessions": ["s"]},
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// Makes a class in a bucket with every field.
pub fn class_in_a_bucket(name: &str) -> Value {
    let mut class = class(name);
    class["spec"]["consul"] = Value::Null;
    class["spec"]["bucket"] = json!({
        "url": "s3://locks/lictor", "region": "eu-central-1", "endpoint": "https://minio.example:9000", "clusterName": "west",
        "secretRef": {"namespace": "x", "name": "s"}, "sessions": {"ttlSeconds": 15, "pollSeconds": 1},
        "whenClusterIsLost": {"policy": "Release", "releaseAfterSeconds": 60}, "whenOperatorStops": "Hold",
    });
    class["status"]["consul"] = Value::Null;
    class["status"]["bucket"] = json!({"session": "s", "clusters": [{"name": "east", "live": true}]});
    class
}

pub fn record() -> Value {
    json!({
        "term": 7, "holder": {"pod": "a", "uid": "uid of a", "node": "n", "ip": "10.0.0.1"}, "operatorId": "lictor.dev/operator#me",
        "since": 1_700_000_000_000_i64, "election": "uid of web", "generation": 3,
        "scope": {
            "selector": {"matchLabels": {"app": "web"}}, "leader": {"labels": {"role": "leader"}},
            "follower": {"labels": {"role": "follower"}},
        },
        "former": [{
            "selector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]},
            "leader": {"labels": {"active": "true"}, "annotations": {"a": "b"}}, "follower": {},
        }],
        "drainObligation": {"windDownSeconds": 30, "waitsSeconds": 5, "ticks": {"report": 1_700_000_000_000_i64}},
    })
}

/// Makes a lock with this text as its record.
pub fn lease(name: &str, record: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["labels"] = json!({"app.kubernetes.io/managed-by": "lictor", "lictor.dev/election-uid": "uid of web"});
    metadata["annotations"] = json!({"lictor.dev/record": record});
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
        "spec": {"holderIdentity": "a", "leaseTransitions": 7, "acquireTime": "2026-01-01T00:00:00.000000Z"},
    })
}

pub fn workload(kind: &str, name: &str) -> Value {
    let mut metadata = metadata(name);
    metadata["annotations"] = json!({
        "lictor.dev/election": "web", "lictor.dev/enabled": "true", "lictor.dev/term": "7", "lictor.dev/written-by": "me/4",
        "lictor.dev/kept": "2", "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T00:00:00Z",
    });
    let template = json!({"spec": {"terminationGracePeriodSeconds": 30, "containers": []}});
    json!({
        "apiVersion": if kind.ends_with("Job") { "batch/v1" } else { "apps/v1" }, "kind": kind, "metadata": metadata,
        "spec": {
            "replicas": 3, "suspend": true, "schedule": "* * * * *", "selector": {"matchLabels": {"app": "x"}},
            "template": template, "jobTemplate": {"spec": {"template": template}}, "podManagementPolicy": "Parallel",
        },
        "status": {
            "observedGeneration": 3, "replicas": 3, "active": 1, "terminating": 0, "lastScheduleTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Available", "status": "True"}],
        },
    })
}

/// Makes a list, with which a watch begins.
pub fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "20"}, "items": items})
}
