//! stub
use crate::consul::Client;
use crate::core::{Failure, Instant, Tenure};
use std::time::Duration;
use tokio::sync::watch;
/// p
#[allow(missing_docs)]
pub struct KeeperParameters {
    pub client: Client,
    pub name: String,
    pub node: Option<String>,
    pub count: usize,
    pub ttl: Duration,
    pub lock_delay: Duration,
    pub clock: fn() -> Instant,
}
/// r
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Standby,
    Acting,
    Leave,
}
/// s
#[allow(missing_docs)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    pub ids: Vec<Option<String>>,
    pub tenure: Option<Tenure>,
    pub failure: Option<Failure>,
}
/// k
pub struct SessionKeeper {}
#[allow(missing_docs)]
impl SessionKeeper {
    pub fn new(_: KeeperParameters, _: watch::Receiver<Role>) -> (Self, watch::Receiver<Sessions>) {
        (Self {}, watch::channel(Sessions::default()).1)
    }
    pub async fn run(self) {}
}
