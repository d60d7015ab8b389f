//! The view of the wire sessions that the SDK drives.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use http::request::Parts;
use rmcp::{
    model::{ClientJsonRpcMessage, GetExtensions as _, ServerJsonRpcMessage},
    transport::{
        WorkerTransport,
        common::server_side_http::session_id,
        streamable_http_server::session::{
            ServerSseMessage, SessionId, SessionManager,
            local::{LocalSessionWorker, create_local_session},
        },
    },
};
use tokio_stream::wrappers::ReceiverStream;

use super::{Admission, Owner, Session, SessionError, Streaming, WireSessions, end};
use crate::clock;

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

/// What the SDK calls for every wire session.
#[derive(Debug)]
pub(crate) struct Manager(pub(crate) Arc<WireSessions>);

impl Manager {
    /// Drops a session whose worker has ended: it is brought back when it is named again, or its
    /// client is told to open another.
    fn lost(&self, id: &SessionId, number: u64, error: SessionError) -> WireError {
        self.0.lose(id, number);
        error.into()
    }

    /// Takes a session that the SDK made: one that was brought back is another under its id.
    fn take(&self, id: &SessionId) -> Option<Session> {
        let mut state = self.0.lock();
        let own = state.sessions.get(id).is_some_and(|it| !it.restored);
        own.then(|| state.sessions.remove(id)).flatten()
    }
}

impl SessionManager for Manager {
    type Error = WireError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), WireError> {
        let id = session_id();
        let (handle, worker) = create_local_session(SessionId::clone(&id), self.0.config.clone());
        let mut state = self.0.lock();
        let session = Session {
            handle,
            owner: Owner::default(),
            heard: clock::now(),
            streams: 0,
            used: false,
            number: state.next_number(),
            restored: false,
        };
        state.sessions.insert(SessionId::clone(&id), session);
        drop(state);
        Ok((id, WorkerTransport::spawn(worker)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, WireError> {
        let (handle, number) = self.0.hear(id).ok_or(WireError::Unknown)?;
        // Nobody gives way half-way through a handshake.
        let _opening = self.0.open(id, number).ok_or(WireError::Unknown)?;
        if let Some(admission) = admission_of(&message) {
            let mut state = self.0.lock();
            let owner = admission.use_for(&mut state);
            if let Some(session) = state.sessions.get_mut(id) {
                session.owner = owner;
            }
        }
        message.insert_extension(Opened(id.as_ref().to_owned()));
        Ok(handle.initialize(message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, WireError> {
        Ok(self.0.knows(id))
    }

    /// Drops a session that the SDK made, and whose worker has ended.
    async fn close_session(&self, id: &SessionId) -> Result<(), WireError> {
        if let Some(session) = self.take(id) {
            end(session.handle).await;
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, WireError> {
        let (handle, number) = self.0.hear(id).ok_or(WireError::Unknown)?;
        let streaming = self.0.ask(id, number).ok_or(WireError::Unknown)?;
        let receiver = handle
            .establish_request_wise_channel()
            .await
            .map_err(|error| self.lost(id, number, error))?;
        handle
            .push_message(message, receiver.http_request_id)
            .await
            .map_err(|error| self.lost(id, number, error))?;
        Ok(counted(ReceiverStream::new(receiver.inner), streaming))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), WireError> {
        let (handle, number) = self.0.hear(id).ok_or(WireError::Unknown)?;
        handle
            .push_message(message, None)
            .await
            .map_err(|error| self.lost(id, number, error))
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, WireError> {
        let (handle, number) = self.0.hear(id).ok_or(WireError::Unknown)?;
        let streaming = self.0.ask(id, number).ok_or(WireError::Unknown)?;
        let receiver = handle
            .establish_common_channel()
            .await
            .map_err(|error| self.lost(id, number, error))?;
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

/// Returns the room that was made for the session which this message opens.
fn admission_of(message: &ClientJsonRpcMessage) -> Option<Arc<Admission>> {
    let ClientJsonRpcMessage::Request(request) = message else {
        return None;
    };
    let parts: &Parts = request.request.extensions().get()?;
    parts.extensions.get().cloned()
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
