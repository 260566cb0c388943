//! Tests that break each promise once, in small records made by hand, and tests of allowed records.

use super::*;

/// Makes a revision of a slice for each of these: slice, addresses, term.
fn record(seen: &[(&str, &[&str], Option<i64>)]) -> Vec<SliceRevision> {
    let revision = |(at, (name, addresses, term)): (u64, &(&str, &[&str], Option<i64>))| SliceRevision {
        version: at,
        name: (*name).to_owned(),
        uid: format!("uid of {name}"),
        service: "web-leader".into(),
        family: "IPv4".into(),
        term: *term,
        addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
        ready: addresses.iter().map(|address| (*address).to_owned()).collect(),
        pods: Vec::new(),
        deleted: false,
    };
    (1..).zip(seen).map(revision).collect()
}

fn judged<T>(judge: impl FnOnce() -> T + std::panic::UnwindSafe) -> Result<T, String> {
    std::panic::catch_unwind(judge)
        .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "no text".into()))
}

#[test]
fn switches_in_order_break_nothing_and_are_counted() {
    let mut revisions = record(&[
        ("own", &[], Some(1)),
        ("own", &["a"], Some(1)),
        ("own", &["b"], Some(2)),
        // The Service had already reached this address before it reached none.
        ("own", &[], Some(2)),
        ("own", &["b"], Some(2)),
        ("own", &["a"], Some(3)),
    ]);
    assert_eq!(judged(|| promises(&revisions, &[])), Ok(3));
    // The other family and another Service are judged separately.
    for (version, service, family) in [(7, "web-leader", "IPv6"), (8, "other", "IPv4")] {
        let of = SliceRevision { version, service: service.into(), family: family.into(), ..revisions[2].clone() };
        revisions.push(SliceRevision { name: family.into(), uid: service.to_owned() + family, ..of });
    }
    assert_eq!(judged(|| promises(&revisions, &[])), Ok(5));
}

#[test]
fn two_addresses_are_one_too_many_whoever_wrote_them() {
    let two = record(&[("own", &["a", "b"], Some(1))]);
    assert!(judged(|| promises(&two, &[])).unwrap_err().contains("at version 1"));
    let mut foreign = record(&[("own", &["a"], Some(1)), ("foreign", &["b"], None), ("own", &["b"], Some(2))]);
    assert!(judged(|| promises(&foreign, &[])).unwrap_err().contains("at version 2"));
    // A revision that the test wrote by hand does not count until the slice's next one.
    assert_eq!(judged(|| promises(&foreign, &[2])), Ok(2));
    foreign.insert(1, SliceRevision { version: 2, deleted: true, ..foreign[0].clone() });
    assert_eq!(judged(|| promises(&foreign[..3], &[])), Ok(2), "what is deleted reaches nobody");
}

#[test]
fn terms_in_a_slice_only_rise() {
    let falls = record(&[("own", &["a"], Some(2)), ("other", &[], Some(1)), ("own", &["a"], Some(1))]);
    assert!(judged(|| promises(&falls, &[])).unwrap_err().contains("term 1 after 2 at version 3"));
    assert_eq!(judged(|| promises(&falls[..2], &[])), Ok(1));
}

#[test]
fn never_none_begins_where_it_is_told_to() {
    let seen =
        record(&[("own", &[], Some(1)), ("own", &["a"], Some(1)), ("own", &["b"], Some(2)), ("own", &[], Some(2))]);
    let since = |version, upto: usize| judged(|| never_none(&seen[..upto], "web-leader", "IPv4", version));
    assert_eq!(since(2, 3), Ok(()));
    assert!(since(2, 4).unwrap_err().contains("at version 4"));
    assert!(since(1, 3).unwrap_err().contains("at version 1"));
    assert!(since(0, 3).unwrap_err().contains("no slice"));
    let two = record(&[("own", &["a"], Some(1)), ("own", &["a", "b"], Some(1))]);
    assert!(judged(|| never_none(&two, "web-leader", "IPv4", 1)).is_err());
}

#[test]
fn somebody_who_is_not_ready_is_nobody_and_several_are_enough() {
    let mut seen = record(&[
        ("one", &["a", "b"], None),
        ("two", &["a"], None),
        ("one", &["b"], None),
        ("one", &[], None),
        ("two", &["a"], None),
    ]);
    let judge = |seen: &[SliceRevision]| judged(|| always_somebody(seen, "web-leader", "IPv4", 1));
    assert_eq!(judge(&seen), Ok(5));
    seen[4].ready.clear();
    assert!(judge(&seen).unwrap_err().contains("at version 5"));
    seen[4].ready.insert("a".into());
    seen[3].deleted = true;
    assert_eq!(judge(&seen), Ok(5), "the other slice is there");
    seen.push(SliceRevision { version: 6, deleted: true, ..seen[4].clone() });
    assert!(judge(&seen).unwrap_err().contains("at version 6"));
}
