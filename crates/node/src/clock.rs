//! The one reader of clocks: everything below is handed the time.

use std::{
    sync::OnceLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use earshot_proto::{Now, Timestamp};

static START: OnceLock<Instant> = OnceLock::new();

/// Reads the monotonic clock, which does not count suspended time on Linux.
#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one reader of clocks"
)]
pub(crate) fn now() -> Now {
    Now::from_start(START.get_or_init(Instant::now).elapsed())
}

/// Reads the wall clock: for records and display.
#[expect(
    clippy::disallowed_methods,
    reason = "this module is the one reader of clocks"
)]
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    Timestamp::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
