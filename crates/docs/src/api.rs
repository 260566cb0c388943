//! docs/api.md: each field of the CRDs.

use std::fmt::Write as _;

use anyhow::Context;
use serde_json::Value;

/// The labels, annotations and finalizers that lictor reads or writes: where they are, who writes them, and what for. A test compares the
/// names with the code.
pub const NAMES: [[&str; 4]; 24] = [
    [
        "`lictor.dev/priority`",
        "annotation of a pod",
        "you",
        "an integer, 0 by default. The eligible pod with the highest one is elected",
    ],
    [
        "`lictor.dev/never-leader`",
        "annotation of a pod",
        "you",
        "`\"true\"`: the pod is never elected, and stops leading",
    ],
    [
        "`lictor.dev/term`",
        "annotation of a pod or workload",
        "lictor",
        "on a leader's pod the term in which it leads, on a workload the term of the last write",
    ],
    [
        "`lictor.dev/pod-deletion-cost`",
        "annotation of a pod",
        "lictor",
        "on the leader's pod the `controller.kubernetes.io/pod-deletion-cost` that lictor wrote beside it. Any other cost is yours",
    ],
    [
        "`lictor.dev/leader`",
        "finalizer and annotation of a pod",
        "lictor",
        "with the pod's own uid as the annotation's value: it has led with `formerLeader: DeleteFirst`, and its end is not known yet",
    ],
    [
        "`lictor.dev/replaced`",
        "annotation of a pod",
        "lictor",
        "the values that labels and annotations had before lictor wrote its own (`whenLabelInUse: Replace`), a line each",
    ],
    [
        "`lictor.dev/election`",
        "annotation of a pod or workload",
        "lictor",
        "the name of the election that wrote the labels, or enabled or disabled the workload",
    ],
    [
        "`lictor.dev/is-default-class`",
        "annotation of an ElectionClass",
        "you",
        "`\"true\"`: elections that name no class have this one",
    ],
    [
        "`lictor.dev/enabled`",
        "annotation of a workload",
        "lictor",
        "`\"true\"` or `\"false\"`: whether the election lets it run",
    ],
    [
        "`lictor.dev/kept`",
        "annotation of a workload",
        "lictor",
        "the value that lictor restores: its replicas or `spec.suspend`",
    ],
    [
        "`lictor.dev/written-by`",
        "annotation of a workload",
        "lictor",
        "which replica of the operator wrote it, and the number of the write",
    ],
    ["`lictor.dev/template`", "annotation of a Job", "lictor", "the name in `spec.workloads` that it was made from"],
    [
        "`lictor.dev/workloads`",
        "annotation of a LeaderElection",
        "lictor",
        "what lictor has to restore, and for which terms it has started Jobs",
    ],
    [
        "`lictor.dev/cleanup`",
        "finalizer of a LeaderElection",
        "lictor",
        "lets an operator remove labels and lock before the election goes",
    ],
    ["`lictor.dev/record`", "annotation of a Lease", "lictor", "the lock's record"],
    ["`lictor.dev/object`", "annotation of a Lease in a hub", "lictor", "the name of the object that the Lease is"],
    ["`lictor.dev/content`", "annotation of a Lease in a hub", "lictor", "that object's content"],
    ["`lictor.dev/election-uid`", "label of a Lease", "lictor", "the election that the lock belongs to"],
    ["`app.kubernetes.io/managed-by`", "label of a Lease", "lictor", "`lictor`: the Lease is one of its own"],
    [
        "`lictor.dev/holder`",
        "annotation of the operator's own Lease",
        "lictor",
        "the address and the pod of the replica that acts, so that another one sees at once when it is gone",
    ],
    [
        "`endpointslice.kubernetes.io/managed-by`",
        "label of an EndpointSlice",
        "lictor",
        "`lictor.dev`: the slice is one of its own",
    ],
    [
        "`lictor.dev/service-keys`",
        "annotation of a Service that lictor created",
        "lictor",
        "the labels and annotations of the spec there, and the Service's uid",
    ],
    ["`lictor.dev/stamp`", "annotation of an EndpointSlice", "lictor", "differs with each write"],
    ["`lictor.dev/version`", "annotation of a CRD", "lictor", "the version of lictor that the CRD came from"],
];

/// Returns the page for this YAML stream of CRDs.
///
/// # Errors
/// If the text is not YAML, or a CRD lacks what all have.
pub fn page(crds: &str) -> anyhow::Result<String> {
    let mut page = String::from(
        "# API reference\n\n\
         Each field of all kinds, from the CRDs. `make fix` makes this page. `kubectl explain le.spec`,\n\
         `kubectl explain lec.spec` and `kubectl explain swo.spec` print the same texts. What may change in later versions: [api-versions.md](api-versions.md). All\n\
         fields with their defaults in one manifest: [every-field.md](every-field.md).\n\n\
         `[]` in a path is each item of a list, `{}` each value of a map. \"Required\" means: where the object around it is set. Where\n\
         no default is given, the text says what happens without the field.\n",
    );
    for crd in serde_saphyr::from_multiple::<Value>(crds)? {
        page.push_str(&kind(&crd).with_context(|| format!("the CRD {}", crd["metadata"]["name"]))?);
    }
    page.push_str("\n## Labels and annotations\n\n| name | | who writes it | what it says |\n|---|---|---|---|\n");
    for row in NAMES {
        row_of(&mut page, &row);
    }
    page.push_str(
        "\nThe labels of the roles, `role: leader` and `role: follower` by default, are yours to choose: `spec.leader` and `spec.follower`.\n\
         The conditions and their reasons: [troubleshooting.md](troubleshooting.md#by-reason).\n",
    );
    Ok(page)
}

/// Returns the section of a kind.
fn kind(crd: &Value) -> anyhow::Result<String> {
    let (spec, names) = (&crd["spec"], &crd["spec"]["names"]);
    let version = spec["versions"].get(0).context("it has no version")?;
    let schema = &version["schema"]["openAPIV3Schema"];
    let name = names["kind"].as_str().context("it has no kind")?;
    let scope = if spec["scope"] == "Namespaced" { "one in a namespace" } else { "for the whole cluster" };
    let short = names["shortNames"][0].as_str().context("it has no short name")?;
    let mut text = format!("\n## {name}\n\n");
    writeln!(text, "{}\n", cell(described(&schema["properties"]["spec"])))?;
    writeln!(
        text,
        "`apiVersion: {}/{}`, {scope}. `kubectl get {short}` lists them.",
        plain(&spec["group"]),
        plain(&version["name"])
    )?;

    let mut fields = Vec::new();
    walk(&schema["properties"]["spec"], "spec", false, &mut fields);
    // The text of the spec itself is above.
    let below = fields.get(1..).unwrap_or_default();
    writeln!(text, "\n### {name} spec\n\n| field | type | default | what it is for |\n|---|---|---|---|")?;
    for field in below {
        let (says, default) = field.texts();
        row_of(&mut text, &[&format!("`{}`", field.path), &type_of(field.schema), &default, &says]);
    }
    rules(&mut text, name, &fields)?;

    let mut fields = Vec::new();
    inner_fields(&schema["properties"]["status"], "status", &mut fields);
    writeln!(
        text,
        "\n### {name} status\n\n{}\n\n| field | type | what it says |\n|---|---|---|",
        cell(described(&schema["properties"]["status"]))
    )?;
    for field in &fields {
        row_of(&mut text, &[&format!("`{}`", field.path), &type_of(field.schema), &cell(described(field.schema))]);
    }

    writeln!(text, "\n### {name} columns\n\n| `kubectl get {short}` | | shown |\n|---|---|---|")?;
    for column in items(&version["additionalPrinterColumns"]) {
        let shown = if column["priority"].as_i64().unwrap_or(0) == 0 { "always" } else { "with `-o wide`" };
        row_of(
            &mut text,
            &[&plain(&column["name"]).to_uppercase(), &format!("`{}`", plain(&column["jsonPath"])), shown],
        );
    }
    Ok(text)
}

/// Adds the rules that a CRD has in words, each with the paths that it holds for.
fn rules(text: &mut String, name: &str, fields: &[Field]) -> anyhow::Result<()> {
    let mut rules: Vec<(&str, Vec<String>)> = Vec::new();
    for field in fields {
        for rule in items(&field.schema["x-kubernetes-validations"]) {
            let (message, path) = (plain(&rule["message"]), format!("`{}`", field.path));
            match rules.iter_mut().find(|(known, _)| *known == message) {
                Some((_, paths)) => paths.push(path),
                None => rules.push((message, vec![path])),
            }
        }
    }
    if rules.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n### {name} rules\n\nThe API server refuses an object that breaks one of these, with this message:\n"
    )?;
    writeln!(text, "| at | message |\n|---|---|")?;
    for (message, paths) in rules {
        row_of(text, &[&paths.join(", "), &cell(message)]);
    }
    Ok(())
}

/// A field of a schema.
struct Field<'a> {
    path: String,
    required: bool,
    schema: &'a Value,
}

impl Field<'_> {
    /// Returns what the field is for, and its default, which is a column of its own.
    fn texts(&self) -> (String, String) {
        let text = described(self.schema);
        let (says, said) = text.split_once(" Default: ").map_or((text, None), |(says, default)| (says, Some(default)));
        let value = |value: &Value| format!("`{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let marked = |one: &&Value| text.contains(&format!("{} (default)", plain(one)));
        let default = match (&self.schema["default"], said) {
            _ if self.required => "required".into(),
            (Value::Null | Value::Object(_), Some(said)) => cell(said.trim_end_matches('.')),
            (Value::Null | Value::Object(_), None) => {
                items(&self.schema["enum"]).iter().find(marked).map(value).unwrap_or_default()
            }
            (default, _) => value(default),
        };
        (cell(says), default)
    }
}

/// Finds all fields below a schema, each before those that are in it.
fn walk<'a>(schema: &'a Value, path: &str, required: bool, found: &mut Vec<Field<'a>>) {
    found.push(Field { path: path.to_owned(), required, schema });
    inner_fields(schema, path, found);
}

fn inner_fields<'a>(schema: &'a Value, path: &str, found: &mut Vec<Field<'a>>) {
    if !schema.is_object() {
        return;
    }
    let required: Vec<&str> = items(&schema["required"]).iter().map(plain).collect();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{name}"), required.contains(&name.as_str()), found);
    }
    for (inner, mark) in [(&schema["items"], "[]"), (&schema["additionalProperties"], "{}")] {
        // An item without a text of its own is what the list says.
        if described(inner).is_empty() {
            inner_fields(inner, &format!("{path}{mark}"), found);
        } else {
            walk(inner, &format!("{path}{mark}"), false, found);
        }
    }
}

/// Returns the type and the limits in words.
fn type_of(schema: &Value) -> String {
    let values = items(&schema["enum"]);
    if !values.is_empty() {
        return values.iter().map(|value| format!("`{}`", plain(value))).collect::<Vec<_>>().join(", ");
    }
    let [items_limit, properties_limit, length] =
        ["Items", "Properties", "Length"].map(|of| limits(&schema[format!("min{of}")], &schema[format!("max{of}")]));
    let (name, limit) = match plain(&schema["type"]) {
        "array" => {
            let keys = items(&schema["x-kubernetes-list-map-keys"]).iter().map(plain).collect::<Vec<_>>().join(" and ");
            let one = if keys.is_empty() { String::new() } else { format!(", one for each {keys}") };
            (format!("list of {}s{one}", plain(&schema["items"]["type"])), items_limit)
        }
        "object" if schema["additionalProperties"].is_object() => {
            (format!("map to {}s", plain(&schema["additionalProperties"]["type"])), properties_limit)
        }
        "string" if schema["format"] == "date-time" => ("time".into(), None),
        "string" => ("string".into(), length.map(|limit| format!("{limit} characters"))),
        number @ ("integer" | "number") => (number.into(), limits(&schema["minimum"], &schema["maximum"])),
        "" if schema["x-kubernetes-int-or-string"] == true => ("integer or string".into(), None),
        other => (other.into(), None),
    };
    let pattern = schema["pattern"].as_str().map(|pattern| format!(", as `{}`", pattern.replace('|', "\\|")));
    [Some(name), limit.map(|limit| format!(", {limit}")), pattern].into_iter().flatten().collect()
}

fn limits(least: &Value, most: &Value) -> Option<String> {
    // The CRDs write whole numbers as 65535.0.
    let number = |value: &Value| value.as_f64().map(|number| number.to_string());
    match (number(least), number(most)) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}")),
        (None, Some(most)) => Some(format!("at most {most}")),
        (Some(least), None) => Some(format!("at least {least}")),
        (None, None) => None,
    }
}

fn described(schema: &Value) -> &str {
    plain(&schema["description"])
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn row_of(text: &mut String, cells: &[&str]) {
    text.push_str("| ");
    text.push_str(&cells.join(" | "));
    text.push_str(" |\n");
}

/// Returns the text so that Markdown shows it as it is.
fn cell(text: &str) -> String {
    let mut cell = String::new();
    for c in text.chars() {
        if matches!(c, '|' | '<' | '*' | '_' | '[' | ']') {
            cell.push('\\');
        }
        cell.push(c);
    }
    cell
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const CRD: &str = r"
spec:
  group: lictor.dev
  scope: Namespaced
  names: {kind: Lamp, shortNames: [la]}
  versions:
  - name: v1
    additionalPrinterColumns:
    - {name: Lit, jsonPath: .status.lit}
    - {name: Age, jsonPath: .metadata.age, priority: 1}
    schema:
      openAPIV3Schema:
        description: A lamp.
        properties:
          spec:
            description: What shines.
            properties:
              bulbs:
                description: 'The bulbs. Default: none. Then it is dark.'
                type: array
                maxItems: 4
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string, minLength: 1, maxLength: 63.0, description: a|b}
                    colour: {enum: [Red, Green], type: string, description: 'Red: warm. Green (default): cool.'}
                    socket: {x-kubernetes-int-or-string: true, description: The socket.}
                    watts: {type: integer, minimum: 1.0, default: 5, description: 'The power. Default: 5.'}
                x-kubernetes-validations: [{rule: x, message: too many}]
          status:
            description: The state.
            properties:
              lit: {type: boolean, description: Whether it shines.}
";

    #[test]
    fn each_field_has_a_row() {
        let page = page(CRD).unwrap();
        for line in [
            "What shines.",
            "`apiVersion: lictor.dev/v1`, one in a namespace. `kubectl get la` lists them.",
            "| `spec.bulbs` | list of objects, one for each name, at most 4 | none. Then it is dark | The bulbs. |",
            "| `spec.bulbs[].colour` | `Red`, `Green` | `Green` | Red: warm. Green (default): cool. |",
            "| `spec.bulbs[].name` | string, 1 to 63 characters | required | a\\|b |",
            "| `spec.bulbs[].socket` | integer or string |  | The socket. |",
            "| `spec.bulbs[].watts` | integer, at least 1 | `5` | The power. |",
            "| `spec.bulbs` | too many |",
            "The state.",
            "| `status.lit` | boolean | Whether it shines. |",
            "| LIT | `.status.lit` | always |",
            "| AGE | `.metadata.age` | with `-o wide` |",
        ] {
            assert!(page.lines().any(|known| known == line), "{line}\nis not in\n{page}");
        }
    }

    #[test]
    fn what_is_no_crd_is_named() {
        let error = page("metadata: {name: lamps}\nspec: {}").unwrap_err();
        assert_eq!(format!("{error:#}"), "the CRD \"lamps\": it has no version");
    }

    /// The names are in constants, most of them called `…_ANNOTATION`.
    #[test]
    fn the_table_has_the_names_of_the_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (mut code, mut waiting) = (
            BTreeSet::new(),
            ["src", "crates/api/src", "crates/core/src", "crates/kubernetes/src", "crates/locks/src"]
                .map(|top| root.join(top))
                .to_vec(),
        );
        while let Some(directory) = waiting.pop() {
            for path in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    waiting.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(path).unwrap();
                let constants = text.lines().filter(|line| line.contains("const ") && line.contains(": &str = \""));
                code.extend(constants.filter_map(|line| line.split('"').nth(1)).map(|name| format!("`{name}`")));
            }
        }
        code.retain(|name| name.contains("lictor.dev/") || name.contains("kubernetes.io/managed-by"));
        // The prefix of all of them, which `crates/api/src/reserved.rs` refuses.
        assert!(code.remove("`lictor.dev/`"));
        // What a class has by default, a name and no annotation.
        assert!(code.remove("`lictor.dev/operator`"));
        assert_eq!(NAMES.map(|[name, ..]| name.to_owned()).into_iter().collect::<BTreeSet<_>>(), code);
    }
}
