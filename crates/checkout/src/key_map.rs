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

const NANOS_PER_SECOND: u128 = 1_000_000_000;

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
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Same,
    /// Nothing is known, or an overlay file system made the directory anew.
    Possible,
    Different,
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
        if origin == Origin::Different {
            return None;
        }
        let sure = origin == Origin::Same;
        if seen.device == now.device {
            let here = seen.path == now.path || leads(&seen.path, now.device, now.inode);
            return match (here, sure) {
                (true, true) => Some(Match::Here),
                (true, false) => Some(Match::PerhapsHere),
                (false, true) => Some(Match::Moved),
                (false, false) => None,
            };
        }
        if seen.path != now.path {
            return None;
        }
        if sure {
            return Some(Match::Remounted);
        }
        let mut later = self.records[index + 1..].iter();
        let last = later.all(|later| later.seen.path != now.path);
        last.then_some(Match::PerhapsRemounted)
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
    let time: u128 = text.parse().ok()?;
    let seconds = u64::try_from(time / NANOS_PER_SECOND).ok()?;
    let nanos = u32::try_from(time % NANOS_PER_SECOND).ok()?;
    Some(Duration::new(seconds, nanos))
}

/// The time of birth decides, where both know it; else the description does. An equal description
/// excuses another birth, but proves nothing against it: copies of one repository share it.
fn origin(seen: &CommonDirIdentity, now: &CommonDirIdentity) -> Origin {
    let equal = |(seen, now): (Duration, Duration)| seen == now;
    let born = seen.born.zip(now.born).map(equal);
    let described = seen.described.zip(now.described).map(equal);
    match (born, described) {
        (Some(true), _) | (None, Some(true)) => Origin::Same,
        (Some(false), Some(true)) | (None, None) => Origin::Possible,
        (Some(false), _) | (None, Some(false)) => Origin::Different,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dir(device: u64, inode: u64, path: &str, born: u64, described: u64) -> CommonDirIdentity {
        let time = |time| (time > 0).then(|| Duration::from_nanos(time));
        CommonDirIdentity {
            device,
            inode,
            path: path.into(),
            born: time(born),
            described: time(described),
        }
    }

    fn key(number: usize) -> RepositoryKey {
        RepositoryKey::of(bits(number))
    }

    fn bits(number: usize) -> [u8; 16] {
        (number as u128).to_be_bytes()
    }

    fn leads_nowhere(_: &Path, _: u64, _: u64) -> bool {
        false
    }

    fn record(number: usize, seen: CommonDirIdentity) -> Record {
        Record {
            key: key(number),
            seen,
            unknown: String::new(),
        }
    }

    /// Asks for directories one after the other; keys are numbered in the order of minting.
    fn check(leads: Leads<'_>, asked: &[(CommonDirIdentity, usize)]) -> KeyMap {
        let mut map = KeyMap::default();
        for (now, expected) in asked {
            let next = bits(map.records.len());
            assert_eq!(map.settle(now, leads, || next), key(*expected), "{now:?}");
            assert_eq!(map.known(now, leads), Some(key(*expected)), "{now:?}");
        }
        map
    }

    #[test]
    fn a_directory_is_known_by_what_is_sure() {
        let nowhere: Leads<'_> = &leads_nowhere;
        let first = (dir(1, 5, "/a", 10, 11), 0);
        for (again, expected) in [
            // The same; another inode, alone and with its times.
            (dir(1, 5, "/a", 10, 11), 0),
            (dir(1, 6, "/a", 20, 21), 1),
            (dir(1, 6, "/a", 10, 11), 1),
            // The inode was used again, at the same path and at another.
            (dir(1, 5, "/a", 20, 21), 1),
            (dir(1, 5, "/a", 20, 0), 1),
            (dir(1, 5, "/b", 20, 21), 1),
            // Moved; a copy that got the inode of the original is no move.
            (dir(1, 5, "/b", 10, 11), 0),
            (dir(1, 5, "/b", 10, 99), 0),
            (dir(1, 5, "/b", 20, 11), 1),
            (dir(1, 5, "/b", 0, 11), 0),
            (dir(1, 5, "/b", 0, 99), 1),
            (dir(1, 5, "/b", 0, 0), 1),
            // Written to on an overlay; a time that is not known for once.
            (dir(1, 5, "/a", 20, 11), 0),
            (dir(1, 5, "/a", 0, 0), 0),
            // Mounted anew; another disk at this place, that began with the same inode.
            (dir(2, 5, "/a", 10, 11), 0),
            (dir(2, 5, "/a", 20, 11), 0),
            (dir(2, 5, "/a", 0, 0), 0),
            (dir(2, 5, "/a", 20, 21), 1),
            (dir(2, 6, "/a", 10, 11), 1),
            (dir(2, 5, "/b", 10, 11), 1),
        ] {
            let map = check(nowhere, &[first.clone(), (again.clone(), expected)]);
            let now = &map.records.last().unwrap().seen;
            assert_eq!(
                (now.device, &now.path),
                (again.device, &again.path),
                "{again:?}"
            );
        }
    }

    #[test]
    fn another_path_of_a_directory_that_is_still_there_moves_nothing() {
        let both: Leads<'_> = &|_, device, inode| (device, inode) == (1, 5);
        for (born, described) in [(10, 11), (0, 11), (0, 0), (20, 11)] {
            let (first, second) = (dir(1, 5, "/a", 10, 11), dir(1, 5, "/b", born, described));
            let map = check(both, &[(first.clone(), 0), (second, 0), (first, 0)]);
            assert_eq!(map.records[0].seen.path, Path::new("/a"));
        }
    }

    #[test]
    fn a_time_once_known_is_not_forgotten() {
        let nowhere: Leads<'_> = &leads_nowhere;
        let silent = dir(1, 5, "/a", 0, 0);
        for (born, described) in [(10, 0), (0, 11), (10, 11)] {
            let known = dir(1, 5, "/a", born, described);
            let reused = dir(1, 5, "/a", 2 * born, 2 * described);
            check(nowhere, &[(known, 0), (silent.clone(), 0), (reused, 1)]);
        }
    }

    #[test]
    fn what_another_took_the_path_of_comes_back_only_with_its_times() {
        let nowhere: Leads<'_> = &leads_nowhere;
        let (first, second) = (dir(1, 5, "/a", 10, 0), dir(1, 6, "/a", 20, 0));
        let (back, doubtful) = (dir(2, 5, "/a", 10, 0), dir(3, 6, "/a", 0, 0));
        check(
            nowhere,
            &[(first, 0), (second, 1), (back, 0), (doubtful, 2)],
        );
        let (first, second) = (dir(1, 5, "/a", 0, 0), dir(1, 6, "/a", 0, 0));
        let (silent, last) = (dir(2, 5, "/a", 0, 0), dir(2, 6, "/a", 0, 0));
        check(
            nowhere,
            &[(first.clone(), 0), (second.clone(), 1), (silent, 2)],
        );
        check(nowhere, &[(first, 0), (second, 1), (last, 1)]);
    }

    #[test]
    fn only_what_is_gone_gives_way_oldest_first() {
        let records = (0..4).map(|number| record(number, dir(1, number as u64, "/p", 0, 0)));
        let full = KeyMap {
            records: records.collect(),
        };
        let bytes = full.encode().len();
        let each = (bytes - header().len()) / 4;
        for (bytes_max, gone, left, fits) in [
            (bytes, vec![0, 1, 2, 3], vec![0, 1, 2, 3], true),
            (bytes - 1, vec![1, 2, 3], vec![0, 2, 3], true),
            (bytes - each - 1, vec![0, 2, 3], vec![1, 3], true),
            (bytes - each, vec![2], vec![0, 1, 3], true),
            (bytes - each - 1, vec![2], vec![0, 1, 3], false),
        ] {
            let mut map = KeyMap {
                records: full.records.clone(),
            };
            let shrunk = map.shrink(bytes_max, &|_, _, inode| !gone.contains(&inode));
            assert_eq!(shrunk, fits, "{gone:?}");
            let keys: Vec<_> = map.records.iter().map(|record| record.key).collect();
            assert_eq!(keys, left.into_iter().map(key).collect::<Vec<_>>());
        }
    }

    #[test]
    fn sound_records_survive_damage() {
        let one = "00000000000000000000000000000001 1 5 born=10 described=11 /a b\n/c";
        let sound = record(1, dir(1, 5, "/a b\n/c", 10, 11));
        for (content, sound, damaged) in [
            (
                format!("earshot-repository-keys 1\0{one}\0"),
                vec![&sound],
                false,
            ),
            (
                format!("earshot-repository-keys 1\0{one}\0{one}"),
                vec![&sound],
                true,
            ),
            (
                format!("earshot-repository-keys 1\0rubbish\0{one}\0"),
                vec![&sound],
                true,
            ),
            (
                format!("earshot-repository-keys 1\x000{one}\0{one}\0"),
                vec![&sound],
                true,
            ),
            (
                format!("earshot-repository-keys 1\0{}\0", one.replace("=10", "=x")),
                vec![],
                true,
            ),
            (
                format!("earshot-repository-keys 1\0{}\0", one.replace('/', "")),
                vec![],
                true,
            ),
            (format!("earshot-repository-keys 0\0{one}\0"), vec![], true),
            (format!("earshot-repository-keys\0{one}\0"), vec![], true),
            (one.to_owned(), vec![], true),
            ("\0\0\0".to_owned(), vec![], true),
            ("earshot-repository-keys 1\0".to_owned(), vec![], false),
            (String::new(), vec![], false),
        ] {
            let (map, found) = KeyMap::parse(content.as_bytes()).unwrap();
            assert_eq!(map.records.iter().collect::<Vec<_>>(), sound, "{content:?}");
            assert_eq!(found, damaged, "{content:?}");
        }
        assert_eq!(
            KeyMap::parse(b"earshot-repository-keys 2\0x"),
            Err(NewerFormat)
        );
    }

    #[test]
    fn fields_of_a_later_release_are_kept() {
        let content = format!(
            "earshot-repository-keys 1\0{} 1 5 born=10 hint=ab x= /a\0",
            key(1)
        );
        let (mut map, damaged) = KeyMap::parse(content.as_bytes()).unwrap();
        assert!(!damaged);
        assert_eq!(map.encode(), content.as_bytes());
        let moved = dir(1, 5, "/b", 10, 11);
        assert_eq!(map.settle(&moved, &leads_nowhere, || bits(9)), key(1));
        let text = String::from_utf8(map.encode()).unwrap();
        assert!(
            text.ends_with(" born=10 described=11 hint=ab x= /b\0"),
            "{text:?}"
        );
    }

    fn time() -> impl Strategy<Value = Option<Duration>> {
        let time = (any::<u64>(), 0..1_000_000_000_u32);
        proptest::option::of(time.prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)))
    }

    prop_compose! {
        fn any_record()(
            bits in any::<[u8; 16]>(),
            device in any::<u64>(),
            inode in any::<u64>(),
            path in proptest::collection::vec(1..=u8::MAX, 0..12),
            born in time(),
            described in time(),
        ) -> Record {
            let path = OsStr::from_bytes(&[b"/", &path[..]].concat()).into();
            let seen = CommonDirIdentity { device, inode, path, born, described };
            Record { key: RepositoryKey::of(bits), seen, unknown: String::new() }
        }
    }

    /// What happens to directories between two looks at the map.
    #[derive(Clone, Debug)]
    enum Event {
        Make(usize),
        Remove(usize),
        Move(usize, usize),
        Write(usize),
        Remount,
        Look(usize),
    }

    const PLACES: usize = 4;

    fn event() -> impl Strategy<Value = Event> {
        let place = || 0..PLACES;
        prop_oneof![
            place().prop_map(Event::Make),
            place().prop_map(Event::Remove),
            (place(), place()).prop_map(|(from, to)| Event::Move(from, to)),
            place().prop_map(Event::Write),
            Just(Event::Remount),
            place().prop_map(Event::Look),
        ]
    }

    /// A file system that gives a free inode to the next directory.
    struct World {
        places: [Option<(usize, CommonDirIdentity)>; PLACES],
        made: usize,
        device: u64,
        births: bool,
        descriptions: bool,
    }

    impl World {
        fn handle(&mut self, event: &Event) {
            match *event {
                Event::Make(at) if self.places[at].is_none() => {
                    self.made += 1;
                    let time = 1_000 * self.made as u64;
                    let taken = |inode| {
                        let mut there = self.places.iter().flatten();
                        there.any(|(_, dir)| dir.inode == inode)
                    };
                    let inode = (1..=PLACES as u64).find(|inode| !taken(*inode)).unwrap();
                    let births = u64::from(self.births);
                    let descriptions = u64::from(self.descriptions);
                    let path = format!("/{at}");
                    let dir = dir(
                        self.device,
                        inode,
                        &path,
                        births * time,
                        descriptions * time,
                    );
                    self.places[at] = Some((self.made, dir));
                }
                Event::Remove(at) => self.places[at] = None,
                Event::Move(from, to) if self.places[to].is_none() => {
                    self.places[to] = self.places[from].take().map(|(made, dir)| {
                        let path = format!("/{to}").into();
                        (made, CommonDirIdentity { path, ..dir })
                    });
                }
                Event::Write(at) if self.descriptions => {
                    if let Some((
                        _,
                        CommonDirIdentity {
                            born: Some(born), ..
                        },
                    )) = &mut self.places[at]
                    {
                        *born += Duration::from_nanos(1);
                    }
                }
                Event::Remount => {
                    self.device += 1;
                    for (_, dir) in self.places.iter_mut().flatten() {
                        dir.device = self.device;
                    }
                }
                Event::Make(_) | Event::Move(..) | Event::Write(_) | Event::Look(_) => {}
            }
        }

        fn look(
            &self,
            at: usize,
            map: &mut KeyMap,
            minted: &mut usize,
        ) -> Option<(usize, RepositoryKey)> {
            let (made, now) = self.places[at].as_ref()?;
            let leads = |path: &Path, device: u64, inode: u64| {
                let mut there = self.places.iter().flatten();
                there.any(|(_, dir)| dir.path == path && (dir.device, dir.inode) == (device, inode))
            };
            let key = map.settle(now, &leads, || {
                *minted += 1;
                bits(*minted)
            });
            Some((*made, key))
        }
    }

    proptest! {
        #[test]
        fn no_repository_ever_gets_the_key_of_another(
            events in proptest::collection::vec(event(), 0..40),
            (births, descriptions) in prop::sample::select(vec![(true, true), (true, false), (false, true)]),
            attentive in any::<bool>(),
        ) {
            let mut world = World { places: Default::default(), made: 0, device: 1, births, descriptions };
            let (mut map, mut minted) = (KeyMap::default(), 0);
            let mut owners = std::collections::BTreeMap::new();
            for event in events {
                world.handle(&event);
                for at in 0..PLACES {
                    if !attentive && !matches!(event, Event::Look(looked) if looked == at) {
                        continue;
                    }
                    if let Some((made, key)) = world.look(at, &mut map, &mut minted) {
                        prop_assert_eq!(*owners.entry(key).or_insert(made), made);
                    }
                }
            }
            // One that is looked at after every change keeps its key.
            if attentive {
                let distinct: std::collections::BTreeSet<_> = owners.values().collect();
                prop_assert_eq!(distinct.len(), owners.len());
            }
        }

        #[test]
        fn what_is_written_is_read(records in proptest::collection::vec(any_record(), 0..6)) {
            let map = KeyMap { records };
            prop_assert_eq!(KeyMap::parse(&map.encode()), Ok((map, false)));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            rubbish in proptest::collection::vec(any::<u8>(), 0..128),
            headed in any::<bool>(),
        ) {
            let content = if headed { [header(), rubbish].concat() } else { rubbish };
            if let Ok((map, _)) = KeyMap::parse(&content) {
                prop_assert!(map.records.iter().all(|record| record.seen.path.is_absolute()));
            }
        }

        #[test]
        fn a_flipped_or_torn_file_is_read_without_a_panic(
            records in proptest::collection::vec(any_record(), 1..4),
            at in any::<prop::sample::Index>(),
            flip in any::<u8>(),
            torn in any::<bool>(),
        ) {
            let mut content = KeyMap { records }.encode();
            let at = at.index(content.len());
            content[at] ^= flip;
            content.truncate(if torn { at } else { content.len() });
            if let Ok((map, false)) = KeyMap::parse(&content) {
                prop_assert_eq!(KeyMap::parse(&map.encode()), Ok((map, false)));
            }
        }
    }
}
