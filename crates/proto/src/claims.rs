//! Claims: the repository-relative paths that a peer expects to touch, and where they meet.
//!
//! # The one spelling of a claim
//!
//! A claim is a path and not a prefix of a string: `app` contains `app/x` and has nothing to do
//! with `apps`. It is read without looking at the file system, so what does not exist yet can be
//! claimed, and it is relative to the root of the checkout wherever its author stands.
//!
//! 1. The path is put into NFC. `/` alone separates; empty and `.` components fall away, `x/..`
//!    cancels out (by name: a symbolic link is not followed). Nothing left means the whole
//!    checkout, spelled `.`.
//! 2. A `**` as last component is dropped: `src/**` is `src`, `**` is `.`. Any other `*`, any `?`
//!    and a brace list such as `{a,b}` are refused: a claim names a file or a folder. `[slug]`,
//!    `(group)` and `{id}` are ordinary names.
//! 3. Refused are the empty string, an absolute path (whoever knows the root has made those inside
//!    it relative before), `..` beyond the root, and a first component `~`, which a shell would
//!    have replaced.
//! 4. Refused are control characters and characters that show nothing, but for the joiner and the
//!    emoji selector, which names of real files contain; and a claim that begins or ends with a
//!    blank, which is a slip far more often than a name.
//! 5. A backslash is part of a name, as on every Unix.
//!
//! Parsing a claim's own spelling yields that claim again.

mod index;
mod meet;

use std::collections::BTreeSet;
use std::fmt;

use unicode_normalization::UnicodeNormalization as _;

use crate::limits::{CLAIM_BYTES_MAX, CLAIMS_BYTES_MAX, CLAIMS_MAX, NOTICE_NAME_BYTES_MAX};
use crate::text::{Line, shows_nothing};

pub use index::ClaimIndex;
pub use meet::{Case, Pairs, meets, pairs};

/// The canonical form of the claim on the whole checkout.
const WHOLE: &str = ".";

/// One claimed path in its canonical spelling.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim(String);

/// A path that cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// There is no path.
    #[error("the path is empty: name a file or folder, or . for the whole checkout")]
    Empty,
    /// It is absolute, or climbs out of the root.
    #[error("the path is outside the checkout: name it relative to the checkout's root")]
    Outside,
    /// It begins at a home directory.
    #[error("~ is not expanded here: name the path relative to the checkout's root")]
    Home,
    /// It holds a pattern other than a last `/**`.
    #[error("of patterns only a last /** is taken: name each file, or the folder that holds them")]
    Pattern,
    /// It holds a control character or one that shows nothing.
    #[error("the path holds a character that is not shown: claim the folder that holds it")]
    Hidden,
    /// It begins or ends with a blank.
    #[error(
        "the path begins or ends with a blank: leave it out, or claim the folder that holds it"
    )]
    Blank,
    /// It is longer than a path may be.
    #[error("the path has {bytes} bytes and may have {bytes_max}: claim a folder above it")]
    TooLong {
        /// Bytes of the canonical form.
        bytes: usize,
        /// Bytes it may have.
        bytes_max: usize,
    },
}

impl Claim {
    /// Returns the claim that a path spells.
    pub fn parse(raw: &str) -> Result<Self, ClaimError> {
        if raw.is_empty() {
            return Err(ClaimError::Empty);
        }
        if holds_hidden(raw) {
            return Err(ClaimError::Hidden);
        }
        let path: String = raw.nfc().collect();
        if path.starts_with('/') {
            return Err(ClaimError::Outside);
        }
        let components = canonical_components(&path)?;
        if components.first() == Some(&"~") {
            return Err(ClaimError::Home);
        }
        let canonical = components.join("/");
        if canonical.len() > CLAIM_BYTES_MAX {
            let bytes = canonical.len();
            return Err(ClaimError::TooLong {
                bytes,
                bytes_max: CLAIM_BYTES_MAX,
            });
        }
        if canonical.trim() != canonical {
            return Err(ClaimError::Blank);
        }
        Ok(if canonical.is_empty() {
            Self(WHOLE.to_owned())
        } else {
            Self(canonical)
        })
    }

    /// Returns the canonical spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the names of the path from the root down, none for the whole checkout.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| *component != WHOLE)
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

/// Returns whether a path holds a character that may not stand in a claim for not being seen.
///
/// Names of files have joiners and emoji selectors, and what they join is seen. After a plain
/// letter, where no script needs them, they only make one name look like another.
fn holds_hidden(raw: &str) -> bool {
    const JOINER: char = '\u{200d}';
    const EMOJI_SELECTOR: char = '\u{fe0f}';
    let mut before = '/';
    raw.chars().any(|character| {
        let breaks_line = matches!(character, '\u{2028}' | '\u{2029}');
        let joins = match character {
            JOINER => !before.is_ascii(),
            // A digit, # or * with it is a keycap.
            EMOJI_SELECTOR => !before.is_ascii() || matches!(before, '0'..='9' | '#' | '*'),
            _ => false,
        };
        before = character;
        character.is_control() || breaks_line || (shows_nothing(character) && !joins)
    })
}

fn canonical_components(path: &str) -> Result<Vec<&str>, ClaimError> {
    let mut components = Vec::new();
    let mut said = path
        .split('/')
        .filter(|it| !it.is_empty() && *it != ".")
        .peekable();
    while let Some(component) = said.next() {
        match component {
            ".." if components.pop().is_some() => {}
            ".." => return Err(ClaimError::Outside),
            "**" if said.peek().is_none() => {}
            pattern if is_pattern(pattern) => return Err(ClaimError::Pattern),
            name => components.push(name),
        }
    }
    Ok(components)
}

fn is_pattern(component: &str) -> bool {
    let mut lists = component
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'));
    component.contains(['*', '?']) || lists.any(|(list, _)| list.contains(','))
}

/// The claims of one announcement: no two equal, in the order in which they were said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims(Vec<Claim>);

/// Paths that cannot be the claims of one announcement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    /// One of them cannot be claimed.
    #[error("{path:?} cannot be claimed", path = path.as_str())]
    Path {
        /// The path as it was said, cleaned and cut for display.
        path: Line,
        /// What is wrong with it.
        #[source]
        reason: ClaimError,
    },
    /// There are too many.
    #[error("more than {claims_max} different paths: claim the folders that hold them")]
    TooMany {
        /// How many there may be.
        claims_max: usize,
    },
    /// Together they are too long.
    #[error(
        "the paths have more than {bytes_max} bytes together: claim the folders that hold them"
    )]
    TooLong {
        /// Bytes they may have together.
        bytes_max: usize,
    },
}

impl Claims {
    /// Returns the claims that these paths spell.
    ///
    /// A path inside another one stays: it says more.
    pub fn parse<P: AsRef<str>>(paths: &[P]) -> Result<Self, ClaimsError> {
        let mut seen = BTreeSet::new();
        let mut claims = Vec::new();
        let mut bytes = 0;
        for path in paths.iter().map(AsRef::as_ref) {
            let claim = Claim::parse(path).map_err(|reason| ClaimsError::Path {
                path: Line::cut(path, NOTICE_NAME_BYTES_MAX),
                reason,
            })?;
            if !seen.insert(claim.clone()) {
                continue;
            }
            bytes += claim.0.len();
            claims.push(claim);
            if claims.len() > CLAIMS_MAX {
                return Err(ClaimsError::TooMany {
                    claims_max: CLAIMS_MAX,
                });
            }
        }
        if bytes > CLAIMS_BYTES_MAX {
            return Err(ClaimsError::TooLong {
                bytes_max: CLAIMS_BYTES_MAX,
            });
        }
        Ok(Self(claims))
    }

    /// Returns the claims in the order in which they were said.
    pub fn as_slice(&self) -> &[Claim] {
        &self.0
    }

    /// Returns those that `before` does not hold.
    pub(crate) fn added_to(&self, before: &Self) -> Self {
        Self(
            self.0
                .iter()
                .filter(|claim| !before.0.contains(claim))
                .cloned()
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests;
