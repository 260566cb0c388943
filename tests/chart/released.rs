//! The files of a release that install lictor: they name the image, wherever it is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::helm::{CLUSTER, helm, objects};

const IMAGE: &str = "images.example:5000/team/lictor";
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A directory that is deleted with the test.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn release(name: &str, image: &str, digest: &str) -> (Directory, Output) {
    let directory = std::env::temp_dir().join(format!("lictor-released-{name}-{}", std::process::id()));
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/hack/release.sh"));
    command.arg("chart").arg(&directory).env("IMAGE", image).env("DIGEST", digest).env_remove("DOCUMENTS");
    command.env("SOURCE", "https://forge.example/acme/lictor").env("REGISTRY", "images.example/acme");
    let output = command.output().expect("hack/release.sh runs");
    (Directory(directory), output)
}

/// Returns the images of all containers.
fn images(objects: &[Value]) -> Vec<&str> {
    let pods = objects.iter().filter_map(|object| match object["kind"].as_str()? {
        "Pod" => Some(&object["spec"]),
        "Deployment" | "Job" => Some(&object["spec"]["template"]["spec"]),
        _ => None,
    });
    let containers = pods.flat_map(|pod| pod["containers"].as_array().expect("a pod has containers"));
    containers.map(|container| container["image"].as_str().expect("a container has an image")).collect()
}

fn version(directory: &Path) -> String {
    directory.join(format!("lictor-{}.tgz", env!("CARGO_PKG_VERSION"))).to_str().expect("the path is text").to_owned()
}

#[test]
fn the_published_chart_and_install_yaml_name_the_image_of_the_release() {
    let (directory, output) = release("good", IMAGE, DIGEST);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let chart = version(&directory.0);
    let values = helm(None, &["show", "values", &chart]).expect("it is a chart");
    assert!(!values.contains("repository: lictor\n"), "{values}");
    let readme = helm(None, &["show", "readme", &chart]).expect("it has a page");
    assert!(readme.contains(&format!("`\"{IMAGE}\"`")) && readme.contains(&format!("`\"{DIGEST}\"`")), "{readme}");
    assert!(readme.contains("helm install lictor oci://images.example/acme/charts/lictor "), "{readme}");
    let files = "](https://forge.example/acme/lictor/blob/HEAD/docs/";
    assert!(readme.contains(files) && !readme.contains("](../") && !readme.contains("$REGISTRY"), "{readme}");
    let rendered = objects(&helm(None, &["template", "lictor", &chart, CLUSTER]).expect("it can be rendered"));
    let install = std::fs::read_to_string(directory.0.join("install.yaml")).expect("it was made");
    let install = objects(&install);
    let whole = format!("{IMAGE}@{DIGEST}");
    assert_eq!(images(&install), [whole.as_str()], "the Deployment, and no hook");
    assert_eq!(images(&rendered), vec![whole.as_str(); 4], "the Deployment and the three hooks");
    let number = |kind: &str| install.iter().filter(|object| object["kind"] == kind).count();
    assert_eq!((number("CustomResourceDefinition"), number("Namespace"), number("Job"), number("Pod")), (3, 1, 0, 0));
}

#[test]
fn a_release_without_an_image_is_not_made() {
    for (image, digest, says) in [("lictor", DIGEST, "it needs the registry's host"), (IMAGE, "latest", "sha256:")] {
        let (_directory, output) = release("bad", image, digest);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(says), "{said}");
    }
}

/// A fork publishes to the registry that its forge gives to its owner, unless it says otherwise.
#[test]
fn owner_and_registry_come_from_the_repository() {
    let says = |what: &str, variables: &[(&str, &str)]| {
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/hack/addresses.sh"));
        command.arg(what).env_remove("SOURCE").env_remove("REGISTRY").envs(variables.iter().copied());
        let output = command.output().expect("hack/addresses.sh runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it is text").trim_end().to_owned()
    };
    for (remote, source, registry) in [
        ("git@github.com:Acme/lictor.git", "https://github.com/Acme/lictor", "ghcr.io/acme"),
        ("https://user:token@github.com/acme/lictor", "https://github.com/acme/lictor", "ghcr.io/acme"),
        ("ssh://git@gitlab.com:22/a/b/lictor.git", "https://gitlab.com/a/b/lictor", "registry.gitlab.com/a/b/lictor"),
        ("https://forge.example:8443/acme/lictor/", "https://forge.example:8443/acme/lictor", ""),
        ("/srv/lictor", "https://example.com/lictor", ""),
    ] {
        let by_remote =
            [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "remote.origin.url"), ("GIT_CONFIG_VALUE_0", remote)];
        assert_eq!((says("source", &by_remote), says("registry", &by_remote)), (source.into(), registry.into()));
    }
    let set = [("SOURCE", "https://github.com/acme/lictor"), ("REGISTRY", "images.example/Team")];
    assert_eq!((says("source", &set), says("registry", &set)), (set[0].1.to_owned(), "images.example/team".to_owned()));
}

/// The version that is published next has a chapter of its own.
#[test]
fn the_changelog_has_this_version() {
    let chapter = format!("\n## {}\n", env!("CARGO_PKG_VERSION"));
    assert!(include_str!("../../CHANGELOG.md").contains(&chapter), "CHANGELOG.md has no {chapter:?}");
}
