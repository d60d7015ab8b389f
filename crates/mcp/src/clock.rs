//! The crate's one look at the clock: when a wire session was last heard.

use tokio::time::Instant;

/// Returns the present moment, on the clock that timers run by.
#[expect(
    clippy::disallowed_methods,
    reason = "how long a wire session has been silent; tests move this clock by hand"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
