//! When two claims meet.

use unicode_normalization::UnicodeNormalization as _;

use super::{Claim, Claims};
use crate::limits::PAIRS_MAX;

/// Whether names that differ in case alone are one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// They are two.
    #[default]
    Kept,
    /// They are one: either side's checkout lies on a file system that ignores case.
    Folded,
}

impl Case {
    /// Returns the rule between this checkout and another: case folds when either side's does.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Kept, Self::Kept) => Self::Kept,
            (Self::Folded, _) | (_, Self::Folded) => Self::Folded,
        }
    }
}

/// The claims of two peers that meet, the first peer's first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// The first pairs, in the order in which the two said their claims.
    pub pairs: Vec<(Claim, Claim)>,
    /// How many more there are.
    pub more: usize,
}

/// Returns whether two claims are equal or one contains the other, by whole names.
pub fn meets(a: &Claim, b: &Claim, case: Case) -> bool {
    let (a, b) = (key(a, case), key(b, case));
    a.starts_with(&b) || b.starts_with(&a)
}

/// Returns the pairs of claims that meet, the first of them by name.
pub fn pairs(mine: &Claims, theirs: &Claims, case: Case) -> Pairs {
    let their_keys: Vec<String> = theirs
        .as_slice()
        .iter()
        .map(|claim| key(claim, case))
        .collect();
    let mut found = Pairs::default();
    for claim in mine.as_slice() {
        let my_key = key(claim, case);
        for (other, their_key) in theirs.as_slice().iter().zip(&their_keys) {
            if !my_key.starts_with(their_key) && !their_key.starts_with(&my_key) {
                continue;
            }
            if found.pairs.len() < PAIRS_MAX {
                found.pairs.push((claim.clone(), other.clone()));
            } else {
                found.more += 1;
            }
        }
    }
    found
}

/// Returns the claim with every name closed by `/`: of two claims one contains the other exactly
/// when its key begins the other's. The whole checkout's is empty.
pub(super) fn key(claim: &Claim, case: Case) -> String {
    let mut key = String::with_capacity(claim.as_str().len() + 1);
    for component in claim.components() {
        match case {
            Case::Kept => key.push_str(component),
            Case::Folded => key.extend(fold(component)),
        }
        key.push('/');
    }
    key
}

/// Folds case by going up and down again: `ß` joins `ss`, and both sigmas are one.
fn fold(name: &str) -> impl Iterator<Item = char> {
    name.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .nfc()
}
