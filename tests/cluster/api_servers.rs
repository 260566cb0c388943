//! Two API servers on one etcd. One of them is stopped for a while, and shows the past when it continues.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lictor_testing::free_address;
use lictor_testing::kubernetes::{Cluster, Lab, eventually};
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The longest failover, whichever server the operator uses: it lists again within 5 s if a connection is dead.
const IN_TIME: Duration = Duration::from_secs(20);

/// Another API server on the same etcd.
struct Second {
    child: Child,
    port: u16,
}

impl Second {
    fn start(cluster: &Cluster) -> Self {
        let port = free_address().port();
        let (command, directory) = cluster.command("kube-apiserver");
        let arguments = command[1..].iter().filter(|word| !word.starts_with("--secure-port"));
        let child = Command::new(&command[0])
            .args(arguments)
            .arg(format!("--secure-port={port}"))
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("kube-apiserver starts");
        Self { child, port }
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A proxy that leads to one of several servers. When it is moved to another one, all connections end.
struct Way {
    to: watch::Sender<u16>,
    kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

impl Way {
    async fn start(cluster: &Cluster, port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let own = listener.local_addr().expect("an address").port();
        let (to, moved) = watch::channel(port);
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut moved = moved.clone();
                tokio::spawn(async move {
                    let port = *moved.borrow_and_update();
                    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = moved.changed() => {}
                    }
                });
            }
        });
        let kubeconfig = cluster.kubeconfig().with_file_name("way");
        let text = std::fs::read_to_string(cluster.kubeconfig()).expect("it can be read");
        std::fs::write(&kubeconfig, text.replace(&format!(":{}", first_port(cluster)), &format!(":{own}")))
            .expect("it can be written");
        Self { to, kubeconfig, task }
    }

    fn lead_to(&self, port: u16) {
        self.to.send_replace(port);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn first_port(cluster: &Cluster) -> u16 {
    let text = std::fs::read_to_string(cluster.kubeconfig()).expect("it can be read");
    let server = text.lines().find_map(|line| line.trim().strip_prefix("server: ")).expect("a server");
    server.trim_matches('"').rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: waits for a control plane of its own"]
async fn an_api_server_that_shows_the_past_makes_no_second_leader_and_holds_nothing_up() {
    let cluster = Cluster::start_for_orders(&format!("two-servers-{}", std::process::id()));
    let cluster: &'static Cluster = Box::leak(Box::new(cluster));
    let (first, second) = (first_port(cluster), Second::start(cluster));
    let way = Way::start(cluster, second.port).await;
    let kubeconfig = way.kubeconfig.to_str().expect("a path is text");
    eventually("the second API server answers", || async {
        cluster.try_kubectl(&["--kubeconfig", kubeconfig, "get", "--raw", "/readyz"], None)
    })
    .await;
    let lab = Lab::of(cluster, "two-servers").await;
    let operator = lab.operator_at(&way.kubeconfig, &[]);
    let recorder = lab.record().await;
    lab.ready_pods(&["a", "b"]).await;
    lab.elect(json!({})).await;
    let mut leader = lab.wait_any_leader().await;
    let mut pods = 0;
    for round in 0..3 {
        second.signal("STOP");
        way.lead_to(first);
        for what in ["while it is stopped", "as soon as it goes on"] {
            if what == "as soon as it goes on" {
                second.signal("CONT");
                way.lead_to(second.port);
            }
            pods += 1;
            let began = Instant::now();
            lab.kill_pod(&leader).await;
            leader = lab.wait_any_leader().await;
            eprintln!("measured: round {round}, {what}: the next leader after {:?}", began.elapsed());
            assert!(began.elapsed() < IN_TIME);
            lab.ready_pods(&[&format!("more-{pods}")]).await;
            lab.wait_leader(&leader).await;
        }
    }
    let leaderships = recorder.assert_promises().await;
    assert!(leaderships >= 7, "{leaderships}");
    assert_eq!(operator.metric("lictor_restores_total").await, Some(0.0), "nothing was put back");
}
