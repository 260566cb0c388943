//! Real nodes beside a control plane. They end with this process, however it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::Mutex;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use lictor_testing::tool;

/// The exit status of a script on a machine that does not allow what the script does.
const NOT_HERE: i32 = 77;

/// Nodes that run containers, made by hack/node.sh.
pub struct Nodes {
    kubeconfig: PathBuf,
    /// The address of this machine for pods.
    pub host: String,
    orders: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    _keeper: Child,
}

impl Nodes {
    /// Starts nodes with these images. Returns `None`, and prints why, if the machine does not allow it.
    pub fn start(count: usize, images: &[&Path]) -> Option<Self> {
        let mut keeper = Command::new(script("node.sh"))
            .args(["hold", &format!("test-{}", std::process::id()), &count.to_string()])
            .args(images)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("hack/node.sh starts");
        let orders = keeper.stdin.take().expect("its input is piped");
        let mut answers = BufReader::new(keeper.stdout.take().expect("its output is piped"));
        let mut settings = std::collections::BTreeMap::new();
        for line in Read::by_ref(&mut answers).lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once('=').expect("a line is NAME=VALUE");
            settings.insert(name.to_owned(), value.to_owned());
        }
        if settings.is_empty() {
            let status = keeper.wait().expect("it ends");
            assert_eq!(status.code(), Some(NOT_HERE), "hack/node.sh makes nodes");
            return None;
        }
        Some(Self {
            kubeconfig: settings["KUBECONFIG"].clone().into(),
            host: settings["HOST"].clone(),
            orders: Mutex::new((orders, answers)),
            _keeper: keeper,
        })
    }

    /// Makes a client with all rights.
    pub async fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("the kubeconfig can be read");
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("it is valid");
        config.default_retry = false;
        Client::try_from(config).expect("a client can be made")
    }

    /// Sends one of hack/node.sh's orders, and waits until it is carried out.
    pub fn order(&self, order: &str) {
        let (orders, answers) = &mut *self.orders.lock().unwrap();
        writeln!(orders, "{order}").expect("the nodes are there");
        let mut line = String::new();
        answers.read_line(&mut line).expect("they answer");
        assert_eq!(line.trim(), "done", "{order}");
    }

    /// Returns what kubectl prints.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.run(&tool("kubectl"), arguments, "")
    }

    /// Returns what kubectl prints, or why it fails.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(tool("kubectl")).args(arguments).env("KUBECONFIG", &self.kubeconfig).output();
        let output = output.expect("kubectl starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Applies a manifest.
    pub fn apply(&self, manifest: &serde_json::Value) {
        self.run(&tool("kubectl"), &["apply", "-f", "-"], &manifest.to_string());
    }

    /// Returns what Helm prints.
    pub fn helm(&self, arguments: &[&str]) -> String {
        self.run(&tool("helm"), arguments, "")
    }

    fn run(&self, program: &Path, arguments: &[&str], input: &str) -> String {
        let mut child = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        child.stdin.take().expect("its input is piped").write_all(input.as_bytes()).expect("it reads its input");
        text(&child.wait_with_output().expect("it ends"), &format!("{} {arguments:?}", program.display()))
    }

    /// Returns the process id on this machine of the main process of a pod that runs this program.
    pub fn process(uid: &str, program: &str) -> u32 {
        match *Self::processes(uid, program) {
            [process] => process,
            ref found => panic!("the processes of pod {uid} that are called {program}: {found:?}"),
        }
    }

    /// Returns the process ids of the main processes of a pod's containers that run this program.
    pub fn processes(uid: &str, program: &str) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("there is /proc").filter_map(Result::ok) {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            // The first process in a process namespace is the container's main one: its innermost id is 1.
            let first = read("status").lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"));
            if first && read("cgroup").contains(&format!("pod{uid}/")) && read("cmdline").starts_with(program) {
                found.push(pid);
            }
        }
        found
    }
}

/// Packs static programs as an image, which runs the first one.
pub fn pack(tar: &Path, name: &str, programs: &[&Path]) {
    let status =
        Command::new(script("node.sh")).arg("pack").arg(tar).arg(name).args(programs).status().expect("it starts");
    assert!(status.success(), "{name} can be packed");
}

/// Packs an image of this name with a program in Go, whose source is this file. In the image it is called `web`.
pub fn go_image(tar: &Path, name: &str, source: &str) {
    let directory = tar.with_extension("built");
    let program = directory.join("web");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let status = Command::new("go")
        .current_dir(file.parent().expect("it is in a directory"))
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-o"])
        .args([&program, &file])
        .status()
        .expect("Go is there");
    assert!(status.success(), "{source} can be built");
    pack(tar, name, &[&program]);
    let _ = std::fs::remove_dir_all(directory);
}

/// Returns the operator's image, as it is published. LICTOR_IMAGE names another archive of it.
pub fn operator_image() -> PathBuf {
    if let Some(given) = std::env::var_os("LICTOR_IMAGE") {
        return given.into();
    }
    let output = Command::new(script("image.sh")).stderr(Stdio::inherit()).output().expect("hack/image.sh starts");
    let line = text(&output, "hack/image.sh");
    line.split_whitespace().next().expect("it names the archive").into()
}

/// Packs an image with busybox and the program of the operator's image, as examples/agent/Dockerfile copies it into an image of one's own.
pub fn image_with_lictor(tar: &Path, name: &str, operator: &Path) {
    let directory = tar.with_extension("unpacked");
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let unpack = |archive: &Path, files: &[&str]| {
        let status = Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&directory).args(files).status();
        status.expect("tar starts").success()
    };
    assert!(unpack(operator, &[]), "the operator's image is an archive");
    let manifest = std::fs::read_to_string(directory.join("manifest.json")).expect("an image has a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("it is JSON");
    let layers = manifest[0]["Layers"].as_array().expect("it has layers");
    let found = layers.iter().any(|layer| unpack(&directory.join(layer.as_str().expect("a name")), &["lictor"]));
    assert!(found, "the operator's image has /lictor");
    pack(tar, name, &[&tool("node-root").join("usr/bin/busybox"), &directory.join("lictor")]);
    let _ = std::fs::remove_dir_all(directory);
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hack").join(name)
}

fn text(output: &Output, what: &str) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}: {}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    said
}
