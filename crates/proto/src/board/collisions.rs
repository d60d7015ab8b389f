//! Whose claims meet whose, and telling them.

use std::collections::BTreeSet;

use super::row::Row;
use super::{Applied, Board, Changes, PeerKey};
use crate::claims::{Case, Claims, Pairs, pairs};
use crate::id::{PeerId, SeatId};
use crate::limits::{NOTICE_NAME_BYTES_MAX, PAIRS_MAX};
use crate::text::Line;

/// Another peer whose claims meet one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The other's position.
    pub peer: PeerId,
    /// What is shown in place of its key.
    pub seat_id: SeatId,
    /// Whether it is attached.
    pub attached: bool,
    /// What it is about to do.
    pub intent: Line,
    /// The claims that meet, one's own first.
    pub pairs: Pairs,
}

/// The peers whose claims meet one's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meetings {
    /// The first of them by position.
    pub met: Vec<Meeting>,
    /// How many more there are.
    pub more: usize,
}

/// Two peers whose claims meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// The peer with the lower position.
    pub a: PeerId,
    /// The other.
    pub b: PeerId,
    /// The claims that meet, those of `a` first.
    pub pairs: Pairs,
}

/// The collisions of a board, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collisions {
    /// The first of them by position.
    pub collisions: Vec<Collision>,
    /// How many more there are.
    pub more: usize,
}

impl Board {
    /// Returns the collisions of the board, those with departed peers too.
    pub fn collisions(&self) -> Collisions {
        let mut collisions = Vec::new();
        for a in self.rows.values().filter(|row| row.met > 0) {
            let later = self
                .neighbours_of(a)
                .into_iter()
                .filter(|other| *other > a.id);
            let later = later.filter_map(|other| self.rows.get(&other));
            let found = later.map(|b| Collision {
                a: a.id,
                b: b.id,
                pairs: self.pairs_of(a, b),
            });
            collisions.extend(found.take(PAIRS_MAX - collisions.len()));
            if collisions.len() >= PAIRS_MAX {
                break;
            }
        }
        let more = self.collisions - collisions.len();
        Collisions { collisions, more }
    }

    /// Returns whose claims meet those of a peer.
    pub fn meetings(&self, peer: PeerId) -> Meetings {
        let Some(mine) = self.rows.get(&peer) else {
            return Meetings::default();
        };
        let others = self.neighbours_of(mine);
        let rows = others
            .iter()
            .filter_map(|other| self.rows.get(other))
            .take(PAIRS_MAX);
        let met: Vec<Meeting> = rows
            .filter_map(|row| {
                Some(Meeting {
                    peer: row.id,
                    seat_id: row.seat_id,
                    attached: row.attached(),
                    intent: row.announcement()?.intent.clone(),
                    pairs: self.pairs_of(mine, row),
                })
            })
            .collect();
        let more = others.len() - met.len();
        Meetings { met, more }
    }

    /// Returns the attached peers whose claims meet these, which are of another board, with the
    /// pairs, their own claim first.
    pub fn peers_meeting(&self, claims: &Claims, case: Case) -> Vec<(PeerId, Pairs)> {
        // Where the other side folds case and this one does not, the index cannot be asked.
        let met: BTreeSet<PeerId> = if case == self.case {
            self.claims.owners_meeting(claims)
        } else {
            self.rows.keys().copied().collect()
        };
        let rows = met.into_iter().filter_map(|peer| self.rows.get(&peer));
        let attached = rows.filter(|row| row.attached());
        attached
            .filter_map(|row| {
                let found = pairs(&row.announcement()?.claims, claims, case);
                (!found.pairs.is_empty()).then_some((row.id, found))
            })
            .collect()
    }

    /// Takes the lines that wait for a peer: others announced what meets its claims.
    ///
    /// A line tells names and paths, quoted, and nothing that another agent wrote freely.
    pub fn take_notices(&mut self, key: &PeerKey) -> Applied<Vec<String>> {
        let mut changes = Changes::default();
        let Some(peer) = self.by_key.get(key).copied() else {
            return Applied {
                answer: Vec::new(),
                changes,
            };
        };
        let Some(row) = self.rows.get_mut(&peer) else {
            return Applied {
                answer: Vec::new(),
                changes,
            };
        };
        let notices = std::mem::take(&mut row.notices);
        if !notices.about.is_empty() || notices.dropped > 0 {
            changes.put.insert(peer);
        }
        let mut answer = Vec::new();
        if let Some(mine) = self.rows.get(&peer) {
            let others = notices
                .about
                .iter()
                .filter_map(|other| self.rows.get(other));
            answer.extend(others.filter_map(|other| self.notice(mine, other)));
        }
        if notices.dropped > 0 {
            let dropped = notices.dropped;
            answer.push(format!(
                "{dropped} earlier announcements met your claims: see the board"
            ));
        }
        Applied { answer, changes }
    }

    /// Returns the rows whose claims meet these, but for the one that makes them.
    pub(super) fn neighbours(&self, peer: PeerId, claims: &Claims) -> BTreeSet<PeerId> {
        let mut met = self.claims.owners_meeting(claims);
        met.remove(&peer);
        met
    }

    fn neighbours_of(&self, row: &Row) -> BTreeSet<PeerId> {
        row.announcement()
            .map(|announcement| self.neighbours(row.id, &announcement.claims))
            .unwrap_or_default()
    }

    fn pairs_of(&self, a: &Row, b: &Row) -> Pairs {
        match (a.announcement(), b.announcement()) {
            (Some(mine), Some(theirs)) => pairs(&mine.claims, &theirs.claims, self.case),
            (None, _) | (_, None) => Pairs::default(),
        }
    }

    /// Returns the line that tells one peer of another, `None` when their claims do not meet.
    fn notice(&self, mine: &Row, other: &Row) -> Option<String> {
        let quoted = |text: &str| format!("{:?}", Line::cut(text, NOTICE_NAME_BYTES_MAX).as_str());
        let found = self.pairs_of(mine, other);
        let (my_claim, their_claim) = found.pairs.first()?;
        let departed = if other.attached() { "" } else { ", departed" };
        let mut line = format!(
            "{} ({}{departed}) claims {}, which meets your claim {}",
            other.id,
            quoted(other.client.name.as_str()),
            quoted(their_claim.as_str()),
            quoted(my_claim.as_str()),
        );
        let more = found.pairs.len() - 1 + found.more;
        if more > 0 {
            line = format!("{line}; {more} more pairs: see the board");
        }
        Some(line)
    }
}
