//! The shell's work that runs beside: socket, predecessors, fence, import, drain.

use earshot_proto::lease::{Epoch, Input, Predecessor, PredecessorSeen, ProcessFact};

use super::database::{Database, Tables};
use super::disk::{DiskFull, Inode, ProcessId};
use super::process::{Locked, Work};
use super::world::{DATABASES, World};

impl World {
    pub(super) fn take_work_step(&mut self, of: ProcessId, number: u64) {
        let Some(work) = self.processes[of].works.remove(&number) else {
            return;
        };
        match work {
            Work::BindSocket { epoch } => {
                self.socket = Some(of);
                self.processes[of].listening = true;
                self.feed(of, Input::SocketBound { epoch });
            }
            Work::Look {
                epoch,
                predecessors,
            } => {
                let place = &self.processes[of].place;
                let seen = predecessors
                    .iter()
                    .map(|predecessor| PredecessorSeen {
                        token: predecessor.token.clone(),
                        alive: self.try_alive(&predecessor.alive),
                        process: match predecessor.process {
                            Some(process) if predecessor.place.as_ref() == Some(place) => {
                                self.look_for(process.pid, process.pid_start)
                            }
                            Some(_) | None => ProcessFact::Unknown,
                        },
                    })
                    .collect();
                self.feed(of, Input::PredecessorsLooked { epoch, seen });
            }
            Work::Kill { pid, predecessor } => {
                if let Some(target) = self.proven(i64::from(pid), &predecessor) {
                    self.judge_kill(of, target, &predecessor.token);
                    self.kill(target);
                }
            }
            Work::RaiseFence {
                epoch,
                index,
                begun,
                locked,
            } => {
                self.raise_fence(of, number, epoch, (index, begun), locked);
            }
            Work::Import { epoch } => self.feed(of, Input::Imported { epoch }),
            Work::BindListeners { epoch } => {
                self.feed(
                    of,
                    Input::ListenersBound {
                        epoch,
                        url: None,
                        quic: None,
                    },
                );
            }
            Work::Drain { epoch, deadline } => {
                self.processes[of].serving = false;
                self.turn_away_queue(of);
                let process = &self.processes[of];
                if process.execution.is_none() || process.now(self.time) >= deadline {
                    self.stop_writes(of);
                    self.feed(of, Input::Drained { epoch });
                } else {
                    self.processes[of]
                        .works
                        .insert(number, Work::Drain { epoch, deadline });
                    self.work_later(of, number);
                }
            }
        }
    }

    /// Returns the process that holds this tenure: by its lock, else by its start time.
    fn proven(&self, pid: i64, predecessor: &Predecessor) -> Option<ProcessId> {
        match self.disk.lookup(predecessor.alive.as_str()) {
            Some(inode) => self
                .disk
                .lock_holder(inode)
                .filter(|of| self.processes[*of].pid == pid),
            None => self.find(pid, predecessor.process?.pid_start),
        }
    }

    /// Raises the fence in one database after the other, each in a transaction of its own.
    fn raise_fence(
        &mut self,
        of: ProcessId,
        number: u64,
        epoch: Epoch,
        (index, begun): (usize, Option<Inode>),
        locked: Locked,
    ) {
        if index >= DATABASES.len() {
            self.feed(of, Input::FenceRaised { epoch });
            return;
        }
        let raised = match (begun, locked) {
            (None, locked) if self.processes[of].databases.contains_key(&index) => {
                Ok((index + 1, None, locked))
            }
            (None, Locked::Copied(from, tables)) => self
                .show_copy(of, epoch, index, (from, *tables))
                .map(|()| (index + 1, None, Locked::Leave)),
            (None, locked) => self.begin_raise(of, epoch, index, locked),
            (Some(inode), locked) => self
                .write_fence(of, epoch, index, inode)
                .map(|()| (index + 1, None, locked)),
        };
        match raised {
            Err(input) => self.feed(of, *input),
            Ok((index, begun, locked)) => {
                let work = Work::RaiseFence {
                    epoch,
                    index,
                    begun,
                    locked,
                };
                self.processes[of].works.insert(number, work);
                self.work_later(of, number);
            }
        }
    }

    /// Opens a database's current file, and begins a transaction in it or copies it.
    fn begin_raise(
        &mut self,
        of: ProcessId,
        epoch: Epoch,
        index: usize,
        locked: Locked,
    ) -> Result<(usize, Option<Inode>, Locked), Box<Input>> {
        let inode = match self.current(index) {
            Some(inode) => inode,
            None => self
                .disk
                .create(DATABASES[index])
                .map_err(|DiskFull| disk_full(epoch))?,
        };
        let database = self.database(inode);
        if database.begin(of) {
            return Ok((index, Some(inode), locked));
        }
        match locked {
            Locked::Wait => Err(Box::new(Input::FenceBusy { epoch })),
            Locked::Leave | Locked::Copied(..) => {
                let copy = Box::new(database.committed().clone());
                Ok((index, None, Locked::Copied(inode, copy)))
            }
        }
    }

    fn write_fence(
        &mut self,
        of: ProcessId,
        epoch: Epoch,
        index: usize,
        inode: Inode,
    ) -> Result<(), Box<Input>> {
        let full = self.disk.is_full();
        let database = self.database(inode);
        // Rolled back by the end of the tenure, which took this work with it.
        let Some(tables) = database.writing(of) else {
            return Err(Box::new(Input::FenceBusy { epoch }));
        };
        if tables.fence >= epoch {
            database.roll_back(of);
            return Err(Box::new(Input::FenceHigher { epoch }));
        }
        if full {
            database.roll_back(of);
            return Err(disk_full(epoch));
        }
        tables.fence = epoch;
        database.commit(of);
        self.judge_fence(inode, epoch);
        self.processes[of].databases.insert(index, inode);
        self.remove_left_behind(index, inode);
        Ok(())
    }

    /// Gives the copy of a database its name, with the fence raised in it.
    fn show_copy(
        &mut self,
        of: ProcessId,
        epoch: Epoch,
        index: usize,
        (from, mut tables): (Inode, Tables),
    ) -> Result<(), Box<Input>> {
        if tables.fence >= epoch {
            return Err(Box::new(Input::FenceHigher { epoch }));
        }
        tables.fence = epoch;
        let name = format!("{}.{epoch}", DATABASES[index]);
        let inode = self
            .disk
            .create(&name)
            .map_err(|DiskFull| disk_full(epoch))?;
        self.disk.sync_folder();
        self.databases.insert(inode, Database::restored(tables));
        self.judge_fence(inode, epoch);
        if self.current(index) == Some(inode) {
            self.ledger.leave_behind(from, inode);
        }
        self.processes[of].databases.insert(index, inode);
        Ok(())
    }

    /// Removes the files of a database that were left behind and that nobody has locked any more.
    fn remove_left_behind(&mut self, index: usize, current: Inode) {
        for (name, inode) in self.files_of(index) {
            if inode != current && !self.database(inode).is_locked() {
                self.disk.remove(&name);
            }
        }
    }

    /// Returns the files of a database, with their names.
    pub(super) fn files_of(&self, index: usize) -> Vec<(String, Inode)> {
        let names = self.disk.names();
        names
            .filter(|name| name.starts_with(DATABASES[index]))
            .filter_map(|name| Some((name.clone(), self.disk.lookup(name)?)))
            .collect()
    }

    /// Returns the file of a database that counts: the one with the highest fence.
    pub(super) fn current(&self, index: usize) -> Option<Inode> {
        let files = self.files_of(index).into_iter().map(|(_, inode)| inode);
        files.max_by_key(|inode| {
            self.databases
                .get(inode)
                .map(|database| database.committed().fence)
        })
    }

    pub(super) fn database(&mut self, inode: Inode) -> &mut Database {
        self.databases.entry(inode).or_default()
    }
}

fn disk_full(epoch: Epoch) -> Box<Input> {
    Box::new(Input::WorkFailed {
        epoch,
        why: "disk full".to_owned(),
    })
}
