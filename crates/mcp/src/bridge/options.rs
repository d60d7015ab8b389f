//! Who the bridge speaks for.

use std::path::PathBuf;
use std::time::Duration;

use earshot_capability::Address;
use earshot_trust::{Seat, SessionId};
use tokio_util::sync::CancellationToken;

/// What the binary hands to [`run`](super::run()).
#[derive(Debug, Clone)]
pub struct BridgeOptions {
    /// The secret by which a node knows this bridge again: one for its client's process life.
    pub seat: Seat,
    /// The root that the client works in.
    pub caller_root: PathBuf,
    /// The session of the execution identity; `None` where the client supplies none.
    pub session: Option<SessionId>,
    /// The session that started this one.
    pub parent_session: Option<SessionId>,
    /// Where the client can be reached on this machine.
    pub address: Address,
    /// How long a request waits while there is no node, before it is answered with an error.
    pub request_deadline: Duration,
    /// Cancelled when the client's process is gone, whatever its pipes say.
    pub client_gone: CancellationToken,
}

impl BridgeOptions {
    /// The usual [`request_deadline`](Self::request_deadline): longer than any handoff or restart
    /// of a node, shorter than the patience of common clients, which is 60 s in the TypeScript SDK
    /// and in Codex.
    pub const REQUEST_DEADLINE: Duration = Duration::from_secs(50);
}
