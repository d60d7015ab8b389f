//! The numbers of request frames, and how far they are answered.

use std::collections::BTreeSet;

/// Hands out rising numbers and knows the floor below which all are answered.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The highest number handed out.
    last: u64,
    /// Every number up to this one is answered.
    acked: u64,
    /// Numbers above the floor that are answered already; at most as many as may be in flight.
    ahead: BTreeSet<u64>,
}

impl Numbers {
    /// Returns the next number, from 1.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Notes that the request with number `n` was answered to the client.
    pub(super) fn settle(&mut self, n: u64) {
        if n > self.acked {
            self.ahead.insert(n);
        }
        while self.ahead.remove(&(self.acked + 1)) {
            self.acked += 1;
        }
    }

    /// Takes back a number that no node can have seen; only the highest is used again.
    ///
    /// A node lets a seat that it does not know begin with number 1 only.
    pub(super) fn release(&mut self, n: u64) {
        if n == self.last {
            self.last -= 1;
        } else {
            self.settle(n);
        }
    }

    /// Returns the highest number up to which every request is answered.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_that_no_node_saw_is_used_again() {
        let mut numbers = Numbers::default();

        let first = numbers.next();
        numbers.release(first);

        assert_eq!(numbers.next(), 1);
        assert_eq!(numbers.acked(), 0);
    }

    proptest! {
        #[test]
        fn the_floor_is_the_longest_answered_prefix(
            order in Just((1..=40_u64).collect::<Vec<_>>()).prop_shuffle(),
            answered in 0..=40_usize,
        ) {
            let mut numbers = Numbers::default();
            for n in 1..=40 {
                prop_assert_eq!(numbers.next(), n);
            }

            for &n in &order[..answered] {
                numbers.settle(n);
            }

            let floor = (1..=40).take_while(|n| order[..answered].contains(n)).count() as u64;
            prop_assert_eq!(numbers.acked(), floor);
        }
    }
}
