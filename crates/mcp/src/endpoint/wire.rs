//! What the endpoint does with a wire session itself, before or in place of the SDK.

use std::sync::Arc;

use earshot_capability::{Caller, Failure};
use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::Full;
use rmcp::model::ProtocolVersion;
use serde_json::Value;

use super::{
    McpService, VERSION_HEADER,
    body::{McpBody, McpResponse, SdkBody},
    check_version,
    refuse::Refusal,
    session_of,
};
use crate::{
    handler::RowNote,
    message::{Message, Rejection},
    sessions::{Crowded, Found, Owner, Turn},
};

impl McpService {
    /// Brings back the session that a request names, where the host keeps it. One that is
    /// nowhere is left to be refused, or ignored, by what follows.
    pub(super) async fn recall(&self, parts: &Parts, id: Value) -> Result<(), Refusal> {
        let Some(named) = session_of(&parts.headers) else {
            return Ok(());
        };
        if self.sessions.knows(&named) {
            return Ok(());
        }
        let caller = parts.extensions.get::<Arc<Caller>>();
        let owner = caller.map(|caller| Owner::of(caller)).unwrap_or_default();
        match self.sessions.recall(&named, owner).await {
            Found::Here | Found::Nowhere | Found::Ended => Ok(()),
            Found::Full(full) => Err(Refusal::Full(full, id)),
            Found::Unclear(failure) => Err(self.failed(failure, id)),
        }
    }

    /// Makes room for the session that a message opens, where it opens a new one, and leaves a
    /// note for its handler to fill in.
    pub(super) fn admit(
        &self,
        parts: &mut Parts,
        caller: &Caller,
        message: &Message,
    ) -> Result<Arc<RowNote>, Refusal> {
        if session_of(&parts.headers).is_none() {
            let admitted = self.sessions.admit(Owner::of(caller));
            let admitted = admitted.map_err(|full| Refusal::Full(full, message.id()))?;
            parts.extensions.insert(Arc::new(admitted));
        }
        let note = Arc::new(RowNote::default());
        parts.extensions.insert(Arc::clone(&note));
        Ok(note)
    }

    /// Has the SDK open a session. A client that hangs up meanwhile leaves one that is known
    /// here, and forgotten once it was silent for too long.
    pub(super) async fn open(
        &self,
        request: Request<Full<bytes::Bytes>>,
        message: &Message,
    ) -> Result<Response<SdkBody>, Refusal> {
        let sdk = self.sdk.clone();
        let opened = self
            .tracker
            .spawn(async move { sdk.handle(request).await })
            .await;
        opened.map_err(|_| Refusal::Other(StatusCode::INTERNAL_SERVER_ERROR, message.id()))
    }

    /// Waits until no other request of the wire session has this id. The turn is over when the
    /// request is dropped on both sides: by its handler, and by who reads the answer.
    pub(super) async fn turn(
        &self,
        parts: &mut Parts,
        caller: &Caller,
        message: &Message,
    ) -> Result<Option<Arc<Turn>>, Refusal> {
        let (Some(session), Message::Request { id, .. }) = (&caller.wire_session, message) else {
            return Ok(None);
        };
        let turn = self.twins.turn(session.clone(), id.to_string()).await;
        let turn = turn.map_err(|Crowded| Refusal::Message(Rejection::crowded(id.clone())))?;
        let turn = Arc::new(turn);
        parts.extensions.insert(Arc::clone(&turn));
        Ok(Some(turn))
    }

    /// Answers a ping: whoever has a seat or a session is heard.
    pub(super) async fn head(&self, mut parts: Parts) -> Result<McpResponse, Refusal> {
        self.recall(&parts, Value::Null).await?;
        let caller = self.recognise(&mut parts)?;
        let named = session_of(&parts.headers);
        if caller.seat.is_none() && named.is_none() {
            return self.pass_on(parts).await.map(|it| it.map(McpBody::new));
        }
        self.shared.host().touched(&caller);
        if named.is_some_and(|named| !self.sessions.touch(&named)) {
            return Err(Refusal::SessionUnknown(Value::Null));
        }
        Ok(empty(StatusCode::NO_CONTENT))
    }

    /// Ends a session, here or where the host keeps it; without one, it is the seat that leaves.
    pub(super) async fn delete(&self, mut parts: Parts) -> Result<McpResponse, Refusal> {
        check_version(&parts.headers, Value::Null)?;
        let caller = self.recognise(&mut parts)?;
        let named = session_of(&parts.headers);
        if named.is_none() && caller.seat.is_some() {
            self.shared.host().left(&caller).await;
            return Ok(empty(StatusCode::NO_CONTENT));
        }
        let Some(named) = named.filter(|_| has_sessions(&parts)) else {
            return self.pass_on(parts).await.map(|it| it.map(McpBody::new));
        };
        let ended = self.sessions.close(&named).await;
        if !ended.map_err(|failure| self.failed(failure, Value::Null))? {
            return Err(Refusal::SessionUnknown(Value::Null));
        }
        let mut caller = Caller::clone(&caller);
        caller.wire_session = Some(named);
        self.shared.host().left(&caller).await;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    pub(super) fn failed(&self, failure: Failure, id: Value) -> Refusal {
        let request_id = self.shared.host().dispatcher().request_id();
        Refusal::Failed(Box::new(failure), request_id.as_str().to_owned(), id)
    }
}

/// Says whether the generation that a request names has sessions.
fn has_sessions(parts: &Parts) -> bool {
    let without = ProtocolVersion::NO_INITIALIZE;
    let version = parts.headers.get(VERSION_HEADER);
    version.is_none_or(|version| version.as_bytes() < without.as_str().as_bytes())
}

fn empty(status: StatusCode) -> McpResponse {
    let mut answer = Response::new(McpBody::full(bytes::Bytes::new()));
    *answer.status_mut() = status;
    answer
}
