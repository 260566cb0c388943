//! Tests without a cluster: lint, snapshots, refusals, and what must agree with the rest of the repository.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::helm::{CHART, Values, arguments, find, helm, objects, template, template_alone};

/// Returns the values files of the snapshots, by name.
pub fn cases() -> Vec<(String, PathBuf)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart/snapshots");
    let entries = directory.read_dir().expect("the directory can be read").map(|entry| entry.unwrap().path());
    let name = |path: &Path| Some(path.file_name()?.to_str()?.strip_suffix(".values.yaml")?.to_owned());
    let mut cases: Vec<_> = entries.filter_map(|path| Some((name(&path)?, path))).collect();
    cases.sort();
    assert!(cases.len() >= 5, "{cases:?}");
    cases
}

#[test]
fn what_is_made_is_what_is_written() {
    let bless = std::env::var_os("LICTOR_BLESS").is_some();
    for (name, values) in cases() {
        let made =
            template(&std::fs::read_to_string(&values).unwrap(), &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let file = values.with_file_name(format!("{name}.yaml"));
        if bless {
            std::fs::write(&file, &made).unwrap();
            continue;
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        let line = made.lines().zip(written.lines()).take_while(|(made, written)| made == written).count();
        assert!(
            made == written,
            "tests/chart/snapshots/{name}.yaml:{}:\n- {}\n+ {}\nLICTOR_BLESS=1 cargo test --test chart writes it",
            line + 1,
            written.lines().nth(line).unwrap_or("(its end)"),
            made.lines().nth(line).unwrap_or("(its end)"),
        );
    }
}

#[test]
fn lint_finds_nothing() {
    for (name, values) in cases() {
        let values = values.to_str().unwrap();
        let told = helm(None, &["lint", "--strict", CHART, "--kube-version", "1.33.0", "--values", values]);
        let told = told.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(told.contains("0 chart(s) failed"), "{name}: {told}");
    }
}

/// Another chart may have this one as an optional dependency.
#[test]
fn a_chart_that_depends_on_this_one_switches_it_off() {
    let directory = std::env::temp_dir().join(format!("lictor-umbrella-{}", std::process::id()));
    let parent = |condition: &str| {
        let text = format!(
            "apiVersion: v2\nname: shop\nversion: 1.0.0\ndependencies:\n- {{name: lictor, version: '>=0.0.0-0', \
             repository: 'file://{CHART}'{condition}}}\n"
        );
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("Chart.yaml"), text).unwrap();
        helm(None, &["dependency", "update", directory.to_str().unwrap()]).unwrap();
    };
    let made = |enabled: bool| {
        let set = format!("lictor.enabled={enabled}");
        helm(None, &["template", "shop", directory.to_str().unwrap(), "--kube-version", "1.33.0", "--set", &set])
    };
    parent(", condition: lictor.enabled");
    assert!(made(true).unwrap().contains("kind: Deployment"));
    assert!(!made(false).unwrap().contains("kind:"), "nothing of it is left");
    parent("");
    let refused = made(false).unwrap_err();
    assert!(refused.contains("write condition: lictor.enabled"), "{refused}");
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Where the class looks for it by default, in every pod that may log in.
#[test]
fn the_operator_has_a_token_for_consul_alone() {
    let all = objects(&template("consulLogin: {audience: consul}", &[]).unwrap());
    let pods = all.iter().filter(|one| one["kind"] == "Deployment" || one["kind"] == "Job");
    let specs: Vec<&Value> = pods.map(|one| &one["spec"]["template"]["spec"]).collect();
    assert!(specs.len() > 1, "the hooks, too: {}", specs.len());
    for spec in specs {
        let token = &spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"];
        assert_eq!((&token["audience"], &token["path"]), (&"consul".into(), &"token".into()), "{spec}");
        let mount = &spec["containers"][0]["volumeMounts"][0];
        assert_eq!(mount["mountPath"], "/var/run/secrets/lictor.dev/consul", "{spec}");
        assert_eq!((&mount["name"], &mount["readOnly"]), (&spec["volumes"][0]["name"], &true.into()));
    }
    let without = template("", &[]).unwrap();
    assert!(!without.contains("serviceAccountToken"), "nobody has one who does not ask for it");
}

/// Wrong values, and the words of each refusal.
const NONSENSE: &[(&str, &str)] = &[
    ("replica: 2", "additional properties 'replica' not allowed"),
    ("image: {tags: v1}", "at '/image': additional properties 'tags' not allowed"),
    ("consulLogin: {audience: 'https://kubernetes.default.svc'}", "at '/consulLogin/audience': 'not' failed"),
    ("enabled: 'no'", "at '/enabled': got string, want boolean"),
    ("enabled: false", "enabled is false, and the chart is installed all the same"),
    ("replicas: 2", "additional properties 'replicas' not allowed"),
    ("replicaCount: 0", "at '/replicaCount': minimum: got 0, want 1"),
    ("replicaCount: two", "at '/replicaCount': got string, want integer"),
    ("image: {digest: latest}", "at '/image/digest': 'latest' does not match pattern"),
    ("image: {repository: 'lictor:v1'}", "at '/image/repository': 'lictor:v1' does not match pattern"),
    (
        "image: {pullPolicy: Sometimes}",
        "at '/image/pullPolicy': value must be one of 'Always', 'IfNotPresent', 'Never'",
    ),
    ("leaseDuration: 15", "at '/leaseDuration': got number, want string"),
    ("leaseDuration: 1s", "leaseDuration is \"1s\": write seconds from 3s to 300s"),
    ("controller: Example", "controller is \"Example\": it may have lower-case letters"),
    ("namespaces: shop", "at '/namespaces': got string, want array"),
    ("namespaces: [Shop]", "namespaces has \"Shop\": a namespace has lower-case letters"),
    ("namespaces: [shop, shop]", "at '/namespaces': items at 0 and 1 are equal"),
    ("podWrites: {labels: ['a role']}", "podWrites has \"a role\", which is not a valid name of a label"),
    ("{namespaces: [shop], classes: [{name: a, spec: {lease: {}}}]}", "classes can't be used together with namespaces"),
    (
        "{namespaces: [shop], uninstall: {deleteCRDs: true}}",
        "uninstall.deleteCRDs can't be true together with namespaces",
    ),
    ("uninstall: {deleteCRDs: true, withdraw: false}", "uninstall.deleteCRDs needs uninstall.withdraw"),
    ("uninstall: {timeoutSeconds: 1}", "at '/uninstall/timeoutSeconds': minimum: got 1, want 10"),
    ("classes: [{name: a, spec: {}}]", "at '/classes/0/spec'"),
    ("classes: [{name: a, spec: {consul: {address: 'http://consul:8500'}}}]", "missing property 'clusterName'"),
    ("classes: [{name: a, spec: {bucket: {clusterName: west}}}]", "missing property 'url'"),
    ("classes: [{name: a, spec: {lease: {}, controller: me}}]", "at '/classes/0/spec/controller'"),
    ("secrets: [consul-token]", "at '/secrets/0': got string, want object"),
    ("serviceAccount: {create: false}", "write the name of the service account into serviceAccount.name"),
    ("serviceAccount: {create: false, name: default}", "serviceAccount.name is default"),
    (
        "metrics: {service: {enabled: false}, serviceMonitor: {enabled: true}}",
        "metrics.serviceMonitor.enabled needs metrics.service.enabled",
    ),
    ("policies: {operator: 'yes'}", "at '/policies/operator': got string, want null or boolean"),
    ("podDisruptionBudget: {maxUnavailable: 0}", "at '/podDisruptionBudget/maxUnavailable'"),
    ("podDisruptionBudget: {maxUnavailable: 0%}", "at '/podDisruptionBudget/maxUnavailable'"),
    ("podDisruptionBudget: {minAvailable: 1}", "set podDisruptionBudget.maxUnavailable instead"),
    ("image: {pullSecrets: [{name: a}]}", "at '/image': additional properties 'pullSecrets' not allowed"),
    ("imagePullSecrets: [registry]", "at '/imagePullSecrets/0': got string, want object"),
    ("global: {imageRegistry: 'https://mirror.example'}", "at '/global/imageRegistry'"),
    ("strategy: {type: BlueGreen}", "at '/strategy/type': value must be one of 'RollingUpdate', 'Recreate'"),
    ("livenessProbe: {httpGet: {path: /}}", "at '/livenessProbe': additional properties 'httpGet' not allowed"),
    ("livenessProbe: {periodSeconds: 0}", "at '/livenessProbe/periodSeconds': minimum: got 0, want 1"),
    ("extraArgs: [lease]", "at '/extraArgs/0': 'lease' does not match pattern"),
    (
        "extraArgs: ['--namespaces=shop']",
        "extraArgs has --namespaces, which comes from another value: set namespaces instead",
    ),
    ("extraArgs: ['--listen=0.0.0.0:9090']", "extraArgs has --listen, but probes, the Service"),
    ("extraEnv: [{name: LICTOR_LISTEN, value: '0.0.0.0:9090'}]", "extraEnv has LICTOR_LISTEN, but probes, the Service"),
    ("extraVolumeMounts: [{name: ca}]", "at '/extraVolumeMounts/0': missing property 'mountPath'"),
    ("extraObjects: [{kind: ConfigMap}]", "missing property 'apiVersion'"),
    (
        "commonLabels: {app.kubernetes.io/name: a}",
        "commonLabels has app.kubernetes.io/name, which the chart sets itself",
    ),
    ("podLabels: {app.kubernetes.io/instance: a}", "podLabels has app.kubernetes.io/instance, which the chart"),
    ("hooks: {podLabels: {app.kubernetes.io/name: a}}", "hooks.podLabels has app.kubernetes.io/name, which the chart"),
    ("commonAnnotations: {helm.sh/hook: test}", "commonAnnotations has helm.sh/hook, which means something on single"),
    (
        "metrics: {serviceMonitor: {interval: 1m, scrapeTimeout: 90s}}",
        "metrics.serviceMonitor.scrapeTimeout is 90s, which is longer than the interval of 1m",
    ),
    ("metrics: {serviceMonitor: {scrapeTimeout: 10}}", "at '/metrics/serviceMonitor/scrapeTimeout': got number"),
    ("rbac: {classViewerGroups: tenants}", "at '/rbac/classViewerGroups': got string, want array"),
];

#[test]
fn nonsense_is_refused_and_the_value_named() {
    let mut wrong = Vec::new();
    for (values, says) in NONSENSE {
        match template(values, &[]) {
            Ok(_) => wrong.push(format!("{values}\n  should say: {says}\n  is accepted")),
            Err(error) if error.contains(says) => {}
            Err(error) => wrong.push(format!("{values}\n  should say: {says}\n  says: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_chart_goes_with_the_program() {
    let chart: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(Path::new(CHART).join("Chart.yaml")).unwrap()).unwrap();
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&env!("CARGO_PKG_VERSION").into(), &env!("CARGO_PKG_VERSION").into())
    );
    let own = std::fs::read_to_string(Path::new(CHART).join("crds/lictor.dev.yaml")).unwrap();
    assert!(own == include_str!("../../crds/lictor.dev.yaml"), "charts/lictor/crds is out of date: make fix");
}

#[test]
fn the_program_understands_its_arguments() {
    for (name, values) in cases() {
        let made = objects(&template(&std::fs::read_to_string(&values).unwrap(), &[]).unwrap());
        let hooked =
            made.iter().filter(|object| ["Deployment", "Job", "Pod"].iter().any(|kind| object["kind"] == *kind));
        for object in hooked {
            let mut arguments = arguments(object);
            // The program prints its help only if it understands all arguments before.
            arguments.push("--help".into());
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_lictor")).args(&arguments).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: lictor {}: {error}", arguments.join(" "));
        }
    }
}

/// `kubectl apply` would make a hook like any other object: the withdrawal, for example, at once.
#[test]
fn what_is_rendered_without_an_api_server_has_no_hooks() {
    for (name, values) in cases() {
        let values = std::fs::read_to_string(&values).unwrap();
        let alone = objects(&template_alone(&values, &["--include-crds"]).unwrap());
        let hook = |object: &&Value| object["metadata"]["annotations"].get("helm.sh/hook").is_some();
        assert_eq!(alone.iter().find(hook), None, "{name}");
        let crds = alone.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
        assert_eq!(crds.count(), 3, "{name}");
        let installed = objects(&template(&values, &[]).unwrap());
        for hook in installed.iter().filter(hook) {
            assert_eq!(hook["metadata"]["annotations"]["argocd.argoproj.io/hook"], "Skip", "{name}: {hook}");
        }
        assert_eq!(alone.len() - 3, installed.iter().filter(|object| !hook(object)).count(), "{name}");
    }
}

/// Helm deletes a hook before it creates it again, and deleting such an object would delete all elections.
#[test]
fn no_class_and_no_crd_is_a_hook() {
    for (name, values) in cases() {
        let made = objects(&template(&std::fs::read_to_string(&values).unwrap(), &["--include-crds"]).unwrap());
        let precious = ["ElectionClass", "CustomResourceDefinition"];
        for object in made.iter().filter(|object| precious.iter().any(|kind| object["kind"] == *kind)) {
            let annotations = &object["metadata"]["annotations"];
            assert!(annotations.get("helm.sh/hook").is_none(), "{name}: {object}");
            assert_eq!(annotations["helm.sh/resource-policy"], "keep", "{name}: {object}");
            assert_eq!(annotations["argocd.argoproj.io/sync-options"], "Prune=false,Delete=false", "{name}: {object}");
        }
    }
    let values = Values::new("{}");
    let shown = helm(None, &["show", "values", CHART]).unwrap();
    assert!(shown.contains("deleteCRDs: false"), "{}", values.path());
    let upgrade = objects(&template("{}", &[]).unwrap());
    let rules = &find(&upgrade, "ClusterRole", ".upgrade")["rules"];
    assert_eq!(rules.as_array().map(Vec::len), Some(1), "{rules}");
    assert!(rules[0]["resourceNames"].is_array(), "{rules}");
}
