//! The readers of examples/know, against files that are replaced as kubelet replaces them, its servers, which end their connections, and
//! its database that refuses a lower term. The clients of examples/observe, against `lictor observe`.
//! A language that is not installed is left out, and fails with `CI=true`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use lictor_testing::{PATIENCE, Volume};

#[test]
fn the_reader_in_go() {
    reads("go", |files| go("go/leader.go", files, address(8080)));
}

#[test]
fn the_reader_in_java() {
    reads("javac", |files| command("java", &[&example("java/Leader.java"), files]));
}

#[test]
fn the_reader_in_node() {
    reads("node", |files| command("node", &[&example("node/leader.mjs"), files]));
}

#[test]
fn the_reader_in_python() {
    reads("python3", |files| command("python3", &[&example("python/leader.py"), files]));
}

#[test]
fn the_reader_in_shell() {
    reads("sh", |files| command("sh", &[&example("shell/leader.sh"), files, Path::new("0.1")]));
}

/// Each reader says the same, a line for each change.
fn reads(needs: &str, command: impl Fn(&Path) -> Command) {
    if !is_installed(needs) {
        return;
    }
    let mut files = volume();
    let mut reader = Reader::start(command(&files.path));
    reader.says("not leading"); // there are no files yet
    files.write("leader", "7");
    reader.says("leading in term 7");
    files.write("follower", "8");
    reader.says("not leading");
    files.write("leader", "9");
    reader.says("leading in term 9");
    files.write("leader", "10");
    reader.says("leading in term 10");

    // The link is away for a moment.
    let (link, away) = (files.path.join("..data"), files.path.join("..away"));
    fs::rename(&link, &away).unwrap();
    reader.says("not leading");
    fs::rename(&away, &link).unwrap();
    reader.says("leading in term 10");

    // A label without a term is not enough, nor is the reverse, and a term is a number.
    for (role, term) in [("leader", ""), ("", "11"), ("leader", "high")] {
        files.write(role, term);
        reader.says("not leading");
        files.write("leader", "11");
        reader.says("leading in term 11");
    }
    fs::remove_file(files.version().join("role")).unwrap();
    reader.says("not leading");

    reads_what_belongs_together(&mut files, &reader);
    skips_what_is_deleted(&mut files, &reader);
    reader.ends();
}

/// The files are replaced after one of them was read, whichever that is. Role and term are still those of one moment.
fn reads_what_belongs_together(files: &mut Volume, reader: &Reader) {
    for slow in ["role", "term"] {
        let old = files.make("leader", "12");
        let pipe = Pipe::replace(&old.join(slow));
        files.point_to(&old);
        let pipe = pipe.opened();
        let new = files.make("follower", "13");
        files.point_to(&new);
        pipe.give();
        reader.says("leading in term 12");
        reader.says("not leading");
    }
}

/// The files are replaced after one of them was read, and the other one is deleted, as kubelet does. The pod leads all the time.
fn skips_what_is_deleted(files: &mut Volume, reader: &Reader) {
    files.write("leader", "14");
    reader.says("leading in term 14");
    for (slow, term) in [("role", 15), ("term", 17)] {
        let old = files.make("leader", &term.to_string());
        let pipe = Pipe::replace(&old.join(slow));
        files.point_to(&old);
        let pipe = pipe.opened();
        let new = files.make("leader", &(term + 1).to_string());
        files.point_to(&new);
        fs::remove_dir_all(&old).unwrap();
        pipe.give();
        // A reader that reads this one last has both files, and no reason to look again.
        let said = reader.next_line();
        if said == format!("leading in term {term}") {
            reader.says(&format!("leading in term {}", term + 1));
        } else {
            assert_eq!(said, format!("leading in term {}", term + 1));
        }
    }
}

#[test]
fn the_client_in_go() {
    let program = |url: &str, files: &Volume| {
        let reader = files.path.join("reader");
        let built = build("../observe/go/leader.go", &reader).status().expect("Go starts");
        assert!(built.success(), "it can be built");
        command(reader.to_str().unwrap(), &[Path::new(url), Path::new("web-1")])
    };
    asks("go", 4041, program);
}

#[test]
fn the_client_in_java() {
    asks("javac", 4042, |url, _| client("java", "../observe/java/Leader.java", url));
}

#[test]
fn the_client_in_node() {
    asks("node", 4043, |url, _| client("node", "../observe/node/leader.mjs", url));
}

#[test]
fn the_client_in_python() {
    asks("python3", 4044, |url, _| client("python3", "../observe/python/leader.py", url));
}

fn client(program: &str, source: &str, url: &str) -> Command {
    command(program, &[&example(source), Path::new(url), Path::new("web-1")])
}

/// Each client compares the name that it hears with its own, and does not lead while nobody answers.
fn asks(needs: &str, port: u16, command: impl Fn(&str, &Volume) -> Command) {
    if !is_installed(needs) {
        return;
    }
    let (mut files, address) = (volume(), address(port));
    files.write("follower", "6");
    let observer = Observer::start(&files.path, address);
    let mut reader = Reader::start(command(&format!("http://{address}"), &files));
    reader.says("not leading");
    files.write("leader", "7");
    reader.says("leading");
    drop(observer);
    reader.says("not leading");
    let _observer = Observer::start(&files.path, address);
    reader.says("leading");
    files.write("follower", "8");
    reader.says("not leading");
    files.write("leader", "9");
    reader.says("leading");
    reader.ends();
}

/// `lictor observe` as the pod web-1. It goes with the test.
struct Observer(Child);

impl Observer {
    fn start(files: &Path, address: SocketAddr) -> Self {
        let mut observer = Command::new(env!("CARGO_BIN_EXE_lictor"));
        observer.args(["observe", "--pod", "web-1", "--listen", &address.to_string(), "--files"]).arg(files);
        Self(observer.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An old leader's connections end when it learns that it does not lead any more, and nobody can make new ones.
#[test]
fn the_server_in_go_drops_its_connections() {
    if !is_installed("go") {
        return;
    }
    let mut files = volume();
    files.write("leader", "7");
    let address = address(8081);
    let mut reader = Reader::start(go("go/leader.go", &files.path, address));
    reader.says("leading in term 7");
    let mut connection = TcpStream::connect(address).expect("a leader listens");
    for _ in 0..2 {
        ask(&mut connection, "term 7");
    }
    files.write("follower", "8");
    reader.says("not leading");
    assert_eq!(connection.read(&mut [0]).expect("it is closed"), 0);
    TcpStream::connect(address).expect_err("nobody listens");
    reader.ends();
}

/// An old leader's connections end when it learns that it does not lead any more. Whoever connects later still gets an answer, over a
/// connection that ends with it.
#[test]
fn the_server_in_go_lets_its_connections_go() {
    if !is_installed("go") {
        return;
    }
    let mut files = volume();
    files.write("leader", "7");
    let address = address(8082);
    let mut reader = Reader::start(go("connections/server.go", &files.path, address));
    reader.says("leading in term 7");
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let connect = || {
        let began = std::time::Instant::now();
        loop {
            match TcpStream::connect(address) {
                Ok(connection) => return connection,
                Err(error) => assert!(began.elapsed() < PATIENCE, "it does not listen: {error}"),
            }
            std::thread::yield_now();
        }
    };
    let mut connection = connect();
    for _ in 0..2 {
        let head = ask(&mut connection, name.trim());
        assert!(!head.contains("connection: close"), "a leader keeps its connections: {head}");
    }
    files.write("follower", "8");
    reader.says("not leading");
    assert_eq!(connection.read(&mut [0]).expect("it is closed"), 0);
    let mut late = connect();
    let head = ask(&mut late, name.trim());
    assert!(head.contains("connection: close"), "a follower keeps none: {head}");
    assert_eq!(late.read(&mut [0]).expect("it is closed"), 0);

    files.write("leader", "9");
    reader.says("leading in term 9");
    let mut connection = connect();
    for _ in 0..2 {
        ask(&mut connection, name.trim());
    }
    reader.ends();
    assert_eq!(connection.read(&mut [0]).expect("it is closed"), 0);
}

/// Sends a request, and waits for an answer with this body. Returns its head, in small letters.
#[track_caller]
fn ask(connection: &mut TcpStream, body: &str) -> String {
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.write_all(b"GET / HTTP/1.1\r\nHost: leader\r\n\r\n").expect("the connection stays open");
    let mut answer = Vec::new();
    let end = format!("\r\n\r\n{body}\n");
    while !answer.ends_with(end.as_bytes()) {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {answer:?}"));
        answer.extend(byte);
    }
    String::from_utf8(answer).unwrap().to_ascii_lowercase()
}

/// docs/know-that-you-lead.md shows this.
#[test]
fn the_database_refuses_a_lower_term() {
    if !is_installed("python3") {
        return;
    }
    let files = volume();
    let database = files.path.join("bank.db");
    let page = fs::read_to_string(root().join("docs/know-that-you-lead.md")).unwrap();
    let pay = |arguments: &str| {
        let (term, invoice) = arguments.split_once(' ').unwrap();
        let mut command =
            command("python3", &[&example("fencing/pay.py"), &database, Path::new(term), Path::new(invoice)]);
        let output = command.stderr(Stdio::piped()).output().expect("Python starts");
        let text = String::from_utf8(if output.status.success() { output.stdout } else { output.stderr }).unwrap();
        let shown = format!("$ python3 pay.py bank.db {arguments}\n{text}");
        assert!(page.contains(&shown), "docs/know-that-you-lead.md does not show: {shown}");
        (output.status.code(), text.trim().to_owned())
    };
    assert_eq!(pay("7 invoice-1"), (Some(0), "paid invoice-1 in term 7".to_owned()));
    assert_eq!(pay("8 invoice-2"), (Some(0), "paid invoice-2 in term 8".to_owned()));
    assert_eq!(pay("7 invoice-3"), (Some(1), "refused: term 7 is over".to_owned()));
    assert_eq!(
        pay("8 invoice-3"),
        (Some(0), "paid invoice-3 in term 8".to_owned()),
        "it was not paid by the old leader"
    );
    let schema = fs::read_to_string(example("fencing/schema.sql")).unwrap();
    for statement in schema.lines().filter(|line| !line.is_empty() && !line.starts_with("--")) {
        assert!(page.contains(statement), "docs/know-that-you-lead.md does not show: {statement}");
    }
}

/// The manifests run the reader as it is, with the files that it reads.
#[test]
fn the_manifests_run_the_reader_in_shell() {
    let manifest = |file: &str| -> serde_json::Value {
        serde_saphyr::from_str(&fs::read_to_string(example(file)).unwrap()).expect("it is YAML")
    };
    let reader = fs::read_to_string(example("shell/leader.sh")).unwrap();
    assert!(manifest("configmap.yaml")["data"]["leader.sh"] == *reader, "configmap.yaml has another leader.sh");
    let pod = &manifest("deployment.yaml")["spec"]["template"]["spec"];
    let files = &pod["volumes"][0]["downwardAPI"]["items"];
    assert_eq!((&files[0]["path"], &files[1]["path"]), (&"role".into(), &"term".into()));
    assert_eq!(pod["containers"][0]["volumeMounts"][0]["mountPath"], "/etc/podinfo");
}

/// A volume for one test.
fn volume() -> Volume {
    Volume::new(std::thread::current().name().expect("a test has a name"))
}

/// A pipe in the place of a file: whoever opens it waits for what is in it.
struct Pipe {
    content: String,
    opened: Receiver<fs::File>,
}

impl Pipe {
    fn replace(path: &Path) -> Self {
        let content = fs::read_to_string(path).unwrap();
        fs::remove_file(path).unwrap();
        let status = Command::new("mkfifo").arg(path).status().expect("there is mkfifo");
        assert!(status.success(), "a pipe can be made");
        let (sender, opened) = channel();
        let path = path.to_owned();
        // Waits until somebody opens it for reading.
        std::thread::spawn(move || sender.send(fs::File::options().write(true).open(path).unwrap()));
        Self { content, opened }
    }

    /// Waits until the reader has opened it.
    fn opened(self) -> OpenedPipe {
        let file = self.opened.recv_timeout(PATIENCE).expect("the reader reads both files");
        OpenedPipe { content: self.content, file }
    }
}

struct OpenedPipe {
    content: String,
    file: fs::File,
}

impl OpenedPipe {
    /// Lets the reader have what is in it.
    fn give(mut self) {
        self.file.write_all(self.content.as_bytes()).expect("the reader reads it");
    }
}

/// A reader that runs, and goes with the test.
struct Reader {
    child: Child,
    lines: Receiver<String>,
}

impl Reader {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the reader starts");
        let output = BufReader::new(child.stdout.take().expect("its output is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the reader says something")
    }

    /// The next line is this one.
    #[track_caller]
    fn says(&self, line: &str) {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(next) => assert_eq!(next, line),
            Err(error) => panic!("the reader does not say '{line}': {error}"),
        }
    }

    /// Told to end, it stops to lead, and ends by itself. The first process of a container has to: for others SIGTERM is enough.
    fn ends(&mut self) {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill starts");
        assert!(told.success());
        self.says("not leading");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(self.lines.recv_timeout(PATIENCE).ok(), None, "it says nothing after that");
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether there is such a program; says so if there is none.
fn is_installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null()).status();
    let found = found.expect("there is a shell").success();
    if !found {
        lictor_testing::skip(&format!("{program} is not installed, and the examples need it"));
    }
    found
}

/// A program in Go, compiled. It listens at an address of this machine that is this process's own.
fn go(source: &str, files: &Path, address: SocketAddr) -> Command {
    let program = files.join("reader");
    let built = build(source, &program).status().expect("Go starts");
    assert!(built.success(), "{source} can be built");
    command(program.to_str().unwrap(), &[files, Path::new(&address.to_string())])
}

/// Returns what compiles a program in Go.
fn build(source: &str, program: &Path) -> Command {
    command("go", &[Path::new("build"), Path::new("-o"), program, &example(source)])
}

fn address(port: u16) -> SocketAddr {
    let [.., a, b, c] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, a | 0x40, b, c), port).into()
}

fn command(program: &str, arguments: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command
}

fn example(path: &str) -> PathBuf {
    root().join("examples/know").join(path)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
