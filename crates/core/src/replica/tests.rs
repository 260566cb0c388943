mod forecasts;

use std::collections::VecDeque;

use std::time::Duration;

use super::*;
use crate::{
    ElectionRead, HandoverOrder, Locks, Marking, Markings, Pairs, PodChange, PodOutcome, RecordOutcome, Scope,
    Selector, Spec, WhenLost,
};

fn at(seconds: u64) -> Instant {
    Instant::after_origin(Duration::from_secs(seconds))
}

/// A replica of a group of one ready pod, and the servers that it asks.
struct Lab {
    replica: Replica,
    begun: u64,
    key: Key,
    scope: Scope,
    rules: Rules,
    pod: Pod,
    locks: Locks,
    version: u64,
    now: Instant,
    validity: Option<LockValidity>,
}

impl Lab {
    fn new() -> Self {
        let marking = |role: &str| Marking {
            labels: Pairs::from([("role".to_owned(), role.to_owned())]),
            annotations: Pairs::default(),
        };
        let markings = Markings { leader: marking("leader"), follower: marking("follower"), ..Markings::default() };
        let match_labels = Pairs::from([("app".to_owned(), "web".to_owned())]);
        let selector = Selector { match_labels: match_labels.clone(), match_expressions: Vec::new() };
        let (name, uid) = ("a".to_owned(), Uid("uid of a".into()));
        Self {
            replica: Replica::new("web".into(), Uid("uid of web".into()), "lictor#1".into()),
            begun: 0,
            key: Key::lease("shop", "web"),
            scope: Scope { selector, markings },
            rules: Rules::default(),
            pod: Pod {
                name,
                uid,
                version: Version(1),
                labels: match_labels,
                node: Some("n".into()),
                ready: true,
                ready_observed: Some(at(0)),
                ..Pod::default()
            },
            locks: Locks::default(),
            version: 1,
            now: at(1),
            validity: Some(LockValidity::Until(at(10))),
        }
    }

    fn step(&mut self, spec: bool) -> Output {
        let spec = spec.then_some(Spec {
            former_leader: crate::FormerLeader::Keep,
            scope: &self.scope,
            rules: &self.rules,
            order: HandoverOrder::DemoteFirst,
            failover_delay: Duration::ZERO,
            when_lost: WhenLost::Demote,
            ttl: Duration::from_secs(15),
            silence: Duration::from_secs(40),
            seen_after: Duration::ZERO,
        });
        let known =
            Known { spec, pods: &[&self.pod], validity: self.validity, ..Known::new(self.now, &self.key, &self.locks) };
        self.replica.step(&known, &mut self.begun)
    }

    fn next_version(&mut self) -> Version {
        self.version += 1;
        Version(self.version)
    }

    /// Carries a request out, and tells its outcome.
    fn answer(&mut self, Request { op, command, .. }: Request) {
        let outcome = match command {
            Command::ReadRecord { .. } => Outcome::RecordRead(Ok(Stored::Absent)),
            Command::ListPods { .. } => Outcome::PodsListed(Ok(vec![self.pod.clone()])),
            Command::ListLocks => Outcome::LocksListed(Ok(Vec::new())),
            Command::ReadElection => {
                Outcome::ElectionRead(Ok(ElectionRead::Present { uid: Uid("uid of web".into()), generation: 1 }))
            }
            Command::WriteRecord { record, .. } => {
                let version = self.next_version();
                let stored = Stored::Ours(version, record.at(version));
                self.locks.put(&self.key, version, &stored.into());
                Outcome::RecordWritten(RecordOutcome::Written(version))
            }
            Command::WritePod(write) => {
                self.pod.version = self.next_version();
                write.patch.apply(&mut self.pod);
                Outcome::PodWritten(PodOutcome::Written(Box::new(self.pod.clone())))
            }
            other => panic!("{other} is not expected"),
        };
        self.replica.take(op, outcome, self.now);
    }

    /// Answers all requests until one is a promotion.
    fn until_promotion(&mut self) -> Request {
        let mut requests = VecDeque::new();
        for _ in 0..20 {
            requests.extend(self.step(true).requests);
            match requests.pop_front() {
                Some(request) if promotes(&request) => return request,
                Some(request) => self.answer(request),
                None => break,
            }
        }
        panic!("nobody is promoted: {:?}", self.replica);
    }
}

fn promotes(request: &Request) -> bool {
    matches!(&request.command, Command::WritePod(write) if write.change == PodChange::Promote)
}

#[test]
fn a_promotion_is_sent_only_while_the_lock_is_surely_held() {
    let mut lab = Lab::new();
    let promotion = lab.until_promotion();
    assert!(promotion.urgent);
    assert!(lab.replica.may_send(&promotion, at(9)) && !lab.replica.may_send(&promotion, at(10)));
    // A renewal counts for what is decided after it: the request keeps what it was decided by.
    lab.validity = Some(LockValidity::Until(at(30)));
    lab.step(true);
    assert!(!lab.replica.may_send(&promotion, at(10)));
}

#[test]
fn a_promotion_is_not_sent_any_more_once_the_decisions_are_forgotten() {
    let mut lab = Lab::new();
    let promotion = lab.until_promotion();
    lab.replica.forget();
    assert!(!lab.replica.may_send(&promotion, at(2)));
    // Nor when it is decided anew: the numbers of its requests are others.
    lab.step(true);
    assert!(lab.replica.election().is_some() && !lab.replica.may_send(&promotion, at(2)));
}

#[test]
fn what_takes_a_label_off_is_sent_whenever_its_turn_comes() {
    let mut lab = Lab::new();
    let promotion = lab.until_promotion();
    lab.answer(promotion);
    lab.step(true);
    assert_eq!(&lab.pod.labels["role"], "leader");
    (lab.now, lab.validity) = (at(20), Some(LockValidity::Lapsed));
    let demotion = lab.step(true).requests.into_iter().find(|request| matches!(request.command, Command::WritePod(_)));
    let demotion = demotion.expect("it is demoted");
    assert!(!promotes(&demotion) && demotion.urgent && demotion.may_be_sent(at(1000)));
}

#[test]
fn another_key_is_decided_anew_and_the_terms_are_kept() {
    let mut lab = Lab::new();
    let promotion = lab.until_promotion();
    lab.answer(promotion);
    lab.step(true);
    lab.replica.reach(Term(70));
    lab.replica.reach(Term(7));
    lab.key = Key::lease("shop", "other");
    lab.step(true);
    assert_eq!(lab.replica.key(), Some(&lab.key));
    assert_eq!((lab.begun, lab.replica.election().map(Election::term)), (2, Some(Term(70))));
    assert!(!lab.replica.observe(&Key::lease("shop", "web"), Version(900), &Stored::Absent.into()));
}

#[test]
fn without_a_valid_spec_the_leader_stays_and_its_record_says_whose_it_is() {
    let mut lab = Lab::new();
    let promotion = lab.until_promotion();
    lab.answer(promotion);
    while let Some(request) = lab.step(true).requests.pop() {
        lab.answer(request);
    }
    let output = lab.step(false);
    assert!(output.requests.is_empty(), "{output:?}");
    assert_eq!(output.stores, BTreeSet::from([StoreId::leases()]));
}

#[test]
fn nothing_is_decided_by_a_store_of_which_nothing_is_known() {
    let mut lab = Lab::new();
    lab.validity = None;
    for _ in 0..3 {
        for request in lab.step(true).requests {
            assert!(!request.command.promotes(), "{request:?}");
            assert!(!matches!(request.command, Command::WriteRecord { .. }), "{request:?}");
            if !matches!(request.command, Command::ReadRecord { .. }) {
                lab.answer(request);
            }
        }
    }
}

#[test]
fn a_write_to_a_pod_that_does_not_lead_can_wait() {
    let mut lab = Lab::new();
    lab.pod.ready = false;
    for _ in 0..10 {
        for request in lab.step(true).requests {
            if let Command::WritePod(write) = &request.command {
                assert_eq!((write.change, request.urgent), (PodChange::Demote, false));
                return;
            }
            lab.answer(request);
        }
    }
    panic!("it does not become a follower: {:?}", lab.replica);
}
