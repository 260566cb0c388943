//! Bugs that were found, and rules of the protocol, as stories that a reader can follow: `*.scenario` in this directory. The real
//! core runs them; the servers around it are simulated, and carry out and answer what they are asked for, at once and truthfully,
//! except where a scenario says otherwise.
//!
//! A scenario is text, one thing on a line:
//! - `# …` tells the story;
//! - `SUBJECT: STATE, …` is what happens: [`inputs::FORMS`] has all there is;
//! - indented is what follows from that, of each operator by name: `west> COMMAND => ANSWER`, where a command without an answer is
//!   still on its way, `west< COMMAND => ANSWER` for one that arrived late, and `west= SITUATION` where that is another one now.
//!   Where nothing is indented, the operators ask for nothing.
//!
//! `LICTOR_BLESS=1 cargo test --test scenarios` writes what follows into the files.
//!
//! Whatever is written there, a broken promise fails a scenario: two pods with the leader's label, a term that does not rise, a
//! shared lock that is taken or let go of while something shows a leader, what leads here beside another cluster.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod inputs;
mod operator;
mod play;
mod world;

use std::path::{Path, PathBuf};

use play::play;

#[test]
fn what_follows_is_what_is_written() {
    let bless = std::env::var_os("LICTOR_BLESS").is_some();
    let files = files();
    assert!(!files.is_empty(), "there are no scenarios");
    let failed: Vec<String> = files.iter().filter_map(|file| check(file, bless).err()).collect();
    assert!(failed.is_empty(), "{} of {} scenarios failed:\n\n{}", failed.len(), files.len(), failed.join("\n\n"));
}

fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = directory.read_dir().expect("the directory can be read").map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "scenario")).collect();
    files.sort();
    files
}

fn check(file: &Path, bless: bool) -> Result<(), String> {
    let name = file.file_name().unwrap().to_string_lossy();
    let text = std::fs::read_to_string(file).unwrap();
    let played = play(&text).map_err(|(line, error)| format!("{name}:{line}: {error}"))?;
    if bless {
        std::fs::write(file, played.text()).unwrap();
        return Ok(());
    }
    played.difference().map_or(Ok(()), |(line, difference)| Err(format!("{name}:{line}: {difference}")))
}

#[test]
fn what_is_not_understood_is_refused_with_what_is_possible() {
    let error = |text: &str| play(text).err().map(|(line, error)| format!("{line}: {error}")).unwrap_or_default();
    assert!(
        error("\nweather: fine").starts_with("2: `weather: fine` is not understood"),
        "{}",
        error("\nweather: fine")
    );
    let wrong = error("# A pod.\npod a: redy");
    assert!(wrong.contains("pod NAME: ready") && !wrong.contains("lock: "), "{wrong}");
    assert!(error("next promote a: held up").contains("nobody asked"));
    assert!(error("held promote a: arrives").contains("nothing of that kind"));
}

#[test]
fn a_difference_shows_what_was_expected_and_what_came() {
    let text = "pod a: ready\noperator west: starts\n    west> create record web: b in term 1, for web generation 1\n";
    let (line, difference) = play(text).unwrap().difference().expect("it differs");
    assert_eq!(line, 2);
    assert!(difference.contains("\n- west> create record web: b in term 1"), "{difference}");
    assert!(difference.contains("\n+ west> create record web: a in term 1"), "{difference}");
    let blessed = play(text).unwrap().text();
    assert_eq!(play(&blessed).unwrap().difference(), None);
}

#[test]
fn a_broken_promise_is_never_blessed() {
    let text = "election: promote first\npod a: ready\npod b: ready\noperator west: starts\npod a: not ready\n";
    let (line, error) = play(text).expect_err("that order is for users who prefer two leaders to none");
    assert_eq!(line, 5);
    assert!(error.contains("two pods show the leader's label: a, b"), "{error}");
    assert!(error.contains("west> promote b"), "{error}");
}
