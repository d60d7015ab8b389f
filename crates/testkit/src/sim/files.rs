//! The shell's work on `lease.lock`, `lease.json` and the alive file, one step at a time.

use earshot_proto::Now;
use earshot_proto::lease::{
    AliveLock, AliveName, Answer, Beat, Examination, FileId, FilesSeen, Input, LeaseDocument,
    LeaseToken, Parsed, Pid, ProcessFact, parse,
};

use super::Sabotage;
use super::disk::{DiskFull, Inode, ProcessId};
use super::process::{FileJob, Micros};
use super::world::{DATABASES, MS, World};

pub(super) const LEASE: &str = "lease.json";
pub(super) const LEASE_LOCK: &str = "lease.lock";
/// How often a locked `lease.lock` is tried.
const LOCK_POLL: Micros = 10 * MS;

/// What a step left to do.
enum Next {
    /// The job goes on, after this pause.
    More(FileJob, Micros),
    /// The job is done, with this result.
    Done(Option<Input>),
}

impl World {
    pub(super) fn take_file_step(&mut self, of: ProcessId) {
        self.processes[of].filing = false;
        let Some(job) = self.processes[of].files.pop_front() else {
            return;
        };
        let pause = self.latency();
        match self.file_step(of, job) {
            Ok(Next::More(job, pause)) => {
                self.processes[of].files.push_front(job);
                self.file_later(of, pause);
            }
            Ok(Next::Done(result)) => {
                if let Some(input) = result {
                    self.feed(of, input);
                }
                self.file_later(of, pause);
            }
            Err(DiskFull) => {
                self.feed(
                    of,
                    Input::FilesFailed {
                        why: "disk full".to_owned(),
                    },
                );
                self.file_later(of, pause);
            }
        }
    }

    fn file_step(&mut self, of: ProcessId, job: FileJob) -> Result<Next, DiskFull> {
        let result = match job {
            FileJob::Examine => Some(Input::Examined(self.examine(of, true))),
            FileJob::MakeAlive { made, stage } => return self.make_alive(of, made, stage),
            FileJob::LockLease {
                deadline,
                opened,
                locked,
            } => {
                let process = &self.processes[of];
                let expired = process.now(self.time) >= deadline;
                return self.lock_lease(of, (deadline, expired), opened, locked);
            }
            FileJob::WriteLease {
                document,
                file,
                stage,
            } => {
                return self.write_lease(of, document, file, stage);
            }
            FileJob::LockAliveLate => {
                if let Some((_, inode)) = self.processes[of].alive {
                    self.disk.lock(inode, of).ok();
                }
                None
            }
            FileJob::Unlock => {
                if let Some(inode) = self.processes[of].lease_lock.take() {
                    self.disk.unlock(inode, of);
                }
                None
            }
            FileJob::DropAlive => {
                if let Some((_, inode)) = self.processes[of].alive.take() {
                    self.disk.unlock(inode, of);
                }
                None
            }
            FileJob::Beat => {
                if let Some((_, inode)) = self.processes[of].alive {
                    self.disk.touch(inode);
                }
                None
            }
            FileJob::Look => Some(Input::FilesLooked(self.look_at_files(of))),
            FileJob::Exit => {
                self.kill(of);
                None
            }
        };
        Ok(Next::Done(result))
    }

    fn make_alive(
        &mut self,
        of: ProcessId,
        made: Option<(LeaseToken, Inode)>,
        stage: u8,
    ) -> Result<Next, DiskFull> {
        let temporary = format!("alive.tmp-{of}");
        let Some((token, inode)) = made else {
            let inode = self.disk.create(&temporary)?;
            let random = (u128::from(self.rng.next()) << 64) | u128::from(self.rng.next());
            let token = LeaseToken::from_random(random.to_be_bytes());
            let job = FileJob::MakeAlive {
                made: Some((token, inode)),
                stage: 1,
            };
            return Ok(Next::More(job, self.latency()));
        };
        match stage {
            1 => {
                self.processes[of].alive = Some((token.clone(), inode));
                if self.sabotage != Some(Sabotage::LockAfterLease) {
                    self.disk.lock(inode, of).ok();
                }
            }
            2 => self.disk.sync_file(inode),
            3 => self.disk.rename(&temporary, token.alive_name().as_str()),
            _ => {
                self.disk.sync_folder();
                return Ok(Next::Done(Some(Input::AliveMade {
                    token,
                    file: file_id(inode),
                })));
            }
        }
        let job = FileJob::MakeAlive {
            made: Some((token, inode)),
            stage: stage + 1,
        };
        Ok(Next::More(job, self.latency()))
    }

    fn lock_lease(
        &mut self,
        of: ProcessId,
        (deadline, expired): (Now, bool),
        opened: Option<Inode>,
        locked: bool,
    ) -> Result<Next, DiskFull> {
        let again = |opened, locked| FileJob::LockLease {
            deadline,
            opened,
            locked,
        };
        let Some(inode) = opened else {
            let opened = match self.disk.lookup(LEASE_LOCK) {
                Some(inode) => inode,
                None => self.disk.create(LEASE_LOCK)?,
            };
            return Ok(Next::More(again(Some(opened), false), self.latency()));
        };
        if !locked {
            return Ok(match self.disk.lock(inode, of) {
                Ok(()) => Next::More(again(opened, true), self.latency()),
                Err(holder) if expired => {
                    let holder = Some(Pid::new(self.processes[holder].pid));
                    Next::Done(Some(Input::LockBusy { holder }))
                }
                Err(_) => Next::More(again(opened, false), LOCK_POLL),
            });
        }
        if self.disk.lookup(LEASE_LOCK) != Some(inode) {
            self.disk.unlock(inode, of);
            return Ok(Next::More(again(None, false), self.latency()));
        }
        self.processes[of].lease_lock = Some(inode);
        let seen = self.examine(of, false);
        let fences = (0..DATABASES.len())
            .filter_map(|index| self.current(index))
            .filter_map(|inode| self.databases.get(&inode))
            .map(|database| database.committed().fence)
            .collect();
        Ok(Next::Done(Some(Input::LeaseLocked { seen, fences })))
    }

    fn write_lease(
        &mut self,
        of: ProcessId,
        document: Box<LeaseDocument>,
        file: Option<Inode>,
        stage: u8,
    ) -> Result<Next, DiskFull> {
        let temporary = format!("lease.tmp-{of}");
        let Some(inode) = file else {
            let inode = self.disk.create(&temporary)?;
            self.disk.write(inode, document.encode())?;
            let job = FileJob::WriteLease {
                document,
                file: Some(inode),
                stage: 1,
            };
            return Ok(Next::More(job, self.latency()));
        };
        match stage {
            1 => self.disk.sync_file(inode),
            2 => {
                // A deleted lock file lets another process lock a new one.
                if self.processes[of].lease_lock != self.disk.lookup(LEASE_LOCK) {
                    let why = "lease.lock was deleted".to_owned();
                    return Ok(Next::Done(Some(Input::FilesFailed { why })));
                }
                self.judge_lease(of, &document, inode);
                self.disk.rename(&temporary, LEASE);
            }
            _ => {
                self.disk.sync_folder();
                self.note_durable(&document);
                return Ok(Next::Done(Some(Input::LeaseWritten {
                    file: file_id(inode),
                })));
            }
        }
        let job = FileJob::WriteLease {
            document,
            file: Some(inode),
            stage: stage + 1,
        };
        Ok(Next::More(job, self.latency()))
    }

    /// Returns the lease as it can be read now.
    pub(super) fn lease(&self) -> Option<Parsed> {
        self.disk.read(LEASE).map(parse)
    }

    /// Returns whether the lease names this process's tenure.
    pub(super) fn is_named(&self, of: ProcessId) -> bool {
        let lease = self.lease();
        let named = lease.as_ref().and_then(Parsed::token);
        named.is_some() && named == self.processes[of].machine.token()
    }

    fn examine(&self, of: ProcessId, probe: bool) -> Examination {
        let lease = self.lease();
        let document = lease.as_ref().and_then(Parsed::document);
        let name = lease.as_ref().and_then(Parsed::alive);
        let alive = name.map_or(AliveLock::Missing, |name| self.try_alive(name));
        let beat = name
            .and_then(|name| self.disk.lookup(name.as_str()))
            .and_then(|inode| self.disk.beat(inode))
            .map(Beat::new);
        let process = document.map_or(ProcessFact::Unknown, |document| {
            if document.place == self.processes[of].place {
                self.look_for(document.process.pid, document.process.pid_start)
            } else {
                ProcessFact::Unknown
            }
        });
        let answer = match document {
            Some(document) if probe => self.probe(&document.token),
            Some(_) | None => Answer::NotAsked,
        };
        Examination {
            lease,
            alive,
            beat,
            process,
            answer,
            wall: self.wall(),
        }
    }

    pub(super) fn try_alive(&self, name: &AliveName) -> AliveLock {
        match self.disk.lookup(name.as_str()) {
            None => AliveLock::Missing,
            Some(inode) if self.disk.lock_holder(inode).is_some() => AliveLock::Held,
            Some(_) => AliveLock::Free,
        }
    }

    pub(super) fn look_for(&self, pid: Pid, start: u64) -> ProcessFact {
        match self.find(pid.number(), start) {
            Some(_) => ProcessFact::Running,
            None => ProcessFact::Gone,
        }
    }

    pub(super) fn find(&self, pid: i64, start: u64) -> Option<ProcessId> {
        self.living().into_iter().find(|of| {
            let process = &self.processes[*of];
            process.pid == pid && process.start == start
        })
    }

    fn probe(&self, token: &LeaseToken) -> Answer {
        let answers = self.socket.map(|of| &self.processes[of]).filter(|process| {
            process.runs() && process.listening && process.machine.token() == Some(token)
        });
        match answers {
            None => Answer::Silent,
            Some(process) => Answer::Answered {
                executable_replaced: process.executable_replaced,
            },
        }
    }

    /// Returns whether a name still leads to this file of a database.
    pub(super) fn is_in_place(&self, index: usize, inode: Inode) -> bool {
        self.files_of(index)
            .iter()
            .any(|(_, named)| *named == inode)
    }

    fn look_at_files(&self, of: ProcessId) -> FilesSeen {
        let process = &self.processes[of];
        let alive = process
            .alive
            .as_ref()
            .and_then(|(token, _)| self.disk.lookup(token.alive_name().as_str()));
        let databases_in_place = process
            .databases
            .iter()
            .all(|(index, inode)| self.is_in_place(*index, *inode));
        FilesSeen {
            lease: self.disk.lookup(LEASE).map(file_id),
            token: self.lease().as_ref().and_then(Parsed::token).cloned(),
            alive: alive.map(file_id),
            databases_in_place,
            socket_in_place: !process.listening || self.socket == Some(of),
        }
    }
}

const fn file_id(inode: Inode) -> FileId {
    FileId { device: 1, inode }
}
