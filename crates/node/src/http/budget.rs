//! What the bodies of requests may hold at once, so that callers who send slowly, and many who
//! send much, cannot fill the memory of the node.
//!
//! Bytes count as they arrive: a caller holds what it sent, not what it may send. Each body has
//! two parts. Its beginning counts against a share of its own, so that small requests are served
//! while large ones fill theirs; what lies beyond counts against the share of large bodies, and
//! against what its caller may hold of that.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use earshot_capability::Caller;
use earshot_trust::{Origin, Seat, SessionId};

/// How much of each body counts as its beginning: more than any call but one that carries a file.
const BEGINNING_BYTES: usize = 64 * 1024;
/// What the beginnings of all bodies may hold: those of as many requests as there are calls at
/// once (256).
const BEGINNINGS_BYTES_MAX: usize = 256 * BEGINNING_BYTES;
/// What all bodies together may hold beyond their beginnings: four messages of the greatest size.
const LARGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What one caller may hold of that: two such messages, so that another two find room.
const CALLER_BYTES_MAX: usize = LARGE_BYTES_MAX / 2;

/// Whose bytes they are, as far as that can be told. A caller may lie about it: the bound over
/// all of them holds whatever it says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    /// All who call from another machine, together: they may only read.
    Elsewhere,
    /// All on this machine who do not say who they are, together.
    Unnamed,
    /// The client behind a bridge.
    Seat(Seat),
    /// Those who name this execution session.
    Session(SessionId),
}

impl Holder {
    pub(super) fn of(caller: &Caller) -> Self {
        if caller.origin == Origin::Remote {
            return Self::Elsewhere;
        }
        match (&caller.seat, &caller.session) {
            (Some(seat), _) => Self::Seat(seat.clone()),
            (None, Some(session)) => Self::Session(session.clone()),
            (None, None) => Self::Unnamed,
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    beginnings: usize,
    large: usize,
    /// What each caller holds of `large`; those who hold nothing are not in it.
    callers: BTreeMap<Holder, usize>,
}

/// What all bodies together hold.
#[derive(Debug, Default)]
pub(super) struct Budget(Mutex<Counts>);

/// There is no room for more bytes now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

impl Budget {
    fn with<T>(&self, use_it: impl FnOnce(&mut Counts) -> T) -> T {
        // Nothing under the lock panics; a poisoned one is as good.
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The part of the budget that one body takes, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    holder: Holder,
    bytes: usize,
}

impl Charge {
    pub(super) const fn new(budget: Arc<Budget>, holder: Holder) -> Self {
        Self {
            budget,
            holder,
            bytes: 0,
        }
    }

    /// Counts further bytes of the body, or none of them.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let after = self.bytes + bytes;
        let beginning = after.min(BEGINNING_BYTES) - self.bytes.min(BEGINNING_BYTES);
        let large = bytes - beginning;
        self.budget.with(|counts| {
            let held = counts.callers.get(&self.holder).copied().unwrap_or(0);
            let fits = counts.beginnings + beginning <= BEGINNINGS_BYTES_MAX
                && (large == 0
                    || (counts.large + large <= LARGE_BYTES_MAX
                        && held + large <= CALLER_BYTES_MAX));
            if !fits {
                return Err(Exhausted);
            }
            counts.beginnings += beginning;
            if large > 0 {
                counts.large += large;
                counts.callers.insert(self.holder.clone(), held + large);
            }
            Ok(())
        })?;
        self.bytes = after;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let beginning = self.bytes.min(BEGINNING_BYTES);
        let large = self.bytes - beginning;
        self.budget.with(|counts| {
            counts.beginnings -= beginning;
            counts.large -= large;
            if let Some(held) = counts.callers.get_mut(&self.holder) {
                *held -= large;
                if *held == 0 {
                    counts.callers.remove(&self.holder);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The greatest message of MCP.
    const MESSAGE: usize = 16 * 1024 * 1024;

    fn named(name: &str) -> Holder {
        Holder::Session(SessionId::parse(name).unwrap())
    }

    #[test]
    fn one_caller_holds_two_messages_and_another_finds_room() {
        let budget = Arc::<Budget>::default();
        let charge = |holder| Charge::new(Arc::clone(&budget), holder);
        let mut held: Vec<Charge> = (0..2)
            .map(|_| {
                let mut one = charge(named("a"));
                assert_eq!(one.add(MESSAGE), Ok(()));
                one
            })
            .collect();
        let mut third = charge(named("a"));
        assert_eq!(third.add(MESSAGE), Err(Exhausted));
        assert_eq!(
            third.add(BEGINNING_BYTES),
            Ok(()),
            "a refusal counts nothing"
        );
        for holder in [named("b"), Holder::Unnamed] {
            let mut one = charge(holder);
            assert_eq!(one.add(MESSAGE), Ok(()));
            held.push(one);
        }
        held.pop();
        assert_eq!(charge(Holder::Elsewhere).add(MESSAGE), Ok(()));
    }

    #[test]
    fn all_callers_together_are_bounded_and_small_bodies_are_served_beside_large_ones() {
        let budget = Arc::<Budget>::default();
        let charge = |name: usize| Charge::new(Arc::clone(&budget), named(&name.to_string()));
        let mut large = Vec::new();
        for name in 0..100 {
            let mut one = charge(name);
            let pieces = (0..256).map(|_| one.add(BEGINNING_BYTES));
            let taken = pieces.take_while(Result::is_ok).count();
            large.push((one, taken));
        }
        let taken: usize = large.iter().map(|(_, pieces)| pieces).sum();
        assert_eq!(
            taken * BEGINNING_BYTES,
            LARGE_BYTES_MAX + 100 * BEGINNING_BYTES
        );
        let mut small: Vec<Charge> = (0..100).map(|_| charge(1000)).collect();
        for one in &mut small {
            assert_eq!(one.add(BEGINNING_BYTES), Ok(()));
            assert_eq!(one.add(1), Err(Exhausted));
        }
    }

    #[test]
    fn what_was_taken_is_given_back() {
        let budget = Arc::<Budget>::default();
        for _ in 0..100 {
            let mut one = Charge::new(Arc::clone(&budget), Holder::Unnamed);
            for bytes in [1, BEGINNING_BYTES - 2, 2, MESSAGE, 0] {
                assert_eq!(one.add(bytes), Ok(()));
            }
        }
        budget.with(|counts| {
            assert_eq!((counts.beginnings, counts.large), (0, 0));
            assert_eq!(counts.callers.len(), 0);
        });
    }
}
