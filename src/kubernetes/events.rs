//! Events: what users see with `kubectl describe` and `kubectl events`.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event as KubeEvent, EventType, Recorder, Reporter};

/// Something to tell about an election or a pod.
#[derive(Clone, Debug)]
pub struct Event {
    /// The object that it is about.
    pub regarding: ObjectReference,
    /// Another object that has to do with it.
    pub related: Option<ObjectReference>,
    /// Whether somebody should look at it.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// What lictor did, one word.
    pub action: &'static str,
    /// A sentence.
    pub note: String,
}

/// Writes Events.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    repeated: Recorder,
}

impl Events {
    /// Events in the name of this replica.
    pub fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter { controller: "lictor.dev/operator".into(), instance: Some(identity.into()) };
        Self { repeated: Recorder::new(client.clone(), reporter.clone()), client, reporter }
    }

    /// Tells it. What fails is not tried again: an Event is a courtesy.
    ///
    /// # Errors
    /// If the API server did not take it.
    pub async fn tell(&self, event: Event) -> Result<(), kube::Error> {
        let Event { regarding, related, warning, reason, action, note } = event;
        let told = KubeEvent {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.into(),
            note: Some(note),
            action: action.into(),
            secondary: related,
        };
        if warning {
            // A defect that lasts is one Event with a count.
            self.repeated.publish(&told, &regarding).await
        } else {
            // A recorder counts repeats under the *first* note, but each change of leader is a story of its own.
            Recorder::new(self.client.clone(), self.reporter.clone()).publish(&told, &regarding).await
        }
    }
}
