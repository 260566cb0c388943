//! What is foretold of a leadership.

use std::time::Duration;

use crate::{
    Forecast, HandoverOrder, Holder, Instant, Key, Known, Locks, Marking, Markings, NotEligible, PRIORITY_ANNOTATION,
    Pairs, Pod, Reason, Record, Rules, Scope, Selector, Spec, Term, Timestamp, Uid, Verdict, WhenLost,
};

fn map(pairs: &[(&str, &str)]) -> Pairs {
    pairs.iter().copied().collect()
}

fn pod(name: &str, ready: bool, priority: &str) -> Pod {
    Pod {
        name: name.into(),
        uid: Uid(name.into()),
        labels: map(&[("app", "web")]),
        annotations: map(&[(PRIORITY_ANNOTATION, priority)]),
        node: Some("n".into()),
        ready,
        ready_since: Some(Timestamp(1)),
        ..Pod::default()
    }
}

/// What is foretold of these pods, if this one leads.
fn foretell(pods: &[Pod], leader: Option<&str>, preempt: bool) -> (Verdict, Vec<(String, bool)>) {
    let role = |role: &str| Marking { labels: map(&[("role", role)]), ..Marking::default() };
    let scope = Scope {
        selector: Selector { match_labels: map(&[("app", "web")]), ..Selector::default() },
        markings: Markings { leader: role("leader"), follower: role("follower"), ..Markings::default() },
    };
    let rules = Rules { preempt, ..Rules::default() };
    let (key, locks, uid) = (Key::lease("shop", "web"), Locks::default(), Uid("election".into()));
    let spec = Spec {
        former_leader: crate::FormerLeader::Keep,
        scope: &scope,
        rules: &rules,
        order: HandoverOrder::DemoteFirst,
        failover_delay: Duration::ZERO,
        when_lost: WhenLost::Demote,
        ttl: Duration::ZERO,
        silence: Duration::ZERO,
        seen_after: Duration::ZERO,
    };
    let pods: Vec<&Pod> = pods.iter().collect();
    let known = Known { spec: Some(spec), pods: &pods, ..Known::new(Instant::default(), &key, &locks) };
    let record = leader.map(|leader| Record {
        leaving: Vec::new(),
        term: Term(7),
        term_by_version: false,
        holder: Some(Holder { pod: Some(leader.into()), uid: Uid(leader.into()), node: None, ip: None }),
        operator_id: "o".into(),
        since: Timestamp(0),
        election: uid.clone(),
        election_name: "web".into(),
        generation: 1,
        scope: scope.clone(),
        former: Vec::new(),
        drain_obligation: None,
        switchover: None,
        offer: None,
    });
    let Forecast { verdict, contenders } = crate::forecast(&known, "web", &uid, record.as_ref()).unwrap();
    (verdict, contenders.into_iter().map(|one| (one.pod.name.clone(), one.chance.is_ok())).collect())
}

fn name(holder: &Holder) -> &str {
    holder.pod.as_deref().unwrap()
}

#[test]
fn a_fit_leader_stays_unless_a_higher_priority_may_take_over() {
    let pods = [pod("a", true, "1"), pod("b", true, "9"), pod("c", false, "99")];
    let (verdict, order) = foretell(&pods, Some("a"), false);
    assert!(matches!(verdict, Verdict::Stays(leader) if name(&leader) == "a"));
    let expected = [("b", true), ("a", true), ("c", false)].map(|(name, fit)| (name.to_owned(), fit));
    assert_eq!(order, expected);
    let (verdict, _) = foretell(&pods, Some("a"), true);
    assert!(matches!(verdict, Verdict::Elected(next, Reason::Preempted) if name(&next) == "b"));
}

#[test]
fn who_leads_no_more_is_followed_by_the_first_in_the_order() {
    let pods = [pod("a", false, "1"), pod("b", true, "2"), pod("c", true, "3")];
    let (verdict, _) = foretell(&pods, Some("a"), false);
    let Verdict::Elected(next, Reason::LeaderUnfit(NotEligible::NotReady)) = verdict else { panic!("{verdict:?}") };
    assert_eq!(name(&next), "c");
    assert!(matches!(foretell(&pods, None, false).0, Verdict::Elected(next, Reason::Vacant) if name(&next) == "c"));
    let alone = [pod("a", false, "1")];
    assert_eq!(foretell(&alone, Some("a"), false).0, Verdict::Vacated(Reason::LeaderUnfit(NotEligible::NotReady)));
    assert_eq!(foretell(&alone, None, false).0, Verdict::Nobody);
}
