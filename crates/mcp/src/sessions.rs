//! Wire sessions of the 2025 generation: how many, how long, and who is forgotten.
//!
//! The SDK's own manager has no cap and takes a quiet session for a dead one even while its
//! client holds a stream. This one counts streams, forgets by its own clock, and leaves to the
//! SDK only the worker of each single session.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{Stream, StreamExt as _};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::{
        WorkerTransport,
        common::server_side_http::session_id,
        streamable_http_server::session::{
            ServerSseMessage, SessionId, SessionManager,
            local::{
                LocalSessionHandle, LocalSessionWorker, SessionConfig, SessionError,
                create_local_session,
            },
        },
    },
};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::clock;

/// How long the worker of a forgotten session may take to hear of it, before it is dropped.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// Looks for silent sessions within each idle time: a session outlives it by a sixth at most.
const LOOKS_PER_IDLE: u32 = 6;

/// The wire session that an `initialize` opens, handed to its handler.
#[derive(Debug, Clone)]
pub(crate) struct Opened(pub(crate) String);

/// Why a session could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// It is not there, or not any more.
    #[error("there is no such wire session")]
    Unknown,
    /// Its worker ended, or refused.
    #[error("the wire session ended")]
    Ended(#[from] SessionError),
}

/// Every wire session of this process.
#[derive(Debug)]
pub(crate) struct WireSessions {
    state: Mutex<State>,
    max: usize,
    idle: Duration,
    config: SessionConfig,
    tracker: TaskTracker,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<SessionId, Session>,
    /// Openings that were admitted and have not been answered.
    opening: usize,
}

#[derive(Debug)]
struct Session {
    handle: LocalSessionHandle,
    heard: Instant,
    streams: usize,
}

/// There is no room for another wire session.
#[derive(Debug)]
pub(crate) struct Full;

/// Room for one more wire session, until dropped.
#[derive(Debug)]
pub(crate) struct Admission(Arc<WireSessions>);

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.lock().opening -= 1;
    }
}

/// A stream of a session that is open, until dropped.
struct Streaming {
    sessions: Arc<WireSessions>,
    id: SessionId,
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.lock().sessions.get_mut(&self.id) {
            session.streams -= 1;
            session.heard = clock::now();
        }
    }
}

impl WireSessions {
    /// Makes an empty set that holds at most `max`, and forgets each after `idle` of silence.
    pub(crate) fn new(max: usize, idle: Duration, tracker: TaskTracker) -> Arc<Self> {
        let mut config = SessionConfig::default();
        // Silence is judged here, by a rule that knows of open streams.
        config.keep_alive = None;
        // A priming event makes some clients drop the server, or reopen every finished answer.
        config.sse_retry = None;
        Arc::new(Self {
            state: Mutex::default(),
            max,
            idle,
            config,
            tracker,
        })
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Says whether there is such a session.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.lock().sessions.contains_key(id)
    }

    /// Makes room for a session that is about to be opened, at the cost of the one that has been
    /// silent longest, if it has been silent long enough.
    pub(crate) fn admit(self: &Arc<Self>) -> Result<Admission, Full> {
        let mut state = self.lock();
        if state.sessions.len() + state.opening >= self.max {
            let now = clock::now();
            let silent = state
                .sessions
                .iter()
                .filter(|(_, session)| session.is_silent(now, self.idle))
                .min_by_key(|(_, session)| session.heard)
                .map(|(id, _)| SessionId::clone(id))
                .ok_or(Full)?;
            self.forget(&mut state, &silent);
        }
        state.opening += 1;
        drop(state);
        Ok(Admission(Arc::clone(self)))
    }

    /// Forgets silent sessions until shutdown.
    ///
    /// # Cancel safety
    /// Cancel safe: each look is complete in itself.
    pub(crate) async fn watch(self: Arc<Self>, shutdown: CancellationToken) {
        let every = self.idle / LOOKS_PER_IDLE;
        while shutdown
            .run_until_cancelled(tokio::time::sleep(every))
            .await
            .is_some()
        {
            self.forget_silent();
        }
    }

    fn forget_silent(&self) {
        let now = clock::now();
        let mut state = self.lock();
        let silent: Vec<SessionId> = state
            .sessions
            .iter()
            .filter(|(_, session)| session.is_silent(now, self.idle))
            .map(|(id, _)| SessionId::clone(id))
            .collect();
        for id in silent {
            self.forget(&mut state, &id);
        }
    }

    fn forget(&self, state: &mut State, id: &SessionId) {
        if let Some(session) = state.sessions.remove(id) {
            tracing::debug!("a silent wire session is forgotten");
            self.tracker.spawn(end(session.handle));
        }
    }

    /// Notes that a session was heard, and returns its worker.
    fn hear(&self, id: &SessionId) -> Result<LocalSessionHandle, WireError> {
        let mut state = self.lock();
        let session = state.sessions.get_mut(id).ok_or(WireError::Unknown)?;
        session.heard = clock::now();
        Ok(session.handle.clone())
    }

    /// Notes that a session has one more open stream.
    fn open(self: &Arc<Self>, id: &SessionId) -> Result<Streaming, WireError> {
        let mut state = self.lock();
        let session = state.sessions.get_mut(id).ok_or(WireError::Unknown)?;
        session.streams += 1;
        drop(state);
        Ok(Streaming {
            sessions: Arc::clone(self),
            id: SessionId::clone(id),
        })
    }

    /// Forgets a session whose worker has ended, so that its client is told to open another.
    fn lost(&self, id: &SessionId, error: SessionError) -> WireError {
        self.lock().sessions.remove(id);
        error.into()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below this lock is a single step, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn is_silent(&self, now: Instant, idle: Duration) -> bool {
        self.streams == 0 && now.saturating_duration_since(self.heard) >= idle
    }
}

/// Ends the worker of a session, without waiting for one that does not listen.
async fn end(handle: LocalSessionHandle) {
    // A worker that is gone already, or that does not read, ends with its last handle.
    tokio::time::timeout(CLOSE_PATIENCE, handle.close())
        .await
        .ok();
}

/// Turns what a session's worker sends into a stream that counts as open while it is read, and
/// carries no event ids: nothing can be resumed by them.
fn counted(
    events: ReceiverStream<ServerSseMessage>,
    streaming: Streaming,
) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
    events.map(move |mut event| {
        let _held = &streaming;
        event.event_id = None;
        event
    })
}

/// The view of the sessions that the SDK drives.
#[derive(Debug)]
pub(crate) struct Manager(pub(crate) Arc<WireSessions>);

impl SessionManager for Manager {
    type Error = WireError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), WireError> {
        let id = session_id();
        let (handle, worker) = create_local_session(SessionId::clone(&id), self.0.config.clone());
        let session = Session {
            handle,
            heard: clock::now(),
            streams: 0,
        };
        self.0
            .lock()
            .sessions
            .insert(SessionId::clone(&id), session);
        Ok((id, WorkerTransport::spawn(worker)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, WireError> {
        let handle = self.0.hear(id)?;
        message.insert_extension(Opened(id.as_ref().to_owned()));
        Ok(handle.initialize(message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, WireError> {
        Ok(self.0.knows(id))
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), WireError> {
        let session = self.0.lock().sessions.remove(id);
        if let Some(session) = session {
            end(session.handle).await;
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, WireError> {
        let handle = self.0.hear(id)?;
        let streaming = self.0.open(id)?;
        let receiver = handle
            .establish_request_wise_channel()
            .await
            .map_err(|error| self.0.lost(id, error))?;
        handle
            .push_message(message, receiver.http_request_id)
            .await
            .map_err(|error| self.0.lost(id, error))?;
        Ok(counted(ReceiverStream::new(receiver.inner), streaming))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), WireError> {
        let handle = self.0.hear(id)?;
        handle
            .push_message(message, None)
            .await
            .map_err(|error| self.0.lost(id, error))
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, WireError> {
        let handle = self.0.hear(id)?;
        let streaming = self.0.open(id)?;
        let receiver = handle
            .establish_common_channel()
            .await
            .map_err(|error| self.0.lost(id, error))?;
        Ok(counted(ReceiverStream::new(receiver.inner), streaming))
    }

    async fn resume(
        &self,
        id: &SessionId,
        _last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, WireError> {
        // No event carries an id, so there is nothing to resume from: the stream begins anew.
        self.create_standalone_stream(id).await
    }
}

#[cfg(test)]
mod tests;
