//! The crate's one look at the clock: how long a git process may still run.

use std::time::{Duration, Instant};

/// A moment after which a git process is ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// Returns the deadline this long from now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the bound of a child process; no decision of earshot depends on it"
    )]
    pub(crate) fn after(wait: Duration) -> Self {
        Self(Instant::now() + wait)
    }

    /// Returns what is left, `None` once it has passed.
    #[expect(clippy::disallowed_methods, reason = "as for `after`")]
    pub(crate) fn remaining(self) -> Option<Duration> {
        self.0
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
    }
}
