//! The commands for people, `kubectl lictor …`, against a real API server: what they print is compared with the files in
//! `tests/cluster/snapshots`, which `LICTOR_BLESS=1` writes.

mod check;
mod cut_over;
mod dashboard;
mod doctor;
mod list;
mod one;
mod switchover;
mod watch;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use lictor_testing::kubernetes::{Lab, Operator, PodSpec, eventually};
use serde_json::{Value, json};

/// Makes a command of the plugin, about the lab's namespace, in an environment without colours.
pub fn plugin(lab: &Lab, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lictor"));
    command.arg0("kubectl-lictor").args(arguments).env_remove("CLICOLOR_FORCE").env("LICTOR_KUBECONFIG", kubeconfig);
    if !arguments.iter().any(|argument| ["-A", "-n"].contains(argument)) {
        command.args(["-n", &lab.namespace]);
    }
    command
}

/// A group of which web-1 leads, by its priority: web-0 could follow, web-2 may not, and web-3 is not ready.
pub async fn group(lab: &Lab) -> Operator {
    let operator = lab.operator(&[]);
    let annotated = |annotations: Value| PodSpec { annotations, ..PodSpec::default() };
    lab.pod("web-0", annotated(json!({"lictor.dev/priority": "1"}))).await;
    lab.pod("web-1", annotated(json!({"lictor.dev/priority": "2"}))).await;
    lab.pod("web-2", annotated(json!({"lictor.dev/never-leader": "true"}))).await;
    lab.pod("web-3", annotated(json!({"test.lictor.dev/hands-off": "true"}))).await;
    for pod in ["web-0", "web-1", "web-2"] {
        lab.wait_ready(pod, true).await;
    }
    lab.elect(json!({})).await;
    lab.wait_leader("web-1").await;
    lab.wait_condition("web", "Ready", "True", "Led").await;
    lab.wait_candidates(2, 4).await;
    operator
}

/// A command that goes on, and is killed when its test ends.
pub struct Live {
    child: Child,
    lines: Receiver<String>,
    /// The lines so far.
    pub seen: Vec<String>,
}

impl Live {
    /// Starts it. Its lines are those of both of its outputs.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("lictor starts");
        let (out, err) = (child.stdout.take().expect("it is piped"), child.stderr.take().expect("it is piped"));
        Self::of(child, vec![Box::new(out), Box::new(err)])
    }

    /// Reads these outputs of a command.
    pub fn of(child: Child, outputs: Vec<Box<dyn Read + Send>>) -> Self {
        let (sender, lines) = channel();
        for output in outputs {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut output = BufReader::new(output);
                let mut line = Vec::new();
                loop {
                    // A terminal whose other end is closed ends with an error, after what was written to it.
                    let ended = !matches!(output.read_until(b'\n', &mut line), Ok(1..));
                    let text = String::from_utf8_lossy(&std::mem::take(&mut line)).trim_end_matches('\n').to_owned();
                    if sender.send(text).is_err() || ended {
                        return;
                    }
                }
            });
        }
        Self { child, lines, seen: Vec::new() }
    }

    /// Waits until a line has all of this, and returns the line.
    pub async fn shows_all(&mut self, parts: &[&str]) -> String {
        eventually(&format!("a line with {parts:?}"), || {
            self.seen.extend(self.lines.try_iter());
            let found = self.seen.iter().find(|line| parts.iter().all(|part| line.contains(part))).cloned();
            let seen = self.seen.join("\n");
            async move { found.ok_or(seen) }
        })
        .await
    }

    /// Waits until a line has this.
    pub async fn shows(&mut self, part: &str) -> String {
        self.shows_all(&[part]).await
    }

    /// Presses Ctrl-C, and returns the exit code. `seen` has all lines then.
    pub fn interrupt(&mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
        let code = self.child.wait().expect("it ends").code();
        self.seen.extend(self.lines.iter());
        code
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs it with all rights.
pub fn run(lab: &Lab, arguments: &[&str]) -> Output {
    plugin(lab, lab.cluster.kubeconfig(), arguments).output().expect("lictor starts")
}

/// What was typed and printed, as a person sees it.
pub fn session(lab: &Lab, commands: &[&[&str]]) -> String {
    commands.iter().map(|arguments| told(arguments, &run(lab, arguments))).collect()
}

/// One command with what it printed, and its exit code if that is not 0.
pub fn told(arguments: &[&str], output: &Output) -> String {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let code = output.status.code().expect("it ends by itself");
    let code = if code == 0 { String::new() } else { format!("(exit code {code})\n") };
    format!("$ kubectl lictor {}\n{stdout}{stderr}{code}\n", arguments.join(" "))
}

/// Compares with a snapshot what was printed, without what differs from run to run.
pub fn compare(lab: &Lab, snapshot: &str, printed: &str) {
    let made = masked(lab, printed);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cluster/snapshots/{snapshot}.txt"));
    if std::env::var_os("LICTOR_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().expect("it is in a directory")).expect("it can be made");
        std::fs::write(&file, &made).expect("it can be written");
        return;
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    let line = made.lines().zip(written.lines()).take_while(|(made, written)| made == written).count();
    assert!(
        made == written,
        "{}:{}:\n- {}\n+ {}\nLICTOR_BLESS=1 cargo test --test cluster commands writes it\n{made}",
        file.display(),
        line + 1,
        written.lines().nth(line).unwrap_or("(its end)"),
        made.lines().nth(line).unwrap_or("(its end)"),
    );
}

/// Takes out names of namespaces, times, uids, versions, addresses, and the blanks by which columns are aligned.
fn masked(lab: &Lab, printed: &str) -> String {
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let line = line.replace(&lab.namespace, "shop").replace(&format!("-{}", std::process::id()), "");
        let mut words: Vec<String> = line.split(' ').map(mask).collect();
        for at in 1..words.len() {
            let numbered = if words[at] == "ms" { at - 1 } else { at };
            if words[at] == "ms" || words[at - 1] == "durationMilliseconds:" {
                words[numbered] = "NUMBER".into();
            }
        }
        let mut text = words.join(" ");
        while text[indent..].contains("  ") {
            text = format!("{}{}", &text[..indent], text[indent..].replace("  ", " "));
        }
        text + "\n"
    };
    printed.lines().map(line).collect()
}

/// Takes out of a word what differs from run to run.
fn mask(word: &str) -> String {
    let inner = word.trim_matches(|c: char| "\",;:()".contains(c));
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let is_age = inner.strip_suffix(['s', 'm', 'h']).is_some_and(|rest| rest.split('m').all(digits));
    let is_time = inner.ends_with('Z') && inner.contains('T') && inner.contains(':');
    let is_uid = inner.len() == 36 && inner.matches('-').count() == 4;
    let is_address = inner.split('.').count() == 4 && inner.split('.').all(digits);
    let is_long_number = digits(inner) && inner.len() > 1;
    let shown = if is_age {
        "AGE"
    } else if is_time {
        "TIME"
    } else if is_uid {
        "UID"
    } else if is_address {
        "ADDRESS"
    } else if inner.starts_with("node-0") {
        "NODE"
    } else if inner.contains("/operator#") || inner.contains('#') && inner.starts_with("test/") {
        "OPERATOR"
    } else if inner.starts_with("http://127.0.0.1:") {
        "http://consul:8500"
    } else if is_long_number {
        "NUMBER"
    } else {
        return word.to_owned();
    };
    word.replace(inner, shown)
}
