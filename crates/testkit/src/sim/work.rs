//! The shell's work that runs beside: socket, predecessors, fence, import, drain.

use earshot_proto::lease::{Epoch, Input, Predecessor, PredecessorSeen, ProcessFact};

use super::database::Database;
use super::disk::{Inode, ProcessId};
use super::process::Work;
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
            } => {
                self.raise_fence(of, number, epoch, (index, begun));
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
    ) {
        let Some(name) = DATABASES.get(index) else {
            self.feed(of, Input::FenceRaised { epoch });
            return;
        };
        let mut next = (index, None);
        match begun {
            None if self.processes[of].databases.contains_key(&index) => next.0 += 1,
            None => {
                let Some(inode) = self.open_database(name) else {
                    self.feed(
                        of,
                        Input::WorkFailed {
                            epoch,
                            why: "disk full".to_owned(),
                        },
                    );
                    return;
                };
                if !self.database(inode).begin(of) {
                    self.feed(of, Input::FenceBusy { epoch });
                    return;
                }
                next.1 = Some(inode);
            }
            Some(inode) => {
                let full = self.disk.is_full();
                let database = self.database(inode);
                let Some(tables) = database.writing(of) else {
                    return;
                };
                if tables.fence >= epoch {
                    database.roll_back(of);
                    self.feed(of, Input::FenceHigher { epoch });
                    return;
                }
                if full {
                    database.roll_back(of);
                    self.feed(
                        of,
                        Input::WorkFailed {
                            epoch,
                            why: "disk full".to_owned(),
                        },
                    );
                    return;
                }
                tables.fence = epoch;
                database.commit(of);
                self.judge_fence(inode, epoch);
                self.processes[of].databases.insert(index, inode);
                next.0 += 1;
            }
        }
        let work = Work::RaiseFence {
            epoch,
            index: next.0,
            begun: next.1,
        };
        self.processes[of].works.insert(number, work);
        self.work_later(of, number);
    }

    /// Opens a database file, making it where there is none; `None` when the disk is full.
    fn open_database(&mut self, name: &str) -> Option<Inode> {
        match self.disk.lookup(name) {
            Some(inode) => Some(inode),
            None => self.disk.create(name).ok(),
        }
    }

    pub(super) fn database(&mut self, inode: Inode) -> &mut Database {
        self.databases.entry(inode).or_default()
    }
}
