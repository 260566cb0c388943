//! `kubectl lictor dashboard`: shows all elections on a page in the user's own browser.
//!
//! The program listens on this machine only, and queries the API server with the user's own kubeconfig. No part of it
//! runs in the cluster.

mod actions;
mod browser;
mod cards;
mod guard;
mod one;
mod operators;
mod overview;
mod page;
mod server;
mod shared;
mod timeline;

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::net::TcpListener;

use self::browser::OpenedFile;
use self::guard::Guard;
use self::operators::Operators;
use self::overview::follow;
use self::server::serve;
use self::shared::{About, Shared};
use super::access::Cluster;
use super::reading::told;
use crate::cli::installation::namespace;
use crate::cli::support::{Ended, asked_to_end, block_on, print};

/// Serves a page with all elections on this machine, for your browser: problems first, live, with a timeline of each
/// election's terms.
///
/// It uses your kubeconfig and your rights, and listens on 127.0.0.1 only. The address that it prints contains a random
/// token: anyone who has the address can act with your rights until Ctrl-C ends the command.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kubectl lictor dashboard    # prints the address of the page\n  kubectl lictor dashboard --open    # also opens it in your browser\n  kubectl lictor dashboard -n shop --port 8001    # one namespace, at a fixed port"
)]
pub(crate) struct Dashboard {
    #[command(flatten)]
    cluster: Cluster,

    /// Show only the elections of this namespace. Default: those of all namespaces.
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    namespace: Option<String>,

    /// The port on 127.0.0.1. Default: a free one.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Open the page in your browser.
    #[arg(long)]
    open: bool,
}

impl Dashboard {
    pub(crate) fn run(self) -> anyhow::Result<Ended> {
        block_on(self.show())
    }

    async fn show(self) -> anyhow::Result<Ended> {
        let reader = self.cluster.reader().await?;
        let port = self.port.unwrap_or_default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.with_context(|| {
            format!("can't listen on 127.0.0.1:{port}: choose another --port, or leave it out for a free one")
        })?;
        // The page itself shows rejections by the API server, because rights may be granted while it is open.
        if let Err(error) = reader.version().await
            && !matches!(error, kube::Error::Api(_))
        {
            return Err(anyhow!(told("get", "the version", &error)));
        }
        let guard = Guard::new(listener.local_addr()?.port())?;
        let address = guard.address();
        let about = About::new(self.cluster.context_name(), reader.user_name().await, self.namespace);
        let (elections, overview) = tokio::sync::watch::channel(None);
        let (acting, operators) = tokio::sync::watch::channel(Operators::default());
        let shared = Shared { reader: Arc::new(reader), about: Arc::new(about), overview, operators };
        print(&format!("{address}\n"))?;
        eprintln!("anyone who has this address can act with your rights until Ctrl-C ends the command");
        // Dropping this when the command ends deletes the file.
        let _opened = if self.open { OpenedFile::open(&address) } else { None };
        tokio::select! {
            served = serve(listener, guard, shared.clone()) => served.map(|()| Ended::Well).context("the page is no longer served"),
            never = follow(&shared, elections) => match never {},
            never = operators::follow(&shared.reader, acting) => match never {},
            ended = asked_to_end() => ended.map(|()| Ended::Interrupted).context("can't wait for Ctrl-C"),
        }
    }
}
