//! What `kubectl apply` makes of an election that exists.

use kube::api::Patch;
use lictor_api::LeaderElection;
use serde_json::{Map, Value, json};

/// Where kubectl keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the patch that applies an object, as kubectl does: it also takes out what the object had when it was applied
/// last, and has no more. `current`: the election, if it exists.
pub(super) fn patch(object: &Value, current: Option<&LeaderElection>) -> Patch<Value> {
    let Some(current) = current else {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        return Patch::Apply(object);
    };
    let last = current.metadata.annotations.as_ref().and_then(|all| all.get(LAST_APPLIED));
    let last = last.and_then(|text| serde_json::from_str::<Value>(text).ok()).unwrap_or_default();
    let spec = |object: &Value| object.get("spec").cloned().unwrap_or_else(|| json!({}));
    let mut wanted = spec(object);
    take_out(&spec(&last), &mut wanted);
    Patch::Merge(json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "spec": wanted}))
}

/// Sets what only the last object had to null, which removes it.
fn take_out(last: &Value, wanted: &mut Value) {
    let (Value::Object(last), Value::Object(wanted)) = (last, wanted) else { return };
    for (key, value) in last {
        match wanted.get_mut(key) {
            Some(inner) => take_out(value, inner),
            None => drop(wanted.insert(key.clone(), Value::Null)),
        }
    }
}

/// Returns each field that differs, with its value before and after.
pub(super) fn differences(before: &LeaderElection, after: &LeaderElection) -> Vec<String> {
    let mut found = Vec::new();
    compare("spec", &json!(before.spec), &json!(after.spec), &mut found);
    found
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    if before == after {
        return;
    }
    let none = Map::new();
    match (before, after) {
        (Value::Object(_) | Value::Null, Value::Object(_) | Value::Null) => {
            let (before, after) = (before.as_object().unwrap_or(&none), after.as_object().unwrap_or(&none));
            let added = after.keys().filter(|key| !before.contains_key(*key));
            for key in before.keys().chain(added) {
                let value = |all: &Map<String, Value>| all.get(key).cloned().unwrap_or_default();
                compare(&format!("{path}.{key}"), &value(before), &value(after), found);
            }
        }
        _ => found.push(format!("{path}: {} becomes {}", shown(before), shown(after))),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election(spec: &Value, applied: Option<&Value>) -> LeaderElection {
        let annotations = applied.map(|spec| json!({LAST_APPLIED: json!({"spec": spec}).to_string()}));
        let metadata =
            json!({"name": "web", "namespace": "shop", "annotations": annotations.unwrap_or_else(|| json!({}))});
        let object =
            json!({"apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": metadata, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_was_applied_before_and_is_no_more_is_taken_out() {
        let last = json!({"selector": {"matchLabels": {"app": "web", "tier": "a"}}, "preemption": "Never"});
        // A person has paused it since.
        let mut present = last.clone();
        present["paused"] = json!(true);
        let object = json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}});
        let Patch::Merge(patch) = patch(&object, Some(&election(&present, Some(&last)))) else { panic!("a merge") };
        let expected = json!({"selector": {"matchLabels": {"app": "web", "tier": null}}, "preemption": null});
        assert_eq!(patch["spec"], expected);
        assert!(matches!(super::patch(&object, None), Patch::Apply(_)));
    }

    #[test]
    fn each_field_that_differs_is_named() {
        let before =
            election(&json!({"selector": {"matchLabels": {"app": "web"}}, "preemption": "HigherPriority"}), None);
        let after = election(&json!({"selector": {"matchLabels": {"app": "shop"}}, "service": {"name": "a"}}), None);
        let found = differences(&before, &after);
        assert_eq!(found[0], r#"spec.preemption: "HigherPriority" becomes "Never""#, "{found:?}");
        assert!(found.contains(&r#"spec.selector.matchLabels.app: "web" becomes "shop""#.to_owned()), "{found:?}");
        assert!(found.contains(&r#"spec.service.name: nothing becomes "a""#.to_owned()), "{found:?}");
        assert_eq!(differences(&before, &before), [""; 0]);
    }
}
