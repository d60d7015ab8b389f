//! Large messages: one after the other, and off the threads that serve everybody.
//!
//! Reading one takes as long as a hundred calls, and many times its length in memory.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinError,
};
use tokio_util::task::TaskTracker;

use super::{Sdk, body::SdkBody, refuse::Refusal};
use crate::message::{self, Message};

/// Where a message begins to be large: reading it takes about a millisecond.
const LARGE_BYTES: usize = 128 * 1024;

/// The way of large messages. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Large {
    turn: Arc<Semaphore>,
    tracker: TaskTracker,
}

impl Large {
    pub(super) fn new(tracker: TaskTracker) -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
            tracker,
        }
    }

    /// Waits for the turn of a large message; a small one needs none.
    pub(super) async fn turn(&self, bytes: &Bytes) -> Option<OwnedSemaphorePermit> {
        if bytes.len() < LARGE_BYTES {
            return None;
        }
        Arc::clone(&self.turn).acquire_owned().await.ok() // it is never closed
    }

    /// Checks a message, a large one when it is its turn, which lasts until it is handled.
    pub(super) async fn check(
        &self,
        bytes: &Bytes,
    ) -> Result<(Message, Option<OwnedSemaphorePermit>), Refusal> {
        let turn = self.turn(bytes).await;
        let checked = if turn.is_some() {
            let bytes = Bytes::clone(bytes);
            let checking = move || message::check(&bytes);
            let checked = self.tracker.spawn_blocking(checking).await;
            checked.map_err(panicked)?
        } else {
            message::check(bytes)
        };
        Ok((checked.map_err(Refusal::Message)?, turn))
    }

    /// Has a message handled. A large one is handled to its end even when nobody waits for the
    /// answer any more.
    pub(super) async fn handle(
        &self,
        sdk: &Sdk,
        request: Request<Full<Bytes>>,
        turn: Option<OwnedSemaphorePermit>,
    ) -> Result<Response<SdkBody>, Refusal> {
        let Some(turn) = turn else {
            return Ok(sdk.handle(request).await);
        };
        let (sdk, runtime) = (sdk.clone(), Handle::current());
        let handling = move || {
            let _turn = turn;
            runtime.block_on(sdk.handle(request))
        };
        let handled = self.tracker.spawn_blocking(handling).await;
        handled.map_err(panicked)
    }
}

/// A panic while a message was read is none of its client's doing.
fn panicked(_: JoinError) -> Refusal {
    Refusal::Other(StatusCode::INTERNAL_SERVER_ERROR, Value::Null)
}
