//! Failures between lictor and Consul, with real servers. There are never two leaders, users see the reason, and the group
//! recovers by itself within the time that docs/consul.md states.
//!
//! Scenarios that wait for the same thing run side by side in one test, because the end of a session takes twenty seconds.

mod clock;
mod disk;
mod hands;
mod network;
mod rewound;
mod rights;
mod servers;
mod trouble;

use std::time::Instant;

use serde_json::json;

pub use self::clock::libfaketime;
use super::member::{LED_WITHIN, Member, TTL};
use lictor_testing::kubernetes::{Operator, Recorder};

/// A cluster at work: its operator, and everything that its pods showed.
pub struct Side {
    pub member: Member,
    pub operator: Operator,
    pub recorder: Recorder,
}

impl Side {
    /// Creates it with these ready pods and without an election.
    async fn new(member: Member, pods: &[&str]) -> Self {
        let recorder = member.lab.record().await;
        let operator = member.operator(&[]);
        member.lab.ready_pods(pods).await;
        Self { member, operator, recorder }
    }

    /// Creates it with an election that has a leader.
    pub async fn led(member: Member, pods: &[&str]) -> (Self, String) {
        let side = Self::new(member, pods).await;
        side.member.elect(json!({})).await;
        let leader = side.member.lab.wait_any_leader().await;
        side.member.wait_class("True", "Answers").await;
        side.member.lab.wait_condition("web", "Elected", "True", "Elected").await;
        (side, leader)
    }
}

/// Creates two clusters at one lock, with a pod each: `a` in the west leads, and `b` in the east follows.
pub async fn two(west: Member, east: Member) -> (Side, Side) {
    let (west, _) = Side::led(west, &["a"]).await;
    let east = Side::new(east, &["b"]).await;
    east.member.elect(json!({})).await;
    east.member.wait_led_elsewhere("west", "a").await;
    (west, east)
}

/// Checks that there were never two leaders in all clusters together, and that terms rose.
pub async fn kept_their_promises(sides: &[&Side]) -> usize {
    let recorders: Vec<&Recorder> = sides.iter().map(|side| &side.recorder).collect();
    Recorder::assert_joint_promises(&recorders).await
}

/// Checks that no more time has passed since `began` than the documents state. `--nocapture` shows the time.
fn within(what: &str, began: Instant) {
    let took = began.elapsed();
    eprintln!("measured: {what}: {:.1} s of {} s", took.as_secs_f64(), LED_WITHIN.as_secs());
    assert!(took < LED_WITHIN, "{what}: {took:?}, and it may take {LED_WITHIN:?}");
}
