//! Lenient reading of a status, because other programs may write to it too.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a field, and treats an unreadable one as missing. The API server checks the type of a field, but not whether a
/// number is too large or a string is a time. Without this, one unreadable object would make a whole watch fail.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(from: D) -> Result<T, D::Error> {
    Value::deserialize(from).map(|value| serde_json::from_value(value).unwrap_or_default())
}
