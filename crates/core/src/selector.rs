//! The selector of a group's pods.

use serde::{Deserialize, Serialize};

use super::Pairs;

/// A label selector, as Kubernetes defines it: all requirements must hold. The lock's record has it as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selector {
    /// Labels that must have exactly these values.
    #[serde(default, skip_serializing_if = "Pairs::is_empty")]
    pub match_labels: Pairs,
    /// Further requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// The label's name.
    pub key: String,
    /// The way in which the label is compared.
    pub operator: Operator,
    /// The values for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// A way to compare a label; the names are Kubernetes' own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Whether a pod with these labels belongs to the group. An empty selector matches nothing here, because a group of all pods of a
    /// namespace is refused before.
    pub fn matches(&self, labels: &Pairs) -> bool {
        !(self.match_labels.is_empty() && self.match_expressions.is_empty())
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.holds(labels.get(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.iter().any(|one| one == value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.iter().any(|one| one == value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requirements_must_hold() {
        let selector: Selector = serde_json::from_str(
            r#"{"matchLabels":{"app":"web"},"matchExpressions":[
                {"key":"tier","operator":"In","values":["a","b"]},{"key":"canary","operator":"DoesNotExist"},
                {"key":"zone","operator":"NotIn","values":["x"]},{"key":"owner","operator":"Exists"}]}"#,
        )
        .unwrap();
        let labels = |pairs: &[(&str, &str)]| pairs.iter().copied().collect();
        assert!(selector.matches(&labels(&[("app", "web"), ("tier", "b"), ("owner", "me")])));
        for wrong in [
            &[("app", "other"), ("tier", "b"), ("owner", "me")][..],
            &[("app", "web"), ("tier", "c"), ("owner", "me")],
            &[("app", "web"), ("tier", "b"), ("owner", "me"), ("canary", "")],
            &[("app", "web"), ("tier", "b"), ("owner", "me"), ("zone", "x")],
            &[("app", "web"), ("tier", "b")],
        ] {
            assert!(!selector.matches(&labels(wrong)), "{wrong:?}");
        }
    }

    #[test]
    fn an_empty_selector_matches_nothing() {
        assert!(!Selector::default().matches(&Pairs::default()));
    }
}
