//! What the projection asks of the node that it speaks for.

use std::{any::Any, fmt, pin::Pin, sync::Arc};

use earshot_capability::{Caller, ClientName, Dispatcher, Failure};
use serde_json::Value;

/// A future that a host returns.
pub type HostFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a host gives for an open stream: dropping it says that the stream is closed.
pub type OpenStream = Box<dyn Any + Send + Sync>;

/// What a client says of itself when it opens the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// What the client calls itself, where it says so.
    pub client: Option<ClientName>,
    /// The protocol version that the two will speak.
    pub protocol: String,
    /// How the client opened.
    pub opening: Opening,
}

/// How a client opens the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// `initialize`: the generation up to 2025-11-25. It happens once for each wire session.
    Initialize,
    /// `server/discover`: the generation from 2026-07-28 on. It may come any number of times,
    /// and from a caller without any identity.
    Discover,
}

/// How the node receives a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// What the client is told of where it is, and of how to take part.
    pub instructions: String,
    /// Whether the board had no announcement of this caller when it came: a bridge that knows
    /// one repeats it then.
    pub row_absent: bool,
}

/// The node, as far as the projection knows it.
pub trait McpHost: fmt::Debug + Send + Sync + 'static {
    /// Returns the dispatcher behind every call.
    fn dispatcher(&self) -> &Arc<Dispatcher>;

    /// Receives a client: attaches it to the board where it has an identity, and returns what it
    /// is told. A caller that comes again, by the same identity, is received once more and stays
    /// one peer.
    ///
    /// # Errors
    /// A [`Failure`] when this client is turned away.
    fn greet<'a>(
        &'a self,
        caller: &'a Caller,
        greeting: Greeting,
    ) -> HostFuture<'a, Result<Welcome, Failure>>;

    /// Keeps a wire session that is about to be opened, so that it can be brought back after the
    /// end of this process. `initialize` holds the parameters of its handshake, with the version
    /// that was settled. Called before [`Self::greet`], and before the session's id is known to
    /// anybody.
    ///
    /// # Errors
    /// A [`Failure`] when it cannot be kept: the session is not opened then, and its client is
    /// told so.
    fn session_opened<'a>(
        &'a self,
        id: &'a str,
        initialize: Value,
        caller: &'a Caller,
    ) -> HostFuture<'a, Result<(), Failure>>;

    /// Returns the handshake of a wire session that is kept. Called with ids of well-formed UUIDs
    /// alone.
    ///
    /// # Errors
    /// A [`Failure`] when the host cannot say whether it keeps it.
    fn session_lookup<'a>(&'a self, id: &'a str) -> HostFuture<'a, Result<Option<Value>, Failure>>;

    /// Forgets a wire session: its client ended it, it was silent for too long, it gave way to
    /// another, or its client was turned away. The end of this process is none of these.
    fn session_closed<'a>(&'a self, id: &'a str) -> HostFuture<'a, ()>;

    /// Hears that a message of this caller arrived. Called for each one, before it is served.
    fn touched(&self, caller: &Caller);

    /// Hears that this caller holds a stream open, until the answer is dropped.
    fn stream_opened(&self, caller: &Caller) -> OpenStream;

    /// Hears that this caller ended its wire session, or its standard input, on purpose.
    fn left<'a>(&'a self, caller: &'a Caller) -> HostFuture<'a, ()>;

    /// Returns the name under which the server introduces itself.
    fn server_name(&self) -> &str;

    /// Returns the version with which the server introduces itself.
    fn server_version(&self) -> &str;
}
