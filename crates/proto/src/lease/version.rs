//! Which of two releases is newer.

use std::cmp::Ordering;
use std::fmt;

/// Longest version text that is looked at; release versions have some 20 characters.
const VERSION_BYTES_MAX: usize = 256;

/// The version of a release as a lease names it, ordered by the precedence of semantic versions.
///
/// The rule, for election, `ensure` and status alike:
///
/// - numbers by value, `1.0.0-alpha.10` above `1.0.0-alpha.9`, a release above its pre-releases;
/// - build metadata (`+…`) does not count;
/// - what is not a semantic version to the letter (`garbage`, nothing, `1.0`, a leading `v`, spaces
///   around it) is *unreadable*: older than every readable version and equal to every other
///   unreadable one.
///
/// Two values compare equal when neither is newer, whatever their text.
#[derive(Clone, Debug)]
pub struct ReleaseVersion {
    text: String,
    parsed: Option<semver::Version>,
}

impl ReleaseVersion {
    /// Returns the version that `text` names, unreadable ones included.
    pub fn new(text: &str) -> Self {
        let parsed = if text.len() > VERSION_BYTES_MAX {
            None
        } else {
            semver::Version::parse(text).ok()
        };
        Self {
            text: text.to_owned(),
            parsed,
        }
    }

    /// Returns whether the text is a semantic version.
    pub const fn is_readable(&self) -> bool {
        self.parsed.is_some()
    }

    /// Returns the text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Ord for ReleaseVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.parsed, &other.parsed) {
            (Some(own), Some(theirs)) => own.cmp_precedence(theirs),
            (own, theirs) => own.is_some().cmp(&theirs.is_some()),
        }
    }
}

impl PartialOrd for ReleaseVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ReleaseVersion {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ReleaseVersion {}

impl fmt::Display for ReleaseVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_ordered_by_semantic_precedence() {
        let rising = [
            "0.29.0",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.9",
            "1.0.0-alpha.10",
            "1.0.0-beta",
            "1.0.0",
            "1.0.1",
            "1.10.0",
            "2.0.0-rc.1",
        ];
        for pair in rising.windows(2) {
            let [older, newer] = pair else {
                panic!("a window of two")
            };
            assert!(
                ReleaseVersion::new(older) < ReleaseVersion::new(newer),
                "{older} < {newer}"
            );
        }
    }

    #[test]
    fn build_metadata_does_not_count() {
        assert_eq!(
            ReleaseVersion::new("1.0.0+build7"),
            ReleaseVersion::new("1.0.0")
        );
        assert_eq!(
            ReleaseVersion::new("1.0.0+a"),
            ReleaseVersion::new("1.0.0+b")
        );
    }

    #[test]
    fn an_unreadable_version_is_the_oldest_and_equals_its_like() {
        let oldest_readable = ReleaseVersion::new("0.0.0-0");
        let long = format!("1.0.0-{}", "a".repeat(VERSION_BYTES_MAX));
        for text in [
            "", "garbage", "v1.0.0", " 1.0.0", "1.0", "1.0.0.0", "01.0.0", "-1.0.0", &long,
        ] {
            let version = ReleaseVersion::new(text);
            assert!(!version.is_readable(), "{text}");
            assert!(version < oldest_readable, "{text}");
            assert_eq!(version, ReleaseVersion::new("other garbage"), "{text}");
        }
    }
}
