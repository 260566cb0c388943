//! A running store in Consul: its locks, its sessions, and the news of both.

use std::collections::BTreeMap;
use std::time::Duration;

use lictor_api::{ConsulRecord, SessionNode};
use lictor_consul::Connect;
use lictor_core::{Namesakes, StoreId, Uid};
use lictor_locks::Layout;
use lictor_locks::Role;
use lictor_locks::consul::{Home, SessionKeeper, SessionSettings};
use lictor_process::monotonic;
use tokio::sync::watch;

use super::settings::Made;
use crate::controller::stores::class_store::{Context, Trouble};
use crate::controller::stores::kept::Kept;
use crate::store::ConsulParameters;

/// A running store.
pub(crate) struct Store {
    pub(crate) made: Made,
    pub(crate) client: lictor_consul::Client,
    pub(crate) token: Option<String>,
    /// Changes when Consul does not know the token.
    pub(crate) rejections: watch::Receiver<u64>,
    pub(crate) kept: Kept,
}

impl Store {
    /// Begins to keep sessions and to watch locks. The store is registered from now on.
    pub(crate) fn start(
        id: &StoreId,
        made: Made,
        token: Option<String>,
        installation: &Uid,
        role: Role,
        context: &Context,
        connect: &Connect,
    ) -> Result<Self, Trouble> {
        let client = connect(&made.settings).map_err(|error| Trouble::invalid_settings(&error))?;
        client.set_token(token.as_deref()).map_err(|error| Trouble::invalid_settings(&error))?;
        let short: String = installation.0.chars().take(8).collect();
        let (cluster, class) = (format!("lictor/{}/", made.cluster), class_of(id).to_owned());
        let kept = SessionSettings {
            prefix: format!("{cluster}{short}/{class}"),
            namesakes: Some(Namesakes { cluster, installation: short.clone(), class }),
            home: match &made.node {
                SessionNode::Own(node) => Home::Node {
                    name: node.clone(),
                    address: "127.0.0.1".into(),
                    meta: BTreeMap::from([("external-source".to_owned(), "lictor".to_owned())]),
                },
                SessionNode::Agent => Home::Agent,
            },
            count: made.sessions,
            ttl: made.ttl,
            lock_delay: made.lock_delay,
        };
        let (keeper, sessions) = SessionKeeper::new(client.clone(), kept, monotonic);
        let parameters = ConsulParameters {
            id: id.clone(),
            client: client.clone(),
            cluster: made.cluster.clone(),
            installation: short,
            prefix: made.prefix.clone(),
            layout: match made.record {
                ConsulRecord::Record => Layout::Record,
                ConsulRecord::LeaderName => Layout::LeaderName,
            },
            wait: made.ttl.min(Duration::from_secs(60)),
            suspicion: keeper.suspicion(),
            refusals: keeper.refusals(),
        };
        let locks = parameters.store(sessions.clone());
        tracing::info!(class = class_of(id), address = made.settings.address, "keeping locks in Consul");
        let kept = Kept::start(id, locks, sessions, |roles| keeper.run(roles), role, context);
        let rejections = client.rejections();
        Ok(Self { made, client, token, rejections, kept })
    }
}

/// The name of the class that a store belongs to.
fn class_of(id: &StoreId) -> &str {
    id.0.strip_prefix("consul/").unwrap_or(&id.0)
}
