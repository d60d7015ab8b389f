//! The numbers that a contest for a lease is judged by.

use std::time::Duration;

/// What a policy or a lease declares about timings; `None` means the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTimings {
    /// Time between two heartbeats of a holder.
    pub heartbeat: Option<Duration>,
    /// Time that a probe waits for its answer.
    pub probe_timeout: Option<Duration>,
    /// Time without progress after which a serving holder is hung.
    pub stale_after: Option<Duration>,
    /// Time without progress after which a starting holder is hung.
    pub bind_grace: Option<Duration>,
    /// Time that running calls get when a holder retires.
    pub busy_grace: Option<Duration>,
}

/// The timings of one node, always within the compiled-in bounds.
///
/// A holder is judged by the timings in its own lease, so that a policy edited on one branch cannot
/// make a healthy node of another look dead. The bounds are compiled in because the policy is a
/// tracked file: nobody may set a node that no contest ever ends, or that every contest takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timings {
    heartbeat: Duration,
    probe_timeout: Duration,
    stale_after: Duration,
    bind_grace: Duration,
    busy_grace: Duration,
}

/// Least value, default and greatest value of one timing.
#[derive(Debug)]
struct Bounds {
    least: Duration,
    default: Duration,
    greatest: Duration,
}

/// Below half a second a loaded machine misses beats; above ten a crash is noticed too late.
const HEARTBEAT: Bounds = bounds(500, 2_000, 10_000);
/// A local answer takes milliseconds; five seconds are longer than any client waits for a start.
const PROBE_TIMEOUT: Bounds = bounds(100, 500, 5_000);
/// Five seconds ride out a pause of the whole machine; two minutes are a checkout without a node.
const STALE_AFTER: Bounds = bounds(5_000, 10_000, 120_000);
/// Loading a large board takes a second or two; after a minute nobody waits for a start.
const BIND_GRACE: Bounds = bounds(2_000, 5_000, 60_000);
/// Calls are cut off below a second; five minutes is the longest call that is waited for.
const BUSY_GRACE: Bounds = bounds(1_000, 30_000, 300_000);

/// Heartbeats that `stale_after` spans at least: one late beat proves nothing.
const BEATS_BEFORE_STALE: u32 = 3;

const _: () = assert!(
    HEARTBEAT.default.as_millis() * 3 <= STALE_AFTER.default.as_millis(),
    "the defaults must satisfy the relation that clamping enforces"
);

const fn bounds(least_ms: u64, default_ms: u64, greatest_ms: u64) -> Bounds {
    assert!(
        least_ms <= default_ms && default_ms <= greatest_ms,
        "bounds must be in order"
    );
    Bounds {
        least: Duration::from_millis(least_ms),
        default: Duration::from_millis(default_ms),
        greatest: Duration::from_millis(greatest_ms),
    }
}

impl Bounds {
    fn clamp(&self, declared: Option<Duration>) -> Duration {
        declared
            .unwrap_or(self.default)
            .clamp(self.least, self.greatest)
    }
}

impl Timings {
    /// The longest time between two heartbeats that any node may have.
    pub const HEARTBEAT_MAX: Duration = HEARTBEAT.greatest;

    /// Returns the declared timings, each held within its bounds.
    ///
    /// `stale_after` and `bind_grace` are raised to three and two heartbeats where they are
    /// declared shorter: a holder must have the chance to beat before it is judged.
    pub fn clamped(declared: &DeclaredTimings) -> Self {
        let heartbeat = HEARTBEAT.clamp(declared.heartbeat);
        Self {
            heartbeat,
            probe_timeout: PROBE_TIMEOUT.clamp(declared.probe_timeout),
            stale_after: STALE_AFTER
                .clamp(declared.stale_after)
                .max(heartbeat * BEATS_BEFORE_STALE),
            bind_grace: BIND_GRACE.clamp(declared.bind_grace).max(heartbeat * 2),
            busy_grace: BUSY_GRACE.clamp(declared.busy_grace),
        }
    }

    /// Returns the time between two heartbeats.
    pub const fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// Returns the time that a probe waits for its answer.
    pub const fn probe_timeout(&self) -> Duration {
        self.probe_timeout
    }

    /// Returns the time without progress after which a serving holder is hung.
    pub const fn stale_after(&self) -> Duration {
        self.stale_after
    }

    /// Returns the time without progress after which a starting holder is hung.
    pub const fn bind_grace(&self) -> Duration {
        self.bind_grace
    }

    /// Returns the time that running calls get when a holder retires.
    pub const fn busy_grace(&self) -> Duration {
        self.busy_grace
    }
}

impl Default for Timings {
    fn default() -> Self {
        Self::clamped(&DeclaredTimings::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn every(duration: Duration) -> DeclaredTimings {
        DeclaredTimings {
            heartbeat: Some(duration),
            probe_timeout: Some(duration),
            stale_after: Some(duration),
            bind_grace: Some(duration),
            busy_grace: Some(duration),
        }
    }

    fn in_ms(timings: &Timings) -> [u128; 5] {
        [
            timings.heartbeat().as_millis(),
            timings.probe_timeout().as_millis(),
            timings.stale_after().as_millis(),
            timings.bind_grace().as_millis(),
            timings.busy_grace().as_millis(),
        ]
    }

    #[test]
    fn declared_timings_are_held_within_the_compiled_bounds() {
        assert_eq!(
            in_ms(&Timings::default()),
            [2_000, 500, 10_000, 5_000, 30_000]
        );
        let least = Timings::clamped(&every(Duration::ZERO));
        assert_eq!(in_ms(&least), [500, 100, 5_000, 2_000, 1_000]);
        let greatest = Timings::clamped(&every(Duration::MAX));
        assert_eq!(in_ms(&greatest), [10_000, 5_000, 120_000, 60_000, 300_000]);
    }

    #[test]
    fn a_slow_heartbeat_stretches_what_is_judged_by_it() {
        let declared = DeclaredTimings {
            heartbeat: Some(Duration::from_secs(8)),
            ..Default::default()
        };
        assert_eq!(
            in_ms(&Timings::clamped(&declared)),
            [8_000, 500, 24_000, 16_000, 30_000]
        );
    }
}
