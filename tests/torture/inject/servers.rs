//! Faults of processes and links.

use std::time::{Duration, Instant};

use lictor_testing::eventually;
use lictor_testing::{Disturbance, Link, Stream};
use serde_json::{Value, json};

use super::{Course, cluster_at, patch};
use crate::faults::{Fault, Kind};
use crate::operator::Replica;
use crate::picture::Leader;
use crate::record::{Group, Kind as Store};
use crate::windows::REPLICAS;
use crate::world::World;

impl Course<'_> {
    pub(super) async fn operators(&self, numbers: &[usize]) {
        let replicas = || numbers.iter().map(|number| &self.world.replicas[cluster_at(&self.fault)][*number]);
        self.begins(&format!("{} {numbers:?}", self.fault.cluster()));
        if self.fault.kind == Kind::OperatorStoppedAtWork {
            let (cluster, replica) = (cluster_at(&self.fault), self.fault.replica());
            self.stopped_at_work(&self.world.replicas[cluster][replica], &self.world.api_links[cluster][replica]).await;
            return self.ends();
        }
        let stops = [Kind::OperatorStopped, Kind::OperatorsStopped].contains(&self.fault.kind);
        for replica in replicas() {
            match self.fault.kind {
                _ if stops => replica.signal("STOP"),
                Kind::OperatorEnded => replica.end().await,
                _ => replica.kill(),
            }
        }
        self.lasts().await;
        for replica in replicas() {
            if stops {
                replica.signal("CONT");
            } else {
                replica.start();
            }
        }
        self.ends();
    }

    /// Returns up to ten groups that have a leader in the cluster.
    fn ten_groups(&self) -> Vec<Group> {
        self.world.book.look(|picture| {
            let led =
                |group: &&Group| picture.leaders(group).iter().any(|leader| leader.cluster == self.fault.cluster());
            let pods = |group: &&Group| group.kind != Store::Workload;
            let all: Vec<&Group> = picture.groups.values().filter(pods).filter(led).collect();
            all.iter()
                .cycle()
                .skip(self.fault.target / 4)
                .take(all.len().min(10))
                .map(|group| (*group).clone())
                .collect()
        })
    }

    /// Returns the leaders of these groups in the cluster.
    fn leaders(&self, groups: &[Group]) -> Vec<Leader> {
        let all =
            self.world.book.look(|picture| groups.iter().flat_map(|group| picture.leaders(group)).collect::<Vec<_>>());
        all.into_iter().filter(|leader| leader.cluster == self.fault.cluster()).collect()
    }

    /// Excludes these pods from leading, or admits them again. They live on, so that a late promotion would find them.
    async fn exclude(&self, pods: &[Leader], excluded: bool) {
        let value = if excluded { json!("true") } else { Value::Null };
        let change = json!({"metadata": {"annotations": {"lictor.dev/never-leader": value}}});
        let all = pods.iter().map(|pod| {
            let (pods, change) = (self.world.pods(&pod.cluster), change.clone());
            async move { patch(&pods, &pod.name, &change).await }
        });
        futures::future::join_all(all).await;
    }

    /// Gives ten groups one leader after the other during the fault: `spoil` comes in the middle of a handover, and `heal` while
    /// the next ones are under way.
    async fn at_work(&self, spoil: impl Future<Output = ()>, heal: impl Future<Output = ()>) {
        let groups = self.ten_groups();
        let mut excluded = self.leaders(&groups);
        let soon = async {
            tokio::time::sleep(Duration::from_millis(self.fault.millis % 120)).await;
            spoil.await;
        };
        tokio::join!(self.exclude(&excluded, true), soon);
        let end = Instant::now() + Duration::from_millis(self.fault.millis);
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_secs(2)).await;
            self.exclude(&excluded, false).await;
            excluded = self.leaders(&groups);
            self.exclude(&excluded, true).await;
        }
        heal.await;
        self.exclude(&excluded, false).await;
    }

    /// Stops an operator in the middle of handovers. Its last requests arrive eight seconds later, when another replica has acted
    /// for long.
    async fn stopped_at_work(&self, replica: &Replica, link: &Link) {
        let spoil = async {
            link.disturb(Stream::Up, late(8000, 0)).await;
            replica.signal("STOP");
        };
        let heal = async {
            replica.signal("CONT");
            link.clear().await;
        };
        self.at_work(spoil, heal).await;
    }

    /// Disturbs a component of the control plane. The fault ends when the API server answers from etcd again.
    pub(super) async fn component(&self, name: &str) {
        let (harm, heal) = match self.fault.kind {
            Kind::ApiServerStopped | Kind::EtcdStopped => ("pause", "resume"),
            _ => ("kill", "start"),
        };
        self.begins(name);
        self.world.control_plane(format!("{harm} {name}")).await;
        self.lasts().await;
        self.world.control_plane(format!("{heal} {name}")).await;
        eventually("the API server answers", || async {
            self.world.nodes().get("node-000000").await.map_err(|error| error.to_string())
        })
        .await;
        self.ends();
    }

    /// Disturbs Consul servers. In one of two cases the proxy in front of Consul notices, and leads to another server.
    pub(super) async fn consul(&self, numbers: Vec<usize>) {
        let servers = || numbers.iter().map(|number| &self.world.consul.servers()[*number]);
        let kills = matches!(self.fault.kind, Kind::ConsulKilled | Kind::ConsulLeaderKilled);
        self.begins(&format!("{numbers:?}"));
        servers().for_each(|server| if kills { server.kill() } else { server.pause() });
        if self.fault.target.is_multiple_of(2) {
            self.world.balance(&numbers).await;
        }
        self.lasts().await;
        servers().for_each(|server| if kills { server.start() } else { server.resume() });
        for server in self.world.consul.servers() {
            server.usable().await;
        }
        self.ends();
    }

    /// The standby takes the replica that acts for gone, which runs on: its writes are under way for seconds, and so is what it hears.
    pub(super) async fn taken_for_gone(&self, own: &Link, peer: &Link) {
        self.begins(own.address());
        let spoil = async {
            own.disturb(Stream::Up, late(2000, 2000)).await;
            own.disturb(Stream::Down, late(2000, 2000)).await;
            peer.disable().await;
        };
        let heal = async {
            own.clear().await;
            peer.enable().await;
        };
        self.at_work(spoil, heal).await;
        self.ends();
    }

    /// Disturbs these links at once.
    pub(super) async fn link(&self, links: &[&Link]) {
        let (own, kind) = (links[0], self.fault.kind);
        self.begins(own.address());
        if kind == Kind::ApiLinkLate {
            self.at_work(own.disturb(Stream::Up, late(3000, 3000)), own.clear()).await;
            return self.ends();
        }
        for link in links {
            match kind {
                Kind::ApiLinkCut | Kind::ConsulLinkCut | Kind::PeerLinkCut => link.disable().await,
                Kind::ApiLinkDeaf | Kind::ConsulLinkDeaf | Kind::PeerLinkDeaf => {
                    link.disturb(Stream::Up, Disturbance::Lost).await;
                }
                Kind::ApiLinkMute | Kind::ConsulLinkMute => {
                    link.disturb(Stream::Down, Disturbance::Lost).await;
                }
                Kind::ApiLinkReset | Kind::ConsulLinkReset => {
                    link.disturb(Stream::Down, Disturbance::Reset { after: Duration::from_millis(300) }).await;
                }
                _ => {
                    for stream in [Stream::Up, Stream::Down] {
                        link.disturb(stream, late(100 + self.fault.millis % 300, 100)).await;
                    }
                }
            }
        }
        self.lasts().await;
        for link in links {
            link.clear().await;
            link.enable().await;
        }
        self.ends();
    }
}

impl World {
    /// Returns the same fault, at the replica that acts.
    pub(super) async fn of_the_acting(&self, fault: Fault) -> Fault {
        let leases = self.api_of("Lease", Some(fault.cluster()));
        let lease = leases.get(&format!("torture-{}", fault.cluster())).await;
        let holder = lease.ok().and_then(|lease| Some(lease.data["spec"]["holderIdentity"].as_str()?.to_owned()));
        let acts = |replica: &usize| {
            holder.as_ref().is_some_and(|name| name.starts_with(&format!("{}-{replica}-", fault.cluster())))
        };
        let replica = (0..REPLICAS).find(acts).unwrap_or(fault.replica());
        Fault { target: fault.target % 2 + 2 * replica + fault.target / 4 * 4, ..fault }
    }

    /// Leads the proxy in front of Consul to a server that is none of these.
    async fn balance(&self, away: &[usize]) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let next = (0..3).find(|server| !away.contains(server)).expect("not all are away");
        for (at, link) in self.consul_links.iter().enumerate() {
            let moved = {
                let mut leads_to = self.consul_servers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let moved = away.contains(&leads_to[at]);
                leads_to[at] = if moved { next } else { leads_to[at] };
                moved
            };
            if moved {
                link.lead_to(self.consul.servers()[next].socket()).await;
            }
        }
    }
}

const fn late(by: u64, jitter: u64) -> Disturbance {
    Disturbance::Late { by: Duration::from_millis(by), jitter: Duration::from_millis(jitter) }
}
