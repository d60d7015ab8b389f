//! Requests of one wire session under one id, one after the other.
//!
//! The SDK gives an answer to the stream that asked last under its id: of two that are served at
//! once, one would wait for ever. A client that sends again what it got no answer to is served when
//! its first request is done with.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most requests at once under one id: a client that asks more often than this has lost count.
const TWINS_MAX: usize = 16;

/// Who is served, and who waits, by session and id.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    turns: Mutex<BTreeMap<Key, Waiting>>,
}

/// A wire session, and the JSON of an id: `1` and `"1"` are no twins.
type Key = (String, String);

#[derive(Debug)]
struct Waiting {
    turn: Arc<Semaphore>,
    /// Who is served, too.
    count: usize,
}

/// The turn of one request. The next one comes when it is dropped.
pub(crate) struct Turn {
    twins: Arc<Twins>,
    key: Key,
    permit: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

/// There are too many requests of one id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowded;

impl Twins {
    /// Waits until no other request of this session has the id.
    ///
    /// # Cancel safety
    /// Cancel safe: who does not wait any more is not counted any more.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        session: String,
        id: String,
    ) -> Result<Turn, Crowded> {
        let key = (session, id);
        let (mut turn, semaphore) = {
            let mut turns = self.lock();
            let waiting = turns.entry(key.clone()).or_insert_with(|| Waiting {
                turn: Arc::new(Semaphore::new(1)),
                count: 0,
            });
            if waiting.count >= TWINS_MAX {
                return Err(Crowded);
            }
            waiting.count += 1;
            let semaphore = Arc::clone(&waiting.turn);
            let twins = Arc::clone(self);
            let permit = None;
            (Turn { twins, key, permit }, semaphore)
        };
        turn.permit = semaphore.acquire_owned().await.ok(); // it is never closed
        Ok(turn)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Waiting>> {
        // Every change below this lock is a single step, so a panic elsewhere leaves it whole.
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = self.twins.lock();
        if let Some(waiting) = turns.get_mut(&self.key) {
            waiting.count -= 1;
            if waiting.count == 0 {
                turns.remove(&self.key);
            }
        }
    }
}
