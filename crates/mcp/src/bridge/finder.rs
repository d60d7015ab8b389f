//! How the bridge is handed a node.

use std::path::PathBuf;

/// What the bridge needs of a [`Finder`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The lowest epoch that will do: that of the node which was lost, or which leaves a request
    /// unanswered; `None` at first.
    pub not_before: Option<u64>,
    /// Whether a node may be started. Only a client's request starts one, never a stream.
    pub may_start: bool,
}

/// A node that is serving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The node's Unix socket.
    pub socket: PathBuf,
    /// The epoch of its lease.
    pub epoch: u64,
    /// Its url, for the log.
    pub url: String,
}

/// Why no node was found; each holds one sentence for the client, without a full stop.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// It may be found later: the bridge asks again.
    #[error("{0}")]
    Transient(String),
    /// It will never be found: the bridge answers every request with the sentence.
    #[error("{0}")]
    Permanent(String),
    /// None can be started here: the client is to be served alone.
    #[error("{0}")]
    Alone(String),
}

/// Finds the node of the checkout that the bridge was started in.
pub trait Finder: Send + Sync + 'static {
    /// Reads the lease, makes sure that a node runs, and waits until it serves.
    ///
    /// The future is dropped when the bridge no longer needs the node. How long it waits is its own
    /// decision.
    fn find(&self, want: Want) -> impl Future<Output = Result<Found, FindError>> + Send;
}
