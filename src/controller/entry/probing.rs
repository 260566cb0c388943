//! Probes the health of leaders.

mod ask;
mod connection;
mod grpc;
mod probed;

use std::net::SocketAddr;

use lictor_core::{ProbeFailure, Uid};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::ask::ask_on;
pub(crate) use self::ask::probe_client;
pub(crate) use self::probed::{Probed, Unasked};
use crate::controller::dial::Dial;
use crate::controller::input::Input;
use crate::controller::names::ElectionId;

/// The probing of an election's leader, and of no other pod.
#[derive(Default)]
pub(crate) struct Probing {
    prober: Option<Prober>,
    /// How many probers have begun. A result of an earlier prober no longer counts.
    begun: u64,
    /// The leader that failed last, the address that was probed, and the answer.
    last: Option<(Uid, String)>,
}

/// The clients for probes, and the channel for their results.
#[derive(Clone)]
pub(crate) struct ProbeContext {
    pub(crate) http: reqwest::Client,
    pub(crate) dial: Dial,
    /// Where the results go.
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
}

/// The tasks that probe a leader. Dropping this ends them.
struct Prober {
    probed: Probed,
    number: u64,
    failures: Vec<ProbeFailure>,
    /// Whether the leader has answered correctly once.
    answered: bool,
    tasks: Vec<JoinHandle<()>>,
}

impl Probing {
    /// The leader that fails its probe, and how. A process that is gone is the strongest sign.
    pub(crate) fn failed(&self) -> Option<(&Uid, ProbeFailure)> {
        let Prober { probed, failures, .. } = self.prober.as_ref()?;
        let gone = failures.iter().find(|failure| matches!(failure, ProbeFailure::ProcessGone(_)));
        gone.or(failures.first()).map(|failure| (&probed.leader, *failure))
    }

    /// The leader whose probe has succeeded since the pod began to lead.
    pub(crate) fn answered(&self) -> Option<&Uid> {
        self.prober.as_ref().filter(|prober| prober.answered).map(|prober| &prober.probed.leader)
    }

    /// The address at which the leader that failed last was probed, and the answer.
    pub(crate) fn told(&self, leader: &Uid) -> Option<&str> {
        self.last.as_ref().filter(|(uid, _)| uid == leader).map(|(_, told)| told.as_str())
    }

    /// What this leader can't be asked, although the election wants it.
    pub(crate) fn unasked(&self, leader: &Uid) -> Option<&Unasked> {
        self.prober.as_ref().filter(|prober| prober.probed.leader == *leader)?.probed.unasked.as_ref()
    }

    /// Takes a result of the prober with this number: whether the leader fails in this way, and if so the address and the answer. Returns
    /// whether that prober still runs.
    pub(crate) fn take(&mut self, number: u64, failure: ProbeFailure, found: Result<(), String>) -> bool {
        let Some(prober) = self.prober.as_mut().filter(|prober| prober.number == number) else { return false };
        prober.failures.retain(|other| *other != failure);
        match found {
            Ok(()) => prober.answered |= failure == ProbeFailure::NoAnswer,
            Err(told) => {
                prober.failures.push(failure);
                self.last = Some((prober.probed.leader.clone(), told));
            }
        }
        true
    }

    /// Probes this leader from now on, unless that is already under way; `None` stops the probing.
    pub(crate) fn follow(&mut self, probed: Option<Probed>, id: &ElectionId, probe_context: &ProbeContext) {
        if self.prober.as_ref().map(|prober| &prober.probed) == probed.as_ref() {
            return;
        }
        self.begun += 1;
        let number = self.begun;
        self.prober = probed.map(|probed| {
            let tell = |failure: ProbeFailure| {
                let (id, inputs) = (id.clone(), probe_context.inputs.clone());
                move |found| inputs.send(Input::Probed(id.clone(), number, failure, found)).is_ok()
            };
            let Probed { ip, questions, connection, rules, .. } = &probed;
            let mut tasks = Vec::new();
            if !questions.is_empty() {
                let (questions, http) = (questions.clone(), probe_context.http.clone());
                tasks.push(lictor_process::spawn(ask_on(*ip, questions, *rules, http, tell(ProbeFailure::NoAnswer))));
            }
            if let Some(port) = *connection {
                let to = SocketAddr::new(*ip, port);
                let tell = tell(ProbeFailure::ProcessGone(port));
                let tell = move |gone| tell(if gone { Err(format!("{to} refuses connections")) } else { Ok(()) });
                let holding = connection::hold(to, rules.timeout, probe_context.dial.clone(), tell);
                tasks.push(lictor_process::spawn(holding));
            }
            Prober { probed, number, failures: Vec::new(), answered: false, tasks }
        });
    }

    /// Stops the probing for now.
    pub(crate) fn stop(&mut self) {
        self.prober = None;
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt;
    use lictor_api::{Asked, Held, ResolvedProbe};
    use lictor_core::{Pod, ProbeRequest, ProbeRules, ProbeTarget, TargetPort};

    use super::*;
    use crate::controller::names::Namespace;

    #[tokio::test]
    async fn what_was_found_of_another_leader_or_port_counts_no_more() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let id = ElectionId { election: Namespace::from("shop").election("web"), uid: Uid("e".into()) };
        let dial: Dial = Arc::new(|_| std::future::pending().boxed());
        let (inputs, _told) = mpsc::unbounded_channel();
        let probe_context = ProbeContext { http: probe_client().unwrap(), dial, inputs };
        let probed = |leader: &str, port| {
            let second = Duration::from_secs(1);
            let rules = ProbeRules { period: second, timeout: second, failure_threshold: 1, success_threshold: 1 };
            let target = ProbeTarget { port: TargetPort::Number(1), request: ProbeRequest::Tcp };
            let probe =
                ResolvedProbe { asked: Asked::Target(target), connection: Held::Port(TargetPort::Number(port)), rules };
            Probed::of(&Pod { uid: Uid(leader.into()), ip: Some("127.0.0.1".into()), ..Pod::default() }, &probe, None)
        };
        let fails = || Err("10.0.0.1:80 refuses connections".to_owned());
        let (gone, a) = (ProbeFailure::ProcessGone, Uid("a".into()));
        let mut probing = Probing::default();
        probing.follow(probed("a", 80), &id, &probe_context);
        assert!(probing.take(1, ProbeFailure::NoAnswer, fails()) && probing.take(1, gone(80), fails()));
        assert_eq!(probing.failed(), Some((&a, gone(80))), "this says the most");
        assert!(probing.take(1, gone(80), Ok(())));
        assert_eq!(probing.failed(), Some((&a, ProbeFailure::NoAnswer)));
        assert_eq!(probing.told(&a), Some("10.0.0.1:80 refuses connections"));
        assert_eq!(probing.answered(), None);
        // The target is the same, so the probing does not start again.
        probing.follow(probed("a", 80), &id, &probe_context);
        assert_eq!(probing.failed(), Some((&a, ProbeFailure::NoAnswer)));
        for next in [probed("a", 81), probed("b", 81), None, probed("b", 81)] {
            probing.follow(next, &id, &probe_context);
            assert_eq!(probing.failed(), None);
            assert!(!probing.take(1, gone(80), fails()), "it was on its way");
            assert_eq!(probing.failed(), None);
        }
    }
}
