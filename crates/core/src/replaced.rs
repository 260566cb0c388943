//! The values that labels and annotations had before lictor wrote its own, because the user insists (`spec.whenLabelInUse: Replace`). They
//! are kept on the pod itself, in one annotation, and restored when lictor takes its own off.

use std::collections::BTreeMap;

use crate::Pod;

/// The annotation, on a pod, with the values that lictor has replaced, a line each: `label KEY=VALUE` or `annotation KEY=VALUE`.
pub const REPLACED_ANNOTATION: &str = "lictor.dev/replaced";

/// The values that were replaced on one pod, by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// The characters of a value that are escaped, each with its escape, because a line break would end the entry.
const ESCAPES: [(&str, &str); 2] = [("%", "%25"), ("\n", "%0A")];

impl Replaced {
    /// Reads the annotation of a pod.
    pub(crate) fn on(pod: &Pod) -> Self {
        pod.annotations.get(REPLACED_ANNOTATION).map(Self::read).unwrap_or_default()
    }

    /// Parses the annotation's text, and skips a line that is not valid.
    pub(crate) fn read(text: &str) -> Self {
        let mut replaced = Self::default();
        for line in text.lines() {
            let Some((kind, (key, value))) =
                line.split_once(' ').and_then(|(kind, rest)| Some((kind, rest.split_once('=')?)))
            else {
                continue;
            };
            let value =
                ESCAPES.iter().rev().fold(value.to_owned(), |value, (plain, escaped)| value.replace(escaped, plain));
            match kind {
                "label" => drop(replaced.labels.insert(key.to_owned(), value)),
                "annotation" => drop(replaced.annotations.insert(key.to_owned(), value)),
                _ => {}
            }
        }
        replaced
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// The text that is written on a pod.
    pub(crate) fn text(&self) -> String {
        let line = |kind: &str, (key, value): (&String, &String)| {
            let value = ESCAPES.iter().fold(value.clone(), |value, (plain, escaped)| value.replace(plain, escaped));
            format!("{kind} {key}={value}")
        };
        let labels = self.labels.iter().map(|pair| line("label", pair));
        labels.chain(self.annotations.iter().map(|pair| line("annotation", pair))).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let replaced = Replaced {
            labels: map(&[("example.com/role", "backend"), ("tier", "")]),
            annotations: map(&[("why", "100%\nsure=%0A"), ("x", "a b")]),
        };
        assert_eq!(Replaced::read(&replaced.text()), replaced);
        assert_eq!(replaced.text().lines().count(), 4);
        assert_eq!(Replaced::read(""), Replaced::default());
        assert!(Replaced::read("nonsense\nlabel\nlabel x\nother a=b").is_empty());
    }
}
