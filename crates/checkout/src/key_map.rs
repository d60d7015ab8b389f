//! Which key belongs to which common directory: the decision, and the text it is kept in.
//!
//! A record is believed by the strongest thing that it and the directory have in common:
//!
//! 1. The same device and inode at the same place (the recorded path, or another path while the
//!    recorded one leads to the same directory too): it is that directory, unless its origin is
//!    another (the inode was used again). The path stays as it was first recorded.
//! 2. The same device and inode at another path, and surely the same origin: it was moved.
//! 3. The same path and inode on another device, as numbers of devices change: it was mounted anew.
//!    Where the origin says nothing sure, only the record that came to this path last counts.
//!
//! Everything else is a repository that was not seen before. A record that another one has taken
//! the path of stays, so that a person can adopt what was kept under its key.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::checkout::CommonDirIdentity;
use crate::id::RepositoryKey;

const FORMAT: &[u8] = b"earshot-repository-keys ";
const VERSION: u32 = 1;

/// Whether a path leads to the directory with this device and inode.
pub(crate) type Leads<'a> = &'a dyn Fn(&Path, u64, u64) -> bool;

/// The file is of a format that a later release writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewerFormat;

/// One repository: its key, and what its common directory was last seen to be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    key: RepositoryKey,
    seen: CommonDirIdentity,
    /// Fields of a later release, ` name=value` each: kept as they are.
    unknown: String,
}

/// All repositories; the one that was touched last comes last.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyMap {
    records: Vec<Record>,
}

/// What the times of a record and of a directory say about each other.
enum Origin {
    Same,
    /// Made anew by an overlay file system, or put back from a copy.
    Copied,
    Different,
    Unknown,
}

/// How surely a record is a directory's, weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    PerhapsRemounted,
    PerhapsHere,
    Remounted,
    Moved,
    Here,
}

impl KeyMap {
    /// Returns the sound records of a file, and whether there was anything else in it.
    pub(crate) fn parse(content: &[u8]) -> Result<(Self, bool), NewerFormat> {
        let mut parts: Vec<_> = content.split(|byte| *byte == 0).collect();
        // What follows the last terminator is a torn record, or nothing.
        let torn = parts.pop().is_some_and(|rest| !rest.is_empty());
        let version = parts.first().and_then(|header| parse_version(header));
        if version.is_some_and(|version| version > VERSION) {
            return Err(NewerFormat);
        }
        if version != Some(VERSION) {
            return Ok((Self::default(), !content.is_empty()));
        }
        let records: Vec<_> = parts[1..]
            .iter()
            .filter_map(|part| Record::parse(part))
            .collect();
        let damaged = torn || records.len() + 1 < parts.len();
        Ok((Self { records }, damaged))
    }

    /// Returns the text that [`Self::parse`] reads.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut content = header();
        for record in &self.records {
            content.append(&mut record.encode());
        }
        content
    }

    /// Returns the key of a directory that is known and has not changed.
    pub(crate) fn known(&self, now: &CommonDirIdentity, leads: Leads<'_>) -> Option<RepositoryKey> {
        let (index, record) = self.find(now, leads)?;
        (record == self.records[index]).then_some(record.key)
    }

    /// Returns the key of a directory after writing down what has changed, and mints one for a
    /// directory that is not known.
    pub(crate) fn settle(
        &mut self,
        now: &CommonDirIdentity,
        leads: Leads<'_>,
        mint: impl FnOnce() -> [u8; 16],
    ) -> RepositoryKey {
        let record = if let Some((index, record)) = self.find(now, leads) {
            self.records.remove(index);
            record
        } else {
            let key = RepositoryKey::of(mint());
            assert!(
                self.records.iter().all(|record| record.key != key),
                "a minted key is random, so no other repository has it"
            );
            Record {
                key,
                seen: now.clone(),
                unknown: String::new(),
            }
        };
        let key = record.key;
        self.records.push(record);
        key
    }

    /// Drops what leads nowhere any more, oldest first, until the text has at most this many bytes.
    ///
    /// Returns whether it has now.
    pub(crate) fn shrink(&mut self, bytes_max: usize, leads: Leads<'_>) -> bool {
        let sizes = self.records.iter().map(|record| record.encode().len());
        let mut bytes = header().len() + sizes.sum::<usize>();
        self.records.retain(|record| {
            let seen = &record.seen;
            let kept = bytes <= bytes_max || leads(&seen.path, seen.device, seen.inode);
            if !kept {
                bytes -= record.encode().len();
            }
            kept
        });
        bytes <= bytes_max
    }

    /// The record of a directory, as it has to be from now on.
    fn find(&self, now: &CommonDirIdentity, leads: Leads<'_>) -> Option<(usize, Record)> {
        let candidates = self
            .records
            .iter()
            .enumerate()
            .filter_map(|(index, record)| {
                Some((self.match_of(index, record, now, leads)?, index, record))
            });
        // Of several equally sure ones, the one that was touched last.
        let (found, index, record) = candidates.max_by_key(|(found, index, _)| (*found, *index))?;
        let mut record = record.clone();
        record.seen.device = now.device;
        record.seen.born = now.born.or(record.seen.born);
        record.seen.described = now.described.or(record.seen.described);
        if found == Match::Moved {
            record.seen.path.clone_from(&now.path);
        }
        Some((index, record))
    }

    fn match_of(
        &self,
        index: usize,
        record: &Record,
        now: &CommonDirIdentity,
        leads: Leads<'_>,
    ) -> Option<Match> {
        let seen = &record.seen;
        if seen.inode != now.inode {
            return None;
        }
        let origin = origin(seen, now);
        if seen.device == now.device {
            let here = seen.path == now.path || leads(&seen.path, now.device, now.inode);
            return match origin {
                Origin::Same if here => Some(Match::Here),
                Origin::Same => Some(Match::Moved),
                Origin::Copied | Origin::Unknown if here => Some(Match::PerhapsHere),
                Origin::Copied | Origin::Unknown | Origin::Different => None,
            };
        }
        if seen.path != now.path {
            return None;
        }
        match origin {
            Origin::Same => Some(Match::Remounted),
            Origin::Copied | Origin::Unknown => {
                let mut later = self.records[index + 1..].iter();
                let last = later.all(|later| later.seen.path != now.path);
                last.then_some(Match::PerhapsRemounted)
            }
            Origin::Different => None,
        }
    }
}

impl Record {
    fn parse(part: &[u8]) -> Option<Self> {
        // No field before the path has a slash in it.
        let path_at = part.windows(2).position(|pair| pair == b" /")? + 1;
        let fields = std::str::from_utf8(&part[..path_at - 1]).ok()?;
        let mut fields = fields.split(' ');
        let key = fields.next()?.parse().ok()?;
        let mut seen = CommonDirIdentity {
            device: fields.next()?.parse().ok()?,
            inode: fields.next()?.parse().ok()?,
            path: PathBuf::from(OsStr::from_bytes(&part[path_at..])),
            born: None,
            described: None,
        };
        let mut unknown = String::new();
        for field in fields {
            let (name, value) = field.split_once('=')?;
            match name {
                "born" => seen.born = Some(parse_time(value)?),
                "described" => seen.described = Some(parse_time(value)?),
                _ => unknown.push_str(&format!(" {field}")),
            }
        }
        Some(Self { key, seen, unknown })
    }

    fn encode(&self) -> Vec<u8> {
        let Self { key, seen, unknown } = self;
        let mut text = format!("{key} {} {}", seen.device, seen.inode);
        for (name, time) in [("born", seen.born), ("described", seen.described)] {
            if let Some(time) = time {
                text.push_str(&format!(" {name}={}", time.as_nanos()));
            }
        }
        text.push_str(unknown);
        text.push(' ');
        let path = seen.path.clone().into_os_string().into_vec();
        [text.into_bytes(), path, vec![0]].concat()
    }
}

fn header() -> Vec<u8> {
    [FORMAT, VERSION.to_string().as_bytes(), &[0]].concat()
}

fn parse_version(header: &[u8]) -> Option<u32> {
    let version = header.strip_prefix(FORMAT)?;
    std::str::from_utf8(version).ok()?.parse().ok()
}

fn parse_time(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_nanos)
}

/// The time of birth decides. Where one is not known, the description does; where they disagree,
/// the description alone is no proof, because copies of one repository share it.
fn origin(seen: &CommonDirIdentity, now: &CommonDirIdentity) -> Origin {
    let described = seen
        .described
        .zip(now.described)
        .map(|(seen, now)| seen == now);
    let born = seen.born.zip(now.born).map(|(seen, now)| seen == now);
    match (born, described) {
        (Some(true), _) | (None, Some(true)) => Origin::Same,
        (Some(false), Some(true)) => Origin::Copied,
        (Some(false), _) | (None, Some(false)) => Origin::Different,
        (None, None) => Origin::Unknown,
    }
}
