//! The number that orders the holders of one lease.

use std::fmt;

use crate::Timestamp;

/// The number of a tenure: it only grows, and every write transaction is fenced by it.
///
/// Zero stands for "nobody yet"; the first real epoch is at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch of a checkout that never had a node.
    pub const NONE: Self = Self(0);

    /// Returns the epoch of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number itself.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// There is no epoch after the greatest one seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "no epoch is left after {0}: the lease or a fence of this checkout is damaged; \
     move its state folder away"
)]
pub struct EpochsExhausted(pub Epoch);

/// Returns an epoch above the lease, every fence and the wall clock.
///
/// The wall clock keeps epochs growing when lease and fences were wiped together; the lease and the
/// fences keep them growing when the clock was set back.
///
/// # Errors
///
/// Refuses when the greatest number is already taken, which no honest clock reaches.
pub fn next_epoch(
    lease: Epoch,
    fences: impl IntoIterator<Item = Epoch>,
    wall: Timestamp,
) -> Result<Epoch, EpochsExhausted> {
    let clock = Epoch::new(wall.unix_ms());
    let highest = fences.into_iter().fold(lease.max(clock), Epoch::max);
    highest
        .number()
        .checked_add(1)
        .map(Epoch)
        .ok_or(EpochsExhausted(highest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_epoch_is_above_lease_fences_and_clock() {
        for (lease, fences, wall, want) in [
            (0, vec![], 0, 1),
            (7, vec![], 5, 8),
            (7, vec![9, 3], 5, 10),
            (7, vec![9, 3], 50, 51),
            (u64::MAX - 1, vec![], 50, u64::MAX),
        ] {
            let fences = fences.into_iter().map(Epoch::new);
            let next = next_epoch(Epoch::new(lease), fences, Timestamp::from_unix_ms(wall));
            assert_eq!(next, Ok(Epoch::new(want)));
        }
    }

    #[test]
    fn the_greatest_epoch_has_no_successor() {
        let wall = Timestamp::from_unix_ms(1);
        let full = Epoch::new(u64::MAX);
        assert_eq!(next_epoch(full, [], wall), Err(EpochsExhausted(full)));
        assert_eq!(
            next_epoch(Epoch::NONE, [full], wall),
            Err(EpochsExhausted(full))
        );
    }
}
