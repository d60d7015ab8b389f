//! What the siblings told: a replica of each one's rows, with its age.

use std::collections::{BTreeMap, BTreeSet};

use earshot_trust::PublicKey;

use super::message::{Delta, Facts, SharedRow, StateId, row_bytes};
use super::origin::state_hash;
use crate::claims::{Case, ClaimIndex, Claims, Pairs, pairs};
use crate::id::PeerId;
use crate::limits::{LAST_SEEN_MAX, SHARED_ROWS_MAX, SIBLINGS_MAX};
use crate::time::Now;

/// A row of a sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowRef {
    /// The node that told it.
    pub node: PublicKey,
    /// Its position on that node's board.
    pub peer: PeerId,
}

/// The rows of one sibling, as it told them last.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The checkout that it serves.
    pub checkout: [u8; 16],
    /// What it told of that.
    pub facts: Facts,
    /// Which state this is.
    pub state: StateId,
    /// Whether the node is there; if not, since when it is gone.
    pub gone_since: Option<Now>,
    /// When the node was heard to be in this state.
    pub heard_at: Now,
    rows: BTreeMap<PeerId, Kept>,
}

#[derive(Clone, Debug)]
struct Kept {
    row: SharedRow,
    hash: [u8; 32],
}

impl Replica {
    /// Returns the rows in the order of their positions.
    pub fn rows(&self) -> impl Iterator<Item = &SharedRow> {
        self.rows.values().map(|kept| &kept.row)
    }

    /// Returns one row.
    pub fn row(&self, peer: PeerId) -> Option<&SharedRow> {
        self.rows.get(&peer).map(|kept| &kept.row)
    }

    /// Returns whether a peer is attached, as far as this node knows.
    pub const fn is_attached(&self, row: &SharedRow) -> bool {
        self.gone_since.is_none() && row.left_at.is_none()
    }

    /// Returns how old what is known of it is: nothing while it is there, for it tells each change.
    pub fn age(&self, now: Now) -> std::time::Duration {
        match self.gone_since {
            None => std::time::Duration::ZERO,
            Some(_) => now.since(self.heard_at),
        }
    }
}

/// A delta that was not taken: everything is asked for instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// It goes out from a state that is not the one that is held.
    #[error("the delta goes out from another state than the one that is held")]
    Base,
    /// What it leads to is not what it says.
    #[error("the delta does not lead to the state that it names")]
    Hash,
    /// It would lead to more rows than one node may tell of.
    #[error("the node tells of more than {SHARED_ROWS_MAX} rows")]
    Rows,
    /// It is of an epoch below one that was seen.
    #[error("the delta is of an epoch that is over")]
    Epoch,
    /// There are as many siblings as there may be.
    #[error("rows of {SIBLINGS_MAX} nodes are kept, and of no more")]
    Full,
}

/// The replicas of all siblings, and where their claims meet.
#[derive(Clone, Debug)]
pub struct Replicas {
    nodes: BTreeMap<PublicKey, Replica>,
    /// All claims, case folded: whether two of them meet is looked at again.
    claims: ClaimIndex<RowRef>,
    /// The highest epoch of each node that ever told something, replica or not.
    epochs: BTreeMap<PublicKey, u64>,
}

impl Default for Replicas {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::new(),
            claims: ClaimIndex::new(Case::Folded),
            epochs: BTreeMap::new(),
        }
    }
}

impl Replicas {
    /// Returns the replicas by node.
    pub fn nodes(&self) -> impl Iterator<Item = (&PublicKey, &Replica)> {
        self.nodes.iter()
    }

    /// Returns the replica of a node.
    pub fn node(&self, node: &PublicKey) -> Option<&Replica> {
        self.nodes.get(node)
    }

    /// Returns a row.
    pub fn row(&self, of: RowRef) -> Option<&SharedRow> {
        self.nodes.get(&of.node)?.row(of.peer)
    }

    /// Returns the state that is held of a node.
    pub fn held(&self, node: &PublicKey) -> Option<StateId> {
        self.nodes.get(node).map(|replica| replica.state)
    }

    /// Returns the highest epoch that was seen of a node, 0 when none was.
    pub fn highest_epoch(&self, node: &PublicKey) -> u64 {
        self.epochs.get(node).copied().unwrap_or(0)
    }

    /// Applies a delta whole or not at all, and returns the rows whose announcement is news.
    ///
    /// # Errors
    /// [`DeltaError`]; nothing was changed.
    pub fn apply(
        &mut self,
        now: Now,
        node: PublicKey,
        checkout: [u8; 16],
        delta: &Delta,
    ) -> Result<Vec<RowRef>, DeltaError> {
        let old = self.nodes.get(&node);
        if delta.now.epoch < self.highest_epoch(&node) {
            return Err(DeltaError::Epoch);
        }
        if old.is_none() && self.nodes.len() >= SIBLINGS_MAX {
            return Err(DeltaError::Full);
        }
        if delta.base.is_some() && delta.base != old.map(|old| old.state) {
            return Err(DeltaError::Base);
        }
        let before = old.filter(|_| delta.base.is_some());
        let mut rows = before.map(|old| old.rows.clone()).unwrap_or_default();
        let facts = delta
            .facts
            .or_else(|| before.map(|old| old.facts))
            .unwrap_or_default();
        for peer in &delta.gone {
            rows.remove(peer);
        }
        for row in &delta.put {
            let hash = *blake3::hash(&row_bytes(row)).as_bytes();
            let row = row.clone();
            rows.insert(row.id, Kept { row, hash });
        }
        if rows.len() > SHARED_ROWS_MAX {
            return Err(DeltaError::Rows);
        }
        let hash = state_hash(&facts, rows.iter().map(|(id, kept)| (*id, kept.hash)));
        if hash != delta.now.hash {
            return Err(DeltaError::Hash);
        }
        let news = self.exchange_claims(node, &rows);
        let highest = self.epochs.entry(node).or_default();
        *highest = (*highest).max(delta.now.epoch);
        let replica = Replica {
            checkout,
            facts,
            state: delta.now,
            gone_since: None,
            heard_at: now,
            rows,
        };
        self.nodes.insert(node, replica);
        Ok(news)
    }

    /// Notes that a node is there again and in the state that is held.
    pub fn heard(&mut self, now: Now, node: &PublicKey) {
        if let Some(replica) = self.nodes.get_mut(node) {
            replica.heard_at = now;
            replica.gone_since = None;
        }
    }

    /// Notes that a node is gone: its rows are what it was last seen with.
    pub fn lost(&mut self, now: Now, node: &PublicKey) {
        if let Some(replica) = self.nodes.get_mut(node)
            && replica.gone_since.is_none()
        {
            replica.gone_since = Some(now);
            replica.heard_at = now;
        }
    }

    /// Forgets the rows of nodes that have been gone for too long, and returns whether there were
    /// any.
    pub fn expire(&mut self, now: Now) -> bool {
        let over = |replica: &Replica| {
            replica
                .gone_since
                .is_some_and(|since| now >= since + LAST_SEEN_MAX)
        };
        let expired: Vec<PublicKey> = self
            .nodes
            .iter()
            .filter(|(_, replica)| over(replica))
            .map(|(node, _)| *node)
            .collect();
        for node in &expired {
            self.forget(node);
        }
        !expired.is_empty()
    }

    /// Forgets the rows of a node.
    pub fn forget(&mut self, node: &PublicKey) {
        if self.nodes.contains_key(node) {
            self.exchange_claims(*node, &BTreeMap::new());
            self.nodes.remove(node);
        }
    }

    /// Returns when to call [`Replicas::expire`] next.
    pub fn next_expiry(&self) -> Option<Now> {
        let gone = self.nodes.values().filter_map(|replica| replica.gone_since);
        gone.min().map(|since| since + LAST_SEEN_MAX)
    }

    /// Returns the rows whose claims meet these, with the pairs, one's own claim first.
    ///
    /// `case` is the rule of the own checkout; only siblings that `within` takes count.
    pub fn meeting(
        &self,
        claims: &Claims,
        case: Case,
        within: impl Fn(&Replica) -> bool,
    ) -> Vec<(RowRef, Pairs)> {
        let met = self.claims.owners_meeting(claims).into_iter();
        met.filter_map(|of| {
            let replica = self.nodes.get(&of.node).filter(|replica| within(replica))?;
            let theirs = &replica.row(of.peer)?.word.as_ref()?.claims;
            let found = pairs(claims, theirs, case.and(replica.facts.case()));
            (!found.pairs.is_empty()).then_some((of, found))
        })
        .collect()
    }

    /// Puts the claims of a node's new rows in the place of its old ones, and returns those that
    /// say something new.
    fn exchange_claims(&mut self, node: PublicKey, rows: &BTreeMap<PeerId, Kept>) -> Vec<RowRef> {
        let none = BTreeMap::new();
        let old = self.nodes.get(&node).map_or(&none, |replica| &replica.rows);
        let all: BTreeSet<PeerId> = old.keys().chain(rows.keys()).copied().collect();
        let mut news = Vec::new();
        for peer in all {
            let before = old.get(&peer).and_then(|kept| kept.row.word.as_ref());
            let after = rows.get(&peer).and_then(|kept| kept.row.word.as_ref());
            if before == after {
                continue;
            }
            let of = RowRef { node, peer };
            if let Some(word) = before {
                self.claims.remove(of, &word.claims);
            }
            if let Some(word) = after {
                self.claims.insert(of, &word.claims);
                news.push(of);
            }
        }
        news
    }
}
