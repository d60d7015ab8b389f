//! Looking for a successor while the node that is attached leaves a request unanswered.
//!
//! Whether such a node is slow or hangs is not for the bridge to say. It has the finder look beside
//! the exchange that waits: the finder finds the same node serving, and the exchange waits on; or it
//! finds a later one, which was put in the place of the first, and everything goes there.

use std::time::Duration;

use super::attachment::Attachment;
use super::{Ending, Purpose, SearchId, Session};
use crate::bridge::clock::Now;
use crate::bridge::finder::{FindError, Found};

/// How long a request is unanswered, and the node silent, before it is looked at. Far longer than a
/// call of a healthy node takes, and short of what a successor has to wait before it steps in.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(500);

/// Pause after a look that has found the node serving: it is at a long piece of work.
pub(super) const LOOK_PAUSE: Duration = Duration::from_secs(2);

/// The look at the node that is attached.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// The search that is under way.
    search: Option<SearchId>,
    /// There is no other before that time.
    not_before: Now,
}

impl Look {
    /// Takes the search over, for what follows when there is no node any more.
    pub(super) fn take(&mut self) -> Option<SearchId> {
        self.not_before = Now::ZERO;
        self.search.take()
    }

    /// Forgets the pause: the node has been heard.
    pub(super) fn resume(&mut self) {
        self.not_before = Now::ZERO;
    }
}

impl Session {
    /// Returns when the node is to be looked at.
    pub(super) fn look_wake(&self) -> Option<Now> {
        let waited_for = self.is_attached() && self.ending == Ending::No && self.may_start();
        if !waited_for || self.look.search.is_some() {
            return None;
        }
        let silent_since = self.unanswered_since()?.max(self.heard_at);
        Some((silent_since + LOOK_AFTER).max(self.look.not_before))
    }

    /// Returns since when the oldest exchange is under way that is to be answered at once.
    fn unanswered_since(&self) -> Option<Now> {
        let counts = |purpose| match purpose {
            Purpose::Entry(key) => {
                let entry = self.queue.get(&key);
                entry.is_some_and(|entry| !entry.is_open_stream())
            }
            Purpose::Replay => true,
            Purpose::Push | Purpose::Probe | Purpose::Deletion => false,
        };
        let waiting = self.attempts.values().filter(|it| counts(it.purpose));
        waiting.map(|it| it.since).min()
    }

    pub(super) fn look_if_due(&mut self, now: Now) {
        if self.look_wake().is_some_and(|at| at <= now) {
            self.look.search = Some(self.find(true));
        }
    }

    /// Takes the result of a look; one of an earlier search comes too late for anything.
    pub(super) fn handle_look(
        &mut self,
        now: Now,
        search: SearchId,
        result: Result<Found, FindError>,
    ) {
        if self.look.search != Some(search) || !matches!(self.attachment, Attachment::Attached) {
            return;
        }
        self.look.search = None;
        match result {
            Ok(found) if Some(found.epoch) > self.last_epoch => {
                tracing::info!("the node does not answer, and has a successor");
                self.let_go(now);
                self.attach(now, found);
            }
            Ok(_) => {
                // It has answered the finder.
                self.heard_at = now;
                self.look.not_before = now + LOOK_PAUSE;
            }
            // Whether it hangs is not known, and nobody is there in its place.
            Err(error) => {
                tracing::debug!(%error, "the node does not answer");
                self.look.not_before = now + LOOK_AFTER;
            }
        }
    }
}
