//! Writes for one version of one object, whose outcome may be unknown. Pods and slices are written by these rules.

mod late;
mod versioned;

pub(crate) use self::late::Late;
pub(crate) use self::versioned::{Shown, Versioned, not_a_conflict};

use crate::{Pod, Slice, Version};

/// An object that a write may have changed, as the server shows it.
pub(crate) trait Object {
    fn version(&self) -> Version;

    /// The object's kind and name, for a person.
    fn described(&self) -> String;
}

impl Object for Pod {
    fn version(&self) -> Version {
        self.version
    }

    fn described(&self) -> String {
        format!("pod {}", self.name)
    }
}

impl Object for Slice {
    fn version(&self) -> Version {
        self.version
    }

    fn described(&self) -> String {
        format!("EndpointSlice {}", self.name)
    }
}
