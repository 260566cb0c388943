//! What goes wrong between lictor and Consul, with real servers: never two leaders, users see why, and the group is right again by
//! itself within the time that docs/consul.md states.
//!
//! A test's scenarios run side by side where they wait for the same thing: a session's end takes twenty seconds.

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

/// A cluster at work: its operator, and all that its pods showed.
struct Side {
    member: Member,
    operator: Operator,
    recorder: Recorder,
}

impl Side {
    /// With these ready pods, and with no election yet.
    async fn new(member: Member, pods: &[&str]) -> Self {
        let recorder = member.lab.record().await;
        let operator = member.operator(&[]);
        member.lab.ready_pods(pods).await;
        Self { member, operator, recorder }
    }

    /// The same with an election that is led.
    async fn led(member: Member, pods: &[&str]) -> (Self, String) {
        let side = Self::new(member, pods).await;
        side.member.elect(json!({})).await;
        let leader = side.member.lab.wait_any_leader().await;
        side.member.wait_class("True", "Answers").await;
        side.member.lab.wait_condition("web", "Elected", "True", "Elected").await;
        (side, leader)
    }

    /// Nothing more happens; there were never two leaders, and terms rose. Returns how many leaderships there were.
    async fn kept_its_promises(&self) -> usize {
        self.recorder.catch_up().await;
        self.recorder.assert_promises()
    }
}

/// Two clusters at one lock, with a pod each: `a` in the west leads, and `b` in the east follows.
async fn two(west: Member, east: Member) -> (Side, Side) {
    let (west, _) = Side::led(west, &["a"]).await;
    let east = Side::new(east, &["b"]).await;
    east.member.elect(json!({})).await;
    east.member.wait_led_elsewhere("west", "a").await;
    (west, east)
}

/// There were never two leaders in both together, and terms rose.
async fn kept_their_promises(sides: &[&Side]) -> usize {
    for side in sides {
        side.recorder.catch_up().await;
    }
    let recorders: Vec<&Recorder> = sides.iter().map(|side| &side.recorder).collect();
    Recorder::assert_joint_promises(&recorders)
}

/// Since `began`, no longer than the documents state. What was measured is shown by `--nocapture`.
fn within(what: &str, began: Instant) {
    let took = began.elapsed();
    eprintln!("measured: {what}: {:.1} s of {} s", took.as_secs_f64(), LED_WITHIN.as_secs());
    assert!(took < LED_WITHIN, "{what}: {took:?}, and it may take {LED_WITHIN:?}");
}
