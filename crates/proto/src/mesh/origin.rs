//! The own rows as siblings are told of them, with what changed since when.

use std::collections::{BTreeMap, VecDeque};

use super::message::{Delta, Facts, SharedRow, StateId, facts_bytes, row_bytes};
use crate::id::PeerId;
use crate::limits::{SHARED_BYTES_MAX, SHARED_ROWS_MAX};

/// Rows that went, remembered for deltas; whoever is further behind is told everything.
const GONE_MAX: usize = 4_096;

/// The own rows, in one state after the other.
#[derive(Clone, Debug)]
pub struct Origin {
    epoch: u64,
    version: u64,
    facts: Facts,
    /// The version in which the facts changed last.
    facts_version: u64,
    rows: BTreeMap<PeerId, Told>,
    bytes: usize,
    /// Rows that found no room.
    left_out: BTreeMap<PeerId, SharedRow>,
    /// Rows that went, with the version in which they did, the oldest first.
    gone: VecDeque<(u64, PeerId)>,
    /// The oldest version that a delta can go out from.
    oldest: u64,
    /// The hash of this version, once it was asked for.
    hash: Option<[u8; 16]>,
}

#[derive(Clone, Debug)]
struct Told {
    row: SharedRow,
    /// The version in which it changed last.
    version: u64,
    bytes: usize,
    hash: [u8; 32],
}

impl Origin {
    /// Returns the state without rows, in the epoch of the node's lease.
    pub const fn new(epoch: u64, facts: Facts) -> Self {
        Self {
            epoch,
            version: 0,
            facts,
            facts_version: 0,
            rows: BTreeMap::new(),
            bytes: 0,
            left_out: BTreeMap::new(),
            gone: VecDeque::new(),
            oldest: 0,
            hash: None,
        }
    }

    /// Goes on in an epoch above one that a sibling has seen, if that is higher.
    ///
    /// A state folder that was lost, on a machine whose clock was set back, begins below what others
    /// remember of it, and they would take nothing from it.
    pub fn outbid(&mut self, seen: u64) -> bool {
        // The epoch of all epochs cannot be outbid; whoever claims to have seen it is not believed.
        let higher = seen > self.epoch && seen < u64::MAX;
        if higher {
            self.epoch = seen + 1;
            self.hash = None;
            self.oldest = self.version;
            self.gone.clear();
        }
        higher
    }

    /// Returns the positions of all rows, also of those that found no room.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.rows.keys().chain(self.left_out.keys()).copied()
    }

    /// Takes a row that is new or changed.
    pub fn put(&mut self, row: SharedRow) {
        let bytes = row_bytes(&row);
        let known = self.rows.get(&row.id);
        if known.is_some_and(|told| told.row == row) {
            return;
        }
        let before = known.map_or(0, |told| told.bytes);
        let rows = self.rows.len() + usize::from(known.is_none());
        let fits = rows <= SHARED_ROWS_MAX && self.bytes - before + bytes.len() <= SHARED_BYTES_MAX;
        if !fits {
            self.drop_row(row.id);
            self.left_out.insert(row.id, row);
            self.count_left_out();
            return;
        }
        let version = self.changed();
        self.left_out.remove(&row.id);
        self.bytes = self.bytes - before + bytes.len();
        let told = Told {
            version,
            bytes: bytes.len(),
            hash: *blake3::hash(&bytes).as_bytes(),
            row,
        };
        self.rows.insert(told.row.id, told);
        self.count_left_out();
    }

    /// Takes it that a row is gone.
    pub fn remove(&mut self, peer: PeerId) {
        self.left_out.remove(&peer);
        if self.drop_row(peer) {
            // There is room for one that had none.
            if let Some((_, row)) = self.left_out.pop_first() {
                self.put(row);
            }
        }
        self.count_left_out();
    }

    /// Returns the facts of the checkout.
    pub const fn facts(&self) -> Facts {
        self.facts
    }

    /// Takes the facts of the checkout; how many rows are left out is counted here.
    pub fn set_facts(&mut self, facts: Facts) {
        let facts = Facts {
            left_out: self.facts.left_out,
            ..facts
        };
        if self.facts != facts {
            self.facts = facts;
            self.facts_version = self.changed();
        }
    }

    /// Returns which state this is.
    pub fn id(&mut self) -> StateId {
        let rows = self.rows.iter().map(|(id, told)| (*id, told.hash));
        let hash = self.hash.unwrap_or_else(|| state_hash(&self.facts, rows));
        self.hash = Some(hash);
        StateId {
            epoch: self.epoch,
            version: self.version,
            hash,
        }
    }

    /// Returns what leads from a state that a sibling holds to this one; `None` when it is this one.
    pub fn since(&mut self, base: Option<StateId>) -> Option<Delta> {
        let now = self.id();
        if base == Some(now) {
            return None;
        }
        let base = base.filter(|base| {
            base.epoch == self.epoch && base.version < self.version && base.version >= self.oldest
        });
        let from = base.map(|base| base.version);
        let newer = |version: u64| from.is_none_or(|from| version > from);
        Some(Delta {
            base,
            now,
            facts: newer(self.facts_version).then_some(self.facts),
            put: self
                .rows
                .values()
                .filter(|told| newer(told.version))
                .map(|told| told.row.clone())
                .collect(),
            gone: from.map_or_else(Vec::new, |from| self.gone_since(from)),
        })
    }

    fn gone_since(&self, from: u64) -> Vec<PeerId> {
        let gone = self.gone.iter().rev().take_while(|(at, _)| *at > from);
        let mut gone: Vec<PeerId> = gone
            .map(|(_, peer)| *peer)
            .filter(|peer| !self.rows.contains_key(peer))
            .collect();
        gone.sort_unstable();
        gone.dedup();
        gone
    }

    fn drop_row(&mut self, peer: PeerId) -> bool {
        let Some(told) = self.rows.remove(&peer) else {
            return false;
        };
        self.bytes -= told.bytes;
        let version = self.changed();
        self.gone.push_back((version, peer));
        if self.gone.len() > GONE_MAX
            && let Some((version, _)) = self.gone.pop_front()
        {
            self.oldest = version;
        }
        true
    }

    fn count_left_out(&mut self) {
        let left_out = u32::try_from(self.left_out.len()).unwrap_or(u32::MAX);
        if self.facts.left_out != left_out {
            self.facts.left_out = left_out;
            self.facts_version = self.changed();
        }
    }

    const fn changed(&mut self) -> u64 {
        self.version += 1;
        self.hash = None;
        self.version
    }
}

/// Returns the hash of facts and rows, the rows in the order of their positions.
pub(super) fn state_hash(
    facts: &Facts,
    rows: impl Iterator<Item = (PeerId, [u8; 32])>,
) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("earshot 2026 state of a board");
    hasher.update(blake3::hash(&facts_bytes(facts)).as_bytes());
    for (id, hash) in rows {
        hasher.update(&id.number().to_be_bytes());
        hasher.update(&hash);
    }
    let mut short = [0; 16];
    short.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    short
}

#[cfg(test)]
mod tests;
