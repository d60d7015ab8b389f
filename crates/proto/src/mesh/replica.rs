//! What the siblings told: a replica of each one's rows, with its age.

use std::collections::{BTreeMap, BTreeSet};

use earshot_trust::PublicKey;

use super::message::{Delta, Facts, SharedRow, SharedWord, StateId, row_bytes};
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

/// The replicas of all siblings, and where claims meet: theirs with each other's, and with those of
/// the own rows. Own rows among themselves are the own board's concern.
///
/// How many others each row meets is counted as rows change, so that a list costs what it shows.
#[derive(Clone, Debug)]
pub struct Replicas {
    me: PublicKey,
    nodes: BTreeMap<PublicKey, Replica>,
    /// What each row claims, the own ones too.
    said: BTreeMap<RowRef, Said>,
    /// All claims, case folded: whether two of them meet is looked at again.
    claims: ClaimIndex<RowRef>,
    /// How many pairs of rows meet in each repository.
    met: BTreeMap<[u8; 16], usize>,
    /// The highest epoch of each node that ever told something, replica or not.
    epochs: BTreeMap<PublicKey, u64>,
}

/// The claims of one row, and what decides whom they meet.
#[derive(Clone, Debug)]
struct Said {
    claims: Claims,
    repository: [u8; 16],
    case: Case,
    /// How many other rows' claims meet these.
    met: usize,
}

/// Two rows whose claims meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsMet {
    /// The row with the lower key and position.
    pub a: RowRef,
    /// The other.
    pub b: RowRef,
    /// The claims that meet, those of `a` first.
    pub pairs: Pairs,
}

impl Replicas {
    /// Returns no replicas, of a node that has this key.
    pub const fn new(me: PublicKey) -> Self {
        Self {
            me,
            nodes: BTreeMap::new(),
            said: BTreeMap::new(),
            claims: ClaimIndex::new(Case::Folded),
            met: BTreeMap::new(),
            epochs: BTreeMap::new(),
        }
    }

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
        let news = self.exchange_claims(node, &rows, facts);
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
            self.exchange_claims(*node, &BTreeMap::new(), Facts::default());
            self.nodes.remove(node);
        }
    }

    /// Returns when to call [`Replicas::expire`] next.
    pub fn next_expiry(&self) -> Option<Now> {
        let gone = self.nodes.values().filter_map(|replica| replica.gone_since);
        gone.min().map(|since| since + LAST_SEEN_MAX)
    }

    /// Takes what an own row claims, or that it claims nothing.
    pub fn say_own(&mut self, peer: PeerId, claims: Option<&Claims>, facts: Facts) {
        let node = self.me;
        let of = RowRef { node, peer };
        self.unsay(of);
        if let Some(claims) = claims {
            self.say(of, claims, facts);
        }
    }

    /// Returns the rows of siblings whose claims meet these, with the pairs, one's own claim first.
    ///
    /// `facts` are those of the own checkout.
    pub fn meeting(&self, claims: &Claims, facts: Facts) -> Vec<(RowRef, Pairs)> {
        let Some(repository) = facts.repository else {
            return Vec::new();
        };
        let mine = Said {
            claims: claims.clone(),
            repository,
            case: facts.case(),
            met: 0,
        };
        let met = self.neighbours(self.me, &mine).into_iter();
        met.filter(|of| of.node != self.me)
            .filter_map(|of| Some((of, pairs_of(&mine, self.said.get(&of)?))))
            .collect()
    }

    /// Returns the first pairs of rows that meet, in one repository or in all, and how many more
    /// there are.
    pub fn collisions(&self, repository: Option<[u8; 16]>, most: usize) -> (Vec<RowsMet>, usize) {
        let within = |other: &[u8; 16]| repository.is_none_or(|one| one == *other);
        let all = self.met.iter().filter(|(other, _)| within(other));
        let all: usize = all.map(|(_, met)| *met).sum();
        let mut found = Vec::new();
        let meeting = self
            .said
            .iter()
            .filter(|(_, said)| said.met > 0 && within(&said.repository));
        for (a, mine) in meeting {
            let room = most.saturating_sub(found.len());
            if room == 0 {
                break;
            }
            let others = self.neighbours(a.node, mine).into_iter();
            let later = others.filter(|b| b > a).take(room);
            found.extend(later.filter_map(|b| {
                let pairs = pairs_of(mine, self.said.get(&b)?);
                Some(RowsMet { a: *a, b, pairs })
            }));
        }
        let more = all - found.len();
        (found, more)
    }

    /// Returns the rows whose claims meet these, which are said on the board of `node`.
    fn neighbours(&self, node: PublicKey, mine: &Said) -> BTreeSet<RowRef> {
        let mut met = self.claims.owners_meeting(&mine.claims);
        met.retain(|of| {
            let both_own = node == self.me && of.node == self.me;
            let meets = |theirs: &Said| {
                theirs.repository == mine.repository && !pairs_of(mine, theirs).pairs.is_empty()
            };
            !both_own && self.said.get(of).is_some_and(meets)
        });
        met
    }

    fn say(&mut self, of: RowRef, claims: &Claims, facts: Facts) {
        // Without a repository, a path is of no meaning elsewhere.
        let Some(repository) = facts.repository else {
            return;
        };
        let mut mine = Said {
            claims: claims.clone(),
            repository,
            case: facts.case(),
            met: 0,
        };
        let met = self.neighbours(of.node, &mine);
        mine.met = met.len();
        *self.met.entry(repository).or_default() += met.len();
        for other in met {
            if let Some(other) = self.said.get_mut(&other) {
                other.met += 1;
            }
        }
        self.claims.insert(of, claims);
        self.said.insert(of, mine);
    }

    fn unsay(&mut self, of: RowRef) {
        let Some(mine) = self.said.remove(&of) else {
            return;
        };
        self.claims.remove(of, &mine.claims);
        let met = self.neighbours(of.node, &mine);
        if let Some(all) = self.met.get_mut(&mine.repository) {
            *all -= met.len();
        }
        for other in met {
            if let Some(other) = self.said.get_mut(&other) {
                other.met -= 1;
            }
        }
    }

    /// Puts the claims of a node's new rows in the place of its old ones, and returns those that
    /// say something new.
    fn exchange_claims(
        &mut self,
        node: PublicKey,
        rows: &BTreeMap<PeerId, Kept>,
        facts: Facts,
    ) -> Vec<RowRef> {
        let old = self.nodes.get(&node);
        let words = |rows: &BTreeMap<PeerId, Kept>| -> BTreeMap<PeerId, SharedWord> {
            let said = rows.iter();
            said.filter_map(|(peer, kept)| Some((*peer, kept.row.word.clone()?)))
                .collect()
        };
        let before = old.map(|old| words(&old.rows)).unwrap_or_default();
        let after = words(rows);
        // Where the rules for names changed, all are looked at again.
        let same_rules = old.is_some_and(|old| {
            (old.facts.repository, old.facts.ignores_case) == (facts.repository, facts.ignores_case)
        });
        for (peer, word) in &before {
            if !same_rules || after.get(peer) != Some(word) {
                self.unsay(RowRef { node, peer: *peer });
            }
        }
        let mut news = Vec::new();
        for (peer, word) in &after {
            let of = RowRef { node, peer: *peer };
            let new = before.get(peer) != Some(word);
            if new || !same_rules {
                self.say(of, &word.claims, facts);
            }
            if new {
                news.push(of);
            }
        }
        news
    }
}

fn pairs_of(mine: &Said, theirs: &Said) -> Pairs {
    pairs(&mine.claims, &theirs.claims, mine.case.and(theirs.case))
}

#[cfg(test)]
mod tests;
