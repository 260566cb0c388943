//! The pages for users say what the program says: docs/troubleshooting.md has each reason that a condition, an Event or
//! `status.history` can have, and no other. README.md lists each page and shows the first example, and each picture is in a page
//! and in the colours of the dashboard.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Words in `src/controller` and `crates/api/src/resolve` that are written like reasons and are none: the actions of Events, kinds of
/// stores, and values of Kubernetes.
const NO_REASONS: [&str; 20] = [
    "Accept",
    "Delete",
    "Demote",
    "Disable",
    "Elect",
    "Enable",
    "False",
    "Free",
    "Held",
    "Leases",
    "Pod",
    "Promote",
    "Relabel",
    "Release",
    "Restore",
    "RestoreLock",
    "Route",
    "Switch",
    "True",
    "Unknown",
];

#[test]
fn each_reason_of_conditions_and_events_is_on_the_page() {
    let mut code: BTreeSet<_> =
        sources("src/controller").iter().chain(&sources("crates/api/src")).flat_map(reasons).collect();
    for word in NO_REASONS {
        assert!(code.remove(word), "{word} is in the code no more");
    }
    assert!(code.len() > 50, "{code:?}");
    // The API server writes it, from the CRD.
    code.insert(lictor_api::PENDING.to_owned());
    let sections = [
        "Ready",
        "Accepted",
        "Elected",
        "StoreReachable",
        "Routed",
        "WorkloadsFollow",
        "Paused",
        "A Switchover",
        "Ready of a class",
        "Events",
    ];
    same(&sections.into_iter().flat_map(on_the_page).collect(), &code);
}

/// The messages of conditions, and the CRD, end with these.
#[test]
fn the_sections_that_messages_lead_to_are_on_the_page() {
    use lictor_api::{ACCEPTED, ELECTED, STORE_REACHABLE, WORKLOADS_FOLLOW};
    let page = read("docs/troubleshooting.md");
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches(['#', ' ']));
    let anchors: BTreeSet<_> = headings.map(|heading| heading.to_lowercase().replace(' ', "-")).collect();
    for section in [ACCEPTED, ELECTED, STORE_REACHABLE, WORKLOADS_FOLLOW, "ready-of-a-class"].map(str::to_lowercase) {
        assert!(anchors.contains(&section), "{section}");
    }
    let crds = lictor_api::crds_as_yaml().unwrap();
    let links: Vec<_> =
        crds.split("docs/troubleshooting.md#").skip(1).map(|rest| rest.split_whitespace().next().unwrap()).collect();
    assert_eq!(links, ["an-election-says-nothing"; 2]);
    assert!(anchors.contains(links[0]));
}

#[test]
fn each_reason_of_the_history_is_on_the_page() {
    let command = read("crates/core/src/command.rs");
    let (_, word) = command.split_once("fn word(&self)").expect("a reason has a word");
    let code: BTreeSet<_> = words(word.split("\n    }\n").next().unwrap()).into_iter().collect();
    assert!(code.len() > 20, "{code:?}");
    same(&on_the_page("History").into_iter().collect(), &code);
}

/// By these beginnings of messages a person finds the row: all but one, which is of the library for TLS.
#[test]
fn what_the_page_says_of_the_log_is_in_the_code() {
    let code: String = sources("src").into_iter().map(|(_, text)| text).collect();
    let page = read("docs/troubleshooting.md");
    let (_, section) = page.split_once("\n### The operator does not start").expect("the page has this section");
    let section = section.split("\n### ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")).map(|row| row.split('`').next().unwrap());
    let beginnings = rows.map(|text| text.split(['…', 'V']).next().unwrap().trim_end());
    let missing: Vec<_> = beginnings.filter(|text| text.contains(' ') && !code.contains(text)).collect();
    assert_eq!(missing, ["invalid peer certificate"]);
}

#[test]
fn every_page_is_in_the_table_of_the_readme() {
    let readme = read("README.md");
    let missing: Vec<_> = files("docs", "md")
        .into_iter()
        .chain(["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned))
        .filter(|page| !readme.lines().any(|line| line.starts_with("| ") && line.contains(&format!("]({page})"))))
        .collect();
    assert!(missing.is_empty(), "README.md, \"All pages\", lacks {missing:#?}");
}

#[test]
fn every_example_is_in_a_page() {
    let pages: String = files("docs", "md").iter().map(|page| read(page)).chain([read("README.md")]).collect();
    let examples = [names("examples"), names("examples/migration")].concat();
    assert!(examples.len() > 8, "{examples:?}");
    for example in examples {
        assert!(pages.contains(&example), "no page names {example}");
    }
}

#[test]
fn the_election_of_the_readme_is_that_of_the_example() {
    let example = read("examples/service/leaderelection.yaml");
    let fields: String = example.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    assert!(read("README.md").contains(&format!("```yaml\n{fields}```\n")), "README.md does not have\n{fields}");
}

#[test]
fn every_picture_is_in_a_page() {
    let text: String = files("docs", "md").iter().map(|page| read(page)).chain([read("README.md")]).collect();
    let pictures = files("docs/pictures", "svg");
    assert!(pictures.len() > 3, "{pictures:?}");
    for picture in pictures {
        let (_, name) = picture.split_once("docs/").unwrap();
        assert!(text.contains(&format!("{name})")), "no page shows {picture}");
    }
}

/// Each can be read aloud and in the dark, needs no other file, and has no colours of its own. The demo's is a terminal.
#[test]
fn pictures_are_whole_and_in_the_colours_of_the_dashboard() {
    let page = "src/cli/user/dashboard/page";
    let dashboard = read(&format!("{page}/style.css")) + &read(&format!("{page}/icon.svg"));
    for picture in files("docs/pictures", "svg").into_iter().filter(|path| !path.ends_with("/demo.svg")) {
        let text = read(&picture);
        for part in ["role=\"img\"", "<title", "prefers-color-scheme: dark"] {
            assert!(text.contains(part), "{picture} has no {part}");
        }
        for part in ["href", "url(", "@import", "<image", "<script"] {
            assert!(!text.contains(part), "{picture} has {part}");
        }
        let colours = text.split('#').skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_hexdigit()).next().unwrap());
        let own: BTreeSet<_> = colours.filter(|colour| !dashboard.contains(&format!("#{colour}"))).collect();
        assert!(own.is_empty(), "{picture} has these colours, and the dashboard does not: {own:?}");
    }
}

fn same(page: &BTreeSet<String>, code: &BTreeSet<String>) {
    let missing: Vec<_> = code.difference(page).collect();
    assert!(missing.is_empty(), "docs/troubleshooting.md lacks these reasons: {missing:?}");
    let unknown: Vec<_> = page.difference(code).collect();
    assert!(unknown.is_empty(), "the code has no such reasons, docs/troubleshooting.md has: {unknown:?}");
}

/// The reasons in the first column of the tables of a section.
fn on_the_page(section: &str) -> Vec<String> {
    let page = read("docs/troubleshooting.md");
    let (_, page) = page.split_once("\n## By reason\n").expect("the page has reasons");
    let section = page.split("\n### ").find(|text| text.starts_with(&format!("{section}\n")));
    let rows = section.expect("the page has this section").lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    let found: Vec<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    assert!(!found.is_empty());
    found
}

/// What may be a reason in a source file: of the API the refusals, which are not the only words that it writes so.
fn reasons((path, text): &(String, String)) -> Vec<String> {
    if path.starts_with("crates/api/src/") && !text.contains("Refusal {") { Vec::new() } else { words(text) }
}

/// The string literals of a source that are one word in camel case, comments and unit tests left out.
fn words(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let (mut found, mut characters) = (Vec::new(), source.chars().peekable());
    while let Some(c) = characters.next() {
        match c {
            '/' if characters.peek() == Some(&'/') => while characters.next().is_some_and(|c| c != '\n') {},
            // A quotation mark as a character is no string's beginning.
            '\'' if characters.peek() == Some(&'"') => drop(characters.nth(1)),
            '"' => {
                let mut literal = String::new();
                while let Some(c) = characters.next().filter(|c| *c != '"') {
                    literal.push(c);
                    if c == '\\' {
                        literal.extend(characters.next());
                    }
                }
                found.push(literal);
            }
            _ => {}
        }
    }
    found.retain(|word| {
        word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.contains(|c: char| c.is_ascii_lowercase())
            && word.chars().all(|c| c.is_ascii_alphanumeric())
    });
    found
}

/// The source files below a directory, by path, without those of tests.
fn sources(top: &str) -> Vec<(String, String)> {
    let (mut found, mut waiting) = (Vec::new(), vec![root().join(top)]);
    while let Some(directory) = waiting.pop() {
        for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !name.ends_with("tests.rs") {
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// The files in a directory whose names end so, by path.
fn files(top: &str, extension: &str) -> Vec<String> {
    names(top).into_iter().filter(|name| Path::new(name).extension().is_some_and(|end| end == extension)).collect()
}

/// What is in a directory, by path.
fn names(top: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(top)).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| format!("{top}/{}", name.into_string().unwrap())).collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
