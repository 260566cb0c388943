//! Real Consul servers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::{Certificate, Identity, Method};

use super::api::plain;
use super::held::Held;
use super::{Api, eventually};

/// The kind of a Consul.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One agent that keeps its state in memory, without ACLs and TLS.
    Dev,
    /// The same with Consul 1.8.7.
    Old,
    /// Three servers with their data on disk, ACLs and TLS.
    Three,
    /// One server with its data on a small disk of its own.
    Small,
}

/// One server, or three that form a cluster.
pub struct Consul {
    servers: Vec<Server>,
    variables: BTreeMap<String, String>,
}

/// One server.
pub struct Server {
    number: usize,
    pid: AtomicU32,
    paused: AtomicBool,
    variables: BTreeMap<String, String>,
    held: Arc<Held>,
}

impl Consul {
    /// Returns the server of kind [`Kind::Dev`] that all tests share. No test kills it, and each test has its own keys.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Consul> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(Kind::Dev))
    }

    /// Starts servers for one test, which are ready when this returns. Dropping the result removes them.
    pub fn start(kind: Kind) -> Self {
        let name = match kind {
            Kind::Dev => "dev",
            Kind::Old => "dev-1.8",
            Kind::Three => "three",
            Kind::Small => "small",
        };
        let held = Arc::new(Held::start("consul.sh", &[name, &format!("test-{}", std::process::id())]));
        let variables = held.variables();
        assert!(!variables.is_empty(), "hack/consul.sh makes servers");
        let server = |number: usize| {
            let pid = variables.get(&format!("CONSUL_{number}_PID"))?.parse::<u32>().expect("a number");
            let (paused, variables, held) = (false.into(), variables.clone(), held.clone());
            Some(Server { number, pid: pid.into(), paused, variables, held })
        };
        Self { servers: (1..=3).map_while(server).collect(), variables }
    }

    /// Returns all servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the server with this number, counted from 1.
    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number - 1]
    }

    /// Returns the address of the first server, for example `http://127.0.0.1:8500`.
    pub fn address(&self) -> &str {
        self.server(1).address()
    }

    /// Returns the API of the first server, with all rights.
    pub fn api(&self) -> Api {
        self.server(1).api()
    }

    /// Returns a variable that `hack/consul.sh` prints, without the prefix `CONSUL_`: `HTTP_TOKEN`, `CACERT`, `CLIENT_CERT`,
    /// `CLIENT_KEY`.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(&format!("CONSUL_{name}")).map(String::as_str)
    }

    /// Waits until a server that is neither killed nor paused says that it leads, and returns it.
    pub async fn leader(&self) -> &Server {
        eventually("a server leads", || async {
            let mut said = Vec::new();
            for server in self.servers.iter().filter(|server| server.runs()) {
                // This is the only request that never waits for another server, such as one that hangs.
                let request = server.api().request(Method::GET, "/v1/status/leader").timeout(Duration::from_secs(1));
                match Api::send(request).await {
                    Ok(answer) if server.variable("RPC").is_some_and(|rpc| answer.json() == rpc) => return Ok(server),
                    other => said.push(other),
                }
            }
            Err(format!("{said:?}"))
        })
        .await
    }

    /// Returns a command of Consul's own program, with all rights at the first server.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.variables["CONSUL_BINARY"]);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONSUL_")) {
            command.env_remove(name);
        }
        let own =
            |name: &str| name == "CONSUL_BINARY" || name["CONSUL_".len()..].starts_with(|c: char| c.is_ascii_digit());
        command.envs(self.variables.iter().filter(|(name, _)| !own(name)));
        command
    }

    /// Runs Consul's own program. Returns what it printed, and its error text if it fails.
    pub fn try_cli(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.command().args(arguments).output().expect("consul starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let printed = text(&output.stdout);
        if output.status.success() { Ok(printed) } else { Err(printed + &text(&output.stderr)) }
    }

    /// Runs Consul's own program, which must succeed. Returns what it printed.
    pub fn cli(&self, arguments: &[&str]) -> String {
        self.try_cli(arguments).unwrap_or_else(|error| panic!("consul {arguments:?}: {error}"))
    }
}

impl Server {
    /// Returns its address, for example `http://127.0.0.1:8500`.
    pub fn address(&self) -> &str {
        self.variable("ADDR").expect("a server has an address")
    }

    /// Returns its address without the scheme, as a proxy needs it.
    pub fn socket(&self) -> &str {
        self.address().split_once("://").expect("an address has a scheme").1
    }

    /// Returns the address at which it answers DNS, over UDP and TCP.
    pub fn dns(&self) -> &str {
        self.variable("DNS").expect("a server has DNS")
    }

    /// Returns what it has logged so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.variable("LOG").expect("a server has a log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Adds this to the server's configuration, in place of an earlier addition, and makes the server reload it. The server does not say
    /// when it has reloaded, so a test has to check the effect.
    pub fn configure(&self, addition: &str) {
        const MARK: &str = "# of a test\n";
        let path = self.variable("CONFIG").expect("a server has a configuration");
        let before = std::fs::read_to_string(path).expect("its configuration can be read");
        let own = before.split(MARK).next().unwrap_or_default();
        std::fs::write(path, format!("{own}{MARK}{addition}")).expect("its configuration can be written");
        let pid = self.pid().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill runs").success());
    }

    /// Returns the process's id, or `None` after [`Server::kill`].
    pub fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::SeqCst)).filter(|pid| *pid != 0)
    }

    fn runs(&self) -> bool {
        self.pid().is_some() && !self.paused.load(Ordering::SeqCst)
    }

    /// Returns its API, with all rights.
    pub fn api(&self) -> Api {
        self.api_by(self.socket())
    }

    /// Returns its API through another socket, for example that of a [`Link`](crate::Link).
    pub fn api_by(&self, socket: &str) -> Api {
        let scheme = self.address().split_once("://").expect("an address has a scheme").0;
        let read = |name: &str| {
            let path = self.variables.get(name).map(PathBuf::from)?;
            Some(std::fs::read(path).expect("a file of the CA can be read"))
        };
        let ca = read("CONSUL_CACERT").map(|pem| Certificate::from_pem(&pem).expect("a certificate"));
        let mut client = plain().tls_certs_only(ca);
        if let (Some(certificate), Some(key)) = (read("CONSUL_CLIENT_CERT"), read("CONSUL_CLIENT_KEY")) {
            let identity = Identity::from_pem(&[certificate, key].concat()).expect("a certificate with its key");
            client = client.identity(identity);
        }
        Api::with(&format!("{scheme}://{socket}"), client, self.variables.get("CONSUL_HTTP_TOKEN").cloned())
    }

    /// Kills the server by SIGKILL.
    pub fn kill(&self) {
        self.order("kill");
    }

    /// Starts the server again after [`Server::kill`], at the same ports. Only [`Kind::Three`] still has its data. This does not wait.
    pub fn start(&self) {
        self.order("start");
    }

    /// Kills the server, starts it again, and waits until it can be used.
    pub async fn restart(&self) {
        self.kill();
        self.start();
        self.usable().await;
    }

    /// Stops the server by SIGSTOP, so that it keeps its connections but does not answer.
    pub fn pause(&self) {
        self.order("pause");
    }

    /// Continues the server after [`Server::pause`].
    pub fn resume(&self) {
        self.order("resume");
    }

    /// Waits until the server knows a leader that has entered it into the catalog. Then sessions can be created at its node.
    pub async fn usable(&self) {
        let node = format!("/v1/health/node/server-{}", self.number);
        eventually(&format!("server {} can be used", self.number), || async {
            let answer = self.api().get(&node).await?;
            let checks = answer.json();
            let entered = checks.as_array().is_some_and(|checks| checks.iter().any(|c| c["CheckID"] == "serfHealth"));
            if answer.status == 200 && entered { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
    }

    fn order(&self, order: &str) {
        let pid = self.held.order(&format!("{order} {}", self.number));
        self.pid.store(pid.parse().unwrap_or(0), Ordering::SeqCst);
        self.paused.store(order == "pause", Ordering::SeqCst);
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(&format!("CONSUL_{}_{name}", self.number)).map(String::as_str)
    }
}

impl Drop for Consul {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for server in &self.servers {
                let log = server.log();
                let tail: Vec<&str> = log.lines().rev().take(30).collect();
                eprintln!("--- the end of the log of Consul's server {} ---", server.number);
                tail.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}
