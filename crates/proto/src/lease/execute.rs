//! Whether a command takes effect: decided inside the transaction that would give it its effect.
//!
//! The shell begins a write transaction (`begin immediate`), reads what [`Recorded`] asks for, and
//! obeys the decision. On [`Decision::Run`] effect, result and key are committed together; only
//! then is the result sent. An effect outside the database has its `started` mark committed before
//! and its result after.

use super::Epoch;

/// A digest of a command's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BodyDigest([u8; 16]);

impl BodyDigest {
    /// Returns the digest with these bytes, the first of a BLAKE3 hash.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// A command of a seat, as far as its repetition is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Command {
    /// The seat's number for it, from 1 and rising.
    pub n: u64,
    /// Digest of its body.
    pub digest: BodyDigest,
    /// Whether it may run again when a first run may have had its effect outside the database.
    pub idempotent: bool,
}

/// The `done` row of a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DoneRow<R> {
    /// Its effect outside the database was begun; whether it happened is not known.
    Started {
        /// Digest of the body that was begun.
        digest: BodyDigest,
    },
    /// It took effect.
    Finished {
        /// Digest of the body that took effect.
        digest: BodyDigest,
        /// What was, or is to be, answered.
        result: R,
    },
}

/// What one database knows about a command, read inside the write transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recorded<R> {
    /// The fence of this database.
    pub fence: Epoch,
    /// The `done` row of (seat, n), if there is one.
    pub done: Option<DoneRow<R>>,
    /// The seat's floor: its highest acknowledged n; `None` for a seat never seen.
    pub floor: Option<u64>,
}

/// What is to be done about a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Decision<R> {
    /// Give it its effect.
    Run,
    /// It had its effect before: answer this.
    Return(R),
    /// The same key was used for another body: refuse.
    Conflict,
    /// Its key lies below the floor, or its seat is not known: refuse, it is not run.
    Gone,
    /// It may have had its effect outside the database: answer that the outcome is unknown.
    OutcomeUnknown,
    /// A successor raised the fence: stop, and answer that the node has moved.
    Moved,
}

/// Decides about a command on a node of this epoch.
///
/// A fence *below* the own epoch stops the node as well: the database was replaced by an older one
/// since the fence was raised, and another node's fence may have been replaced with it.
pub fn decide<R>(epoch: Epoch, command: Command, recorded: Recorded<R>) -> Decision<R> {
    if recorded.fence != epoch {
        return Decision::Moved;
    }
    match recorded.done {
        Some(DoneRow::Started { digest } | DoneRow::Finished { digest, .. })
            if digest != command.digest =>
        {
            Decision::Conflict
        }
        Some(DoneRow::Finished { result, .. }) => Decision::Return(result),
        Some(DoneRow::Started { .. }) if command.idempotent => Decision::Run,
        Some(DoneRow::Started { .. }) => Decision::OutcomeUnknown,
        None => match recorded.floor {
            Some(floor) if command.n > floor => Decision::Run,
            None if command.n == 1 => Decision::Run,
            Some(_) | None => Decision::Gone,
        },
    }
}

/// Returns the floor after a seat acknowledged the answers up to `acked`.
///
/// It never sinks, and it never passes the highest n that took effect: a seat cannot acknowledge
/// what it was not answered.
pub fn raised_floor(floor: u64, acked: u64, highest_done: u64) -> u64 {
    floor.max(acked.min(highest_done))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Epoch = Epoch::new(7);
    const SAME: BodyDigest = BodyDigest::new([1; 16]);
    const OTHER: BodyDigest = BodyDigest::new([2; 16]);

    #[test]
    fn execute_decides_by_fence_then_key_then_floor() {
        let started = |digest| Some(DoneRow::Started { digest });
        let finished = |digest| {
            Some(DoneRow::Finished {
                digest,
                result: "result",
            })
        };
        let table = [
            (6, finished(SAME), Some(0), 1, Decision::Moved),
            (8, None, Some(0), 1, Decision::Moved),
            (8, finished(OTHER), Some(0), 1, Decision::Moved),
            (7, finished(OTHER), Some(0), 1, Decision::Conflict),
            (7, started(OTHER), Some(0), 1, Decision::Conflict),
            (7, finished(SAME), Some(0), 1, Decision::Return("result")),
            (7, finished(SAME), Some(9), 1, Decision::Return("result")),
            (7, started(SAME), Some(0), 1, Decision::OutcomeUnknown),
            (7, None, None, 1, Decision::Run),
            (7, None, None, 0, Decision::Gone),
            (7, None, None, 2, Decision::Gone),
            (7, None, Some(0), 0, Decision::Gone),
            (7, None, Some(3), 3, Decision::Gone),
            (7, None, Some(3), 4, Decision::Run),
            (7, None, Some(3), 9, Decision::Run),
        ];
        for (fence, done, floor, n, want) in table {
            let command = Command {
                n,
                digest: SAME,
                idempotent: false,
            };
            let recorded = Recorded {
                fence: Epoch::new(fence),
                done,
                floor,
            };
            assert_eq!(
                decide(OWN, command, recorded.clone()),
                want,
                "{recorded:?} n={n}"
            );
        }
    }

    #[test]
    fn an_idempotent_command_runs_again_when_its_outcome_is_unknown() {
        let recorded = Recorded::<()> {
            fence: OWN,
            done: Some(DoneRow::Started { digest: SAME }),
            floor: Some(0),
        };
        let command = Command {
            n: 1,
            digest: SAME,
            idempotent: true,
        };
        assert_eq!(decide(OWN, command, recorded.clone()), Decision::Run);
        let command = Command {
            digest: OTHER,
            ..command
        };
        assert_eq!(decide(OWN, command, recorded), Decision::Conflict);
    }

    #[test]
    fn a_floor_rises_to_what_was_answered_and_never_sinks() {
        for (floor, acked, highest_done, want) in [
            (0, 0, 0, 0),
            (0, 3, 5, 3),
            (4, 3, 5, 4),
            (0, 9, 5, 5),
            (7, 9, 5, 7),
        ] {
            assert_eq!(raised_floor(floor, acked, highest_done), want);
        }
    }
}
