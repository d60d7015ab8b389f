//! The only place of the bridge that reads a clock.

use std::time::Duration;

use tokio::time::Instant;

/// Time since the bridge started.
pub(super) type Now = Duration;

/// The bridge's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    started: Instant,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the module that reads the clock"
    )]
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    pub(super) fn now(&self) -> Now {
        self.started.elapsed()
    }

    /// Sleeps until `at`; for ever where there is no such time.
    ///
    /// # Cancel safety
    ///
    /// It holds nothing.
    pub(super) async fn sleep_until(&self, at: Option<Now>) {
        match at {
            Some(at) => tokio::time::sleep_until(self.started + at).await,
            None => std::future::pending().await,
        }
    }
}
