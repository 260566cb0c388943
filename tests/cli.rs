//! The command line, as a person uses it: each mistake leads to one clear line and a status that is not zero.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The result of a command.
struct Ended {
    status: i32,
    stdout: String,
    stderr: String,
}

/// Returns a command of `lictor` with these arguments, in an environment without a cluster.
fn lictor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    command.args(arguments).env_clear().env("HOME", "/nonexistent").env("RUST_BACKTRACE", "1").stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> Ended {
    let output = command.output().expect("lictor starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("its output is text");
    let status = output.status.code().expect("it ends by itself");
    Ended { status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Checks that it refuses, with one line of its own that has all of `says`.
fn refuses(command: &mut Command, says: &[&str]) {
    let ended = run(command);
    assert_eq!(ended.status, 1, "{}", ended.stderr);
    assert_eq!(ended.stderr.trim_end().lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("lictor: "), "{}", ended.stderr);
    for part in says {
        assert!(ended.stderr.contains(part), "{part:?} is not in: {}", ended.stderr);
    }
    assert_eq!(ended.stdout, "");
}

/// Checks that clap refuses, and that the first line has all of `says`.
fn is_misused(command: &mut Command, says: &[&str]) {
    let ended = run(command);
    assert_eq!(ended.status, 2, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
    for part in says {
        assert!(ended.stderr.contains(part), "{part:?} is not in: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

/// A file of this test. It is deleted with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lictor-cli-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("a file can be written");
        Self(path)
    }

    /// Makes a kubeconfig of a server that does not answer. Its context has the namespace `shop`.
    fn kubeconfig(name: &str) -> Self {
        let parts = [
            r#"{"apiVersion": "v1", "kind": "Config", "current-context": "x","#,
            r#""clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],"#,
            r#""users": [{"name": "x", "user": {}}],"#,
            r#""contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "shop"}}]}"#,
        ];
        Self::new(name, &parts.concat())
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path is text")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An operator that is killed when the test ends.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("lictor starts"))
    }

    fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stderr.as_mut().expect("it is piped")).read_line(&mut line).expect("it can be read");
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The commands for people.
const PEOPLES: [&str; 13] = [
    "list",
    "status",
    "who",
    "explain",
    "history",
    "watch",
    "dashboard",
    "switchover",
    "pause",
    "resume",
    "check",
    "doctor",
    "report",
];
/// Those about one election.
const ABOUT_ONE: [&str; 7] = ["status", "who", "explain", "switchover", "pause", "resume", "history"];

#[test]
fn alone_it_shows_its_help() {
    let ended = run(&mut lictor(&[]));
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("Usage: lictor") && ended.stderr.contains("Examples:"), "{}", ended.stderr);
}

#[test]
fn every_command_has_a_help_with_an_example() {
    let all = run(&mut lictor(&["--help"]));
    assert_eq!((all.status, all.stderr.as_str()), (0, ""));
    let commands: Vec<&str> = grouped(&all.stdout).into_iter().flat_map(|(_, commands)| commands).collect();
    for command in PEOPLES.iter().chain(&["run", "crd", "withdraw", "completion", "agent", "observe"]) {
        assert!(commands.contains(command), "{command} is not in {commands:?}");
    }
    for command in commands {
        let ended = run(&mut lictor(&[command, "--help"]));
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{command}");
        assert!(ended.stdout.contains(&format!("Usage: lictor {command}")), "{}", ended.stdout);
        let (_, examples) = ended.stdout.split_once("Example").unwrap_or_else(|| panic!("{}", ended.stdout));
        // A line that is copied as it is does what it says.
        for line in examples.lines().filter(|line| line.trim().contains("  ")) {
            assert!(line.contains("    # "), "{command}: {line:?} has words that no shell takes for a comment");
        }
    }
}

/// The commands of a help, below the heading of each group.
fn grouped(help: &str) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in help.lines().take_while(|line| *line != "Options:") {
        match (line.strip_prefix("  "), groups.last_mut()) {
            (Some(name), Some((_, commands))) if !name.starts_with(' ') => {
                commands.extend(name.split(' ').next().filter(|name| *name != "help"));
            }
            (None, _) => groups.extend(line.strip_suffix(':').map(|heading| (heading, Vec::new()))),
            _ => {}
        }
    }
    groups
}

#[test]
fn the_help_has_the_commands_in_groups() {
    use std::os::unix::process::CommandExt;
    let expected: [(&str, &[&str]); 6] = [
        ("See elections", &["list", "status", "who", "explain", "history", "watch", "dashboard"]),
        ("Steer elections", &["switchover", "pause", "resume"]),
        ("Check", &["check", "doctor", "report"]),
        ("Run a program", &["agent", "observe"]),
        ("Operator", &["run", "withdraw", "crd"]),
        ("Others", &["completion"]),
    ];
    let expected = expected.map(|(heading, commands)| (heading, commands.to_vec()));
    for help in [&["--help"], &["-h"], &["help"]] {
        assert_eq!(grouped(&run(&mut lictor(help)).stdout), expected);
    }
    let plugin = run(lictor(&["--help"]).arg0("/somewhere/kubectl-lictor")).stdout;
    assert!(plugin.contains("Usage: kubectl lictor <COMMAND>"), "{plugin}");
    assert_eq!(grouped(&plugin), expected);
}

#[test]
fn every_option_of_run_has_its_environment_variable() {
    let help = run(&mut lictor(&["run", "--help"])).stdout;
    let option = |line: &str| Some(line.trim().strip_prefix("--")?.split(' ').next()?.to_owned());
    let options: Vec<String> = help.lines().filter_map(option).collect();
    assert!(options.len() >= 8, "{help}");
    for option in options {
        let variable = format!("[env: LICTOR_{}=]", option.to_uppercase().replace('-', "_"));
        assert!(help.contains(&variable), "{variable} is not in {help}");
    }
}

#[test]
fn the_version_is_the_crates() {
    for arguments in [&["--version"][..], &["run", "--version"]] {
        let ended = run(&mut lictor(arguments));
        assert_eq!(ended.status, 0);
        assert!(ended.stdout.trim_end().ends_with(env!("CARGO_PKG_VERSION")), "{}", ended.stdout);
    }
}

#[test]
fn what_is_unknown_is_named() {
    is_misused(&mut lictor(&["rum"]), &["'rum'", "'run'"]);
    is_misused(&mut lictor(&["run", "--kubeconfg", "x"]), &["'--kubeconfg'", "'--kubeconfig'"]);
    is_misused(&mut lictor(&["crd", "more"]), &["'more'"]);
    is_misused(&mut lictor(&["completion", "tcsh"]), &["'tcsh'", "bash"]);
}

#[test]
fn a_value_that_can_not_be_is_refused_with_what_could() {
    is_misused(&mut lictor(&["run", "--listen", "8080"]), &["'8080'", "--listen", "ADDRESS:PORT"]);
    is_misused(&mut lictor(&["run", "--lease-duration", "1s"]), &["'1s'", "from 3s to 300s"]);
    is_misused(&mut lictor(&["run", "--lease-duration", "301"]), &["from 3s to 300s"]);
    is_misused(&mut lictor(&["run", "--lease-duration", "15m"]), &["'15m'", "for example 15s"]);
    is_misused(&mut lictor(&["run", "--lease-duration", "99999999999999999999s"]), &["for example 15s"]);
    is_misused(&mut lictor(&["run", "--namespaces", "shop,Bank"]), &["'Bank'", "for example shop"]);
    is_misused(&mut lictor(&["run", "--namespaces", ""]), &["for example shop"]);
    is_misused(&mut lictor(&["run", "--lease-namespace=-x"]), &["for example shop"]);
    is_misused(&mut lictor(&["run", "--controller", "Mine!"]), &["for example example.com/lictor"]);
    is_misused(&mut lictor(&["run", "--log-format", "xml"]), &["'xml'", "text, json"]);
}

#[test]
fn a_command_line_for_people_that_can_not_be_is_refused_with_what_could() {
    for command in ABOUT_ONE {
        is_misused(&mut lictor(&[command]), &["required", "<NAME>"]);
        is_misused(&mut lictor(&[command, "web", "-n", "Shop"]), &["'Shop'", "for example shop"]);
        is_misused(&mut lictor(&[command, "web", "--contxt", "x"]), &["'--contxt'", "'--context'"]);
    }
    for command in ["list", "status", "who", "switchover"] {
        let mut arguments = vec![command, "-o", "xml"];
        arguments.extend((command != "list").then_some("web"));
        is_misused(&mut lictor(&arguments), &["'xml'", "wide, json, yaml, name"]);
    }
    is_misused(&mut lictor(&["explain", "web", "-o", "name"]), &["'name'", "json, yaml"]);
    is_misused(&mut lictor(&["list", "-A", "-n", "shop"]), &["--all-namespaces", "cannot be used with"]);
    is_misused(&mut lictor(&["switchover", "web", "--at", "22:30"]), &["'22:30'", "for example +10m"]);
    is_misused(&mut lictor(&["switchover", "web", "--at", "2020-01-01T00:00:00Z"]), &["has passed"]);
    is_misused(&mut lictor(&["switchover", "web", "--force"]), &["--to <POD>"]);
    let both = ["switchover", "web", "--to", "web-1", "--to-cluster", "east"];
    is_misused(&mut lictor(&both), &["--to <POD>", "--to-cluster <CLUSTER>", "cannot be used with"]);
    is_misused(&mut lictor(&["switchover", "web", "--timeout", "5"]), &["--wait"]);
    is_misused(&mut lictor(&["switchover", "web", "--deadline", "0"]), &["1..=2592000"]);
    is_misused(&mut lictor(&["doctor", "--timeout", "0"]), &["1..=600"]);
    is_misused(&mut lictor(&["report", "--log-lines", "-1"]), &["'-1'"]);
    is_misused(&mut lictor(&["dashboard", "--port", "0"]), &["1..=65535"]);
    is_misused(&mut lictor(&["dashboard", "-n", "Shop"]), &["'Shop'", "for example shop"]);
    is_misused(&mut lictor(&["dashboard", "web"]), &["'web'"]);
    is_misused(&mut lictor(&["watch", "-A", "-n", "shop"]), &["--all-namespaces", "cannot be used with"]);
    is_misused(&mut lictor(&["watch", "web", "-A"]), &["[NAME]", "cannot be used with"]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_agent_that_can_not_be_is_refused_before_anything_runs() {
    is_misused(&mut lictor(&["agent", "--", "true"]), &["--key <KEY>", "--lease <NAMESPACE/NAME>"]);
    is_misused(&mut lictor(&["agent", "--key", "a/leader"]), &["COMMAND"]);
    is_misused(&mut lictor(&["agent", "--key", "a/leader", "--lease", "a/b", "--", "true"]), &["--key", "--lease"]);
    is_misused(&mut lictor(&["agent", "--lease", "report", "--", "true"]), &["NAMESPACE/NAME", "shop/report"]);
    is_misused(&mut lictor(&["agent", "--bucket", "s3://locks", "--", "true"]), &["s3://BUCKET/NAME"]);
    is_misused(&mut lictor(&["agent", "--key", "a//b", "--", "true"]), &["no part between slashes"]);
    is_misused(&mut lictor(&["agent", "--key", "a", "--ttl", "15", "--", "true"]), &["--ttl", "15s"]);
    for address in ["0.0.0.0:8090", "8090"] {
        is_misused(
            &mut lictor(&["agent", "--key", "a", "--listen", address, "--", "true"]),
            &["--listen", "127.0.0.1:"],
        );
    }
    // The lock in the environment is that of the agent whose command this is.
    is_misused(
        lictor(&["agent", "--", "true"]).env("LICTOR_KEY", "a/leader").env("LICTOR_TERM", "7"),
        &["--key <KEY>"],
    );
    for (arguments, says) in [
        (["--key", "a", "--ttl", "5s"].as_slice(), ["--ttl 5s", "from 10s to 86400s"]),
        (&["--lease", "a/b", "--ttl", "400s"], ["--ttl 400s", "from 3s to 300s"]),
        (&["--lease", "a/b", "--ttl", "3500ms"], ["--ttl 3500ms", "whole seconds"]),
        (&["--bucket", "s3://locks/a", "--ttl", "4s"], ["--ttl 4s", "a bucket it must be from 5s to 300s"]),
        (&["--bucket", "az://locks/a"], ["'az://locks'", "Account must be specified"]),
        (&["--key", "a", "--lock-delay", "2m"], ["--lock-delay 120s", "at most 60s"]),
        (&["--key", "a", "--ttl", "10s", "--grace", "4s"], ["--grace 4s", "at most 3s"]),
        (&["--key", "a", "--renew-every", "1ms"], ["--renew-every 1ms", "at least 500ms"]),
        (
            &["--key", "a", "--renew-every", "20s"],
            ["--renew-every 20s can't be used with --ttl 15s", "every 5s anyway"],
        ),
        (&["--key", "a", "--stay-away", "500ms"], ["--stay-away 500ms", "at least 1s"]),
        (&["--key", "a", "--stay-away", "0s"], ["--stay-away 0s", "at least 1s"]),
        (&["--key", "a", "--consul", "unix:///run/consul"], ["unix:///run/consul", "http://HOST:PORT"]),
        (&["--key", "a", "--consul-token-file", "/nowhere/token"], ["/nowhere/token", "No such file"]),
        (&["--lease", "a/b", "--kubeconfig", "/nowhere/config"], ["/nowhere/config", "--kubeconfig"]),
    ] {
        let all = [&["agent"], arguments, &["--", "true"]].concat();
        refuses(&mut lictor(&all), &says);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_observer_that_can_not_be_is_refused_before_anything_runs() {
    refuses(&mut lictor(&["observe"]), &["--election NAME", "--key KEY", "--files DIRECTORY", "/etc/podinfo"]);
    for (arguments, says) in [
        (["--key", "a", "--files", "/etc"].as_slice(), ["--files", "--key"]),
        (&["--election", "Shop/web"], ["--election", "shop/web"]),
        (&["--key", "a//b"], ["--key", "no part between slashes"]),
        (&["--listen", "4040"], ["--listen", "localhost:4040"]),
        (&["--stale-after", "2s"], ["--stale-after", "at least 3s"]),
        (&["--stale-after", "ever"], ["15s", "`never`"]),
        (&["--hook-timeout", "0s"], ["--hook-timeout", "from 100ms"]),
        (&["--once", "--on-leader", "true"], ["--once", "--on-leader"]),
    ] {
        is_misused(&mut lictor(&[&["observe"], arguments].concat()), &says);
    }
    // Where to listen is in the environment of an agent's command, and meant for the agent.
    let mut nested = lictor(&["observe"]);
    refuses(nested.env("LICTOR_TERM", "7").env("LICTOR_LISTEN", "4040"), &["--election NAME"]);
    let config = ["observe", "--election", "web", "--kubeconfig", "/nowhere/config"];
    refuses(&mut lictor(&config), &["/nowhere/config", "--kubeconfig"]);
    refuses(&mut lictor(&["observe", "--election", "web"]), &["there is no cluster"]);
    refuses(&mut lictor(&["observe", "--key", "a", "--consul", "unix:///run/consul"]), &["http://HOST:PORT"]);
    refuses(&mut lictor(&["observe", "--files", "/", "--on-leader", "true"]), &["no sh on the PATH"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has one").to_string();
    refuses(&mut lictor(&["observe", "--files", "/", "--listen", &address]), &[&address, "another address or port"]);
}

#[cfg(target_os = "linux")]
#[test]
fn every_option_of_observe_has_an_environment_variable() {
    let help = run(&mut lictor(&["observe", "--help"])).stdout;
    let mut options: Vec<(String, bool)> = vec![];
    for line in help.lines() {
        if line.trim_start().starts_with("--") {
            options.push((line.trim().split(' ').next().unwrap_or_default().to_owned(), false));
        }
        if let Some(last) = options.last_mut() {
            last.1 |= line.contains("[env: ");
        }
    }
    assert!(options.len() > 20, "{help}");
    let without: Vec<_> = options.iter().filter(|(_, has)| !has).map(|(name, _)| name.as_str()).collect();
    assert_eq!(without, ["--once"]);
}

#[test]
fn the_commands_for_people_say_where_a_cluster_could_be_named_and_that_one_does_not_answer() {
    let config = File::kubeconfig("people");
    let election = File::new("people.yaml", ELECTION);
    let file = ["-f", election.path()];
    for command in PEOPLES {
        let name = match command {
            "check" => &file[..],
            command if ABOUT_ONE.contains(&command) => &["web"],
            _ => &[],
        };
        let with = |more: &[&str]| lictor(&[&[command], name, more].concat());
        refuses(&mut with(&[]), &["there is no cluster", "--kubeconfig", "KUBECONFIG"]);
        refuses(&mut with(&["--kubeconfig", "/nonexistent/config"]), &["/nonexistent/config", "No such file"]);
        let context = ["--kubeconfig", config.path(), "--context", "other"];
        refuses(&mut with(&context), &["the context \"other\"", "kubectl config get-contexts"]);
        let silent = "no connection to the API server at http://127.0.0.1:1: ";
        refuses(&mut with(&["--kubeconfig", config.path()]), &[silent, "Connection refused"]);
        let usage = run(lictor(&[&[command], name, &["--help"]].concat()).env("KUBECONFIG", config.path()));
        assert_eq!(usage.status, 0, "{}", usage.stderr);
    }
}

const ELECTION: &str =
    "apiVersion: lictor.dev/v1alpha1\nkind: LeaderElection\nmetadata: {name: web, namespace: shop}\n";

/// What can be said of a file without a cluster, is.
#[test]
fn a_file_that_can_not_be_checked_is_one_line() {
    let config = File::kubeconfig("check");
    let check = |path: &str| lictor(&["check", "--kubeconfig", config.path(), "-f", path]);
    is_misused(&mut lictor(&["check"]), &["--filename <FILE>"]);
    is_misused(&mut lictor(&["check", "-f", "x", "-o", "name"]), &["'name'", "json, yaml"]);
    refuses(&mut check("/nonexistent/web.yaml"), &["/nonexistent/web.yaml can't be read", "No such file", "with -f"]);
    refuses(&mut check("/"), &["/ is a directory: name a file in it"]);
    refuses(&mut check("-"), &["the standard input has no LeaderElection"]);
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n";
    for (name, content, says) in [
        ("broken.yaml", "a: [1", "is neither YAML nor JSON: "),
        ("other.yaml", service, "has no LeaderElection, but Service/web: name the file"),
        ("name.yaml", "apiVersion: lictor.dev/v1alpha1\nkind: LeaderElection\n", "without metadata.name"),
    ] {
        let file = File::new(name, content);
        refuses(&mut check(file.path()), &[file.path(), says]);
    }
    let file = File::new("web.yaml", ELECTION);
    let mut elsewhere = check(file.path());
    refuses(elsewhere.args(["-n", "bank"]), &["web is in the namespace shop, and -n names bank"]);
}

#[test]
fn as_a_plugin_it_calls_itself_by_kubectls_name() {
    use std::os::unix::process::CommandExt;
    let plugin = |arguments: &[&str]| run(lictor(arguments).arg0("/somewhere/kubectl-lictor"));
    assert!(plugin(&["who", "--help"]).stdout.contains("Usage: kubectl lictor who "));
    assert_eq!(plugin(&["--version"]).stdout, format!("lictor {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_report_does_not_overwrite_a_file() {
    let (config, file) = (File::kubeconfig("report"), File::new("report.yaml", "mine"));
    // Without a cluster it comes not so far, and the file is as it was.
    refuses(&mut lictor(&["report", "--kubeconfig", config.path(), "--file", file.path()]), &["Connection refused"]);
    assert_eq!(std::fs::read_to_string(&file.0).expect("it is there"), "mine");
}

#[test]
fn an_environment_variable_is_checked_as_its_option_is() {
    is_misused(lictor(&["run"]).env("LICTOR_LEASE_DURATION", "1s"), &["'1s'", "--lease-duration", "from 3s to 300s"]);
    is_misused(lictor(&["run"]).env("LICTOR_LOG_FORMAT", "xml"), &["'xml'", "text, json"]);
    is_misused(lictor(&["run"]).env("LICTOR_LISTEN", "here"), &["'here'", "--listen"]);
}

#[test]
fn a_kubeconfig_that_is_missing_or_garbage_is_one_line() {
    let missing = ["run", "--kubeconfig", "/nonexistent/config"];
    refuses(&mut lictor(&missing), &["/nonexistent/config", "No such file", "--kubeconfig"]);
    refuses(lictor(&["run"]).env("LICTOR_KUBECONFIG", "/nonexistent/config"), &["/nonexistent/config"]);
    let garbage =
        [("empty", ""), ("text", "what is this\nand this"), ("yaml", "a: [1"), ("half", "kind: Config\nclusters: 7\n")];
    for (name, content) in garbage {
        let file = File::new(name, content);
        refuses(&mut lictor(&["run", "--kubeconfig", file.path()]), &[file.path(), "can't be used"]);
    }
    let config = File::kubeconfig("context");
    let other =
        std::fs::read_to_string(&config.0).expect("it can be read").replace("-context\": \"x\"", "-context\": \"y\"");
    let dangling = File::new("dangling", &other);
    refuses(&mut lictor(&["run", "--kubeconfig", dangling.path()]), &[dangling.path(), "y"]);
}

#[test]
fn without_any_cluster_it_says_where_one_could_be_named() {
    refuses(&mut lictor(&["run"]), &["there is no cluster", "--kubeconfig", "KUBECONFIG"]);
    refuses(lictor(&["run"]).env("KUBECONFIG", "/nonexistent/config"), &["--kubeconfig"]);
}

#[test]
fn an_occupied_port_is_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has an address").to_string();
    let config = File::kubeconfig("port");
    refuses(
        &mut lictor(&["run", "--kubeconfig", config.path(), "--listen", &address]),
        &[&address, "choose another --listen", "in use"],
    );
    let port = address.rsplit_once(':').expect("it has a port").1;
    refuses(
        &mut lictor(&["dashboard", "--kubeconfig", config.path(), "--port", port]),
        &[&address, "choose another --port", "in use"],
    );
}

#[test]
fn logs_are_as_the_environment_says_and_the_command_line_wins() {
    let config = File::kubeconfig("logs");
    let run = |arguments: &[&str]| {
        let mut command = lictor(&["run", "--kubeconfig", config.path()]);
        command.args(arguments).env("LICTOR_LISTEN", "127.0.0.1:0").env("LICTOR_IDENTITY", "me");
        command
    };
    let line = Running::start(run(&[]).env("LICTOR_LOG_FORMAT", "json")).first_line();
    let json: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(json["message"], "lictor starts");
    assert!(json["identity"].as_str().is_some_and(|identity| identity.starts_with("me-")), "{line}");
    assert!(json["listen"].as_str().is_some_and(|address| !address.ends_with(":0")), "{line}");

    let line = Running::start(run(&["--log-format", "text"]).env("LICTOR_LOG_FORMAT", "json")).first_line();
    assert!(line.contains(" INFO ") && line.contains("lictor starts"), "{line}");
    assert!(!line.contains('\u{1b}'), "no colours in a file: {line:?}");
}

/// Two people whose contexts have different namespaces mean one installation.
#[test]
fn the_namespace_of_a_context_is_not_that_of_the_operators_lease() {
    let config = File::kubeconfig("lease");
    let lease = |environment: &[(&str, &str)], arguments: &[&str]| {
        let mut command = lictor(&[&["run", "--listen", "127.0.0.1:0", "--log-format", "json"], arguments].concat());
        let line = Running::start(command.envs(environment.iter().copied())).first_line();
        let json: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        json["lease"].as_str().expect("it tells its Lease").to_owned()
    };
    let option = ["--kubeconfig", config.path()];
    assert_eq!(lease(&[], &option), "default/lictor.dev-operator");
    assert_eq!(lease(&[("KUBECONFIG", config.path())], &[]), "default/lictor.dev-operator");
    let named = [option.as_slice(), &["--lease-namespace", "ops"]].concat();
    assert_eq!(lease(&[], &named), "ops/lictor.dev-operator");
    let help = run(&mut lictor(&["run", "--help"])).stdout;
    assert!(help.contains("elsewhere \"default\""), "{help}");
}

#[test]
fn the_crds_are_those_in_the_repository() {
    let ended = run(&mut lictor(&["crd"]));
    let file = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/crds/lictor.dev.yaml"));
    assert_eq!(ended.status, 0);
    assert!(ended.stdout == file.expect("the file is there"), "crds/lictor.dev.yaml is out of date: make fix");
}

#[test]
fn a_completion_script_is_one_that_its_shell_reads() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = run(&mut lictor(&["completion", shell]));
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{shell}");
        for name in ["lictor", "completion", "lease-duration"] {
            assert!(ended.stdout.contains(name), "{shell}: {name}");
        }
    }
    let script = File::new("completion", &run(&mut lictor(&["completion", "bash"])).stdout);
    let read = Command::new("bash").args(["-n", script.path()]).output().expect("bash starts");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
}

/// As kubectl asks for it, with the directive that stops it from offering files.
#[test]
fn kubectl_gets_completions_for_the_plugin() {
    let complete = |words: &[&str]| run(&mut lictor(&[&["complete", "--"], words].concat())).stdout;
    let lines = |text: &str| text.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&complete(&["st"])), ["status", ":4"]);
    assert_eq!(lines(&complete(&["history", "--ev"])), ["--events", ":4"]);
    // The words so far name a file, and kubectl is told that the shell need not look for others.
    let file = File::new("complete.yaml", "");
    let begun = file.path().strip_suffix(".yaml").expect("it ends so");
    assert_eq!(lines(&complete(&["check", "-f", begun])), [file.path(), ":4"]);
    // There is no cluster here, and so no name of an election.
    assert_eq!(complete(&["status", ""]), ":4\n");
    assert!(!complete(&[""]).contains("complete\t"), "what kubectl calls is no command for people");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for arguments in [&["crd"][..], &["completion", "zsh"]] {
        let mut child = lictor(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("lictor starts");
        // The reading end is closed before anything is read.
        drop(child.stdout.take());
        let mut stderr = String::new();
        child.stderr.take().expect("it is piped").read_to_string(&mut stderr).expect("it can be read");
        assert!(child.wait().expect("it ends").success(), "{stderr}");
        assert_eq!(stderr, "");
    }
}
