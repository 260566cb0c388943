//! The file that `check` reads: YAML or JSON, with one or several objects.

use std::io::Read;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};
use lictor_api::{ElectionClass, GROUP};
use serde_json::Value;

/// The objects of a file.
#[derive(Debug, Default)]
pub(super) struct File {
    /// The LeaderElections, as they are written.
    pub(super) elections: Vec<Document>,
    pub(super) classes: Vec<ElectionClass>,
    /// The kinds and names of all other objects.
    pub(super) others: Vec<String>,
}

/// A LeaderElection, as it is written.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) object: Value,
}

impl File {
    /// Reads a file, or with `-` the standard input.
    ///
    /// # Errors
    /// What is wrong with it, and what to do.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = if path == Path::new("-") { "the standard input".to_owned() } else { path.display().to_string() };
        let mut text = String::new();
        let read = if path == Path::new("-") {
            std::io::stdin().read_to_string(&mut text)
        } else {
            ensure!(
                !path.is_dir(),
                "{name} is a directory: name a file in it, such as the one with the LeaderElection"
            );
            std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text))
        };
        read.with_context(|| {
            format!("{name} can't be read: name a YAML or JSON file with -f, or - for the standard input")
        })?;
        Self::parse(&text, &name)
    }

    fn parse(text: &str, name: &str) -> anyhow::Result<Self> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default().to_owned();
            anyhow!("{name} is neither YAML nor JSON: {first}")
        })?;
        let mut file = Self::default();
        for document in documents {
            file.take(document, name)?;
        }
        if file.elections.is_empty() {
            let instead = match file.others.as_slice() {
                [] => String::new(),
                others => format!(", but {}", others.join(", ")),
            };
            bail!(
                "{name} has no LeaderElection{instead}: name the file that has one (examples/service/leaderelection.yaml shows one)"
            );
        }
        Ok(file)
    }

    fn take(&mut self, object: Value, file: &str) -> anyhow::Result<()> {
        if object.is_null() {
            return Ok(());
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
        ensure!(
            !version.is_empty() && !kind.is_empty(),
            "{file} has something without apiVersion and kind, so it is no object of Kubernetes: a LeaderElection begins with \
             `apiVersion: lictor.dev/v1alpha1` and `kind: LeaderElection`"
        );
        let ours = version.split('/').next() == Some(GROUP);
        match (ours, kind.as_str()) {
            (false, "List") => {
                let items = object["items"].as_array().cloned().unwrap_or_default();
                return items.into_iter().try_for_each(|item| self.take(item, file));
            }
            (true, "LeaderElection") => {
                ensure!(!name.is_empty(), "{file} has a LeaderElection without metadata.name: give it one");
                let namespace = Some(text("/metadata/namespace")).filter(|name| !name.is_empty());
                self.elections.push(Document { name, namespace, object });
            }
            (true, "ElectionClass") => {
                let class = serde_json::from_value(object)
                    .map_err(|error| anyhow!("the ElectionClass {name} in {file}: {error}"))?;
                self.classes.push(class);
            }
            _ => self.others.push(if name.is_empty() { kind } else { format!("{kind}/{name}") }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, String> {
        File::parse(text, "web.yaml").map_err(|error| error.to_string())
    }

    const ELECTION: &str =
        "apiVersion: lictor.dev/v1alpha1\nkind: LeaderElection\nmetadata: {name: web, namespace: shop}\n";

    #[test]
    fn the_elections_are_found_among_other_objects_in_yaml_json_and_lists() {
        let class = "apiVersion: lictor.dev/v1alpha1\nkind: ElectionClass\nmetadata: {name: mine}\nspec: {lease: {}}\n";
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n";
        let file = parse(&format!("---\n{service}---\n# nothing\n---\n{ELECTION}---\n{class}")).unwrap();
        assert_eq!((file.elections.len(), file.classes.len(), file.others), (1, 1, vec!["Service/web".to_owned()]));
        assert_eq!((file.elections[0].name.as_str(), file.elections[0].namespace.as_deref()), ("web", Some("shop")));
        let election = r#"{"apiVersion": "lictor.dev/v1alpha1", "kind": "LeaderElection", "metadata": {"name": "a"}}"#;
        let list = format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{election}, {election}]}}"#);
        assert_eq!((parse(election).unwrap().elections.len(), parse(&list).unwrap().elections.len()), (1, 2));
    }

    #[test]
    fn a_file_without_an_election_is_refused_in_one_line_that_says_what_to_do() {
        for (text, says) in [
            ("", "web.yaml has no LeaderElection: name the file"),
            ("apiVersion: v1\nkind: Service\nmetadata: {name: web}\n", "has no LeaderElection, but Service/web: name"),
            ("a: [1", "web.yaml is neither YAML nor JSON: "),
            ("name: {{ .Values.name }}", "web.yaml"),
            ("just words", "without apiVersion and kind"),
            ("apiVersion: lictor.dev/v1alpha1\nkind: LeaderElection\n", "without metadata.name: give it one"),
            ("apiVersion: example.com/v1\nkind: LeaderElection\nmetadata: {name: web}\n", "but LeaderElection/web"),
            (
                "apiVersion: lictor.dev/v1alpha1\nkind: ElectionClass\nmetadata: {name: x}\nspec: 7\n",
                "the ElectionClass x in web.yaml: ",
            ),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(says) && !refused.contains('\n'), "{text:?}: {refused}");
        }
    }
}
