//! Random JSON: anything, or a valid document with changes.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};

/// Names that have a meaning for some program.
const NAMES: [&str; 14] = [
    "metadata",
    "spec",
    "status",
    "name",
    "uid",
    "items",
    "labels",
    "annotations",
    "term",
    "holder",
    "ID",
    "Key",
    "Value",
    "",
];

/// Makes a valid number, or one at which something could overflow.
pub fn number() -> BoxedStrategy<Value> {
    let any = prop_oneof![
        3 => (-3_i64..10).prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        1 => prop::sample::select(vec![json!(i64::MIN), json!(i64::MAX), json!(u64::MAX), json!(i32::MAX), json!(u32::MAX)]),
        1 => prop::sample::select(vec![json!(1e300), json!(-0.5), json!(2_147_483_648_i64), json!(5_000_000_000_i64)]),
    ];
    any.boxed()
}

/// Makes a text of any characters, or one that looks like something else.
pub fn text() -> BoxedStrategy<String> {
    let likely = vec![
        "",
        "true",
        "-1",
        "null",
        "2026-13-01T00:00:00Z",
        "2026-01-01T00:00:00x5Z",
        "{}",
        "[",
        "\"",
        "a/b/c",
        "🦀\u{0}\u{202e}",
    ];
    let any = prop_oneof![
        3 => "\\PC{0,12}",
        2 => prop::sample::select(likely).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => (1_usize..3_000).prop_map(|length| "x".repeat(length)),
    ];
    any.boxed()
}

pub fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        proptest::bool::ANY.prop_map(Value::from),
        number(),
        text().prop_map(Value::from),
    ];
    let name = prop_oneof![prop::sample::select(NAMES.as_slice()).prop_map(str::to_owned), text()];
    let tree = leaf.prop_recursive(3, 16, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    tree.boxed()
}

#[derive(Clone, Debug)]
enum Edit {
    Drop,
    Replace(Value),
    Insert(String, Value),
    Twice,
}

/// Makes a document with up to three changes anywhere in it.
pub fn changed(document: Value) -> BoxedStrategy<Value> {
    let edit = prop_oneof![
        Just(Edit::Drop),
        anything().prop_map(Edit::Replace),
        number().prop_map(Edit::Replace),
        (text(), anything()).prop_map(|(name, value)| Edit::Insert(name, value)),
        Just(Edit::Twice),
    ];
    let edits = prop::collection::vec((any::<Index>(), edit), 0..4);
    edits
        .prop_map(move |edits| {
            let mut document = document.clone();
            for (place, edit) in edits {
                let places = places(&document);
                if let Some((inside, last)) = places.get(place.index(places.len().max(1))) {
                    change(&mut document, inside, last, edit);
                }
            }
            document
        })
        .boxed()
}

/// Makes what replaces a document: the document with changes, cut off, or with one byte changed; or anything.
pub fn spoilt(document: Value) -> BoxedStrategy<Vec<u8>> {
    let whole = changed(document).prop_map(|document| document.to_string().into_bytes()).boxed();
    let place = || any::<Index>();
    let any = prop_oneof![
        4 => whole.clone(),
        1 => (whole.clone(), place()).prop_map(|(text, at)| text[..at.index(text.len() + 1)].to_vec()),
        1 => (whole, place(), 1_u8..).prop_map(|(mut text, at, by)| {
            let at = at.index(text.len());
            text[at] ^= by;
            text
        }),
        1 => anything().prop_map(|document| document.to_string().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..64),
    ];
    any.boxed()
}

/// Returns all places in a document except for the whole: a pointer to the parent, and the name or number in it.
fn places(document: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = vec![(String::new(), document)];
    while let Some((pointer, value)) = rest.pop() {
        let inside: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
            Value::Array(items) => items.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect(),
            _ => continue,
        };
        for (name, value) in inside {
            rest.push((format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1")), value));
            all.push((pointer.clone(), name));
        }
    }
    all
}

fn change(document: &mut Value, inside: &str, last: &str, edit: Edit) {
    match document.pointer_mut(inside) {
        Some(Value::Object(fields)) => change_field(fields, last, edit),
        Some(Value::Array(items)) => {
            let Some(at) = last.parse().ok().filter(|at| *at < items.len()) else { return };
            match edit {
                Edit::Drop => drop(items.remove(at)),
                Edit::Replace(value) | Edit::Insert(_, value) => items[at] = value,
                Edit::Twice => items.push(items[at].clone()),
            }
        }
        _ => {}
    }
}

fn change_field(fields: &mut Map<String, Value>, name: &str, edit: Edit) {
    match edit {
        Edit::Drop => drop(fields.remove(name)),
        Edit::Replace(value) => drop(fields.insert(name.into(), value)),
        Edit::Insert(name, value) => drop(fields.insert(name, value)),
        Edit::Twice => {
            let value = fields.get(name).cloned().unwrap_or_default();
            fields.insert(format!("{name}2"), value);
        }
    }
}
