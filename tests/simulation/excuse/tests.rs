//! What is excused, and for how long; and what never is.
#![cfg(test)]

use super::*;

const TTL: u64 = CONSUL_TTL;

/// A moment at which both replicas have run for long, and the first one acts.
const LONG: u64 = 100_000;

const DESTROYED: Loss = Loss::Destroyed { renewed: 0 };

fn condition(identity: &str, reaches_api: bool, hears_store: bool) -> Condition {
    let (reaches_api, hears_store) = (reaches_api.then_some(0), hears_store.then_some(0));
    let well = reaches_api.and(hears_store);
    Condition { identity: (!identity.is_empty()).then(|| identity.to_owned()), reaches_api, hears_store, well }
}

fn acting() -> Excuse {
    let mut excuse = Excuse::new(TTL);
    for (number, name) in ["a", "b"].into_iter().enumerate() {
        excuse.replica(number, condition(name, true, true), 0);
    }
    excuse.claimed(Some("a"), 0);
    excuse.pass(LONG);
    assert!(!excuse.is_excused(LONG) && excuse.is_settled(LONG));
    excuse
}

/// All operators are killed.
fn abandoned() -> Excuse {
    let mut excuse = acting();
    for number in 0..REPLICAS {
        excuse.replica(number, condition("", true, true), LONG);
    }
    excuse
}

#[test]
fn a_cluster_that_nobody_serves_is_excused_once_its_lock_is_lost() {
    let mut excuse = abandoned();
    assert!(!excuse.is_excused(LONG + 60_000), "it has its lock");
    assert_eq!(excuse.lose(Loss::Expired, LONG + 30_000), None);
    assert!(excuse.is_excused(LONG + 30_000) && excuse.is_excused(LONG + 600_000));
}

#[test]
fn the_excuse_ends_when_whoever_came_back_had_the_time_to_demote() {
    let mut excuse = abandoned();
    excuse.lose(Loss::Expired, LONG + 30_000);
    let back = LONG + 60_000;
    excuse.replica(0, condition("c", true, true), back);
    // It gets the Lease when that of the one before has run out.
    let claimed = back + 9_000;
    excuse.claimed(Some("c"), claimed);
    for (moment, excused) in [(claimed + BEGINS - 1, true), (claimed + BEGINS, false)] {
        excuse.pass(moment);
        assert_eq!(excuse.is_excused(moment), excused);
    }
    assert!(excuse.was_excused(BEGINS, claimed + BEGINS) && !excuse.was_excused(BEGINS, claimed + 3 * BEGINS));
    // Somebody who could get the Lease and does not, is no excuse for ever.
    let mut excuse = abandoned();
    excuse.lose(Loss::Expired, LONG + 30_000);
    excuse.replica(0, condition("c", true, true), back);
    assert!(excuse.is_excused(back + TAKES_OVER - 1) && !excuse.is_excused(back + TAKES_OVER));
}

#[test]
fn with_one_of_two_replicas_left_a_cluster_is_excused_until_that_one_should_have_taken_over() {
    let mut excuse = acting();
    excuse.replica(0, condition("", true, true), LONG);
    excuse.lose(Loss::Expired, LONG + 20_000);
    assert!(excuse.is_excused(LONG + TAKES_OVER - 1) && !excuse.is_excused(LONG + TAKES_OVER));
    // The standby's trouble is none of the cluster.
    let mut excuse = acting();
    excuse.replica(1, condition("", false, false), LONG);
    excuse.lose(Loss::Expired, LONG + 20_000);
    excuse.lose(DESTROYED, LONG + 20_000);
    assert!(!excuse.is_excused(LONG + 20_000));
}

#[test]
fn an_operator_that_reaches_no_api_server_can_not_act() {
    let mut excuse = acting();
    for number in 0..REPLICAS {
        excuse.replica(number, condition(["a", "b"][number], false, true), LONG);
    }
    assert!(!excuse.is_excused(LONG + 600_000), "the lock is kept meanwhile");
    excuse.lose(DESTROYED, LONG + 600_000);
    assert!(excuse.is_excused(LONG + 600_000));
}

#[test]
fn a_cluster_that_somebody_serves_is_never_excused() {
    let mut excuse = acting();
    excuse.lose(Loss::Expired, LONG);
    excuse.lose(DESTROYED, LONG);
    assert!(!excuse.is_excused(LONG));
    // A key that was deleted is awaited for a TTL by the others: who acts for so long has heard of it.
    for (after, excused) in [(TTL, true), (TTL + 1, false)] {
        let mut excuse = acting();
        excuse.lose(Loss::Deleted, LONG);
        excuse.pass(LONG + STEPS_ASIDE);
        (0..REPLICAS).for_each(|number| excuse.replica(number, condition("", true, true), LONG + after));
        assert_eq!(excuse.is_excused(LONG + after), excused, "{after} ms");
    }
    // Nor is what it should have put right before.
    let later = LONG + LOCK_DELAY + 1;
    for number in 0..REPLICAS {
        excuse.replica(number, condition("", true, true), later);
    }
    assert!(!excuse.is_excused(later));
}

#[test]
fn a_lock_that_is_taken_while_nobody_can_hear_of_it_is_an_excuse_for_one_ttl() {
    let mut excuse = acting();
    excuse.replica(0, condition("a", true, false), LONG);
    excuse.lose(Loss::Expired, LONG + 10);
    assert!(!excuse.is_excused(LONG + 10), "that it had to expect");
    excuse.lose(DESTROYED, LONG + 20);
    excuse.lose(Loss::Destroyed { renewed: TTL }, LONG + 30);
    assert!(excuse.is_excused(LONG + 20 + TTL - 1) && !excuse.is_excused(LONG + 20 + TTL));
    let renewed_before = Loss::Destroyed { renewed: 4_000 };
    excuse.lose(renewed_before, LONG + TTL + 20);
    assert!(!excuse.is_excused(LONG + 20 + 2 * TTL - 4_000) && excuse.is_excused(LONG + 19 + 2 * TTL - 4_000));
    // It goes deaf before another cluster can have the lock, or only then.
    for (after, excused) in [(LOCK_DELAY, true), (LOCK_DELAY + 1, false)] {
        let mut excuse = acting();
        excuse.lose(DESTROYED, LONG);
        excuse.replica(0, condition("a", true, false), LONG + after);
        assert_eq!(excuse.is_excused(LONG + after), excused, "{after} ms");
    }
    // What it asked while its way was bad, is on it for a while.
    for (after, excused) in [(9, true), (10, false)] {
        let mut excuse = acting();
        excuse.replica(0, condition("a", true, false), LONG);
        excuse.replica(0, Condition { hears_store: Some(LONG + 10), ..condition("a", true, true) }, LONG);
        excuse.lose(DESTROYED, LONG + after);
        assert_eq!(excuse.is_excused(LONG + after), excused, "{after} ms");
    }
}

#[test]
fn a_key_that_is_deleted_while_nobody_can_hear_of_it_is_an_excuse_from_a_ttl_on_until_somebody_hears() {
    let mut excuse = acting();
    excuse.replica(0, condition("a", true, false), LONG);
    excuse.lose(Loss::Deleted, LONG + 10);
    assert!(!excuse.is_excused(LONG + 9 + TTL), "the others wait for a TTL");
    assert!(excuse.is_excused(LONG + 10 + TTL));
    let hears = LONG + 2 * TTL;
    excuse.replica(0, condition("a", true, true), hears);
    for (after, excused) in [(STEPS_ASIDE - 1, true), (STEPS_ASIDE, false)] {
        excuse.pass(hears + after);
        assert_eq!(excuse.is_excused(hears + after), excused, "{after} ms");
    }
    // What it asked while its way was bad, is on it until the other cluster has the lock (seed 311), or arrives in time.
    for (from, excused) in [(TTL + 4_000, true), (TTL - STEPS_ASIDE, false)] {
        let mut excuse = acting();
        excuse.replica(0, condition("a", true, false), LONG);
        excuse.replica(0, Condition { hears_store: Some(LONG + from), ..condition("a", true, true) }, LONG);
        excuse.lose(Loss::Deleted, LONG);
        excuse.pass(LONG + TTL);
        assert_eq!(excuse.is_excused(LONG + TTL), excused, "from {from} ms on");
    }
}

#[test]
fn a_session_is_not_lost_while_its_operator_can_renew_it() {
    let mut excuse = acting();
    assert!(excuse.lose(Loss::Expired, LONG).is_some());
    let mut excuse = acting();
    excuse.replica(0, condition("a", false, true), LONG);
    assert!(excuse.lose(Loss::Expired, LONG + 60_000).is_some(), "it goes on renewing without the API server");
    let mut excuse = acting();
    assert_eq!(excuse.lose(DESTROYED, LONG), None);
    excuse.replica(0, condition("a", true, false), LONG);
    excuse.replica(0, Condition { hears_store: Some(LONG + 1), ..condition("a", true, true) }, LONG + 1);
    assert_eq!(excuse.lose(Loss::Expired, LONG + TTL), None);
    // Nor could it while it was stopped.
    let mut excuse = acting();
    excuse.replica(0, Condition { identity: None, ..condition("a", true, true) }, LONG);
    excuse.replica(0, condition("a", true, true), LONG + 60_000);
    assert_eq!(excuse.lose(Loss::Expired, LONG + 60_050), None);
}

#[test]
fn sessions_need_last_no_longer_than_promised_while_all_replicas_are_well() {
    let mut excuse = acting();
    excuse.replica(1, condition("b", false, true), LONG);
    assert!(!excuse.is_settled(LONG + 60_000));
    excuse.replica(1, condition("b", true, true), LONG + 60_000);
    let settled = LONG + 60_000 + TAKES_OVER;
    assert!(!excuse.is_settled(settled - 1) && excuse.is_settled(settled));
}

#[test]
fn a_session_in_a_bucket_that_a_person_ends_is_an_excuse_until_it_has_to_be_renewed() {
    let ended = |renewed| Loss::EndedByHand { renewed };
    for (renewed, lasts) in [(2_000, TTL / 3 - 2_000 + GIVES_UP), (TTL / 3, GIVES_UP), (TTL, 0)] {
        let mut excuse = acting();
        assert_eq!(excuse.lose(ended(renewed), LONG), None);
        assert!(lasts == 0 || excuse.is_excused(LONG + lasts - 1), "{renewed} ms");
        assert!(!excuse.is_excused(LONG + lasts), "{renewed} ms");
    }
    // Without answers, its validity ends. It need not have heard before that.
    for after in [0, TTL / 3] {
        let mut excuse = acting();
        excuse.lose(ended(0), LONG);
        excuse.replica(0, condition("a", true, false), LONG + after);
        assert!(excuse.is_excused(LONG + TTL - 1) && !excuse.is_excused(LONG + TTL), "{after} ms");
    }
    let mut excuse = acting();
    excuse.lose(ended(0), LONG);
    excuse.replica(0, condition("a", true, false), LONG + TTL / 3 + GIVES_UP + 1);
    assert!(!excuse.is_excused(LONG + TTL / 3 + GIVES_UP + 1), "it had to know by then");
}

#[test]
fn who_acts_when_another_cluster_ends_its_session_in_a_bucket_has_given_up_its_leader_before() {
    for how in [Loss::Ended, Loss::Replaced] {
        for (after, excused) in [(0, true), (1, false)] {
            let mut excuse = acting();
            excuse.replica(0, condition("a", true, false), LONG - 30_000);
            assert_eq!(excuse.lose(how, LONG), None);
            assert!(!excuse.is_excused(LONG));
            (0..REPLICAS).for_each(|number| excuse.replica(number, condition("", true, true), LONG + after));
            excuse.pass(LONG + after);
            assert_eq!(excuse.is_excused(LONG + after), excused, "{how:?}, {after} ms");
        }
    }
    assert!(acting().lose(Loss::Ended, LONG).is_some(), "it can renew its session");
    assert_eq!(acting().lose(Loss::Replaced, LONG), None);
}
