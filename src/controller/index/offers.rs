//! Which namespaces may use a class: by name, or by the labels of the namespaces.

use lictor_api::{Classes, ElectionClass, NamespaceLabels, with_selected};
use lictor_core::Pairs;
use lictor_kubernetes::{Change, WatchFailure};

/// The classes as administrators wrote them, and the labels of the cluster's namespaces as far as a class selects by them.
#[derive(Default)]
pub(crate) struct Offers {
    written: Classes,
    labels: NamespaceLabels,
    /// Why the labels can't be read.
    unreadable: Option<String>,
}

impl Offers {
    /// Takes a change of a class. Returns whether anything may differ.
    pub(super) fn apply_classes(&mut self, change: Change<(String, ElectionClass)>) -> bool {
        match change {
            Change::Applied((name, class)) => drop(self.written.insert(name, class)),
            Change::Deleted((name, _)) => drop(self.written.remove(&name)),
            Change::All(_, _, classes) => self.written = classes.into_iter().collect(),
            Change::Rewound(_) | Change::Broken(..) | Change::Resumed(_) => return false,
        }
        true
    }

    /// Takes a change of the namespaces' labels. Returns whether anything may differ.
    pub(super) fn apply_labels(&mut self, change: Change<(String, Pairs)>) -> bool {
        match change {
            Change::Applied((name, labels)) => drop(self.labels.insert(name, labels)),
            Change::Deleted((name, _)) => drop(self.labels.remove(&name)),
            Change::All(_, _, all) => self.labels = all.into_iter().collect(),
            Change::Broken(_, WatchFailure::Forbidden(failure)) => {
                self.unreadable = Some(failure.text().to_owned());
                return true;
            }
            Change::Resumed(_) => {}
            Change::Rewound(_) | Change::Broken(..) => return false,
        }
        self.unreadable = None;
        true
    }

    /// Whether a class selects namespaces by their labels.
    pub(crate) fn by_label(&self) -> bool {
        self.written.values().any(|class| class.spec.selects_namespaces())
    }

    /// The classes as administrators wrote them.
    pub(crate) fn written(&self) -> &Classes {
        &self.written
    }

    /// Why no class can select namespaces by their labels, if so.
    pub(super) fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref().filter(|_| self.by_label())
    }

    /// Returns the classes, each with the names of the namespaces that its selector matches.
    pub(super) fn classes(&self) -> Classes {
        with_selected(&self.written, &self.labels)
    }
}
