//! How a status is read: others may write to it, too.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A field that can't be read counts as missing. The API server looks at the type of each field, not at whether a number is too
/// large or a time is one; and one object that can't be read would keep a watch from showing any.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    Value::deserialize(from).map(|value| serde_json::from_value(value).unwrap_or_default())
}
