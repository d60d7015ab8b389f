//! The wire sessions of clients that speak HTTP: kept, so that a crash does not end them.

use earshot_capability::{Caller, Failure};
use earshot_proto::{Now, limits::SILENCE_MAX};
use earshot_store::{Batch, WireSessionRecord};
use serde_json::Value;

use super::{NodeHandle, State};
use crate::clock;

impl NodeHandle {
    /// Keeps a wire session that is about to be given out.
    ///
    /// # Errors
    /// When it cannot be kept; it is not given out then.
    pub(crate) async fn session_opened(
        &self,
        id: &str,
        initialize: Value,
        caller: &Caller,
    ) -> Result<(), Failure> {
        let record = WireSessionRecord {
            id: id.to_owned(),
            initialize,
            root: caller.root.clone(),
            session: caller
                .session
                .as_ref()
                .map(|session| session.as_str().to_owned()),
            last_seen_ms: clock::wall().unix_ms(),
        };
        self.ask_or_abandon(caller, move |state| {
            let batch = Batch {
                wire_sessions: vec![record.clone()],
                ..Batch::default()
            };
            match state.write_batch(&batch) {
                Ok(()) => {
                    state.wire.insert(record.id.clone(), record);
                    Ok(Ok(()))
                }
                Err(error) => state.unkept(&error).map(Err),
            }
        })
        .await?
    }

    /// Returns the parameters of the `initialize` that opened a wire session.
    ///
    /// # Errors
    /// When the node ended.
    pub(crate) async fn session_lookup(&self, id: &str) -> Result<Option<Value>, Failure> {
        let id = id.to_owned();
        self.ask(move |state| {
            state.unclaimed.remove(&id);
            state.wire.get(&id).map(|record| record.initialize.clone())
        })
        .await
    }

    /// Forgets a wire session that its client ended, or that went idle.
    pub(crate) async fn session_closed(&self, id: &str) {
        let id = id.to_owned();
        let closed = self.ask(move |state| state.forget_sessions(vec![id]));
        closed.await.ok(); // an ended node has no sessions
    }
}

impl State {
    /// Forgets the wire sessions that no client has come back to since a crash.
    pub(super) fn expire_sessions(&mut self, now: Now) {
        let silent = |since: &Now| now.since(*since) >= SILENCE_MAX;
        let gone: Vec<String> = self
            .unclaimed
            .extract_if(.., |_, since| silent(since))
            .map(|(id, _)| id)
            .collect();
        if !gone.is_empty() {
            self.forget_sessions(gone);
        }
    }

    fn forget_sessions(&mut self, ids: Vec<String>) {
        let known: Vec<String> = ids
            .into_iter()
            .filter(|id| self.wire.remove(id).is_some())
            .collect();
        let batch = Batch {
            wire_sessions_deleted: known,
            ..Batch::default()
        };
        if let Err(error) = self.write_batch(&batch) {
            // They come back after a crash, and go idle again.
            tracing::warn!(%error, "ended wire sessions stay in the journal");
        }
    }
}
