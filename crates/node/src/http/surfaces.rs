//! What the surface is made of, given by the node, and what it shows of the node.

use std::{convert::Infallible, fmt, pin::Pin, sync::Arc, time::Duration};

use axum::{body::Body, extract::Request, response::Response};
use earshot_capability::{Caller, Dispatcher, Failure};
use serde::Serialize;
use tokio::{
    net::UnixStream,
    sync::{mpsc, watch},
};
use tower::util::BoxCloneSyncService;

use super::access::AccessSettings;

/// The service behind the `/mcp` paths.
pub(crate) type McpService = BoxCloneSyncService<Request<Body>, Response, Infallible>;

/// Everything that the HTTP surface of a node is made of.
pub(crate) struct Surfaces {
    /// The way to every capability.
    pub(crate) dispatcher: Arc<Dispatcher>,
    /// The service behind the `/mcp` paths.
    pub(crate) mcp: McpService,
    /// Who this node is, as it changes.
    pub(crate) identity: watch::Receiver<Identity>,
    /// What decides who may call.
    pub(crate) access: AccessSettings,
    /// How long and how much.
    pub(crate) limits: Limits,
    /// The node itself.
    pub(crate) owner: Arc<dyn Owner>,
    /// Where connections at the Unix socket go that are links of siblings.
    pub(crate) links: mpsc::Sender<UnixStream>,
}

impl fmt::Debug for Surfaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surfaces").finish_non_exhaustive()
    }
}

/// What the surface asks of the node, and tells it.
pub(crate) trait Owner: Send + Sync {
    /// Waits until the node may execute a request; refuses when it never will.
    fn pass(&self) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + '_>>;

    /// Answers a probe's nonce, as only the holder of the lease can.
    fn prove(&self, nonce: &[u8]) -> Option<String>;

    /// Takes note of a request that is use: admitted, and neither a probe nor a reading of health
    /// or metrics.
    fn used(&self, caller: &Caller);

    /// Returns the node's own measures, for `/metrics`.
    fn gauges(&self) -> Vec<Gauge>;
}

/// One measure of the node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gauge {
    /// Its name, beginning with `earshot_`.
    pub(crate) name: &'static str,
    /// What it measures, in a sentence.
    pub(crate) help: &'static str,
    /// Its value now.
    pub(crate) value: u64,
}

/// Who this node is, as anyone who can reach it may know: no path of the file system.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Identity {
    /// The release.
    pub(crate) version: &'static str,
    /// The commit that the program was built from, or `unknown`.
    pub(crate) commit: &'static str,
    /// Whether its tree carried uncommitted changes; `None` when the build did not know.
    pub(crate) dirty: Option<bool>,
    /// Why this process no longer is the program on disk, if so.
    pub(crate) stale: Option<String>,
    /// The checkout.
    pub(crate) checkout_id: String,
    /// The repository, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repository_id: Option<String>,
    /// The branch that is checked out, unless the head is detached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    /// The commit that is checked out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) head: Option<String>,
    /// Whether this is a linked worktree.
    pub(crate) linked_worktree: bool,
    /// Whether this process still holds the lease of its checkout.
    pub(crate) leaseholder: bool,
}

/// How long the surface waits, and how much it takes at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// From the first byte of a request, or from the connection, to the end of its headers.
    pub(crate) head: Duration,
    /// From the end of an answer to the first byte of the next request.
    pub(crate) idle: Duration,
    /// Without a byte of a request's body.
    pub(crate) body_stall: Duration,
    /// Without a byte of a body that nobody reads, while it is thrown away.
    pub(crate) rest_stall: Duration,
    /// Without a byte of an answer being taken.
    pub(crate) answer_stall: Duration,
    /// From the order to stop until answers in flight are cut off.
    pub(crate) drain: Duration,
    /// After a failed `accept`, until the next.
    pub(crate) accept_pause: Duration,
    /// Connections of one listener at once; further ones wait unaccepted.
    pub(crate) connections: usize,
    /// Calls of capabilities at once; further ones are `busy`.
    pub(crate) calls: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // An honest client sends its headers in one packet.
            head: Duration::from_secs(10),
            // Above the minute that many clients and tunnels keep a connection.
            idle: Duration::from_secs(75),
            body_stall: Duration::from_secs(30),
            // Whoever still sends does so without a pause; whoever does not reads its answer.
            rest_stall: Duration::from_secs(1),
            // A stopped client is given time to come back before its stream is cut.
            answer_stall: Duration::from_mins(1),
            drain: Duration::from_secs(5),
            accept_pause: Duration::from_millis(100),
            connections: 4096,
            calls: 256,
        }
    }
}
