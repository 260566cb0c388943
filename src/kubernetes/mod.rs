//! Everything that lictor reads and writes in a Kubernetes cluster.

mod classes;
mod client;
mod controllers;
mod crds;
mod elections;
mod events;
mod failure;
mod followed_lease;
pub(crate) mod lanes;
mod lease_claim;
mod list_watch;
mod marked;
mod matching;
mod nodes;
mod pods;
mod rival;
mod secrets;
mod services;
mod slices;
mod switchovers;
mod together;
mod watch;
mod workloads;

pub use classes::ElectionClasses;
pub use client::{ClientError, Namespaces, connect, connect_in};
pub use controllers::Controllers;
pub use crds::{Crds, Installed};
pub use elections::Elections;
pub use events::{Event, Events};
pub use failure::{GRANT_TO_OPERATOR, WatchFailure, defect, failure, granting, watch_failure, within};
pub use followed_lease::follow_lease;
pub use lease_claim::{ClaimUpdate, Holder, LeaseClaim};
pub use list_watch::{Change, changes, list_at};
pub use marked::MarkedPods;
pub use matching::MatchingPods;
pub use nodes::read_nodes;
pub use pods::Pods;
pub use rival::rival;
pub use secrets::{SecretChange, SecretData, watch_secrets};
pub use services::{ServiceDefect, ServiceObject, ServiceSelector, list_services, watch_services};
pub use slices::{Leftovers, NamedBySlice, SliceWriter, Slices, foreign_slices, list_slices, watch_slices};
pub use switchovers::Switchovers;
pub use together::Together;
pub use watch::{watch_classes, watch_elections, watch_nodes, watch_pods, watch_switchovers};
pub use workloads::{Answer, FIELD_MANAGER, WorkloadObject, Workloads, resource_name, watch_workloads};

use kube::ResourceExt;

use lictor_core::Version;

/// Returns an object's version, or zero if the server gave none.
pub fn version_of(object: &impl ResourceExt) -> Version {
    Version(object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default())
}
