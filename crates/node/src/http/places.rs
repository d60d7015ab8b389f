//! The places of one listener: when all are taken, whoever does nothing with its own gives way.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::connection::{Pace, Standing};
use crate::clock;

/// How long an answer may be under way before its connection gives way: no call takes that long, so
/// it is a stream, whose client opens it again.
const STREAM_KEPT: Duration = Duration::from_secs(30);

/// Connections above the bound that may be on their way out.
pub(super) const LEAVING_MAX: usize = 64;

/// The connections that hold a place.
#[derive(Debug, Default)]
pub(super) struct Places {
    held: Vec<Place>,
    /// How many are held before those that are gone are looked for.
    looked_at: usize,
}

#[derive(Debug)]
struct Place {
    /// Gone with the connection.
    pace: Weak<Pace>,
    leave: CancellationToken,
}

impl Places {
    /// Notes a new connection, and returns what tells it to leave.
    pub(super) fn take(&mut self, pace: &Arc<Pace>) -> CancellationToken {
        if self.held.len() >= self.looked_at {
            self.forget_gone();
            self.looked_at = 2 * self.held.len().max(LEAVING_MAX);
        }
        let leave = CancellationToken::new();
        self.held.push(Place {
            pace: Arc::downgrade(pace),
            leave: leave.clone(),
        });
        leave
    }

    /// Tells the connection to leave that needs its place least, and says whether there is one: the
    /// longest silent of those that never asked, else of those that ask nothing now, else the oldest
    /// stream.
    pub(super) fn make_room(&mut self) -> bool {
        self.forget_gone();
        let now = clock::now();
        let least = self
            .held
            .iter()
            .filter_map(|place| {
                let (standing, since) = place.pace.upgrade()?.standing();
                let gives_way = standing != Standing::Answered || now.since(since) >= STREAM_KEPT;
                gives_way.then_some((standing, since, &place.leave))
            })
            .min_by_key(|(standing, since, _)| (*standing, *since));
        if let Some((_, _, leave)) = least {
            leave.cancel();
        }
        least.is_some()
    }

    fn forget_gone(&mut self) {
        self.held
            .retain(|place| place.pace.strong_count() > 0 && !place.leave.is_cancelled());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_never_asked_gives_way_before_who_is_idle_and_nobody_who_is_answered() {
        let mut places = Places::default();
        let paces: Vec<Arc<Pace>> = (0..4).map(|_| Arc::default()).collect();
        let answered = paces[0].begin();
        drop(paces[1].begin());
        let leave: Vec<_> = paces.iter().map(|pace| places.take(pace)).collect();
        let gone = |leave: &[CancellationToken]| -> Vec<bool> {
            leave.iter().map(CancellationToken::is_cancelled).collect()
        };
        assert!(places.make_room());
        assert_eq!(gone(&leave), [false, false, true, false]);
        assert!(places.make_room());
        assert_eq!(gone(&leave), [false, false, true, true]);
        assert!(places.make_room());
        assert_eq!(gone(&leave), [false, true, true, true]);
        assert!(!places.make_room(), "an answer under way keeps its place");
        drop(answered);
        assert!(places.make_room());
        drop(paces);
        assert!(!places.make_room());
    }

    #[test]
    fn those_that_are_gone_are_forgotten_without_anybody_giving_way() {
        let mut places = Places::default();
        for _ in 0..10 * LEAVING_MAX {
            places.take(&Arc::default());
        }
        assert!(
            places.held.len() <= 2 * LEAVING_MAX,
            "{}",
            places.held.len()
        );
    }
}
