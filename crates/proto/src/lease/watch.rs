//! Watching a holder's heartbeat on the watcher's own clock.

use std::time::Duration;

use super::verdict::Answer;
use super::{AliveName, LeaseState, Parsed};
use crate::Now;

/// A reading of a heartbeat: the time at which the holder last touched its alive file.
///
/// It is only ever compared for change, so no two clocks need to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Beat(u64);

impl Beat {
    /// Returns the beat that a file's modification time stands for, in any unit.
    pub const fn new(reading: u64) -> Self {
        Self(reading)
    }
}

/// What watching has shown so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watched {
    /// Time over which neither the heartbeat nor the lease changed.
    pub still_for: Duration,
    /// Probes in a row that got no answer.
    pub silent_probes: u32,
}

/// The watch over one holder; another holder or another state of its lease starts it anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HeartbeatWatch {
    last: Option<Sighting>,
    watched: Watched,
    progressed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sighting {
    at: Now,
    alive: Option<AliveName>,
    state: Option<LeaseState>,
    beat: Option<Beat>,
}

impl HeartbeatWatch {
    /// Takes one more look and returns what the watch has shown so far.
    ///
    /// Between two looks at most one heartbeat of the holder counts: a watcher that was itself
    /// stopped, or a machine that slept, has not watched.
    pub fn look(
        &mut self,
        now: Now,
        lease: Option<&Parsed>,
        beat: Option<Beat>,
        answer: Answer,
    ) -> Watched {
        let heartbeat = lease.map(Parsed::timings).unwrap_or_default().heartbeat();
        let sighting = Sighting {
            at: now,
            alive: lease.and_then(Parsed::alive).cloned(),
            state: lease
                .and_then(Parsed::document)
                .map(|document| document.state),
            beat,
        };
        match &self.last {
            Some(last) if last.shows_the_same(&sighting) => {
                self.watched.still_for += now.since(last.at).min(heartbeat);
            }
            Some(last) => {
                self.progressed = last.alive == sighting.alive;
                self.watched = Watched::default();
            }
            None => {}
        }
        match answer {
            Answer::Answered { .. } => self.watched.silent_probes = 0,
            Answer::Silent => {
                self.watched.silent_probes = self.watched.silent_probes.saturating_add(1);
            }
            Answer::NotAsked => {}
        }
        self.last = Some(sighting);
        self.watched
    }

    /// Returns what the watch has shown so far.
    pub const fn watched(&self) -> Watched {
        self.watched
    }

    /// Returns whether the holder that was seen last made progress while it was watched.
    pub const fn has_progressed(&self) -> bool {
        self.progressed
    }
}

impl Sighting {
    fn shows_the_same(&self, later: &Self) -> bool {
        self.alive == later.alive && self.state == later.state && self.beat == later.beat
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::sample;
    use super::*;

    const HEARTBEAT: Duration = Duration::from_secs(2);

    /// Looks at the given (seconds, beat, answer) triples and returns what the last one showed.
    fn watch(looks: &[(u64, u64, Answer)]) -> Watched {
        let lease = Parsed::Whole(Box::new(sample()));
        let mut watch = HeartbeatWatch::default();
        for &(seconds, beat, answer) in looks {
            let now = Now::from_start(Duration::from_secs(seconds));
            watch.look(now, Some(&lease), Some(Beat::new(beat)), answer);
        }
        watch.watched()
    }

    #[test]
    fn stillness_adds_up_and_a_beat_ends_it() {
        let silent = Answer::Silent;
        let shown = watch(&[(0, 7, silent), (2, 7, silent), (3, 7, silent)]);
        assert_eq!(
            shown,
            Watched {
                still_for: Duration::from_secs(3),
                silent_probes: 3
            }
        );
        let shown = watch(&[(0, 7, silent), (2, 7, silent), (3, 8, silent)]);
        assert_eq!(
            shown,
            Watched {
                still_for: Duration::ZERO,
                silent_probes: 1
            }
        );
    }

    #[test]
    fn a_watcher_that_was_stopped_has_not_watched() {
        let shown = watch(&[(0, 7, Answer::Silent), (3_600, 7, Answer::Silent)]);
        assert_eq!(shown.still_for, HEARTBEAT);
    }

    #[test]
    fn an_answer_ends_the_silence() {
        let answered = Answer::Answered {
            executable_replaced: false,
        };
        let shown = watch(&[
            (0, 7, Answer::Silent),
            (1, 7, answered),
            (2, 7, Answer::NotAsked),
        ]);
        assert_eq!(
            shown,
            Watched {
                still_for: HEARTBEAT,
                silent_probes: 0
            }
        );
    }

    #[test]
    fn another_holder_is_watched_anew() {
        let mut watch = HeartbeatWatch::default();
        let mut document = sample();
        for (seconds, token) in [(0, 1), (2, 1), (4, 2)] {
            document.alive = super::super::LeaseToken::from_random([token; 16]).alive_name();
            let now = Now::from_start(Duration::from_secs(seconds));
            let lease = Parsed::Whole(Box::new(document.clone()));
            watch.look(now, Some(&lease), Some(Beat::new(7)), Answer::Silent);
        }
        assert_eq!(watch.watched().still_for, Duration::ZERO);
    }
}
