//! What selects pods and namespaces by their labels, as Kubernetes' own kinds do.

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selects pods or namespaces by their labels. They must meet all requirements.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)")
        .message("the selector is empty and would match everything: write matchLabels, for example {app: web}"),
    validation = Rule::new("!has(self.matchLabels) || self.matchLabels.all(k, !format.qualifiedName().validate(k).hasValue() && !format.labelValue().validate(self.matchLabels[k]).hasValue())")
        .message("matchLabels has a name or a value that is not valid for a label in Kubernetes: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example {app: web}"),
    validation = Rule::new("!has(self.matchExpressions) || self.matchExpressions.all(e, !format.qualifiedName().validate(e.key).hasValue() && (!has(e.values) || e.values.all(v, !format.labelValue().validate(v).hasValue())))")
        .message("matchExpressions has a key or a value that is not valid for a label in Kubernetes: write at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit, for example {key: tier, operator: In, values: [front]}")
)]
pub struct LabelSelector {
    /// The labels that must be there, with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16), schema_with = "short_values")]
    pub match_labels: BTreeMap<String, String>,

    /// Further requirements for the labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement for one label.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.operator in ['In', 'NotIn'] ? (has(self.values) && size(self.values) > 0) : (!has(self.values) || size(self.values) == 0)")
        .message("values is for the operators In and NotIn, which need at least one value; Exists and DoesNotExist take none")
)]
pub struct LabelRequirement {
    /// The label's name.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,

    /// How lictor compares the label with the values.
    pub operator: LabelOperator,

    /// The values for In and NotIn: at most 32, each of at most 63 characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// How lictor compares a label: In and NotIn test its value, Exists and DoesNotExist whether the pod has it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kubernetes' own")]
pub enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// The schema of a map of labels.
pub(super) fn short_values(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    map_of_strings(63)
}

/// Returns the schema of a map whose values have a limited length. The API server estimates the cost of a CEL rule from
/// such limits, and refuses a map without them.
pub(super) fn map_of_strings(longest: usize) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": longest},
    })
}
