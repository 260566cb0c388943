//! Events, which users see with `kubectl describe` and `kubectl events`.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event as KubeEvent, EventType, Recorder, Reporter};

/// A report about an election or a pod.
#[derive(Clone, Debug)]
pub struct Event {
    /// The object that the Event is about.
    pub regarding: ObjectReference,
    /// Another object that is involved.
    pub related: Option<ObjectReference>,
    /// Whether a person should look at it.
    pub warning: bool,
    /// The reason, in one word.
    pub reason: &'static str,
    /// The action of lictor, in one word.
    pub action: &'static str,
    /// The message, a sentence.
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
    /// Creates the writer. Events name this replica as their source.
    pub fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter { controller: "lictor.dev/operator".into(), instance: Some(identity.into()) };
        Self { repeated: Recorder::new(client.clone(), reporter.clone()), client, reporter }
    }

    /// Writes an Event. lictor does not retry this, because nothing depends on an Event.
    ///
    /// # Errors
    /// If the API server did not accept it.
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
            // A lasting problem is one Event with a count.
            self.repeated.publish(&told, &regarding).await
        } else {
            // A recorder that counts repeats keeps the first note, but each change of leader needs its own.
            Recorder::new(self.client.clone(), self.reporter.clone()).publish(&told, &regarding).await
        }
    }
}
