//! Waiting for a condition, with a deadline: what tests do instead of sleeping.

use std::time::{Duration, Instant};

/// Time between two looks: short against what is waited for, long against what a look costs.
const PAUSE: Duration = Duration::from_millis(20);

/// Looks again and again until there is something, and returns it.
///
/// # Panics
/// When there is nothing within that time: the test has failed.
#[track_caller]
pub fn eventually<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        pause();
    }
}

/// Reads the clock of a deadline.
#[expect(clippy::disallowed_methods, reason = "a test's own deadline")]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "between two looks of a wait that has a deadline"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}
