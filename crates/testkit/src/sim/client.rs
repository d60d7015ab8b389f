//! The clients: each a seat that sends one command at a time, and says it again until answered.

use std::fmt;

use earshot_proto::lease::BodyDigest;

use super::process::{Answered, Event, Micros, Request};
use super::world::{MS, SECOND, World};

/// Silence after which a command is sent again.
const RESEND: Micros = 1_500 * MS;
/// Silence after which a client makes sure that a node runs.
const ENSURE: Micros = 3 * SECOND;
/// Processes that stand for election at once.
const CANDIDATES_MAX: usize = 2;
/// Time in which a node notices that its files are gone, and the last answers arrive: two
/// heartbeats of a slow clock, and some.
const LOSS_NOTICED: Micros = 6 * SECOND;

#[derive(Debug)]
pub(super) struct Client {
    seat: u64,
    database: usize,
    next_n: u64,
    /// The answers up to this n have arrived.
    acked: u64,
    outstanding: Option<Outstanding>,
    /// When state that holds this seat was last lost or replaced.
    state_lost_at: Option<Micros>,
    /// Commands answered since the weather calmed down; `None` before.
    calm_answers: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Outstanding {
    n: u64,
    digest: BodyDigest,
    outside: bool,
    made: Micros,
    /// When it was last sent; `None` when it is to be sent at the next turn.
    sent: Option<Micros>,
}

impl Client {
    pub(super) const fn new(seat: u64, database: usize) -> Self {
        Self {
            seat,
            database,
            next_n: 1,
            acked: 0,
            outstanding: None,
            state_lost_at: None,
            calm_answers: None,
        }
    }

    /// Returns whether everything it asked for was answered since the weather calmed down.
    pub(super) fn is_content(&self) -> bool {
        self.outstanding.is_none() && self.calm_answers.is_some_and(|answers| answers > 0)
    }

    pub(super) const fn lose_state(&mut self, at: Micros) {
        self.state_lost_at = Some(at);
    }

    pub(super) const fn calm_down(&mut self) {
        self.calm_answers = Some(0);
    }

    const fn take_seat(&mut self, seat: u64) {
        self.seat = seat;
        self.next_n = 1;
        self.acked = 0;
        self.outstanding = None;
    }
}

impl fmt::Display for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outstanding {
            None => write!(out, "seat {} answered up to {}", self.seat, self.acked),
            Some(outstanding) => write!(out, "seat {} waits for {}", self.seat, outstanding.n),
        }
    }
}

impl World {
    pub(super) fn take_turn(&mut self, index: usize) {
        let pause = self.rng.between(50 * MS, 600 * MS);
        self.after(pause, Event::Turn { client: index });
        // A content client asks now and then, so that it notices when no node is left.
        let talks = self.rng.chance(if self.clients[index].is_content() {
            100
        } else {
            700
        });
        let outside = self.rng.chance(200);
        let body = self.rng.next();
        let client = &mut self.clients[index];
        if client.outstanding.is_none() && talks {
            let mut digest = [0; 16];
            digest[..8].copy_from_slice(&body.to_be_bytes());
            client.outstanding = Some(Outstanding {
                n: client.next_n,
                digest: BodyDigest::new(digest),
                outside,
                made: self.time,
                sent: None,
            });
            client.next_n += 1;
        }
        let Some(outstanding) = client.outstanding else {
            return;
        };
        if outstanding
            .sent
            .is_none_or(|sent| self.time >= sent + RESEND)
        {
            self.send(index, outstanding);
        }
        if self.time >= outstanding.made + ENSURE {
            self.ensure();
        }
    }

    fn send(&mut self, index: usize, outstanding: Outstanding) {
        let time = self.time;
        let client = &mut self.clients[index];
        client.outstanding = Some(Outstanding {
            sent: Some(time),
            ..outstanding
        });
        let request = Request {
            client: index,
            seat: client.seat,
            n: outstanding.n,
            digest: outstanding.digest,
            outside: outstanding.outside,
            acked: client.acked,
            database: client.database,
        };
        let Some(to) = self.socket else {
            self.ensure();
            return;
        };
        if !self.rng.chance(self.weather.loss) {
            let pause = self.rng.between(50, 20 * MS);
            self.after(pause, Event::Deliver { to, request });
        }
        if self.rng.chance(self.weather.duplicate) {
            // Whoever still runs may have the request in an old connection.
            let living = self.living();
            if let Some(chosen) = self.rng.pick(living.len()) {
                let pause = self.rng.between(MS, 3 * SECOND);
                self.after(
                    pause,
                    Event::Deliver {
                        to: living[chosen],
                        request,
                    },
                );
            }
        }
    }

    /// Starts a process that stands for election, unless enough do.
    fn ensure(&mut self) {
        if self.candidates() < CANDIDATES_MAX && self.rng.chance(600) {
            self.spawn();
        }
    }

    pub(super) fn take_reply(&mut self, index: usize, key: (u64, u64), answer: Answered) {
        let client = &mut self.clients[index];
        let Some(outstanding) = client.outstanding else {
            return;
        };
        if (client.seat, outstanding.n) != key {
            return;
        }
        match answer {
            Answered::Result(_) => {
                client.acked = key.1;
                client.outstanding = None;
                client.calm_answers = client.calm_answers.map(|answers| answers + 1);
                let lost = client.state_lost_at;
                if lost.is_some_and(|lost| outstanding.made > lost + LOSS_NOTICED) {
                    client.state_lost_at = None;
                }
            }
            Answered::Moved | Answered::Unavailable => {
                client.outstanding = Some(Outstanding {
                    sent: None,
                    ..outstanding
                });
            }
            Answered::OutcomeUnknown => {
                client.acked = key.1;
                client.outstanding = None;
                client.calm_answers = client.calm_answers.map(|answers| answers + 1);
                if !outstanding.outside {
                    self.violate(6, || {
                        format!("{key:?} has no outcome, but none outside either")
                    });
                }
            }
            Answered::Gone if client.state_lost_at.is_some() => {
                let seat = self.new_seat();
                self.clients[index].take_seat(seat);
            }
            Answered::Gone => self.violate(6, || format!("{key:?} is gone, never answered")),
            Answered::Conflict => self.violate(6, || format!("{key:?} conflicts with itself")),
        }
    }
}
