//! The names of elections, for the completion of command lines.

use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;
use std::time::Duration;

use clap::Parser;
use clap_complete::CompletionCandidate;

use super::access::Place;
use super::reading::Reader;
use crate::cli::support::block_on;
use crate::kubernetes::connect_in;

/// A user does not wait longer for a completion.
const TIMEOUT: Duration = Duration::from_secs(2);

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// The options so far that say where to look for elections.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Where {
    #[command(flatten)]
    place: Place,
}

/// Remembers the words to complete, because they name the cluster and the namespace of the elections.
pub(crate) fn complete_for(words: Vec<OsString>) {
    let _ = WORDS.set(words);
}

/// Returns the names of elections with this prefix, or none without an answer.
pub(super) fn elections(begun: &OsStr) -> Vec<CompletionCandidate> {
    let options = place_options(WORDS.get().map(Vec::as_slice).unwrap_or_default());
    let Ok(Where { place }) = Where::try_parse_from(options) else { return Vec::new() };
    let names = block_on(async move {
        let client = connect_in(place.cluster.kubeconfig.as_deref(), place.cluster.context.as_deref(), TIMEOUT).await?;
        let namespace = place.namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        Reader::new(client, TIMEOUT).elections(Some(&namespace)).await
    });
    let begun = begun.to_string_lossy();
    let names = names.unwrap_or_default().into_iter().filter_map(|election| election.metadata.name);
    names.filter(|name| name.starts_with(&*begun)).map(CompletionCandidate::new).collect()
}

/// Returns those options among the words, each with its value.
fn place_options(words: &[OsString]) -> Vec<OsString> {
    const NAMES: [&str; 4] = ["-n", "--namespace", "--context", "--kubeconfig"];
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let text = word.to_string_lossy();
        if NAMES.contains(&&*text) && at + 2 < words.len() {
            found.extend([word.clone(), words[at + 1].clone()]);
        } else if NAMES.iter().any(|name| name.starts_with("--") && text.starts_with(&format!("{name}="))) {
            found.push(word.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_say_where_are_found_and_the_last_word_is_none() {
        let found = |words: &[&str]| place_options(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(found(&["status", "-n", "shop", "we"]), ["-n", "shop"]);
        assert_eq!(
            found(&["status", "--context=x", "--namespace", "shop", ""]),
            ["--context=x", "--namespace", "shop"]
        );
        assert_eq!(found(&["status", "-n", "sh"]), [""; 0]);
        assert_eq!(found(&["list", "-A", ""]), [""; 0]);
    }
}
