//! Finds whose claims meet a path without comparing it to every claim there is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::meet::{Case, key};
use super::{Claim, Claims};

/// The claims of many owners, sorted so that what a folder contains lies side by side.
///
/// Looking a claim up costs its own depth and what it finds.
#[derive(Clone, Debug)]
pub struct ClaimIndex<O> {
    case: Case,
    owners: BTreeMap<String, BTreeSet<O>>,
}

impl<O: Copy + Ord> ClaimIndex<O> {
    /// Returns an index that holds nothing.
    pub const fn new(case: Case) -> Self {
        Self {
            case,
            owners: BTreeMap::new(),
        }
    }

    /// Adds the claims of an owner that has none in it.
    pub fn insert(&mut self, owner: O, claims: &Claims) {
        for claim in claims.as_slice() {
            self.owners
                .entry(key(claim, self.case))
                .or_default()
                .insert(owner);
        }
    }

    /// Takes out the claims of an owner, all that it has in it.
    pub fn remove(&mut self, owner: O, claims: &Claims) {
        for claim in claims.as_slice() {
            let key = key(claim, self.case);
            if let Some(owners) = self.owners.get_mut(&key) {
                owners.remove(&owner);
                if owners.is_empty() {
                    self.owners.remove(&key);
                }
            }
        }
    }

    /// Returns the owners of claims that meet any of these.
    pub fn owners_meeting(&self, claims: &Claims) -> BTreeSet<O> {
        claims
            .as_slice()
            .iter()
            .flat_map(|claim| self.meeting(claim))
            .collect()
    }

    fn meeting(&self, claim: &Claim) -> Vec<O> {
        let key = key(claim, self.case);
        let inside = self
            .owners
            .range::<str, _>((Bound::Included(key.as_str()), Bound::Unbounded))
            .take_while(|(other, _)| other.starts_with(&key))
            .map(|(_, owners)| owners);
        let above = folders_above(&key).filter_map(|folder| self.owners.get(folder));
        above.chain(inside).flatten().copied().collect()
    }
}

/// Returns the keys of what contains this key, itself left out.
fn folders_above(key: &str) -> impl Iterator<Item = &str> {
    let closed = key.strip_suffix('/').map_or("", |open| open);
    let whole = (!key.is_empty()).then_some("");
    let folders = closed
        .match_indices('/')
        .filter_map(|(at, _)| closed.get(..=at));
    whole.into_iter().chain(folders)
}
