//! Elections and classes as anybody may write them: each is served, or refused with what to write instead.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lictor_api::{
    Claims, Classes, DEFAULT_CONTROLLER, ElectionClass, Kept, LeaderElection, Resolved, WhenReleased, resolve,
};
use lictor_core::{Scope, Selector, Setting, StoreId};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::config::config;
use crate::json::{changed, text};
use crate::objects;

/// Makes elections that can be read. The API server accepts hardly any others.
fn elections() -> BoxedStrategy<LeaderElection> {
    let key = prop_oneof![
        Just(Value::Null),
        Just(json!("services/shop/x/leader")),
        "[a-z./*{}-]{0,20}".prop_map(Value::from),
        text().prop_map(Value::from)
    ];
    let election = (changed(objects::election("web")), prop::option::of(key)).prop_map(|(mut election, key)| {
        if let (Some(key), Some(spec)) = (key, election["spec"].as_object_mut()) {
            spec.insert("key".into(), key);
        }
        serde_json::from_value(election).ok()
    });
    election.prop_filter_map("it is none", |election| election).boxed()
}

fn classes() -> BoxedStrategy<Classes> {
    let lease = json!({"lease": {}, "keyTemplate": "{name}-leader", "keyPattern": "{namespace}*"});
    let any = prop_oneof![
        2 => changed(objects::class("gold")),
        2 => changed(objects::class_in_a_bucket("gold")),
        1 => Just(json!({"metadata": {"name": "gold"}, "spec": lease.clone()})),
        1 => changed(json!({"metadata": {"name": "gold"}, "spec": lease})),
    ];
    let class = any.prop_map(|class| serde_json::from_value::<ElectionClass>(class).ok());
    class.prop_map(|class| class.into_iter().map(|class| ("gold".to_owned(), class)).collect()).boxed()
}

fn is_sound(resolved: &Resolved, classes: &Classes) -> bool {
    let key = &resolved.key;
    let parts = |name: &str| name.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if key.store == StoreId::leases() {
        let within = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        key.namespace == "shop" && !key.name.is_empty() && key.name.len() <= 253 && key.name.chars().all(within)
    } else {
        let spec = &classes[&resolved.class_name].spec;
        let prefix = spec.effective_key_template().split('/').next().unwrap_or_default();
        resolved.shared.is_some() && key.name.starts_with(&format!("{prefix}/")) && parts(&key.name)
    }
}

#[test]
fn an_election_is_served_or_refused_with_a_reason() {
    let served = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(config(2_000));
    let checked = runner.run(&(elections(), classes()), |(election, classes)| {
        let (namespace, name) = (&election.metadata.namespace, &election.metadata.name);
        let named = namespace.as_deref() == Some("shop") && name.as_deref() == Some("web");
        match resolve(&election, &classes, DEFAULT_CONTROLLER) {
            None => prop_assert!(classes.values().any(|class| class.spec.controller != DEFAULT_CONTROLLER)),
            Some(Ok(resolved)) if named => {
                served.set(served.get() + 1);
                prop_assert!(is_sound(&resolved, &classes), "{:?}", resolved.key);
                prop_assert!(resolved.failover_delay <= Duration::from_secs(u32::MAX.into()));
            }
            Some(Ok(_)) => {}
            Some(Err(refusal)) => {
                prop_assert!(!refusal.reason.is_empty() && refusal.message.len() > 20, "{refusal:?}");
            }
        }
        Ok(())
    });
    if let Err(failure) = checked {
        panic!("{failure}");
    }
    assert!(served.get() > 100, "only {} were served", served.get());
}

#[test]
fn a_key_is_compared_with_a_pattern_of_many_stars_in_no_time() {
    let class =
        json!({"metadata": {"name": "gold"}, "spec": {"lease": {}, "keyPattern": format!("{}b", "*a".repeat(60))}});
    let classes: Classes = [("gold".to_owned(), serde_json::from_value(class).expect("a class"))].into();
    let mut election = objects::election("web");
    election["spec"]["key"] = json!("a".repeat(250));
    election["spec"]["sharedStore"] = json!({});
    let election = serde_json::from_value(election).expect("an election");
    let began = Instant::now();
    let resolved = resolve(&election, &classes, DEFAULT_CONTROLLER);
    assert!(matches!(&resolved, Some(Err(refusal)) if refusal.reason == "KeyNotAllowed"), "{resolved:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn what_an_election_has_changed_is_noted_and_read_again(
        claims in prop::collection::btree_map(text(), any::<bool>(), 0..4),
        started in prop::collection::btree_map(text(), any::<i64>(), 0..4),
        services in prop::collection::btree_set(text(), 0..3),
        kept in prop::collection::btree_map(text(), (text(), prop_oneof![
            any::<bool>().prop_map(Setting::Suspend),
            any::<i32>().prop_map(Setting::Replicas),
        ]), 0..3),
        selected in prop::option::of(prop::collection::btree_map(text(), text(), 0..3)),
    ) {
        let release = |restore: bool| if restore { WhenReleased::Restore } else { WhenReleased::LeaveAsIs };
        let claims = claims.into_iter().map(|(id, restore)| (id, release(restore))).collect();
        let kept = kept.into_iter().map(|(id, (uid, setting))| (id, Kept { uid, setting })).collect();
        let selected = selected.map(|labels| Selector { match_labels: labels.into(), ..Selector::default() });
        let scopes = selected.iter().map(|selector: &Selector| Scope { selector: selector.clone(), ..Scope::default() }).collect();
        let claims = Claims { claims, started, services, kept, selected, scopes };
        let annotations: BTreeMap<String, String> =
            claims.text().into_iter().map(|text| ("lictor.dev/workloads".to_owned(), text)).collect();
        prop_assert_eq!(Claims::of(Some(&annotations)), claims);
    }

    #[test]
    fn whatever_somebody_writes_in_its_place_is_read_as_something(note in prop_oneof![
        text(),
        changed(json!({
            "claims": {"CronJob/report": "Restore", "Deployment/x": "LeaveAsIs"}, "started": {"settle": 7}, "services": ["web"],
            "kept": {"Deployment/x": {"uid": "u", "setting": 4}}, "selected": {"matchLabels": {"app": "web"}},
        }))
        .prop_map(|note| note.to_string()),
    ]) {
        let annotations: BTreeMap<String, String> = [("lictor.dev/workloads".to_owned(), note)].into();
        let claims = Claims::of(Some(&annotations));
        prop_assert!(claims.ids().count() <= claims.claims.len());
    }
}
