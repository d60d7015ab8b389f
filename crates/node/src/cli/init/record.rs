//! What init put into a checkout, remembered outside of it, so that it can be taken out again.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    ops::Range,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    document::Margins,
    grown::{Grown, without},
    part::Part,
};
use crate::lease::sync_folder;

/// The form of the record. Another one is of another release, and not read.
const SCHEMA: u32 = 1;

/// What init put into one checkout.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    schema: u32,
    /// By the path of the file, relative to the root.
    pub(super) files: BTreeMap<String, FileRecord>,
}

/// What init put into one file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FileRecord {
    /// Whether there was no file before.
    pub(super) created: bool,
    /// The folders that were made for it.
    pub(super) folders: Vec<PathBuf>,
    /// The bytes that were put in, as long as nobody else edits the file.
    pub(super) exact: Option<Exact>,
    /// Each thing that was put in.
    pub(super) parts: Vec<PartRecord>,
}

/// Which bytes of a file were put in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Exact {
    /// The hash of the file before.
    before: String,
    /// And after.
    after: String,
    /// The ranges of the file after.
    own: Vec<Range<usize>>,
}

/// One thing that was put in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PartRecord {
    at: Vec<String>,
    value: Value,
    made: usize,
    before: String,
    behind: String,
}

impl Exact {
    /// Takes note of what grew out of a text.
    pub(super) fn of(before: &str, grown: &Grown) -> Self {
        Self {
            before: hash(before),
            after: hash(grown.text()),
            own: grown.own().to_vec(),
        }
    }

    /// Returns the file as it was before, if this is what it was after.
    pub(super) fn undone(&self, text: &str) -> Option<String> {
        if hash(text) != self.after {
            return None;
        }
        without(text, &self.own).filter(|rest| hash(rest) == self.before)
    }
}

impl PartRecord {
    /// Takes note of a part that was put in.
    pub(super) fn of(part: &Part, margins: &Margins) -> Self {
        Self {
            at: part.at.clone(),
            value: part.value.clone(),
            made: margins.made,
            before: margins.before.clone(),
            behind: margins.behind.clone(),
        }
    }

    /// Says whether it is about this part, whatever executable that named.
    pub(super) fn is_of(&self, part: &Part) -> bool {
        self.at == part.at
    }

    /// Returns the part as it was put in.
    pub(super) fn part(&self, like: &Part) -> Part {
        Part {
            value: self.value.clone(),
            ..like.clone()
        }
    }

    /// Returns what was put around it.
    pub(super) fn margins(&self) -> Margins {
        Margins {
            before: self.before.clone(),
            behind: self.behind.clone(),
            made: self.made,
        }
    }
}

impl Record {
    /// Reads the record of a checkout; `None` where there is none that can be read.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let bytes = fs_err::read(path).ok()?;
        let record: Self = serde_json::from_slice(&bytes).ok()?;
        (record.schema == SCHEMA).then_some(record)
    }

    /// Writes it, whole or not at all; one of nothing is removed.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        if self.files.is_empty() {
            return match fs_err::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            };
        }
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        let record = Self {
            schema: SCHEMA,
            files: self.files.clone(),
        };
        let bytes = serde_json::to_vec(&record).map_err(io::Error::other)?;
        let mut file = tempfile::Builder::new().tempfile_in(folder)?;
        file.write_all(&bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        sync_folder(folder)
    }
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
