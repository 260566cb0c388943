//! One group of two members, of which one leads: its processes, its pods, its ways to its server.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use lictor_testing::Link;
use lictor_testing::consul::{Consul, Kind as ConsulKind};
use lictor_testing::kubernetes::Operator;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::ground::Ground;
use super::kind::{Kind, Place, program};
use super::processes::{Tree, signal};
use super::trace::{Told, Trace};
use crate::observer::{Observer, Sight};
use crate::world::SYSTEM;

const PATIENCE: Duration = Duration::from_secs(120);
/// How often it looks whether something has happened.
pub const LOOK: Duration = Duration::from_millis(10);
/// The name of the program that works, as the kernel has it.
const WORKER: &str = "elector";
/// What client-go logs when it leads.
const ACQUIRED: &str = "successfully acquired lease";

/// How members are started.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// They note each few milliseconds that they act.
    pub notes: bool,
    /// The winner of [`Kind::ClientGo`] labels its pod.
    pub labels: bool,
}

/// A group of two.
pub struct Contender<'a> {
    pub kind: Kind,
    pub ground: &'a Ground,
    pub consul: Option<Consul>,
    /// The ways to the server: of each member, or of each replica of the operator.
    pub links: Vec<Link>,
    pub kubeconfigs: Vec<PathBuf>,
    pub members: Vec<Member>,
    /// The replicas of [`Kind::Operator`].
    pub operators: Vec<Operator>,
    pub namespace: String,
    program: PathBuf,
    /// Where the pods of [`Kind::Operator`] listen.
    port: u16,
    style: Style,
    pods: Api<Pod>,
    /// What looks at the pods' labels.
    watch: JoinSet<()>,
}

/// One of the two.
pub struct Member {
    child: Option<Child>,
    pub trace: Trace,
    /// It was ended on purpose, and stays so until the group is settled again.
    pub down: bool,
}

impl<'a> Contender<'a> {
    /// Starts a group of each kind.
    pub async fn of_each(ground: &'a Ground, kinds: &[Kind]) -> anyhow::Result<Vec<Self>> {
        let mut groups = vec![];
        for kind in kinds {
            let group = Self::start(ground, *kind, Style { notes: true, labels: true }).await;
            groups.push(group.with_context(|| kind.id())?);
        }
        Ok(groups)
    }

    /// Prepares a group, and starts it.
    pub async fn start(ground: &'a Ground, kind: Kind, style: Style) -> anyhow::Result<Self> {
        let (world, namespace) = (&ground.world, format!("peers-{}", kind.id()));
        world.namespace(&namespace).await?;
        let consul = kind.in_consul().then(|| Consul::start(ConsulKind::Dev));
        let (mut links, mut kubeconfigs) = (vec![], vec![]);
        let token = if consul.is_none() { Some(world.account(&namespace)?) } else { None };
        for number in 0..2 {
            let server = consul.as_ref().map_or(ground.server.as_str(), |consul| consul.server(1).socket());
            let link = Link::to(server);
            let path = ground.directory.join(format!("{}-{number}.kubeconfig", kind.id()));
            if let Some(token) = &token {
                world.kubeconfig_by(&path, token, &ground.server, link.address())?;
                let configuration = configuration(&namespace, &path);
                fs::write(path.with_extension("yaml"), configuration.to_string())?;
            }
            links.push(link);
            kubeconfigs.push(path);
        }
        let program = match &consul {
            Some(consul) if kind == Kind::ConsulLock => consul.command().get_program().into(),
            _ => program(kind, &ground.elector, &ground.scheduler),
        };
        // Free until the members listen there.
        let port = std::net::TcpListener::bind("127.77.0.1:0")?.local_addr()?.port();
        let pods = Api::namespaced(world.client.clone(), &namespace);
        let (operators, watch) = (vec![], JoinSet::new());
        let mut group = Self {
            kind,
            ground,
            consul,
            links,
            kubeconfigs,
            members: vec![],
            operators,
            namespace,
            program,
            port,
            style,
            pods,
            watch,
        };
        for number in 0..2 {
            let notes = ground.directory.join(format!("{}-{number}.acts", kind.id()));
            let told = matches!(kind, Kind::Operator | Kind::Scheduler);
            let trace = if told { Trace::Told(Told::default()) } else { Trace::Notes { path: notes, offset: 0 } };
            group.members.push(Member { child: None, trace, down: false });
            group.pod(number).await?;
        }
        if kind == Kind::Operator {
            group.watch_labels().await?;
            for kubeconfig in &group.kubeconfigs {
                let arguments = ["--lease-namespace", SYSTEM, "--peer-address", "127.0.0.1", "--peer-port", "0"];
                group.operators.push(Operator::start(kubeconfig, &arguments, &[]));
            }
            let election = json!({
                "apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection",
                "metadata": {"name": "web", "namespace": group.namespace},
                "spec": {"selector": {"matchLabels": {"app": "web"}}, "probe": {
                    "connection": {"port": port}, "httpGet": {"path": "/", "port": port}, "periodSeconds": 1,
                }},
            });
            world.apply(&election)?;
        }
        Ok(group)
    }

    /// The name of a member, and of its pod.
    fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.kind.id())
    }

    fn address(number: usize) -> String {
        format!("127.77.0.{}", number + 1)
    }

    /// Creates a member's pod, which nothing runs in: the member is a process of this machine.
    async fn pod(&self, number: usize) -> anyhow::Result<()> {
        if self.kind != Kind::Operator {
            if matches!(self.kind, Kind::ClientGo | Kind::ClientGoFast) {
                self.ground.world.pod(&self.namespace, &self.name(number), "web", number).await?;
            }
            return Ok(());
        }
        let name = self.name(number);
        let pod = json!({
            "metadata": {
                "name": name, "labels": {"app": "web"}, "annotations": {"test.lictor.dev/hands-off": "true"},
            },
            "spec": {"nodeName": self.ground.world.nodes[number], "containers": [{"name": "main", "image": "example/web"}]},
        });
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let address = Self::address(number);
        let status = json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }});
        self.pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await?;
        Ok(())
    }

    /// Tells from the pods' labels who leads.
    async fn watch_labels(&mut self) -> anyhow::Result<()> {
        let mut observer = Observer::start(&self.ground.world.another_client().await, false).await?;
        let told = |member: &Member| match &member.trace {
            Trace::Told(told) => Some(told.clone()),
            Trace::Notes { .. } => None,
        };
        let told: Vec<Told> = self.members.iter().filter_map(told).collect();
        let namespace = self.namespace.clone();
        let names = [self.name(0), self.name(1)];
        self.watch.spawn(async move {
            while let Ok((_, sight)) = observer.next().await {
                let Sight::Pod((in_namespace, name), pod) = sight else { continue };
                if let Some(number) = names.iter().position(|of| *of == name).filter(|_| in_namespace == namespace) {
                    told[number].tell(pod.is_some_and(|pod| pod.role.as_deref() == Some("leader")));
                }
            }
        });
        Ok(())
    }

    /// Starts a member's process.
    pub fn spawn(&mut self, number: usize) -> anyhow::Result<()> {
        let listen = format!("{}:{}", Self::address(number), self.port);
        let Member { trace, .. } = &self.members[number];
        let (notes, told) = match trace {
            Trace::Notes { path, .. } => (Some(path.as_path()), None),
            Trace::Told(told) => (None, Some(told.clone())),
        };
        let place = Place {
            number,
            namespace: &self.namespace,
            kubeconfig: &self.kubeconfigs[number],
            server: self.links[number].address(),
            elector: &self.ground.elector,
            notes: notes.filter(|_| self.style.notes),
            labels: self.style.labels,
            listen: &listen,
            configuration: &self.kubeconfigs[number].with_extension("yaml"),
        };
        let log = self.ground.directory.join(format!("{}.log", self.name(number)));
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(&self.program);
        command.args(self.kind.arguments(&place)).current_dir(&self.ground.directory);
        command.env_remove("RUST_LOG").env_remove("CONSUL_HTTP_ADDR").env_remove("CONSUL_HTTP_TOKEN");
        command.stdin(Stdio::null()).stdout(log.try_clone()?);
        let schedules = self.kind == Kind::Scheduler;
        command.stderr(if schedules { Stdio::piped() } else { log.into() });
        let mut child = command.spawn().with_context(|| format!("{} starts", self.program.display()))?;
        if let (Some(errors), Some(told)) = (child.stderr.take(), told) {
            std::thread::spawn(move || {
                for line in BufReader::new(errors).lines().map_while(Result::ok) {
                    if line.to_lowercase().contains(ACQUIRED) {
                        told.tell(true);
                    }
                }
                // Its output ends with the process.
                told.tell(false);
            });
        }
        let member = &mut self.members[number];
        (member.child, member.down) = (Some(child), false);
        Ok(())
    }

    /// Starts each member again whose process has ended by itself, as a kubelet does, or systemd.
    pub fn restart_ended(&mut self) -> anyhow::Result<()> {
        for number in 0..2 {
            let member = &mut self.members[number];
            let runs = match &mut member.child {
                Some(child) => child.try_wait()?.is_none(),
                None => false,
            };
            if !runs && !member.down {
                self.spawn(number)?;
            }
        }
        Ok(())
    }

    /// Returns a member's processes.
    pub fn tree(&self, number: usize) -> anyhow::Result<Tree> {
        let child = self.members[number].child.as_ref().context("it runs")?;
        Tree::of(child.id())
    }

    /// Returns the process that was started.
    pub fn started(tree: &Tree) -> Vec<u32> {
        tree.all[..1].to_vec()
    }

    /// Returns the process that holds the lock: of `lictor agent`, the one below its watchdog.
    pub fn holder(&self, tree: &Tree) -> Vec<u32> {
        if self.kind.is_agent() { tree.all.get(1..2).unwrap_or_default().to_vec() } else { Self::started(tree) }
    }

    /// Returns the process that works.
    pub fn worker(tree: &Tree) -> Vec<u32> {
        tree.named(WORKER, true)
    }

    /// Returns the processes of the election itself, of all members: without what works.
    pub fn electing(&self) -> anyhow::Result<Vec<Vec<u32>>> {
        if self.kind == Kind::Operator {
            return Ok(self.operators.iter().map(|operator| vec![operator.pid()]).collect());
        }
        let own = |number| {
            let tree = self.tree(number)?;
            anyhow::Ok(if self.kind.has_command() { tree.named(WORKER, false) } else { tree.all })
        };
        (0..2).map(own).collect()
    }

    /// Waits until both run and one of them leads, as it has for some time. Returns which.
    pub async fn settle(&mut self, for_: Duration) -> anyhow::Result<usize> {
        for number in 0..2 {
            if self.members[number].down {
                self.revive(number).await?;
            }
        }
        let end = Instant::now() + PATIENCE;
        let (mut leader, mut since) = (None, Instant::now());
        loop {
            self.restart_ended()?;
            let acting: Vec<usize> = (0..2).filter(|number| self.members[*number].trace.acts()).collect();
            let present = if let [one] = acting[..] { Some(one) } else { None };
            if present != leader {
                (leader, since) = (present, Instant::now());
            }
            if let Some(leader) = leader.filter(|_| since.elapsed() >= for_) {
                return Ok(leader);
            }
            ensure!(
                Instant::now() < end,
                "{}: not within {PATIENCE:?}: one of two leads; {acting:?} act",
                self.kind.id()
            );
            sleep(LOOK * 5).await;
        }
    }

    /// Starts a member again after it was ended, with its pod.
    async fn revive(&mut self, number: usize) -> anyhow::Result<()> {
        if self.kind == Kind::Operator && self.pods.get_opt(&self.name(number)).await?.is_none() {
            self.spawn(number)?;
            return self.pod(number).await;
        }
        self.spawn(number)
    }

    /// Deletes a member's pod at once.
    pub async fn delete_pod(&self, number: usize) -> anyhow::Result<()> {
        self.pods.delete(&self.name(number), &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Kills what is left of a member, which then stays down.
    pub fn kill(&mut self, number: usize, left: &[u32]) -> anyhow::Result<()> {
        signal("KILL", left)?;
        let member = &mut self.members[number];
        if let Some(mut child) = member.child.take() {
            child.kill()?;
            child.wait()?;
        }
        member.down = true;
        Ok(())
    }

    /// Asks a member to end, and waits until it has. It then stays down.
    pub async fn stop(&mut self, number: usize) -> anyhow::Result<()> {
        let tree = self.tree(number)?;
        signal("TERM", &Self::started(&tree))?;
        let child = self.members[number].child.as_mut().context("it runs")?;
        let ended = timeout(Duration::from_secs(30), async {
            while child.try_wait()?.is_none() {
                sleep(LOOK).await;
            }
            anyhow::Ok(())
        });
        ended.await.with_context(|| format!("{} does not end", self.kind.id()))??;
        self.kill(number, &tree.all)
    }

    /// Ends both. They will be started in another style.
    pub async fn end(&mut self, style: Style) -> anyhow::Result<()> {
        self.style = style;
        for number in 0..2 {
            if self.members[number].child.is_some() {
                self.stop(number).await?;
            }
        }
        Ok(())
    }

    /// Starts both after [`Contender::end`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        for number in 0..2 {
            self.revive(number).await?;
        }
        Ok(())
    }
}

impl Drop for Contender<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            let Some(child) = &mut member.child else { continue };
            if let Ok(tree) = Tree::of(child.id()) {
                let _ = signal("KILL", &tree.all);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a scheduler's configuration. It schedules nothing, since no pod names it.
fn configuration(namespace: &str, kubeconfig: &Path) -> serde_json::Value {
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "leaderElection": {"leaderElect": true, "resourceName": "web", "resourceNamespace": namespace},
        "profiles": [{"schedulerName": "peers"}],
    })
}
