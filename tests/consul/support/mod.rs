//! Real servers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use lictor::consul::{Client, Settings};

/// Consul servers; deleted when this is dropped.
pub struct Servers {
    variables: BTreeMap<String, String>,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    _keeper: Child,
}

impl Servers {
    pub fn start(kind: &str, name: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/consul.sh");
        let mut keeper = Command::new(script)
            .args(["hold", kind, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("hack/consul.sh starts");
        let orders = keeper.stdin.take().unwrap();
        let mut answers = BufReader::new(keeper.stdout.take().unwrap());
        let mut variables = BTreeMap::new();
        loop {
            let mut line = String::new();
            answers.read_line(&mut line).expect("it can be read");
            match line.trim().split_once('=') {
                Some((name, value)) => variables.insert(name.to_owned(), value.to_owned()),
                None if line == "\n" => break,
                None => panic!("hack/consul.sh makes servers"),
            };
        }
        Self { variables, orders, answers, _keeper: keeper }
    }

    pub fn get(&self, name: &str) -> &str {
        &self.variables[&format!("CONSUL_{name}")]
    }

    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "hack/consul.sh carries out {order}");
    }

    pub fn settings(&self) -> Settings {
        let mut settings = Settings::new(self.get("HTTP_ADDR"));
        let file = |name: &str| self.variables.get(&format!("CONSUL_{name}")).map(|path| std::fs::read(path).unwrap());
        settings.ca = file("CACERT");
        settings.identity = file("CLIENT_CERT").zip(file("CLIENT_KEY"));
        settings
    }

    /// With all rights.
    pub fn client(&self) -> Client {
        let client = Client::new(&self.settings()).unwrap();
        client.set_token(self.variables.get("CONSUL_HTTP_TOKEN").map(String::as_str)).unwrap();
        client
    }

    /// Runs Consul's own command line; what it printed.
    pub fn consul(&self, arguments: &[&str]) -> String {
        let environment = self.variables.iter().filter(|(name, _)| {
            ["CONSUL_HTTP_ADDR", "CONSUL_HTTP_TOKEN", "CONSUL_CACERT", "CONSUL_CLIENT_CERT", "CONSUL_CLIENT_KEY"]
                .contains(&name.as_str())
        });
        let output = Command::new(self.get("BINARY")).args(arguments).envs(environment).output().unwrap();
        assert!(output.status.success(), "consul {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}
