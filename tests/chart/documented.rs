//! What Artifact Hub and the chart's README show is true.

use std::path::Path;

use serde_json::Value;

use crate::helm::{CHART, objects};

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(CHART).join(file)).expect("the file can be read")
}

/// Returns one of Artifact Hub's annotations of the chart.
pub fn annotation(name: &str) -> Value {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).expect("it is YAML");
    let text = chart["annotations"][format!("artifacthub.io/{name}")].as_str().expect("it has the annotation");
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the paths of all values that have none below them.
fn leaves(path: &str, value: &Value) -> Vec<String> {
    match value.as_object().filter(|object| !object.is_empty()) {
        Some(object) => {
            let below = |(key, value): (&String, &Value)| {
                leaves(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value)
            };
            object.iter().flat_map(below).collect()
        }
        None => vec![path.to_owned()],
    }
}

/// `make verify` checks that the README is made from the values. helm-docs says nothing of a value without a comment.
#[test]
fn the_readme_explains_each_value() {
    let readme = read("README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let explained: Vec<&str> = rows
        .filter_map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            (cells.len() == 4 && !cells[3].trim().is_empty()).then(|| cells[0])
        })
        .collect();
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).expect("it is YAML");
    let leaves = leaves("", &values);
    assert!(leaves.len() > 60, "{leaves:?}");
    let above =
        |leaf: &str, row: &str| leaf.strip_prefix(row).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let unexplained: Vec<_> = leaves.iter().filter(|leaf| !explained.iter().any(|row| above(leaf, row))).collect();
    assert!(unexplained.is_empty(), "{unexplained:?}: write a comment with `# --` in values.yaml, and `make fix`");
}

#[test]
fn every_value_is_in_the_schema_and_the_other_way_round() {
    fn known(schema: &Value, path: &str) -> Vec<String> {
        match schema["properties"].as_object().filter(|_| schema["additionalProperties"] == false || path == "global") {
            Some(properties) => {
                let below = |(key, schema): (&String, &Value)| {
                    known(schema, &if path.is_empty() { key.clone() } else { format!("{path}.{key}") })
                };
                properties.iter().flat_map(below).collect()
            }
            None => vec![path.to_owned()],
        }
    }
    let values: Value = serde_saphyr::from_str(&read("values.yaml")).expect("it is YAML");
    let schema: Value = serde_json::from_str(&read("values.schema.json")).expect("it is JSON");
    let (leaves, known) = (leaves("", &values), known(&schema, ""));
    let under = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let strange: Vec<_> =
        leaves.iter().filter(|leaf| !known.iter().any(|known| under(leaf, known) || under(known, leaf))).collect();
    assert!(strange.is_empty(), "not in the schema: {strange:?}");
    // These are settings of Kubernetes' own kinds, of which values.yaml has some.
    let open =
        ["affinity", "strategy", "resources", "livenessProbe", "readinessProbe", "policies.others.namespaceSelector"];
    let refused = ["podDisruptionBudget.minAvailable"];
    let missing: Vec<_> = known
        .iter()
        .filter(|known| !open.iter().any(|open| under(known, open)) && !refused.contains(&known.as_str()))
        .filter(|known| !leaves.iter().any(|leaf| under(leaf, known)))
        .collect();
    assert!(missing.is_empty(), "not in values.yaml: {missing:?}");
}

#[test]
fn artifact_hub_is_told_the_crds() {
    let told = annotation("crds");
    let crds = objects(include_str!("../../crds/lictor.dev.yaml"));
    assert_eq!(told.as_array().map(Vec::len), Some(crds.len()), "{told}");
    for crd in crds {
        let one =
            told.as_array().unwrap().iter().find(|one| one["name"] == crd["metadata"]["name"]).expect("it is told");
        assert_eq!(one["kind"], crd["spec"]["names"]["kind"]);
        assert_eq!(one["version"], crd["spec"]["versions"][0]["name"]);
        assert!(one["displayName"].is_string() && one["description"].is_string(), "{one}");
    }
}

/// The icon is a file of this repository, where Chart.yaml says.
#[test]
fn the_icon_is_there() {
    let chart: Value = serde_saphyr::from_str(&read("Chart.yaml")).expect("it is YAML");
    let home = chart["home"].as_str().expect("there is a home");
    let icon = chart["icon"].as_str().expect("there is an icon");
    let path = icon.strip_prefix(home).and_then(|path| path.strip_prefix("/raw/HEAD/")).expect("it is below the home");
    let icon = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("there is an icon");
    assert!(icon.starts_with("<svg ") && icon.trim_end().ends_with("</svg>"), "{icon}");
}
