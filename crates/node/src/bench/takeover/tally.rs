//! What the clients of a takeover saw.

use std::time::Duration;

use earshot_proto::Now;

/// The two kinds of client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Over a bridge, which promises that no call fails.
    Bridge,
    /// Over HTTP, which sees errors while nobody listens.
    Http,
}

impl Kind {
    /// Both, in the order of the output.
    pub(super) const BOTH: [Self; 2] = [Self::Bridge, Self::Http];

    /// Returns the name in the output.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Bridge => "bridges",
            Self::Http => "plain HTTP",
        }
    }
}

/// One answered call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) began: Now,
    pub(super) ended: Now,
}

/// What one client saw, or several together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) kind: Kind,
    pub(super) clients: u64,
    /// The answered calls, each client's in order.
    pub(super) answered: Vec<Answered>,
    /// Calls that were given up.
    pub(super) failed: u64,
    /// Requests answered twice, older announcements that came back, and peers shown twice.
    pub(super) doubled: u64,
    /// Acknowledged announcements that one of the next two reads did not show.
    pub(super) lost: u64,
    /// Errors after which a plain HTTP client tried again.
    pub(super) errors_seen: u64,
    /// Why the first call was given up.
    pub(super) first_failure: Option<String>,
}

impl Tally {
    /// Begins the tally of one client.
    pub(super) const fn new(kind: Kind) -> Self {
        Self {
            kind,
            clients: 1,
            answered: Vec::new(),
            failed: 0,
            doubled: 0,
            lost: 0,
            errors_seen: 0,
            first_failure: None,
        }
    }

    /// Puts the tallies of several clients together.
    pub(super) fn sum(kind: Kind, tallies: &[&Self]) -> Self {
        let mut sum = Self {
            clients: 0,
            ..Self::new(kind)
        };
        for tally in tallies {
            sum.clients += tally.clients;
            sum.answered.extend(&tally.answered);
            sum.failed += tally.failed;
            sum.doubled += tally.doubled;
            sum.lost += tally.lost;
            sum.errors_seen += tally.errors_seen;
            sum.first_failure = sum.first_failure.or_else(|| tally.first_failure.clone());
        }
        sum
    }

    /// Returns how many calls were answered or given up.
    pub(super) fn calls(&self) -> u64 {
        self.failed + u64::try_from(self.answered.len()).unwrap_or(u64::MAX)
    }

    /// Returns how long the slowest answered call took.
    pub(super) fn slowest(&self) -> Duration {
        self.answered
            .iter()
            .map(|call| call.ended.since(call.began))
            .max()
            .unwrap_or_default()
    }
}

/// Returns how long after a kill every one of these clients had been answered a call that it began
/// after the kill; `None` when one of them never was.
///
/// A call under way at the kill does not count: its answer may have left the node before.
pub(super) fn back_after(kill: Now, tallies: &[&Tally]) -> Option<Duration> {
    tallies.iter().try_fold(Duration::ZERO, |slowest, tally| {
        let first = tally.answered.iter().find(|call| call.began >= kill)?;
        Some(slowest.max(first.ended.since(kill)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now::from_start(Duration::from_millis(ms))
    }

    fn tally(calls: &[(u64, u64)]) -> Tally {
        let answered = calls.iter().map(|(began, ended)| Answered {
            began: at(*began),
            ended: at(*ended),
        });
        Tally {
            answered: answered.collect(),
            ..Tally::new(Kind::Bridge)
        }
    }

    #[test]
    fn all_are_back_when_the_last_client_was_answered_a_call_it_began_after_the_kill() {
        let under_way = tally(&[(90, 105), (106, 130)]);
        let waiting = tally(&[(10, 20), (101, 180), (181, 182)]);
        for (tallies, wanted) in [
            (vec![&under_way], Some(30)),
            (vec![&under_way, &waiting], Some(80)),
            (vec![&under_way, &tally(&[(90, 105)])], None),
            (vec![], Some(0)),
        ] {
            let back = back_after(at(100), &tallies);
            assert_eq!(back, wanted.map(Duration::from_millis));
        }
    }

    #[test]
    fn tallies_add_up() {
        let mut second = tally(&[(0, 7)]);
        second.failed = 2;
        second.first_failure = Some("why".to_owned());
        let first = tally(&[(0, 3)]);
        let sum = Tally::sum(Kind::Bridge, &[&first, &second]);
        assert_eq!((sum.clients, sum.calls(), sum.failed), (2, 4, 2));
        assert_eq!(sum.slowest(), Duration::from_millis(7));
        assert_eq!(sum.first_failure.as_deref(), Some("why"));
    }
}
