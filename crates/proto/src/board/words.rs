//! What peers say: announcing, withdrawing, and what becomes of it.

use std::collections::BTreeSet;
use std::mem;

use super::collisions::Meetings;
use super::row::{Announcement, Word};
use super::{Applied, Board, Changes, NotAttached, PeerKey};
use crate::claims::Claims;
use crate::id::PeerId;
use crate::text::Line;
use crate::time::Timestamp;

/// An announcement as a peer says it.
#[derive(Clone, Debug)]
pub struct Said {
    /// Number of the command, rising per peer; `None` counts as the next one.
    pub n: Option<u64>,
    /// What the peer is about to do.
    pub intent: Line,
    /// The paths it expects to touch.
    pub claims: Claims,
}

/// What became of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is in force.
    Taken,
    /// It was in force before: the same command, said again.
    Repeated,
    /// The peer has said or withdrawn something since: nothing changed.
    Older,
}

/// The answer to an announcement.
#[derive(Clone, Debug)]
pub struct Announced {
    /// The peer's position.
    pub peer: PeerId,
    /// What became of what it said.
    pub verdict: Verdict,
    /// What is in force now.
    pub announcement: Option<Announcement>,
    /// Whose claims meet those in force now.
    pub meetings: Meetings,
}

/// An announcement that the board cannot take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnounceError {
    /// Its peer is not attached.
    #[error(transparent)]
    NotAttached(#[from] NotAttached),
    /// The same command said something else before.
    #[error("command {n} announced something else before: use a new number")]
    Conflict {
        /// Number of the command.
        n: u64,
    },
}

/// What became of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// The announcement is gone.
    Taken,
    /// There was none.
    Nothing,
    /// The peer has announced something since: nothing changed.
    Older,
}

impl Board {
    /// Takes what an attached peer announces in place of what it announced before.
    pub fn announce(
        &mut self,
        key: &PeerKey,
        said: Said,
        wall: Timestamp,
    ) -> Result<Applied<Announced>, AnnounceError> {
        let (peer, last) = self.speaker(key)?;
        let n = said.n.unwrap_or_else(|| after(last));
        let mut changes = Changes::default();
        let verdict = match last {
            Some(last) if n < last => Verdict::Older,
            Some(last) if n == last && said.n.is_some() => self.repeated(peer, &said)?,
            Some(_) | None => {
                let Said {
                    n: _,
                    intent,
                    claims,
                } = said;
                let announcement = Announcement {
                    n,
                    intent,
                    claims,
                    at: wall,
                };
                self.replace_word(peer, Word::Announced(announcement), &mut changes);
                changes.put.insert(peer);
                Verdict::Taken
            }
        };
        let announcement = self.row(peer).and_then(|row| row.announcement()).cloned();
        let meetings = self.meetings(peer);
        // The peer reads here whom it meets; no notice need tell it again.
        if let Some(row) = self.rows.get_mut(&peer) {
            for met in &meetings.met {
                if row.notices.remove(met.peer) {
                    changes.put.insert(peer);
                }
            }
        }
        let answer = Announced {
            peer,
            verdict,
            announcement,
            meetings,
        };
        Ok(Applied { answer, changes })
    }

    /// Takes back what an attached peer announced.
    pub fn withdraw(
        &mut self,
        key: &PeerKey,
        n: Option<u64>,
    ) -> Result<Applied<Withdrawn>, NotAttached> {
        let (peer, last) = self.speaker(key)?;
        let n_said = n.unwrap_or_else(|| after(last));
        let mut changes = Changes::default();
        let announced = self
            .row(peer)
            .is_some_and(|row| row.announcement().is_some());
        let answer = match last {
            Some(last) if announced && n.is_some() && n_said <= last => Withdrawn::Older,
            Some(last) if n_said <= last && !announced => Withdrawn::Nothing,
            Some(_) | None => {
                self.replace_word(peer, Word::Withdrawn { n: n_said }, &mut changes);
                changes.put.insert(peer);
                if announced {
                    Withdrawn::Taken
                } else {
                    Withdrawn::Nothing
                }
            }
        };
        Ok(Applied { answer, changes })
    }

    /// Returns an attached peer and the number of its last command.
    fn speaker(&self, key: &PeerKey) -> Result<(PeerId, Option<u64>), NotAttached> {
        let row = self
            .row_of(key)
            .filter(|row| row.attached())
            .ok_or(NotAttached)?;
        Ok((row.id, row.word.n()))
    }

    /// Judges a command that has the number of the last one.
    fn repeated(&self, peer: PeerId, said: &Said) -> Result<Verdict, AnnounceError> {
        match self.row(peer).map(|row| &row.word) {
            Some(Word::Announced(is)) if is.intent == said.intent && is.claims == said.claims => {
                Ok(Verdict::Repeated)
            }
            Some(Word::Announced(is)) => Err(AnnounceError::Conflict { n: is.n }),
            Some(Word::Withdrawn { .. } | Word::Silent) | None => Ok(Verdict::Older),
        }
    }

    /// Puts a word in the place of a row's last one, and tells the rows that this concerns.
    pub(super) fn replace_word(&mut self, peer: PeerId, word: Word, changes: &mut Changes) {
        let (before, met_before) = self.leave_word(peer);
        let news = self.neighbours(peer, &claims_of(&word).added_to(&claims_of(&before)));
        let met = self.enter_word(peer, word);
        for other in &met_before {
            if let Some(row) = self.rows.get_mut(other)
                && !met.contains(other)
                && row.notices.remove(peer)
            {
                changes.put.insert(*other);
            }
        }
        for other in &news {
            if let Some(row) = self.rows.get_mut(other) {
                row.notices.add(peer);
                changes.put.insert(*other);
            }
        }
        if let Some(row) = self.rows.get_mut(&peer) {
            row.notices.about.retain(|other| met.contains(other));
        }
    }

    /// Makes a row silent, and returns what it said and the rows that it met by it.
    fn leave_word(&mut self, peer: PeerId) -> (Word, BTreeSet<PeerId>) {
        let Some(row) = self.rows.get_mut(&peer) else {
            return (Word::Silent, BTreeSet::new());
        };
        let word = mem::replace(&mut row.word, Word::Silent);
        row.met = 0;
        let claims = claims_of(&word);
        self.claims.remove(peer, &claims);
        let met = self.neighbours(peer, &claims);
        for other in &met {
            if let Some(row) = self.rows.get_mut(other) {
                row.met -= 1;
                self.collisions -= 1;
            }
        }
        (word, met)
    }

    /// Gives a silent row a word, and returns the rows that it meets by it.
    pub(super) fn enter_word(&mut self, peer: PeerId, word: Word) -> BTreeSet<PeerId> {
        let claims = claims_of(&word);
        let met = self.neighbours(peer, &claims);
        self.claims.insert(peer, &claims);
        for other in &met {
            if let Some(row) = self.rows.get_mut(other) {
                row.met += 1;
                self.collisions += 1;
            }
        }
        if let Some(row) = self.rows.get_mut(&peer) {
            row.word = word;
            row.met = met.len();
        }
        met
    }
}

fn after(last: Option<u64>) -> u64 {
    last.map_or(1, |last| last.saturating_add(1))
}

fn claims_of(word: &Word) -> Claims {
    match word {
        Word::Announced(announcement) => announcement.claims.clone(),
        Word::Silent | Word::Withdrawn { .. } => Claims::default(),
    }
}
