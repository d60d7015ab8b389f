//! The thread that keeps the lease: it carries out, one by one, what the machine decides.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use earshot_proto::{
    Now,
    lease::{
        Effect, End, Epoch, FileId, FilesSeen, Here, Identity, Input, LeaseDocument, LeaseToken,
        Lifecycle, Parsed, Predecessor, PredecessorSeen, ReleaseVersion, Timings,
    },
};
use earshot_store::Journal;
use tokio::sync::{mpsc, oneshot};

use super::{
    alive::{AliveFile, probe},
    examine::{examine, examine_quietly, process_of},
    files::{read_lease, write_lease},
    gate::Gate,
    kill::{kill_holder, lock_holder},
    lock::{LockError, Locked, lock_within},
};
use crate::{
    build, clock,
    config::{NodeFolder, PlaceError},
    core::{self, Fenced, NodeHandle},
    net::{Doorway, bind_unix_at},
    system,
};

/// Inputs that wait for the keeper: one of each kind that others hand in, and room.
const INPUTS: usize = 64;

/// What the keeper asks of the part of the node that serves.
#[derive(Debug)]
pub(crate) enum Order {
    /// Listen at this socket, besides those that are listened at already.
    Listen(std::os::unix::net::UnixListener),
    /// Listen at this address.
    ListenTcp(std::net::TcpListener),
    /// Execute what waits, and what comes.
    Serve,
    /// Take nothing new, let what runs finish within this time, then say `drained`.
    Drain(Epoch, Duration),
}

/// Why a keeper could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeeperError {
    /// The state folder cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The system refuses a thread.
    #[error("the thread that keeps the lease cannot be started")]
    Thread(#[source] io::Error),
}

/// Keeps the lease of one node, in a thread of its own.
#[derive(Debug)]
pub(crate) struct Keeper {
    gate: Arc<Gate>,
    folder: NodeFolder,
    here: Here,
    node: NodeHandle,
    doorway: Doorway,
    orders: mpsc::Sender<Order>,
    socket: Option<FileId>,
    alive: Option<AliveFile>,
    /// The name of the alive file that the own lease names.
    kept_alive: String,
    lock: Option<Locked>,
    /// Held while standing for election, so that one successor watches a holder, and not many.
    watch: Option<Locked>,
    wake: Option<Now>,
    /// Counted by the node's thread: no progress, no heartbeat.
    progress: Arc<AtomicU64>,
    progress_seen: u64,
}

/// What a keeper gives to the part of the node that serves.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Whether a request may be executed.
    pub(crate) gate: Arc<Gate>,
    /// What the keeper asks for.
    pub(crate) orders: mpsc::Receiver<Order>,
    /// How the tenure ended, when it has.
    pub(crate) end: oneshot::Receiver<End>,
}

/// Returns who this process is to a lease.
pub(crate) fn here(host_id: &str) -> Here {
    Here {
        place: system::place(host_id),
        version: ReleaseVersion::new(build::VERSION),
    }
}

/// Returns what this process's lease will say of it.
///
/// # Errors
/// When the folder of its socket cannot be used.
fn identity_of(folder: &NodeFolder, here: &Here) -> Result<Identity, PlaceError> {
    Ok(Identity {
        place: here.place.clone(),
        process: system::this_process(),
        exe: system::executable()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        build: build::commit().unwrap_or_default(),
        version: build::VERSION.to_owned(),
        socket: folder.socket_file()?.to_string_lossy().into_owned(),
        node_id: String::new(),
        timings: Timings::default(),
    })
}

impl Keeper {
    /// Starts to stand for election, and goes on to the end of the tenure.
    ///
    /// # Errors
    /// [`KeeperError`].
    pub(crate) fn start(
        folder: NodeFolder,
        here: Here,
        node: NodeHandle,
        doorway: Doorway,
    ) -> Result<Kept, KeeperError> {
        folder.prepare()?;
        let identity = identity_of(&folder, &here)?;
        let (inputs, inbox) = sync_channel(INPUTS);
        let gate = Gate::new(Lifecycle::new(identity), inputs);
        node.answer_through(&gate);
        let (orders, ordered) = mpsc::channel(INPUTS);
        let (ended, end) = oneshot::channel();
        let keeper = Self {
            gate: Arc::clone(&gate),
            folder,
            here,
            node,
            doorway,
            orders,
            socket: None,
            alive: None,
            kept_alive: String::new(),
            lock: None,
            watch: None,
            wake: None,
            progress: Arc::default(),
            progress_seen: 0,
        };
        thread::Builder::new()
            .name("lease".to_owned())
            .spawn(move || {
                ended.send(keeper.run(&inbox)).ok(); // the process is ending anyway
            })
            .map_err(KeeperError::Thread)?;
        Ok(Kept {
            gate,
            orders: ordered,
            end,
        })
    }

    fn run(mut self, inbox: &Receiver<Input>) -> End {
        // Where another holds it, both watch: the election lets one win.
        self.watch = lock_within(&self.folder.watch_lock(), Duration::ZERO).ok();
        if let Some(watch) = &self.watch {
            watch.stamp();
        }
        let mut due = vec![Input::Begin];
        loop {
            while !due.is_empty() {
                let input = due.remove(0);
                for effect in self.gate.handle(input) {
                    match self.carry_out(effect) {
                        Done::Nothing => {}
                        Done::Result(result) => due.push(*result),
                        Done::End(end) => return end,
                    }
                }
            }
            due.push(self.next_input(inbox));
        }
    }

    fn next_input(&mut self, inbox: &Receiver<Input>) -> Input {
        let Some(wake) = self.wake else {
            return inbox.recv().unwrap_or(Input::Stop);
        };
        match inbox.recv_timeout(wake.since(clock::now())) {
            Ok(input) => input,
            Err(RecvTimeoutError::Timeout) => {
                self.wake = None;
                Input::Woke
            }
            Err(RecvTimeoutError::Disconnected) => Input::Stop,
        }
    }

    fn carry_out(&mut self, effect: Effect) -> Done {
        match effect {
            Effect::StopWrites => {
                self.node.stop_writes();
                Done::Nothing
            }
            Effect::WakeAt(at) => {
                self.wake = Some(at);
                Done::Nothing
            }
            Effect::Examine => Done::of(self.examine()),
            Effect::MakeAlive => Done::of(self.make_alive()),
            Effect::LockLease { deadline } => Done::of(self.lock_lease(deadline)),
            Effect::WriteLease(document) => Done::of(self.write_lease(&document)),
            Effect::UnlockLease => {
                self.lock = None;
                Done::Nothing
            }
            Effect::DropAlive => {
                self.alive = None;
                Done::Nothing
            }
            Effect::Beat => {
                self.beat();
                Done::Nothing
            }
            Effect::LookAtFiles => Done::of(self.look_at_files()),
            Effect::BindSocket { epoch } => Done::of(self.bind_socket(epoch)),
            Effect::LookAtPredecessors {
                epoch,
                predecessors,
            } => {
                let seen = predecessors.iter().map(|it| self.look_at(it)).collect();
                Done::of(Input::PredecessorsLooked { epoch, seen })
            }
            Effect::Kill { pid, predecessor } => {
                self.kill(pid, &predecessor);
                Done::Nothing
            }
            Effect::RaiseFence { epoch } => Done::of(self.raise_fence(epoch, core::Locked::Wait)),
            Effect::LeaveDatabases { epoch } => {
                Done::of(self.raise_fence(epoch, core::Locked::LeaveBehind))
            }
            Effect::Import { epoch } => Done::of(match self.node.import() {
                Ok(()) => Input::Imported { epoch },
                Err(why) => Input::WorkFailed { epoch, why },
            }),
            Effect::BindListeners { epoch } => Done::of(self.bind_listeners(epoch)),
            Effect::Serve { epoch } => {
                self.watch = None;
                tracing::info!(url = self.doorway.url(), %epoch, "serving");
                self.order(Order::Serve)
            }
            Effect::Drain { epoch, deadline } => {
                self.order(Order::Drain(epoch, deadline.since(clock::now())))
            }
            Effect::Finish(end) => {
                self.clean_up(&end);
                Done::End(end)
            }
        }
    }

    fn order(&self, order: Order) -> Done {
        self.orders.blocking_send(order).ok(); // whoever serves has ended: so will this thread
        Done::Nothing
    }

    fn examine(&self) -> Input {
        match examine(&self.folder, &self.here.place) {
            Ok(seen) => {
                if let Some(Parsed::Unreadable { why }) = &seen.lease {
                    tracing::warn!(%why, "lease.json is no lease and is taken over");
                }
                Input::Examined(seen)
            }
            Err(error) => Input::FilesFailed {
                why: format!("the lease cannot be read: {error}; make its folder yours"),
            },
        }
    }

    fn make_alive(&mut self) -> Input {
        let made = || -> io::Result<(LeaseToken, AliveFile, FileId)> {
            self.folder.prepare().map_err(io::Error::other)?;
            let mut random = [0; 16];
            getrandom::fill(&mut random)?;
            let token = LeaseToken::from_random(random);
            let alive = AliveFile::create(self.folder.path(), &token.alive_name())?;
            let file = alive.id()?;
            Ok((token, alive, file))
        };
        match made() {
            Ok((token, alive, file)) => {
                self.alive = Some(alive);
                token.alive_name().as_str().clone_into(&mut self.kept_alive);
                Input::AliveMade { token, file }
            }
            Err(error) => self.failed(&error),
        }
    }

    fn lock_lease(&mut self, deadline: Now) -> Input {
        let path = self.folder.lease_lock();
        match lock_within(&path, deadline.since(clock::now())) {
            Ok(lock) => self.lock = Some(lock),
            Err(LockError::Held { .. }) => {
                return Input::LockBusy {
                    holder: lock_holder(&path),
                };
            }
            Err(error) => {
                return Input::FilesFailed {
                    why: error.to_string(),
                };
            }
        }
        match examine_quietly(&self.folder, &self.here.place) {
            Ok(seen) => Input::LeaseLocked {
                seen,
                fences: self.fences(),
            },
            Err(error) => {
                self.lock = None;
                self.failed(&error)
            }
        }
    }

    /// Reads the fence of every database. One that cannot be read is no reason to stop here: a
    /// fence that is higher is met when it is raised.
    fn fences(&self) -> Vec<Epoch> {
        let current = Journal::current(&self.folder.journal_file()).ok();
        current
            .and_then(|path| Journal::fence_of(&path).ok().flatten())
            .map(|fence| fence.epoch)
            .into_iter()
            .collect()
    }

    fn write_lease(&self, document: &LeaseDocument) -> Input {
        if !self.lock.as_ref().is_some_and(Locked::is_in_place) {
            return self.failed(&"lease.lock was deleted while it was held");
        }
        let written = write_lease(self.folder.path(), document)
            .and_then(|()| file_id(&self.folder.lease_file()));
        match written {
            Ok(file) => Input::LeaseWritten { file },
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Input {
        let folder = self.folder.path().display();
        Input::FilesFailed {
            why: format!("{error}; make room on the disk of {folder}, and the folder writable"),
        }
    }

    /// Touches the heartbeat, if the node's thread has taken a step since the last one.
    fn beat(&mut self) {
        let progress = self.progress.load(Ordering::Acquire);
        let stuck = progress == self.progress_seen && progress > 0;
        if stuck {
            tracing::warn!("the node makes no progress; its heartbeat stays");
        } else if let Some(alive) = &self.alive
            && let Err(error) = alive.beat()
        {
            tracing::warn!(%error, "the alive file cannot be touched");
        }
        self.progress_seen = progress;
        self.node.count_progress(&self.progress);
    }

    fn look_at_files(&self) -> Input {
        let lease = self.folder.lease_file();
        // What cannot be read is unknown: it proves nothing about who holds the lease.
        let read = read_lease(&lease);
        let unreadable = read.is_err() || is_out_of_files(&file_id(&lease));
        if unreadable {
            return Input::FilesFailed {
                why: "the lease cannot be read right now".to_owned(),
            };
        }
        Input::FilesLooked(FilesSeen {
            lease: file_id(&lease).ok(),
            token: read
                .ok()
                .flatten()
                .as_ref()
                .and_then(Parsed::token)
                .cloned(),
            alive: self.alive.as_ref().and_then(AliveFile::id_at_path),
            databases_in_place: self.node.is_journal_in_place(),
            socket_in_place: self.socket.is_none() || self.socket == self.socket_now(),
        })
    }

    fn socket_now(&self) -> Option<FileId> {
        self.folder
            .socket_file()
            .ok()
            .and_then(|path| file_id(&path).ok())
    }

    fn bind_socket(&mut self, epoch: Epoch) -> Input {
        let bound = self
            .folder
            .socket_file()
            .map_err(io::Error::other)
            .and_then(|path| bind_unix_at(&path).map(|listener| (path, listener)));
        match bound {
            Ok((path, listener)) => {
                self.socket = file_id(&path).ok();
                self.order(Order::Listen(listener));
                Input::SocketBound { epoch }
            }
            Err(error) => Input::WorkFailed {
                epoch,
                why: format!("the node's socket cannot be bound: {error}"),
            },
        }
    }

    /// Opens the doorway, now that no predecessor stands in it any more.
    fn bind_listeners(&mut self, epoch: Epoch) -> Input {
        match self.doorway.open() {
            Ok(Some(listener)) => {
                self.order(Order::ListenTcp(listener));
            }
            Ok(None) => {}
            Err(error) => {
                return Input::WorkFailed {
                    epoch,
                    why: error.to_string(),
                };
            }
        }
        Input::ListenersBound {
            epoch,
            url: self.doorway.url().map(str::to_owned),
            quic: None,
        }
    }

    fn look_at(&self, predecessor: &Predecessor) -> PredecessorSeen {
        PredecessorSeen {
            token: predecessor.token.clone(),
            alive: probe(self.folder.path(), &predecessor.alive).0,
            process: process_of(predecessor, &self.here.place),
        }
    }

    fn kill(&self, pid: i32, predecessor: &Predecessor) {
        match kill_holder(self.folder.path(), pid, predecessor) {
            Ok(()) => tracing::warn!(pid, "the node before this one hung and was ended"),
            Err(why) => {
                tracing::warn!(pid, why, "the node before this one hangs and was not ended");
            }
        }
    }

    fn raise_fence(&self, epoch: Epoch, locked: core::Locked) -> Input {
        let path = self.folder.journal_file();
        match self.node.raise_fence(path, epoch, locked) {
            Fenced::Raised => Input::FenceRaised { epoch },
            Fenced::Higher => Input::FenceHigher { epoch },
            Fenced::Busy => Input::FenceBusy { epoch },
            Fenced::Failed(why) => Input::WorkFailed { epoch, why },
        }
    }

    /// Takes the socket's name away and the files of tenures that are over, unless a successor
    /// stands there by now.
    fn clean_up(&self, end: &End) {
        if *end != End::Stopped || self.socket.is_none() || self.socket != self.socket_now() {
            return;
        }
        if let Ok(path) = self.folder.socket_file() {
            fs_err::remove_file(path).ok(); // gone by itself is as good
        }
        // The one that the lease names stays: unlocked, it shows death to any release.
        self.folder.remove_free_alive_files(&self.kept_alive);
    }
}

/// What carrying out an effect came to.
enum Done {
    Nothing,
    Result(Box<Input>),
    End(End),
}

impl Done {
    fn of(input: Input) -> Self {
        Self::Result(Box::new(input))
    }
}

fn file_id(path: &Path) -> io::Result<FileId> {
    let metadata = fs_err::symlink_metadata(path)?;
    Ok(FileId {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}

/// Says whether a look failed for want of descriptors or memory: that shows nothing of the file.
fn is_out_of_files(look: &io::Result<FileId>) -> bool {
    look.as_ref()
        .is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
}
