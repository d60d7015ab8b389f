//! Numbers for a person.

use std::time::Duration;

use super::samples::ms;

/// Writes a time.
pub(super) fn time(time: Duration) -> String {
    format!("{:.3} ms", ms(time))
}

/// Writes a rate.
pub(super) fn rate(per_second: f64) -> String {
    format!("{per_second:.0}/s")
}

/// Writes a ratio.
pub(super) fn ratio(ratio: f64) -> String {
    format!("{ratio:.2}")
}
