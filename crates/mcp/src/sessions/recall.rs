//! Wire sessions that the host keeps: brought back when they are named, ended there for good.
//!
//! A session is here, at the host, or on its way between the two. Whatever moves it runs to its
//! end even when its request is given up, and everybody else who names it meanwhile waits for
//! where it is found: it is brought back once, and what is being ended is not brought back.

use std::sync::Arc;

use earshot_capability::{Code, Failure};
use rmcp::{
    model::{
        ClientJsonRpcMessage, ClientRequest, InitializeRequest, InitializeRequestParams, RequestId,
        ServerJsonRpcMessage,
    },
    service::serve_server_with_ct,
    transport::{
        TransportAdapterIdentity, WorkerTransport,
        streamable_http_server::session::{
            SessionId,
            local::{LocalSessionHandle, LocalSessionWorker, create_local_session},
        },
    },
};
use tokio::sync::watch;

use super::{Admission, Full, Owner, Session, State, WireSessions, end};
use crate::{
    clock,
    handler::{Link, Projection},
};

/// Marks the `initialize` that brings a session back: its client is attached already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Restored;

/// Where a session was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is here, and can be used.
    Here,
    /// It is nowhere.
    Nowhere,
    /// It was there and has just been ended.
    Ended,
    /// The host keeps it, and there is no room for it here.
    Full(Full),
    /// The host cannot say.
    Unclear(Failure),
}

/// A session on its way. Dropping it is its arrival.
pub(super) struct Transit {
    sessions: Arc<WireSessions>,
    id: SessionId,
    sender: watch::Sender<Option<Found>>,
    found: Found,
    /// The session, when it comes here, and the room that was made for it.
    session: Option<(Session, Admission)>,
}

impl Drop for Transit {
    fn drop(&mut self) {
        let mut state = self.sessions.lock();
        state.moving.remove(&self.id);
        let arrived = self.session.take().map(|(mut session, admission)| {
            session.owner = admission.use_for(&mut state);
            session.heard = clock::now();
            state.sessions.insert(SessionId::clone(&self.id), session);
            admission
        });
        drop(state);
        drop(arrived);
        self.sender.send_replace(Some(self.found.clone()));
    }
}

impl WireSessions {
    /// Makes sure that a session is here, if it is anywhere.
    ///
    /// # Cancel safety
    /// Cancel safe: a session on its way arrives whether it is waited for or not.
    pub(crate) async fn recall(self: &Arc<Self>, id: &str, owner: Owner) -> Found {
        let arrival = {
            let mut state = self.lock();
            if state.sessions.contains_key(id) {
                return Found::Here;
            }
            if let Some(arrival) = state.moving.get(id) {
                arrival.clone()
            } else if !is_well_formed(id) {
                return Found::Nowhere;
            } else if self.shared.shutdown().is_cancelled() {
                return Found::Unclear(stopping());
            } else {
                let (transit, arrival) = self.depart(&mut state, &SessionId::from(id));
                self.tracker.spawn(transit.restore(owner));
                arrival
            }
        };
        outcome(arrival).await
    }

    /// Ends a session, here and at the host. Says whether there was one.
    ///
    /// # Cancel safety
    /// Cancel safe: a session that is being ended ends whether that is waited for or not.
    pub(crate) async fn close(self: &Arc<Self>, id: &str) -> Result<bool, Failure> {
        loop {
            let (arrival, own) = {
                let mut state = self.lock();
                if let Some((id, session)) = state.sessions.remove_entry(id) {
                    let (transit, arrival) = self.depart(&mut state, &id);
                    self.tracker.spawn(transit.close(Some(session.handle)));
                    (arrival, true)
                } else if let Some(arrival) = state.moving.get(id) {
                    (arrival.clone(), false)
                } else if is_well_formed(id) {
                    let (transit, arrival) = self.depart(&mut state, &SessionId::from(id));
                    self.tracker.spawn(transit.close(None));
                    (arrival, true)
                } else {
                    return Ok(false);
                }
            };
            match outcome(arrival).await {
                Found::Ended => return Ok(own),
                Found::Nowhere => return Ok(false),
                Found::Unclear(failure) => return Err(failure),
                // Another request named it at the same time; it is ended all the same.
                Found::Here | Found::Full(_) => {}
            }
        }
    }

    /// Sends a session on its way.
    pub(super) fn depart(
        self: &Arc<Self>,
        state: &mut State,
        id: &SessionId,
    ) -> (Transit, watch::Receiver<Option<Found>>) {
        let (sender, arrival) = watch::channel(None);
        state.moving.insert(SessionId::clone(id), arrival.clone());
        let transit = Transit {
            sessions: Arc::clone(self),
            id: SessionId::clone(id),
            sender,
            found: Found::Unclear(unfinished()),
            session: None,
        };
        (transit, arrival)
    }
}

impl Transit {
    /// Ends the session: its worker, where it has one, and what the host keeps.
    pub(super) async fn close(mut self, handle: Option<LocalSessionHandle>) {
        let host = self.sessions.shared.host();
        let kept = match &handle {
            Some(_) => Ok(true),
            None => host.session_lookup(&self.id).await.map(|it| it.is_some()),
        };
        self.found = match kept {
            Ok(true) => {
                host.session_closed(&self.id).await;
                Found::Ended
            }
            Ok(false) => Found::Nowhere,
            Err(failure) => Found::Unclear(failure),
        };
        if let Some(handle) = handle {
            end(handle).await;
        }
    }

    /// Brings the session back, if the host keeps it.
    async fn restore(mut self, owner: Owner) {
        match self.fetch(owner).await {
            Ok(session) => {
                self.session = Some(session);
                self.found = Found::Here;
            }
            Err(found) => self.found = found,
        }
    }

    async fn fetch(&self, owner: Owner) -> Result<(Session, Admission), Found> {
        let host = self.sessions.shared.host();
        let kept = host.session_lookup(&self.id).await;
        let kept = kept.map_err(Found::Unclear)?.ok_or(Found::Nowhere)?;
        let admission = self.sessions.admit(owner).map_err(Found::Full)?;
        let Ok(handshake) = serde_json::from_value::<InitializeRequestParams>(kept) else {
            tracing::warn!("a wire session was kept in a form that cannot be read; it is ended");
            host.session_closed(&self.id).await;
            return Err(Found::Nowhere);
        };
        let (handle, worker) =
            create_local_session(SessionId::clone(&self.id), self.sessions.config.clone());
        let number = self.sessions.lock().next_number();
        let serving = serve(
            Arc::clone(&self.sessions),
            SessionId::clone(&self.id),
            number,
            worker,
        );
        self.sessions.tracker.spawn(serving);
        match handle.initialize(replay(handshake)).await {
            Ok(ServerJsonRpcMessage::Response(_)) => {}
            Ok(_) => {
                tracing::warn!("a wire session of a version not spoken any more is ended");
                host.session_closed(&self.id).await;
                return Err(Found::Nowhere);
            }
            Err(_) => return Err(Found::Unclear(unfinished())),
        }
        let session = Session {
            handle,
            owner: Owner::default(),
            heard: clock::now(),
            streams: 0,
            // Its client came back for it.
            used: true,
            number,
            restored: true,
        };
        Ok((session, admission))
    }
}

/// Serves a session that was brought back, until its worker ends.
async fn serve(
    sessions: Arc<WireSessions>,
    id: SessionId,
    number: u64,
    worker: LocalSessionWorker,
) {
    let handler = Projection::new(Arc::clone(&sessions.shared), Link::Http);
    let transport = WorkerTransport::spawn(worker);
    let stop = sessions.shared.shutdown().child_token();
    match serve_server_with_ct::<_, _, _, TransportAdapterIdentity>(handler, transport, stop).await
    {
        Ok(running) => {
            running.waiting().await.ok(); // however it ended, it has
        }
        Err(error) => tracing::debug!(%error, "a wire session was not brought back"),
    }
    sessions.lose(&id, number);
}

/// Makes the handshake anew. The client's `notifications/initialized` needs no repetition: the
/// SDK serves from its answer to `initialize` on.
fn replay(handshake: InitializeRequestParams) -> ClientJsonRpcMessage {
    let request = InitializeRequest::new(handshake);
    let request = ClientRequest::InitializeRequest(request);
    let mut message = ClientJsonRpcMessage::request(request, RequestId::Number(0));
    message.insert_extension(Restored);
    message
}

/// Waits until a session has arrived.
async fn outcome(mut arrival: watch::Receiver<Option<Found>>) -> Found {
    let found = arrival.wait_for(Option::is_some).await;
    let found = found.ok().and_then(|found| found.clone());
    found.unwrap_or_else(|| Found::Unclear(unfinished()))
}

/// Says whether an id has the form of those that are minted here: a lower-case UUID.
fn is_well_formed(id: &str) -> bool {
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    id.len() == 36
        && id.bytes().enumerate().all(|(at, byte)| match byte {
            b'-' => DASHES.contains(&at),
            b'0'..=b'9' | b'a'..=b'f' => !DASHES.contains(&at),
            _ => false,
        })
}

fn stopping() -> Failure {
    Failure::new(
        Code::Unavailable,
        "this node is stopping",
        "Try again with its successor.",
    )
}

fn unfinished() -> Failure {
    Failure::new(
        Code::Unavailable,
        "the wire session could not be brought back",
        "Try again.",
    )
}
