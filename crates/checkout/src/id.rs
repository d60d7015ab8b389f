//! The two ids that are derived from a place on disk, and the key that follows a repository about.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::str::FromStr;

const ID_BYTES: usize = 16;

/// The text is not 32 lower-case hex characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id of a checkout or repository is 32 hex characters")]
pub struct IdError;

/// Which checkout: 128 bits of the BLAKE3 hash of its canonical root, as hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckoutId([u8; ID_BYTES]);

/// Which repository on this machine: 128 bits of the BLAKE3 hash of its canonical common directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryId([u8; ID_BYTES]);

/// Which repository, wherever it is moved to: 128 random bits, minted at its first use on this
/// machine.
///
/// It is bound to the git common directory, so that every worktree has the one of its repository;
/// a clone or a fork has its own. [`crate::RepositoryKeys`] keeps the keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepositoryKey([u8; ID_BYTES]);

impl RepositoryKey {
    /// Returns the key of these bits.
    pub(crate) const fn of(bits: [u8; ID_BYTES]) -> Self {
        Self(bits)
    }
}

impl CheckoutId {
    /// Returns the id of the checkout with this canonical root.
    pub fn of(root: &Path) -> Self {
        Self(path_hash(root))
    }

    /// Returns the 128 bits.
    pub const fn as_bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }
}

impl RepositoryId {
    /// Returns the id of the repository with this canonical common directory.
    pub fn of(common_dir: &Path) -> Self {
        Self(path_hash(common_dir))
    }

    /// Returns the 128 bits.
    pub const fn as_bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }
}

impl fmt::Display for CheckoutId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(self.0, out)
    }
}

impl fmt::Display for RepositoryId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(self.0, out)
    }
}

impl fmt::Display for RepositoryKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(self.0, out)
    }
}

impl fmt::Debug for CheckoutId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CheckoutId({self})")
    }
}

impl fmt::Debug for RepositoryId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RepositoryId({self})")
    }
}

impl fmt::Debug for RepositoryKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RepositoryKey({self})")
    }
}

impl FromStr for CheckoutId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_hex(text).map(Self)
    }
}

impl FromStr for RepositoryId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_hex(text).map(Self)
    }
}

impl FromStr for RepositoryKey {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        parse_hex(text).map(Self)
    }
}

fn path_hash(path: &Path) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    let mut reader = blake3::Hasher::new()
        .update(path.as_os_str().as_bytes())
        .finalize_xof();
    reader.fill(&mut id);
    id
}

fn write_hex(id: [u8; ID_BYTES], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(out, "{:032x}", u128::from_be_bytes(id))
}

fn parse_hex(text: &str) -> Result<[u8; ID_BYTES], IdError> {
    let one_spelling = text.len() == 2 * ID_BYTES
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !one_spelling {
        return Err(IdError);
    }
    u128::from_str_radix(text, 16)
        .map(u128::to_be_bytes)
        .map_err(|_| IdError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_start_of_the_paths_blake3_hash() {
        let id = CheckoutId::of(Path::new("/r/a"));
        assert_eq!(id.to_string(), blake3::hash(b"/r/a").to_hex()[..32]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(
            RepositoryId::of(Path::new("/r/a")).to_string(),
            id.to_string()
        );
        assert_ne!(CheckoutId::of(Path::new("/r/b")), id);
    }

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let key = RepositoryKey::of([0x0f; 16]);
        assert_eq!(key.to_string(), "0f".repeat(16));
        assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn an_id_has_one_spelling() {
        for text in [
            "",
            "0",
            "+0000000000000000000000000000000",
            "0000000000000000000000000000000A",
        ] {
            assert_eq!(text.parse::<CheckoutId>(), Err(IdError), "{text:?}");
            assert_eq!(text.parse::<RepositoryId>(), Err(IdError), "{text:?}");
            assert_eq!(text.parse::<RepositoryKey>(), Err(IdError), "{text:?}");
        }
    }
}
