//! One path per tree: which path a tree was first seen under on this machine.
//!
//! A tree that is reached by two canonical paths (a bind mount, another case on a file system that
//! folds case) must not get two ids. A small file in the state folder maps the device and inode of
//! each root to the path that it was first seen under. The path is believed only while it leads to
//! that device and inode, so that a number which the file system used again misleads nobody.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::checkout::Checkout;
use crate::resolve::resolve;
use crate::shared_file::{LockError, SharedFile};

/// Most roots that are remembered; the oldest give way.
const ROOTS_MAX: usize = 4_096;

const FILE_NAME: &str = "roots";

/// The format's name, as the first record.
const HEADER: &[u8] = b"earshot-roots 1";

/// Why the index gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum RootIndexError {
    /// The state folder cannot be used.
    #[error("the index of roots in the state folder cannot be used")]
    Io(#[from] io::Error),
    /// Another process has held the lock for longer than its work takes.
    #[error("{path} is locked by a process that does not let go of it", path = .0.display())]
    Busy(PathBuf),
}

impl From<LockError> for RootIndexError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Io(error) => Self::Io(error),
            LockError::Busy(path) => Self::Busy(path),
        }
    }
}

/// The map from trees to the paths they were first seen under.
#[derive(Clone, Debug)]
pub struct RootIndex {
    file: SharedFile,
}

impl RootIndex {
    /// Returns the index in a state folder, which must exist.
    pub fn new(state_folder: &Path) -> Self {
        Self {
            file: SharedFile::new(state_folder, FILE_NAME),
        }
    }

    /// Returns the checkout by the path that its tree was first seen under.
    ///
    /// # Errors
    ///
    /// [`RootIndexError`].
    pub fn settle(&self, checkout: Checkout) -> Result<Checkout, RootIndexError> {
        let root = self.canonical_root_for(&checkout.root, checkout.device, checkout.inode)?;
        if root == checkout.root {
            return Ok(checkout);
        }
        // Its git directories have to be told by the same path. Where that path has come to lead to
        // another checkout (a repository was made around a folder), it is not followed.
        match resolve(&root) {
            Ok(known) if known.device == checkout.device && known.inode == checkout.inode => {
                Ok(known)
            }
            _ => Ok(checkout),
        }
    }

    /// Returns the path that the tree with this device and inode was first seen under, as long as
    /// that path still leads to it; else `root`, which is remembered for the next caller.
    ///
    /// # Errors
    ///
    /// [`RootIndexError`]; damage to the file is none, its sound records count.
    pub fn canonical_root_for(
        &self,
        root: &Path,
        device: u64,
        inode: u64,
    ) -> Result<PathBuf, RootIndexError> {
        // The file is replaced as a whole, so reading needs no lock.
        if let Some(known) = first_seen(&self.records()?, device, inode) {
            return Ok(known);
        }
        let _lock = self.file.lock()?;
        let mut records = self.records()?;
        if let Some(known) = first_seen(&records, device, inode) {
            return Ok(known);
        }
        records.retain(|record| (record.0, record.1) != (device, inode) && record.2 != root);
        records.push((device, inode, root.to_path_buf()));
        let excess = records.len().saturating_sub(ROOTS_MAX);
        self.replace(&records[excess..])?;
        Ok(root.to_path_buf())
    }

    /// Returns the paths of all trees that were ever seen, the earliest first.
    ///
    /// # Errors
    ///
    /// When the file is there and cannot be read.
    pub fn roots(&self) -> io::Result<Vec<PathBuf>> {
        let records = self.records()?.into_iter();
        Ok(records.map(|(_, _, root)| root).collect())
    }

    fn records(&self) -> io::Result<Vec<(u64, u64, PathBuf)>> {
        match self.file.read() {
            Ok(content) => Ok(parse_root_records(&content.unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, records: &[(u64, u64, PathBuf)]) -> io::Result<()> {
        let mut content = HEADER.to_vec();
        content.push(0);
        for (device, inode, root) in records {
            content.extend_from_slice(format!("{device} {inode} ").as_bytes());
            content.extend_from_slice(root.as_os_str().as_bytes());
            content.push(0);
        }
        self.file.replace(&content)
    }
}

/// Returns the sound records of an index file: device, inode, absolute path.
///
/// Anything else in it is passed over: a record can always be made again.
pub fn parse_root_records(content: &[u8]) -> Vec<(u64, u64, PathBuf)> {
    let mut parts = content.split(|byte| *byte == 0);
    if parts.next() != Some(HEADER) {
        return Vec::new();
    }
    // What follows the last terminator is a torn record, or nothing.
    let mut records: Vec<_> = parts.collect();
    records.pop();
    records.into_iter().filter_map(parse_record).collect()
}

fn parse_record(record: &[u8]) -> Option<(u64, u64, PathBuf)> {
    let mut fields = record.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (device, inode) = (number()?, number()?);
    let root = Path::new(OsStr::from_bytes(fields.next()?));
    root.is_absolute()
        .then(|| (device, inode, root.to_path_buf()))
}

/// The recorded path of a tree, where it still leads to that tree.
fn first_seen(records: &[(u64, u64, PathBuf)], device: u64, inode: u64) -> Option<PathBuf> {
    let (.., root) = records
        .iter()
        .find(|record| (record.0, record.1) == (device, inode))?;
    let metadata = std::fs::metadata(root).ok()?;
    ((metadata.dev(), metadata.ino()) == (device, inode)).then(|| root.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sound_records_survive_damage() {
        let content = b"earshot-roots 1\x001 2 /r/a\x00rubbish\x003 x /r/b\x004 5 r/c\x006 7 /r/with space\x008 9 /r/to";
        let expected = [(1, 2, "/r/a".into()), (6, 7, "/r/with space".into())];
        assert_eq!(parse_root_records(content), expected);
        assert_eq!(parse_root_records(b"earshot-roots 2\x001 2 /r/a\x00"), []);
        assert_eq!(parse_root_records(b""), []);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            records in proptest::collection::vec((any::<u64>(), any::<u64>(), "/[a-z \n/]{0,12}"), 0..8),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let records: Vec<_> =
                records.into_iter().map(|(device, inode, root)| (device, inode, PathBuf::from(root))).collect();
            let index = RootIndex::new(folder.path());
            index.replace(&records).unwrap();
            prop_assert_eq!(index.records().unwrap(), records);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(content in proptest::collection::vec(any::<u8>(), 0..128)) {
            prop_assert!(parse_root_records(&content).iter().all(|record| record.2.is_absolute()));
        }
    }
}
