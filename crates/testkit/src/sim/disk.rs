//! A folder of files: names, inodes, locks by open file, and what a power loss leaves of them.

use std::collections::{BTreeMap, BTreeSet};

use super::rng::Rng;

/// An inode number.
pub(super) type Inode = u64;
/// Index of a process in the world; it owns the locks of the files that it opened.
pub(super) type ProcessId = usize;

/// The disk is full.
#[derive(Debug)]
pub(super) struct DiskFull;

/// One folder. Content and names have a durable and a current image; only fsync makes them equal.
#[derive(Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<Inode, File>,
    names: BTreeMap<String, Inode>,
    durable_names: BTreeMap<String, Inode>,
    next: Inode,
    full: bool,
}

#[derive(Debug, Default)]
struct File {
    content: Vec<u8>,
    durable: Vec<u8>,
    /// Modification time, as a count of touches.
    beat: u64,
    lock: Option<ProcessId>,
}

impl Disk {
    pub(super) const fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    /// Makes a new file under this name; what had the name before loses it.
    pub(super) fn create(&mut self, name: &str) -> Result<Inode, DiskFull> {
        if self.full {
            return Err(DiskFull);
        }
        self.next += 1;
        self.files.insert(self.next, File::default());
        self.names.insert(name.to_owned(), self.next);
        Ok(self.next)
    }

    pub(super) fn lookup(&self, name: &str) -> Option<Inode> {
        self.names.get(name).copied()
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.names.keys()
    }

    pub(super) fn read(&self, name: &str) -> Option<&[u8]> {
        self.files
            .get(&self.lookup(name)?)
            .map(|file| file.content.as_slice())
    }

    pub(super) fn write(&mut self, inode: Inode, content: Vec<u8>) -> Result<(), DiskFull> {
        if self.full {
            return Err(DiskFull);
        }
        let file = self.file(inode);
        file.content = content;
        file.beat += 1;
        Ok(())
    }

    pub(super) fn touch(&mut self, inode: Inode) {
        self.file(inode).beat += 1;
    }

    pub(super) fn beat(&self, inode: Inode) -> Option<u64> {
        self.files.get(&inode).map(|file| file.beat)
    }

    pub(super) fn sync_file(&mut self, inode: Inode) {
        let file = self.file(inode);
        file.durable.clone_from(&file.content);
    }

    pub(super) fn is_synced(&self, inode: Inode) -> bool {
        self.files
            .get(&inode)
            .is_some_and(|file| file.durable == file.content)
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        if let Some(inode) = self.names.remove(from) {
            self.names.insert(to.to_owned(), inode);
        }
    }

    pub(super) fn sync_folder(&mut self) {
        self.durable_names = self.names.clone();
    }

    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.names.remove(name).is_some()
    }

    /// Takes the lock for this process, or says who holds it.
    pub(super) fn lock(&mut self, inode: Inode, by: ProcessId) -> Result<(), ProcessId> {
        match self.file(inode).lock {
            Some(holder) if holder != by => Err(holder),
            Some(_) | None => {
                self.file(inode).lock = Some(by);
                Ok(())
            }
        }
    }

    pub(super) fn lock_holder(&self, inode: Inode) -> Option<ProcessId> {
        self.files.get(&inode)?.lock
    }

    pub(super) fn unlock(&mut self, inode: Inode, by: ProcessId) {
        let file = self.file(inode);
        if file.lock == Some(by) {
            file.lock = None;
        }
    }

    /// Closes every file of a process that died.
    pub(super) fn close_all(&mut self, of: ProcessId) {
        for file in self.files.values_mut() {
            if file.lock == Some(of) {
                file.lock = None;
            }
        }
    }

    /// Loses power: of what was not synced, any part may be left.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        let names: BTreeSet<String> = self
            .names
            .keys()
            .chain(self.durable_names.keys())
            .cloned()
            .collect();
        for name in names {
            let durable = self.durable_names.get(&name).copied();
            if self.lookup(&name) != durable && rng.chance(500) {
                match durable {
                    Some(inode) => self.names.insert(name, inode),
                    None => self.names.remove(&name),
                };
            }
        }
        for file in self.files.values_mut() {
            file.lock = None;
            if file.content != file.durable && rng.chance(700) {
                file.content.clone_from(&file.durable);
            }
            file.durable.clone_from(&file.content);
        }
        self.durable_names = self.names.clone();
    }

    fn file(&mut self, inode: Inode) -> &mut File {
        self.files.entry(inode).or_default()
    }
}
