//! One message of the client on its way to the node.

use std::time::Duration;

use bytes::Bytes;

use crate::bridge::clock::Now;
use crate::bridge::exchange::AttemptId;

/// A message that is not done with.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) frame: Bytes,
    pub(super) role: Role,
    pub(super) phase: Phase,
    /// How often it was sent again after it may have reached a node.
    pub(super) resends: u32,
    /// How often the node did not know the wire session that it was sent in.
    pub(super) session_losses: u32,
    /// Since when there is no node for it.
    pub(super) no_node_since: Option<Now>,
}

/// What kind of message it is.
#[derive(Debug)]
pub(super) enum Role {
    Request(Request),
    /// `notifications/initialized`: later messages wait until the node has taken it.
    Initialized,
    /// Another notification, or the client's answer to a request of the node.
    OneWay(Route),
}

/// A message that is owed an answer.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// The raw id.
    pub(super) id: Bytes,
    pub(super) route: Route,
    pub(super) kind: RequestKind,
    /// What its method is about.
    pub(super) target: Option<String>,
    /// Its number, from when it was first sent.
    pub(super) n: Option<u64>,
    /// A node may have seen the number.
    pub(super) touched: bool,
    /// The bridge asks on its own: the answer is not for the client.
    pub(super) silent: bool,
}

/// What the bridge has to know about a request beyond passing it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Plain,
    Initialize,
    /// `subscriptions/listen`: its stream is open until one side ends it.
    Listen {
        acknowledged: bool,
    },
    /// A call of `peers_announce`.
    Announce,
    /// A call of `peers_withdraw`.
    Withdraw,
    /// `resources/subscribe` within a wire session.
    Subscribe,
    /// `resources/unsubscribe` within a wire session.
    Unsubscribe,
}

/// Under which generation of the protocol a message travels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// It makes the wire session.
    Handshake,
    /// Within the wire session, under the version that it names itself or the negotiated one.
    Session { version: Option<String> },
    /// It stands alone.
    Stateless { version: String, method: String },
}

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is sent when its turn comes, not before that time.
    Waiting { not_before: Now },
    /// It is at the node.
    Sent {
        attempt: AttemptId,
        /// The generation of the wire session that it was sent in.
        generation: u64,
        /// The node's answer is a stream that has begun.
        streaming: bool,
        /// The wire session that the answer to an `initialize` brought.
        session: Option<String>,
    },
}

impl Entry {
    pub(super) fn new(frame: Bytes, role: Role, no_node_since: Option<Now>) -> Self {
        Self {
            frame,
            role,
            phase: Phase::Waiting {
                not_before: Now::ZERO,
            },
            resends: 0,
            session_losses: 0,
            no_node_since,
        }
    }

    pub(super) fn request(&self) -> Option<&Request> {
        match &self.role {
            Role::Request(request) => Some(request),
            Role::Initialized | Role::OneWay(_) => None,
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.phase, Phase::Sent { .. })
    }

    /// Returns whether everything later waits for it.
    pub(super) fn is_handshake(&self) -> bool {
        match &self.role {
            Role::Request(request) => request.kind == RequestKind::Initialize,
            Role::Initialized => true,
            Role::OneWay(_) => false,
        }
    }

    pub(super) fn is_listen(&self) -> bool {
        self.request()
            .is_some_and(|request| matches!(request.kind, RequestKind::Listen { .. }))
    }

    /// Returns whether the client has its answer, and only more messages are to come.
    pub(super) fn is_open_stream(&self) -> bool {
        self.request().is_some_and(|request| {
            matches!(request.kind, RequestKind::Listen { acknowledged: true })
        })
    }

    /// Returns whether the end of the client's input waits for it.
    pub(super) fn is_owed(&self) -> bool {
        !self.is_open_stream() && self.request().is_none_or(|request| !request.silent)
    }

    /// Returns whether a node is to be started for its sake.
    pub(super) fn starts_a_node(&self) -> bool {
        self.request().is_some_and(|request| !request.silent) && !self.is_open_stream()
    }

    /// Returns whether it travels within the wire session.
    pub(super) fn in_session(&self) -> bool {
        match &self.role {
            Role::Request(Request { route, .. }) | Role::OneWay(route) => {
                matches!(route, Route::Session { .. })
            }
            Role::Initialized => true,
        }
    }

    /// Returns when it is to be sent again, where it waits for that.
    pub(super) fn retry_at(&self) -> Option<Now> {
        match self.phase {
            Phase::Waiting { not_before } if not_before > Now::ZERO => Some(not_before),
            Phase::Waiting { .. } | Phase::Sent { .. } => None,
        }
    }

    /// Returns when it is answered with an error, should there be no node until then.
    pub(super) fn expires_at(&self, deadline: Duration) -> Option<Now> {
        if self.is_open_stream() {
            return None;
        }
        self.no_node_since.map(|since| since + deadline)
    }
}
