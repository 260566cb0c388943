//! The stores that several clusters share, as their classes describe them. Each kind of store has a variant of
//! [`SharedClass`] and a file.

mod common;
mod consul;

use std::ops::Deref;

use super::Refusal;
use crate::ElectionClass;
pub use common::{SecretId, SecretKey, Shared};
pub use consul::{ConsulClass, Credentials, SessionNode, TlsSources};

/// How a class keeps its locks in a store that several clusters share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedClass {
    /// In keys in Consul.
    Consul(Box<ConsulClass>),
}

/// Reads how a class keeps its locks. Returns `None` if it keeps them in Leases, which only its own cluster can see.
///
/// # Errors
/// Returns what is wrong with the class. The CRDs refuse all of this at `kubectl apply`, but the CRDs in the cluster
/// may be older than this program.
pub fn shared_class(class: &ElectionClass) -> Option<Result<SharedClass, Refusal>> {
    consul::consul_class(class).map(|read| read.map(|consul| SharedClass::Consul(Box::new(consul))))
}

impl SharedClass {
    /// Returns the settings of a class in Consul.
    pub fn consul(&self) -> Option<&ConsulClass> {
        match self {
            Self::Consul(consul) => Some(consul),
        }
    }
}

impl Deref for SharedClass {
    type Target = dyn Shared;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Consul(consul) => &**consul,
        }
    }
}
