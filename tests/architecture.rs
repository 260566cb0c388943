//! The layers are what `src/lib.rs` says: who imports whom, what the core is made of, and who writes pods. And what the documents
//! tell people to run exists, what they link to, too, the rules of the protocol are cited, the versions that they name are tested, and
//! they use the words of the glossary.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A source file: its path below `src/`, and its text without comments.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The layer that it belongs to; none for `lib.rs` and `main.rs`.
    fn layer(&self) -> Option<&str> {
        self.path.split_once('/').map(|(layer, _)| layer).or_else(|| self.path.strip_suffix(".rs")).filter(is_layer)
    }

    /// The layers that it names: `crate::store`, `crate::{peers, store}`, and in a layer's own `mod.rs` also `super::store`.
    fn imports(&self) -> BTreeSet<String> {
        let roots = if self.path.ends_with("/mod.rs") { ["crate::", "super::"].as_slice() } else { &["crate::"] };
        let mut found = BTreeSet::new();
        for (at, root) in roots.iter().flat_map(|root| self.text.match_indices(root)) {
            let rest = &self.text[at + root.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => top_level_names(group),
                None => vec![identifier(rest)],
            };
            found.extend(names.into_iter().filter(is_layer).map(str::to_owned));
        }
        found
    }

    /// The same without the unit tests at its end.
    fn without_tests(mut self) -> Self {
        self.text.truncate(self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len()));
        self
    }
}

/// The modules of a crate by their paths: `["store", "lease"]`; the crate's root has none.
struct Modules(BTreeMap<Vec<String>, Source>);

impl Modules {
    /// All but those of tests.
    fn of(crate_root: &str) -> Self {
        let is_test =
            |source: &Source| source.path.split(['/', '.']).any(|part| part == "tests" || part == "properties");
        let sources = sources_in(crate_root).into_iter().filter(|source| !is_test(source) && source.path != "main.rs");
        Self(sources.map(|source| (module_path(&source.path), source.without_tests())).collect())
    }

    /// Who imports whom.
    fn imports(&self) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for (module, source) in &self.0 {
            let handed_on: Vec<&str> = uses(&source.text).filter(|(public, _)| *public).map(|(_, tree)| tree).collect();
            let text = handed_on.iter().fold(source.text.clone(), |text, tree| text.replacen(tree, "", 1));
            let imported = self.named(module, &text).into_iter().filter_map(|path| self.definition(path));
            found.extend(imported.filter(|path| path != module).map(|path| (module.join("::"), path.join("::"))));
        }
        found
    }

    /// The paths in a module's text that lead into its crate, from the crate's root.
    fn named(&self, module: &[String], text: &str) -> Vec<Vec<String>> {
        let parent = &module[..module.len().saturating_sub(1)];
        let children = self.0.keys().filter(|path| path.split_last().is_some_and(|(_, above)| above == module));
        let children = children.map(|path| (path.last().unwrap().as_str(), path.as_slice()));
        let roots = children.chain([("crate", [].as_slice()), ("super", parent), ("self", module)]);
        let mut found = Vec::new();
        for (root, above) in roots {
            let begins = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
            let root = format!("{root}::");
            for (at, _) in text.match_indices(&root).filter(|(at, _)| begins(*at)) {
                found.extend(branches(&text[at + root.len()..]).into_iter().map(|rest| [above, &rest].concat()));
            }
        }
        found
    }

    /// The module that defines what a path leads to; none: it is of another crate.
    fn definition(&self, path: Vec<String>) -> Option<Vec<String>> {
        let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(length);
        let Some(name) = rest.first() else { return Some(path) };
        let text = &self.0[module].text;
        for (_, tree) in uses(text) {
            if !branches(tree).iter().any(|branch| branch.last() == Some(name)) {
                continue;
            }
            let inside = self.named(module, tree).into_iter().find(|path| path.last() == Some(name));
            return self.definition([inside?, rest[1..].to_vec()].concat());
        }
        Some(module.to_vec())
    }
}

#[test]
fn each_layer_imports_what_the_table_allows() {
    let table = table();
    let mut wrong = Vec::new();
    for source in sources() {
        assert!(
            !source.text.contains("super::super"),
            "{}: name the layer by crate::, not by super::super",
            source.path
        );
        assert!(!source.text.contains("pub use lictor_"), "{} hides a crate: its users name it", source.path);
        let Some(layer) = source.layer() else { continue };
        let allowed = table.get(layer).unwrap_or_else(|| panic!("src/lib.rs says nothing about the layer {layer}"));
        wrong.extend(
            source
                .imports()
                .into_iter()
                .filter(|import| import != layer && !allowed.contains(import))
                .map(|import| format!("{} imports {import}", source.path)),
        );
    }
    assert!(wrong.is_empty(), "not in the table of src/lib.rs: {wrong:#?}");
}

/// Imports inside a crate point one way: of two modules, one is the lower one, and so of two folders. What a module only hands on
/// (`pub use`) is imported from where it is defined.
#[test]
fn no_modules_import_each_other_in_a_circle() {
    for (crate_root, least) in [
        ("src", 60),
        ("crates/core/src", 30),
        ("crates/api/src", 10),
        ("crates/kubernetes/src", 3),
        ("crates/consul/src", 10),
        ("crates/objects/src", 5),
        ("crates/locks/src", 10),
        ("crates/agent/src", 25),
        ("crates/testing/src", 20),
        ("crates/docs/src", 5),
        ("benches/operator", 20),
    ] {
        let modules = Modules::of(crate_root);
        assert!(modules.0.len() > least, "{crate_root}: {} modules", modules.0.len());
        let imports = modules.imports();
        for imports in [siblings(&imports), imports] {
            let circles = in_circles(&imports);
            assert!(circles.is_empty(), "{crate_root}: these are parts of circles: {circles:#?}");
        }
    }
}

/// All methods of a type stand in the file that defines it. A call between files is then one between types, whose imports point one way,
/// and a type says by its fields what its methods may touch.
#[test]
fn methods_stand_where_their_type_is_defined() {
    for (crate_root, folder) in [("crates/core/src", ""), ("src", "controller")] {
        let modules = Modules::of(crate_root);
        let sources = modules.0.values().filter(|source| source.path.starts_with(folder));
        let elsewhere: Vec<_> =
            sources.flat_map(|source| extended(&source.text).map(|name| (name, &source.path))).collect();
        assert!(elsewhere.is_empty(), "types that have methods in another file than their own: {elsewhere:#?}");
    }
}

#[test]
fn methods_in_another_file_are_found() {
    let own = "struct Own<T>(T);\nimpl<T: Fn(u8) -> bool> Own<T> {}\nimpl Default for Other {}\n";
    assert_eq!(extended(own).count(), 0);
    for text in ["impl Other {}\n", "impl<'a, T: Iterator<Item = u8>> super::Other<'a, T>\nwhere\n"] {
        assert_eq!(extended(&format!("{own}{text}")).collect::<Vec<_>>(), ["Other"]);
    }
}

/// The types that a text does not define, but gives methods.
fn extended(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.lines().filter_map(|line| line.strip_prefix("impl")).filter(|rest| !rest.contains(" for "));
    let names = blocks.filter_map(|rest| {
        let mut depth = 0;
        // The type comes after its parameters, and the path to it does not count.
        let path = rest.replace("->", "  ").find(|c| {
            depth += i32::from(c == '<') - i32::from(c == '>');
            depth == 0 && c == ' '
        })?;
        rest[path + 1..].split(['<', ' ']).next()?.rsplit("::").next()
    });
    let kinds = ["struct ", "enum ", "union "];
    let defines =
        move |name: &str| kinds.iter().any(|kind| text.split(kind).skip(1).any(|rest| identifier(rest) == name));
    names.filter(move |name| !defines(name))
}

/// The operator runs on Linux only, and `kubectl lictor` everywhere. What is built on other systems, too, imports no module that is
/// left out there, no crate that only those modules have, and nothing of Unix.
#[test]
fn what_people_run_is_built_on_every_system() {
    let mut modules = Modules::of("src");
    let mut left_out = Vec::new();
    for (module, source) in &modules.0 {
        let marked = source.text.split(ON_LINUX).skip(1).filter_map(|rest| rest.lines().next());
        let named = marked.filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
        left_out.extend(named.map(|name| [module.as_slice(), &[name.to_owned()]].concat().join("::")));
    }
    left_out.sort();
    assert_eq!(
        left_out,
        [
            "cli::agent",
            "cli::consul",
            "cli::observe",
            "cli::operator::linux",
            "cli::tell",
            "controller",
            "peers",
            "store::consul",
            "store::objects",
            "store::shared",
            "telemetry"
        ]
    );
    let is_left_out = |module: &str| {
        left_out
            .iter()
            .any(|out| module.strip_prefix(out).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
    };
    for source in modules.0.values_mut() {
        source.text = built_everywhere(&source.text);
    }
    let imports = modules.imports();
    let wrong: Vec<_> = imports.iter().filter(|(one, other)| !is_left_out(one) && is_left_out(other)).collect();
    assert!(wrong.is_empty(), "these are built on every system, and import what is built on Linux only: {wrong:#?}");

    let manifest = read("Cargo.toml");
    let (_, section) =
        manifest.split_once("[target.'cfg(target_os = \"linux\")'.dependencies]\n").expect("it is there");
    let lines = section.split("\n[").next().unwrap().lines();
    let crates = lines.filter_map(|line| line.split_once([' ', '.'])).map(|(name, _)| name.replace('-', "_") + "::");
    let crates: Vec<_> = crates.chain(["std::os::", "signal::unix"].map(str::to_owned)).collect();
    assert!(crates.len() > 6, "{crates:?}");
    for (module, source) in modules.0.iter().filter(|(module, _)| !is_left_out(&module.join("::"))) {
        let used: Vec<_> = crates.iter().filter(|name| source.text.contains(name.as_str())).collect();
        assert!(used.is_empty(), "{} is built on every system, and uses {used:?}", module.join("::"));
    }
    for root in ["crates/core/src", "crates/process/src", "crates/api/src", "crates/kubernetes/src"] {
        for (module, source) in &Modules::of(root).0 {
            let text = built_everywhere(&source.text);
            let used: Vec<_> = crates.iter().filter(|name| text.contains(name.as_str())).collect();
            assert!(used.is_empty(), "{root}: {} is built on every system, and uses {used:?}", module.join("::"));
        }
    }
}

/// Nothing that elects a leader among pods depends on `lictor agent` or `lictor observe`. Both are crates, so they can't depend on it.
#[test]
fn only_the_command_line_runs_the_agent_and_the_observer() {
    let all = sources();
    let (cli, others): (Vec<_>, Vec<_>) = all
        .iter()
        .filter(|source| source.text.contains("lictor_agent"))
        .partition(|source| source.layer() == Some("cli"));
    assert!(!cli.is_empty());
    let others: Vec<_> = others.iter().map(|source| &source.path).collect();
    assert!(others.is_empty(), "these import the agent: {others:?}");
}

#[test]
fn what_is_built_on_linux_only_is_found() {
    let text = format!("{ON_LINUX}mod a;\nuse b::B;\n{ON_UNIX}fn c() {{\n    rustix::d();\n}}\n\nfn e() {{}}\n");
    assert_eq!(built_everywhere(&text), "use b::B;\n\n\nfn e() {}\n");
}

#[test]
fn the_core_is_pure() {
    let manifest = read("crates/core/Cargo.toml");
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let crates: Vec<_> =
        dependencies.lines().filter_map(|line| line.split_once(['.', ' '])).map(|(name, _)| name).collect();
    assert_eq!(crates, ["litemap", "serde"], "the core depends on nothing that could touch the world");
    let world = ["fs", "net", "env", "io", "process", "thread", "sync", "time::Instant", "time::SystemTime"];
    let forbidden = world.map(|part| format!("std::{part}"));
    let sources = sources_in("crates/core/src");
    assert!(sources.len() > 30);
    for source in sources.iter().filter(|source| !source.path.contains("tests") && !source.path.contains("properties"))
    {
        // A value that is shared, and never changes, touches nothing.
        let code = source.text.split("#[cfg(test)]").next().unwrap().replace("use std::sync::Arc;", "");
        let found: Vec<_> = forbidden.iter().filter(|name| contains_path(&code, name)).collect();
        assert!(found.is_empty(), "{} uses {found:?}", source.path);
        assert!(!code.contains("async "), "{} waits for something", source.path);
    }
}

/// The texts of failures and sessions are for people, so another wording of them must not change what lictor does. Only where the
/// answers of Kubernetes and Consul are read, their words count, because nothing else tells them apart there.
#[test]
fn no_decision_depends_on_the_wording_of_a_failure() {
    let mut sources = product();
    assert!(sources.iter().any(|source| source.text.contains("Failure::")));
    sources.extend(sources_in("crates/core/src"));
    for source in sources.into_iter().map(Source::without_tests).filter(|source| !source.path.contains("tests")) {
        let found = decides_by_text(&source.text);
        assert!(found.is_none(), "{} decides by a text: {}", source.path, found.unwrap_or_default());
        let by_name = [".described", "whose_session"].iter().any(|name| source.text.contains(name));
        assert!(
            !by_name || !source.path.starts_with("election/"),
            "{} decides by what a session is called",
            source.path
        );
    }
}

#[test]
fn a_decision_by_text_is_found() {
    for text in [
        "matches!(failure, Failure::Refused(text) if text.starts_with(\"not allowed\"))",
        "Some(Failure::Refused(text))\n    if text.contains(\"no\") => {}",
        "failure\n    .text()\n    .ends_with(\"no\")",
        "if failure.text() == known {",
        "if known != failure.text() {",
        "self.told.get(&id) != Some(failure.text())",
    ] {
        assert!(decides_by_text(text).is_some(), "{text}");
    }
    for text in
        ["Err(Failure::Refused(_)) if alone => {}", "warn!(\"{}\", failure.text());", "Failure::Refused(text) => {}"]
    {
        assert_eq!(decides_by_text(text), None);
    }
}

/// Returns where code decides by the text of a failure.
fn decides_by_text(code: &str) -> Option<String> {
    let code: String = code.split_whitespace().collect::<Vec<_>>().join(" ").replace(" .", ".");
    let compared = [".starts_with(", ".ends_with(", ".contains(", ".find(", ".eq(", " == ", " != "];
    let by_text = code.match_indices(".text()").find(|(at, call)| {
        let (before, after) = (&code[..*at], &code[at + call.len()..]);
        let operand = before.rsplit([' ', '(']).next().unwrap_or_default();
        let before = before[..before.len() - operand.len()].trim_end_matches("Some(");
        compared.iter().any(|comparison| after.starts_with(comparison))
            || before.ends_with("== ")
            || before.ends_with("!= ")
    });
    let by_guard = code.match_indices("Failure::").find(|(at, _)| {
        let rest = code[*at..].split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        let guard = |rest: &str| rest.trim_start_matches(')').starts_with(" if ");
        rest.is_some_and(|(bound, rest)| bound != "_" && bound == identifier(bound) && guard(rest))
    });
    by_text.or(by_guard).map(|(at, _)| code[at..].chars().take(80).collect())
}

/// It makes requests that kube has no method for.
const LISTS_PODS: &str = "kubernetes/pods/protobuf.rs";
/// It asks for strict validation, for which kube has no parameter.
const CREATES_SWITCHOVERS: &str = "cli/user/reading.rs";

#[test]
fn pods_are_written_in_one_file() {
    let writes = [".patch", ".replace(", ".create(", ".delete", ".evict(", ".entry("];
    let mut with_pods = Vec::new();
    for source in product() {
        for any in ["DynamicObject", "kube::api::Request", "kube::core::Request"] {
            let workloads = any == "DynamicObject" && source.path == "kubernetes/workloads.rs";
            let typed =
                any == "kube::core::Request" && [LISTS_PODS, CREATES_SWITCHOVERS].contains(&source.path.as_str());
            assert!(workloads || typed || !source.text.contains(any), "{} could write anything by {any}", source.path);
        }
        // An Api of pods needs a type for them: the slim one, or the one of k8s-openapi.
        let openapi = ["v1::Pod", "k8s::Pod"].iter().any(|path| source.text.contains(path));
        let group = source.text.split("core::v1::{").skip(1).any(|group| top_level_names(group).contains(&"Pod"));
        if source.text.contains("SlimPod") || openapi || group {
            with_pods.push(source);
        }
    }
    let paths: Vec<_> = with_pods.iter().map(|source| source.path.as_str()).collect();
    assert_eq!(paths, ["kubernetes/pods.rs", LISTS_PODS, "kubernetes/pods/slim.rs", "kubernetes/watch.rs"]);
    for other in &with_pods[1..] {
        assert!(writes.iter().all(|write| !other.text.contains(write)), "{} writes", other.path);
    }
    let lists = &with_pods[1].text;
    assert!(
        lists.matches("core::Request").count() == 1 && lists.contains("core::Request::new(api.resource_url()).list(")
    );
    let switchovers = product().into_iter().find(|source| source.path == CREATES_SWITCHOVERS).unwrap().text;
    let creation = switchovers.split("fn strict_creation(api: &Api<Switchover>,").nth(1).unwrap();
    assert!(
        creation.contains(" Request::new(api.resource_url()).create(")
            && switchovers.matches(" Request::new(").count() == 1
    );
    let pods = &with_pods[0];
    for (write, count) in [("api.patch(", 1), ("api.delete(", 1), ("api.create_subresource", 1)] {
        assert_eq!(pods.text.matches(write).count(), count, "{} has one place for each write", pods.path);
    }
    let others = [".replace(", ".create(", ".evict(", ".entry("];
    assert!(others.iter().all(|write| !pods.text.contains(write)), "{} writes otherwise", pods.path);
}

#[test]
fn slices_are_written_in_one_file() {
    let names = |source: &&Source| source.text.contains("discovery::v1") || source.text.contains("v1::EndpointSlice");
    let all = product();
    let paths: Vec<_> = all.iter().filter(names).map(|source| source.path.as_str()).collect();
    assert_eq!(paths, ["kubernetes/slices.rs"]);
    let slices = all.iter().find(|source| source.path == "kubernetes/slices.rs").unwrap();
    for (write, times) in [(".create(", 1), (".replace(", 1), (".delete(", 1), (".patch", 0), (".entry(", 0)] {
        let code = slices.text.split("#[cfg(test)]").next().unwrap();
        assert_eq!(code.matches(write).count(), times, "{write} in {}", slices.path);
    }
    // Endpoints are only looked for.
    assert_eq!(slices.text.matches("Api::<Endpoints>").count(), 1);
    let services = all.iter().find(|source| source.path == "kubernetes/services.rs").unwrap();
    assert!([".create(", ".replace(", ".delete", ".patch"].iter().all(|write| !services.text.contains(write)));
}

#[test]
fn workloads_are_written_in_one_file_and_nothing_else_is() {
    let source = sources().into_iter().find(|source| source.path == "kubernetes/workloads.rs").unwrap();
    let kinds = source.text.split("ApiResource::erase::<").skip(1).map(|rest| rest.split('>').next().unwrap());
    let kinds: BTreeSet<_> = kinds.map(|path| path.rsplit("::").next().unwrap()).collect();
    assert_eq!(kinds, BTreeSet::from(["CronJob", "Deployment", "Job", "StatefulSet"]));
    assert_eq!(source.text.matches("ApiResource::").count(), 4, "{} makes no others", source.path);
}

#[test]
fn commands_in_the_documents_exist() {
    let (makefile, parts) = (read("Makefile"), read("benches/operator/main.rs"));
    let manifest = read("Cargo.toml") + &read("crates/core/Cargo.toml");
    let is_target = |name: &str| makefile.lines().any(|line| line.starts_with(&format!("{name}:")));
    let is_built = |name: &str| manifest.contains(&format!("name = \"{name}\"")) || exists(&format!("tests/{name}.rs"));
    let is_measured = |arguments: &str| {
        let argument = arguments.trim_start_matches("ARGS=").trim_matches('\'');
        if let Some(option) = argument.strip_prefix("--") {
            return parts.contains(&format!("\n    {}: ", option.replace('-', "_")));
        }
        let part = argument.replace('-', "");
        parts.lines().any(|line| line.trim().strip_suffix(',').is_some_and(|name| name.eq_ignore_ascii_case(&part)))
    };
    let (mut found, mut wrong) = (0, Vec::new());
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        // A command is between two back-ticks, or between three and three.
        for code in text.split('`').skip(1).step_by(2) {
            let words: Vec<_> = code.split_whitespace().chain([""]).collect();
            for pair in words.windows(2) {
                let exists = match *pair {
                    ["make", ""] => continue,
                    ["make", target] => is_target(target),
                    ["--test" | "--bench", name] => is_built(name),
                    ["bench", arguments] if arguments.starts_with("ARGS=") => is_measured(arguments),
                    [script, _] if script.starts_with("hack/") && script.contains(".sh") => exists(script),
                    _ => continue,
                };
                found += 1;
                if !exists {
                    wrong.push(format!("{}: {}", path.display(), pair.join(" ")));
                }
            }
        }
    }
    assert!(found > 50, "{found} commands were found");
    assert!(wrong.is_empty(), "there are no such commands: {wrong:#?}");
}

/// A misspelt part of `make e2e-node` is refused before the image is built, by the names that tests/node/plan.rs has.
#[test]
fn what_a_run_on_real_nodes_can_not_mean_is_refused_before_anything_is_built() {
    let plan = |only: &str, runs: &str| {
        let output = std::process::Command::new(root().join("hack/node-plan.sh")).args([only, runs]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let source = read("tests/node/plan.rs");
    let rows = source.lines().filter_map(|line| line.trim().strip_prefix("(Self::")?.split('"').nth(1));
    let parts = rows.collect::<Vec<_>>().join(", ");
    assert!(parts.contains("switches, "), "{parts}");
    for (only, runs) in [("", ""), (parts.as_str(), "20"), ("node", "1")] {
        assert_eq!(plan(only, runs), (Some(0), String::new()), "{only}, {runs}");
    }
    for (only, name) in [("pots", "pots"), ("pods,,node", ""), ("pods,", ""), ("po", "po"), ("pods node", "pods node")]
    {
        let says = format!("make e2e-node: ONLY: there is no part '{name}'. Parts, separated by commas: {parts}\n");
        assert_eq!(plan(only, ""), (Some(2), says), "{only}");
    }
    for runs in ["0", "-1", "many", "1 2"] {
        let says = format!("make e2e-node: RUNS: '{runs}' is not a number from 1 on\n");
        assert_eq!(plan("", runs), (Some(2), says), "{runs}");
    }
    let makefile = read("Makefile");
    let (_, recipe) = makefile.split_once("\ne2e-node:").unwrap();
    let first = recipe.lines().nth(1).unwrap();
    assert_eq!(first, "\t@hack/node-plan.sh '$(ONLY)' '$(RUNS)'", "it comes before the build");
}

/// docs/protocol.md has each rule once. The code that keeps a rule, the model that takes it out and what shows it cite its id, and
/// nothing cites an id that is not there.
#[test]
fn the_rules_of_the_protocol_are_cited() {
    let (core, model) = ("crates/core/src", "crates/core/tests/model/rules.rs");
    let protocol = read("docs/protocol.md");
    let rules: Vec<_> = protocol.split("\n### ").skip(1).map(|rule| (identifier(rule), rule)).collect();
    assert!(rules.len() > 30, "{} rules", rules.len());
    let files: Vec<_> = ["crates", "src", "tests"].into_iter().flat_map(files_in).collect();
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: String| wrong.extend((!holds).then_some(what));
    for (id, rule) in &rules {
        let line = |name: &str| rule.lines().find_map(|line| line.strip_prefix(&format!("- {name}: "))).unwrap_or("");
        let cites = |under: &str| files.iter().any(|(path, text)| path.starts_with(under) && ids_in(text).contains(id));
        check(cites(core), format!("{core} does not cite {id}"));
        check(!line("Without it").is_empty(), format!("{id} does not say what goes wrong without it"));
        let taken_out = line("Model");
        check(cites(model) != taken_out.starts_with("none: "), format!("{id} in {model}, and '{taken_out}'"));
        for name in quoted(taken_out) {
            check(read(model).contains(&format!("    {name},\n")), format!("{id}: {model} has no {name}"));
        }
        let mut file = String::new();
        for name in quoted(line("Code")) {
            if is_rust(name) {
                file = if name.contains("src/") { name.to_owned() } else { format!("{core}/{name}") };
                check(exists(&file), format!("{id}: there is no {file}"));
            } else {
                let defines =
                    exists(&file) && ["(", "<"].iter().any(|end| read(&file).contains(&format!("fn {name}{end}")));
                check(defines, format!("{id}: {file} has no {name}"));
            }
        }
        for name in quoted(line("Shown by")) {
            let (scenario, test) = (format!("/scenarios/{name}"), format!("fn {name}("));
            let shows = |path: &str, text: &str| path.ends_with(&scenario) || text.contains(&test);
            let cites = files.iter().any(|(path, text)| shows(path, text) && ids_in(text).contains(id));
            check(cites, format!("{name} does not cite {id}"));
        }
    }
    for (path, text) in &files {
        let unknown = ids_in(text).into_iter().find(|id| rules.iter().all(|(known, _)| known != id));
        check(unknown.is_none(), format!("{path} cites {unknown:?}"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// ARCHITECTURE.md can be read in a few minutes, and what it names is there.
#[test]
fn the_house_is_as_it_is_drawn() {
    let text = read("ARCHITECTURE.md");
    assert!(text.len() < 10_000, "ARCHITECTURE.md has {} bytes: move details to docs/", text.len());
    let is_path = |name: &&str| ["crates/", "docs/", "src/", "tests/"].iter().any(|top| name.starts_with(top));
    let paths: Vec<_> = quoted(&text).filter(is_path).collect();
    assert!(paths.len() > 30, "{} paths were found", paths.len());
    let missing: Vec<_> = paths.into_iter().filter(|path| !exists(path)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:#?}");
}

/// What the documents link to exists, headings included.
#[test]
fn links_in_the_documents_lead_somewhere() {
    let anchor = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    let (mut found, mut wrong) = (0, Vec::new());
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let has = |text: &str| {
                text.lines().any(|line| line.starts_with('#') && anchor(line.trim_start_matches(['#', ' '])) == heading)
            };
            let leads = target.exists() && (heading.is_empty() || has(&std::fs::read_to_string(&target).unwrap()));
            found += 1;
            if !leads {
                wrong.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(found > 50, "{found} links were found");
    assert!(wrong.is_empty(), "these links lead nowhere: {wrong:#?}");
}

/// The oldest Kubernetes that is supported is the one that `make test-oldest` runs, and docs/install.md has what is pinned.
#[test]
fn the_versions_of_kubernetes_are_those_that_are_tested() {
    let chart = read("charts/lictor/Chart.yaml");
    let (_, oldest) = chart.split_once("kubeVersion: \">=").expect("the chart names the oldest version");
    let oldest = oldest.split(".0-0").next().expect("a version");
    let says = |file: &str, what: &str| assert!(read(file).contains(what), "{file} does not say '{what}'");
    says("README.md", &format!("Kubernetes {oldest} or newer"));
    says("docs/install.md", &format!("Kubernetes {oldest} or newer"));
    says("Cargo.toml", &format!("\"v{}\"", oldest.replace('.', "_")));
    for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        says("Makefile", &format!("hack/tools.sh {program}-{oldest})"));
    }
    for module in ["kubernetes".to_owned(), format!("kubernetes-{oldest}")] {
        let pinned = read(&format!("hack/tools/{module}/go.mod"));
        let (_, pinned) = pinned.split_once("k8s.io/kubernetes v").expect("it pins Kubernetes");
        says("docs/install.md", &format!("| {}", pinned.lines().next().expect("a version")));
    }
}

/// Words that this project does not use, each with the word to use: docs/glossary.md.
const UNUSED_WORDS: [(&str, &str); 5] = [
    ("definition", "CRD"),
    ("definitions", "CRDs"),
    ("datacentre", "datacenter"),
    ("otherwise than", "in another way than"),
    ("is no key of", "is not a valid key of"),
];

#[test]
fn what_people_read_has_the_words_of_the_glossary() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let crates = std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let tops = ["src", "docs", "charts", "README.md", "ARCHITECTURE.md"].map(|name| root().join(name));
    let mut paths: Vec<PathBuf> = crates.chain(tops).collect();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.extension().is_some_and(|kind| kind == "png") {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&path).unwrap().to_lowercase();
        for (number, line) in text.lines().enumerate() {
            for (word, instead) in UNUSED_WORDS.iter().filter(|(word, _)| has_word(line, word)) {
                wrong.push(format!("{}:{}: write '{instead}' instead of '{word}'", path.display(), number + 1));
            }
        }
    }
    assert!(seen > 150, "{seen} files were read");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns whether a line has a word, or words, that are not a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    line.match_indices(word)
        .any(|(at, _)| !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + word.len()..].chars().next()))
}

#[test]
fn a_word_is_found_only_as_a_whole() {
    for line in ["the definitions", "definitions: true", "fn install_definitions()"] {
        assert!(has_word(line, "definitions"), "{line}");
    }
    for line in ["customresourcedefinitions", "a definition", "crds"] {
        assert!(!has_word(line, "definitions"), "{line}");
    }
}

/// A test that `cargo test` leaves out is run by a command, which the mark names; and each mark is in use.
#[test]
fn what_is_left_out_is_marked_with_what_runs_it() {
    let marks = [
        ("tests/cluster/", "slow: waits for "),
        ("tests/cluster/", "slow: fetches "),
        ("tests/chart/", "slow: waits for "),
        ("tests/agent/", "slow: waits for "),
        ("tests/agent/", "slow: fetches "),
        ("tests/objects/", "slow: fetches "),
        ("crates/core/tests/model/", "takes long: make prove"),
        ("crates/core/tests/decisions/", "a survey of all failures, "),
        ("tests/simulation/", "a survey of all failures, "),
        ("tests/simulation/", "a table, which takes minutes: make scale"),
        ("src/controller/entry/probing/", "takes an hour: make connection"),
        ("src/controller/run/", "takes minutes, and Valgrind: make instructions"),
    ];
    let (runner, makefile) = (read("hack/test.sh"), read("Makefile"));
    assert!(makefile.contains("--include-ignored --nocapture"), "make prove");
    assert!(makefile.contains("--lib -- --ignored --nocapture connection"), "make connection");
    assert!(makefile.contains("--lib -- --ignored --nocapture one_decision"), "make instructions");
    assert!(makefile.contains("--test simulation -- --ignored --nocapture scale_of_one_consul"), "make scale");
    for suite in ["cluster", "chart", "agent", "objects"] {
        assert!(runner.contains(&format!("--test {suite} -- --ignored")), "hack/test.sh runs what is slow of {suite}");
    }
    let (mut used, mut wrong) = (BTreeSet::new(), Vec::new());
    for top in ["src", "tests", "crates"] {
        for source in sources_in(top) {
            let path = format!("{top}/{}", source.path);
            for line in source.text.lines().map(str::trim).filter(|line| line.starts_with("#[ignore")) {
                let reason = line.strip_prefix("#[ignore = \"");
                let mark = marks.iter().find(|(directory, mark)| {
                    path.starts_with(directory) && reason.is_some_and(|reason| reason.starts_with(mark))
                });
                if let Some(mark) = mark {
                    used.insert(mark);
                } else {
                    wrong.push(format!("{path}: {line}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "no command runs these: {wrong:#?}");
    assert_eq!(used.len(), marks.len(), "of these each selects something: {marks:?}, and only these do: {used:?}");
}

/// Numbers and lists that more than one place has.
#[test]
fn what_the_documents_count_and_list_is_so() {
    let kinds = read("crds/lictor.dev.yaml").lines().filter(|line| *line == "kind: CustomResourceDefinition").count();
    let word = ["no", "one", "two", "three", "four", "five"][kinds];
    let run = read(".ci/run");
    let (_, tests) = run.split_once("[ \"$status\" = 0 ]").expect("what comes after all is built");
    let commands: Vec<&str> = tests.split("'make ").skip(1).map(|rest| rest.split('\'').next().unwrap()).collect();
    assert!(commands.contains(&"test-all"), "{commands:?}");
    for path in documents() {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in text.lines() {
            let counts = ["one", "two", "three", "four", "five"].map(|word| format!(" {word} CRDs"));
            let told = counts.iter().find(|count| line.contains(count.as_str()));
            assert!(told.is_none_or(|told| *told == format!(" {word} CRDs")), "{}: {line}", path.display());
            if line.contains("`.ci/run`") && line.contains("`make verify`") {
                let missing: Vec<_> =
                    commands.iter().filter(|make| !line.contains(&format!("`make {make}`"))).collect();
                assert!(missing.is_empty(), "{} does not name {missing:?}: {line}", path.display());
            }
        }
    }
}

#[test]
fn the_nightly_run_is_make_nightly() {
    let (workflow, makefile) = (read(".github/workflows/nightly.yaml"), read("Makefile"));
    let jobs = workflow.lines().filter_map(|line| line.trim().strip_prefix("- {command: "));
    let jobs: Vec<_> = jobs.map(|line| line.split(',').next().unwrap().replace("make ", "")).collect();
    let (_, target) = makefile.split_once("\nnightly:").expect("there is one");
    let steps = target.lines().skip(1).map_while(|line| line.strip_prefix("\t$(MAKE) "));
    assert_eq!(steps.collect::<Vec<_>>(), jobs);
}

/// A dependency that asks for a newer Rust would make the promise untrue. `make oldest-rust` compiles all of it with that Rust.
#[test]
fn no_dependency_asks_for_a_newer_rust_than_the_documents_promise() {
    let manifest = read("Cargo.toml");
    let promised = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"')).unwrap();
    for file in ["README.md", "CONTRIBUTING.md", "hack/require.sh"] {
        assert!(read(file).contains(&format!("Rust {promised} or newer")), "{file} does not promise Rust {promised}");
    }
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments = ["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", &platform];
    let output = std::process::Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let numbers = |text: &str| text.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>();
    let newer = metadata["packages"].as_array().unwrap().iter().filter_map(|package| {
        let wanted = package["rust_version"].as_str()?;
        (numbers(wanted)[..2] > numbers(promised)[..2]).then(|| format!("{} asks for {wanted}", package["name"]))
    });
    assert_eq!(newer.collect::<Vec<_>>(), [""; 0], "Cargo.toml and the documents promise Rust {promised}");
}

/// The mark of an item that is left out on other systems.
const ON_LINUX: &str = "#[cfg(target_os = \"linux\")]\n";
const ON_UNIX: &str = "#[cfg(unix)]\n";

/// The text without the items that are left out on other systems.
fn built_everywhere(text: &str) -> String {
    [ON_LINUX, ON_UNIX].iter().fold(text.to_owned(), |text, mark| {
        let mut parts = text.split(mark);
        let mut kept = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = if part.lines().next().is_some_and(|line| line.ends_with([';', ','])) { "\n" } else { "\n}" };
            kept += part.split_once(end).map_or("", |(_, rest)| rest);
        }
        kept
    })
}

/// The table in the documentation of `src/lib.rs`: for each layer, the others that it may import.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let mut table: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let text = read("src/lib.rs");
    for row in text.lines().filter_map(|line| line.strip_prefix("//! | [`")) {
        let (layer, rest) = row.split_once('`').unwrap();
        let imports = rest.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let imports = match imports {
            "nothing" => BTreeSet::new(),
            "all above" => table.keys().cloned().collect(),
            "all" => layers(),
            list => list.split(", ").map(|name| name.trim_matches('`').to_owned()).collect(),
        };
        table.insert(layer.to_owned(), imports);
    }
    assert_eq!(table.keys().cloned().collect::<BTreeSet<_>>(), layers(), "the table and the directories under src/");
    table
}

fn layers() -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join("src")).unwrap().map(Result::unwrap);
    let names = entries.map(|entry| entry.file_name().into_string().unwrap().trim_end_matches(".rs").to_owned());
    names.filter(|name| name != "lib" && name != "main").collect()
}

fn is_layer(name: &&str) -> bool {
    layers().contains(*name)
}

fn sources() -> Vec<Source> {
    sources_in("src")
}

/// All that a program of lictor is made of, but for the core and the client of Consul, which reach no cluster.
fn product() -> Vec<Source> {
    let crates = ["agent", "api", "kubernetes", "locks", "objects", "process"].map(|name| format!("crates/{name}/src"));
    sources().into_iter().chain(crates.iter().flat_map(|top| sources_in(top))).collect()
}

fn sources_in(top: &str) -> Vec<Source> {
    let below = |path: &str| path.strip_prefix(&format!("{top}/")).unwrap().to_owned();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let code = |text: String| text.lines().filter(is_code).collect::<Vec<_>>().join("\n");
    let files = files_in(top).into_iter().filter(|(path, _)| is_rust(path));
    files.map(|(path, text)| Source { path: below(&path), text: code(text) }).collect()
}

/// The sources and scenarios below a directory, with what is in them.
fn files_in(top: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut directories = vec![root().join(top)];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "scenario") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

fn documents() -> Vec<PathBuf> {
    let inside = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = inside.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages
        .chain(
            ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
                .map(|name| root().join(name)),
        )
        .collect()
}

/// The ids of rules in comments, such as H1.
fn ids_in(text: &str) -> BTreeSet<&str> {
    let comments = text.lines().filter(|line| line.trim_start().starts_with(['/', '#']));
    let words = comments.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()));
    let is_id = |word: &&str| {
        word.strip_prefix(['H', 'O', 'R', 'C', 'B', 'W', 'L', 'F', 'E', 'A', 'T'])
            .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    };
    words.filter(is_id).collect()
}

/// What stands between back-ticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// `store/mod.rs` and `store.rs` are `["store"]`, and `lib.rs` is the root.
fn module_path(file: &str) -> Vec<String> {
    let file = file.strip_suffix(".rs").unwrap();
    let file = file.strip_suffix("/mod").unwrap_or(file);
    if file == "lib" { Vec::new() } else { file.split('/').map(str::to_owned).collect() }
}

/// What follows `use` in each such line, up to the semicolon, and whether it is handed on.
fn uses(text: &str) -> impl Iterator<Item = (bool, &str)> {
    let statements = text.match_indices("use ").filter(|(at, _)| {
        let line = &text[text[..*at].rfind('\n').map_or(0, |end| end + 1)..*at];
        line.is_empty() || (line.starts_with("pub") && line.ends_with(' ') && !line.contains('='))
    });
    statements.map(|(at, word)| {
        let tree = text[at + word.len()..].split(';').next().unwrap();
        (text[..at].ends_with(' '), tree)
    })
}

/// The paths in `a::{b, c::d}…`: `["a", "b"]` and `["a", "c", "d"]`. What is called by another name keeps its own.
fn branches(tree: &str) -> Vec<Vec<String>> {
    let Some(group) = tree.strip_prefix('{') else {
        let name = identifier(tree);
        if name.is_empty() {
            return vec![Vec::new()];
        }
        let rest = tree[name.len()..].strip_prefix("::").map_or_else(|| vec![Vec::new()], branches);
        return rest.into_iter().map(|rest| [vec![name.to_owned()], rest].concat()).collect();
    };
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                let branch = group[start..at].trim();
                found.extend(branches(branch).into_iter().filter(|_| !branch.is_empty()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// The same between what is beside each other in a folder: files, or folders with all that is in them.
fn siblings(imports: &BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    let beside = |(one, other): &(String, String)| {
        let paths = [one, other].map(|path| path.split("::").collect::<Vec<_>>());
        let common = paths[0].iter().zip(&paths[1]).take_while(|(one, other)| one == other).count();
        let [one, other] = paths.map(|path| path.get(..=common).map(|path| path.join("::")));
        Some((one?, other?))
    };
    imports.iter().filter_map(beside).collect()
}

/// Of imports, those from which others lead back.
fn in_circles(imports: &BTreeSet<(String, String)>) -> Vec<String> {
    let leads_back = |from: &str, to: &str| {
        let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
        while let Some(module) = left.pop() {
            let next = imports.iter().filter(|(one, _)| one == module).map(|(_, other)| other.as_str());
            left.extend(next.filter(|other| seen.insert(other)));
        }
        seen.contains(to)
    };
    let circular = imports.iter().filter(|(one, other)| leads_back(other, one));
    circular.map(|(one, other)| format!("{one} imports {other}")).collect()
}

/// The names at the beginning of each item of `a, b::{c, d}, e}…`.
fn top_level_names(group: &str) -> Vec<&str> {
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                names.push(identifier(group[start..at].trim()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()
}

/// Whether a path occurs that is not the end of a longer name.
fn contains_path(code: &str, path: &str) -> bool {
    code.match_indices(path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
    })
}

fn exists(path: &str) -> bool {
    root().join(path).exists()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
