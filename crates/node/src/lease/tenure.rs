//! One tenure: from the decision to serve a checkout to its end.

use std::{io, path::Path, time::Duration};

use earshot_proto::lease::{
    Epoch, Examination, Here, LEASE_SCHEMA, LeaseDocument, LeaseState, LeaseToken,
    PREDECESSORS_MAX, Parsed, Predecessor, ReleaseVersion, Timings, Verdict, Watched,
    holder_verdict, next_epoch,
};

use super::{
    alive::AliveFile,
    examine::examine,
    files::{read_lease, write_lease},
    lock::{LockError, lock_within},
};
use crate::{
    clock,
    config::{NodeFolder, PlaceError},
    system,
};

/// Time to wait for `lease.lock`, which is held for file operations only.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(2);

/// What a process that wants to serve brings along.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The state folder of the checkout's node.
    pub(crate) folder: NodeFolder,
    /// Who looks.
    pub(crate) here: Here,
    /// The executable.
    pub(crate) exe: String,
    /// The commit it was built from.
    pub(crate) build: String,
    /// A random token, used once.
    pub(crate) token: LeaseToken,
}

/// How an attempt to take the lease ended.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// It is ours, in state `starting`.
    Mine(Box<Tenure>),
    /// Somebody else holds it; the verdict says how they stand.
    Theirs(Verdict, Box<Examination>),
}

/// Why the lease could not be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcquireError {
    /// The state folder cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// `lease.lock` could not be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file operation failed.
    #[error("the lease cannot be written")]
    Io(#[from] io::Error),
    /// Every number is used up.
    #[error(transparent)]
    Epochs(#[from] earshot_proto::lease::EpochsExhausted),
}

/// A lease that this process holds.
#[derive(Debug)]
pub(crate) struct Tenure {
    folder: NodeFolder,
    alive: AliveFile,
    lease: LeaseDocument,
}

impl Tenure {
    /// Takes the lease if nobody living holds it: ACQUIRE 1–3.
    ///
    /// # Errors
    /// [`AcquireError`]; nothing is left behind.
    pub(crate) fn acquire(plan: &Plan) -> Result<Acquired, AcquireError> {
        plan.folder.prepare()?;
        let alive = AliveFile::create(plan.folder.path(), &plan.token.alive_name())?;
        match Self::take(plan, alive) {
            Ok(Ok(tenure)) => Ok(Acquired::Mine(Box::new(tenure))),
            Ok(Err((alive, verdict, seen))) => {
                alive.remove();
                Ok(Acquired::Theirs(verdict, Box::new(seen)))
            }
            Err((alive, error)) => {
                alive.remove();
                Err(error)
            }
        }
    }

    #[expect(
        clippy::type_complexity,
        reason = "the alive file goes back to be removed"
    )]
    fn take(
        plan: &Plan,
        alive: AliveFile,
    ) -> Result<Result<Self, (AliveFile, Verdict, Examination)>, (AliveFile, AcquireError)> {
        let taken = || -> Result<Result<LeaseDocument, (Verdict, Examination)>, AcquireError> {
            let _lock = lock_within(&plan.folder.lease_lock(), LOCK_WAIT)?;
            let seen = examine(&plan.folder, &plan.here.place)?;
            let verdict = holder_verdict(&seen, Watched::default(), &plan.here);
            if !verdict.may_take() {
                return Ok(Err((verdict, seen)));
            }
            let lease = starting(plan, seen.lease.as_ref())?;
            write_lease(plan.folder.path(), &lease)?;
            Ok(Ok(lease))
        };
        match taken() {
            Ok(Ok(lease)) => Ok(Ok(Self {
                folder: plan.folder.clone(),
                alive,
                lease,
            })),
            Ok(Err((verdict, seen))) => Ok(Err((alive, verdict, seen))),
            Err(error) => Err((alive, error)),
        }
    }

    /// Returns the lease as this process last wrote it.
    pub(crate) const fn lease(&self) -> &LeaseDocument {
        &self.lease
    }

    /// Says to everybody that this node serves, at this url; `false` when the lease is somebody
    /// else's by now, and nothing was written.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub(crate) fn publish(&mut self, url: Option<String>) -> Result<bool, AcquireError> {
        self.lease.url = url;
        self.lease.predecessors.clear();
        self.rewrite(LeaseState::Serving)
    }

    /// Touches the heartbeat; `Err` says why this process no longer holds its lease.
    pub(crate) fn beat(&self) -> Result<(), &'static str> {
        if !self.alive.is_in_place() {
            return Err("its state folder was wiped");
        }
        if !self.is_mine() {
            return Err("its lease was taken over");
        }
        self.alive
            .beat()
            .map_err(|_| "its alive file cannot be touched")
    }

    /// Ends the tenure: the lease says `ended`, unless it is somebody else's, and the socket and
    /// the alive file go.
    pub(crate) fn end(mut self) {
        if let Err(error) = self.rewrite(LeaseState::Ended) {
            tracing::warn!(%error, "the lease could not be marked as ended; the free lock says it");
        }
        fs_err::remove_file(&self.lease.socket).ok(); // nobody connects to what a lease calls ended
        self.alive.remove();
    }

    fn is_mine(&self) -> bool {
        read_lease(&self.folder.lease_file())
            .is_ok_and(|lease| lease.is_some_and(|lease| self.names_me(&lease)))
    }

    fn names_me(&self, lease: &Parsed) -> bool {
        lease.token() == Some(&self.lease.token) && lease.epoch() == Some(self.lease.epoch)
    }

    fn rewrite(&mut self, state: LeaseState) -> Result<bool, AcquireError> {
        let _lock = lock_within(&self.folder.lease_lock(), LOCK_WAIT)?;
        if !self.is_mine() {
            return Ok(false);
        }
        self.lease.state = state;
        write_lease(self.folder.path(), &self.lease)?;
        Ok(true)
    }
}

fn starting(plan: &Plan, before: Option<&Parsed>) -> Result<LeaseDocument, AcquireError> {
    let wall = clock::wall();
    let epoch = next_epoch(
        before.and_then(Parsed::epoch).unwrap_or(Epoch::NONE),
        [],
        wall,
    )?;
    let socket = plan.folder.socket_file(plan.token.as_str())?;
    Ok(LeaseDocument {
        schema: LEASE_SCHEMA,
        min_reader: LEASE_SCHEMA,
        token: plan.token.clone(),
        epoch,
        state: LeaseState::Starting,
        alive: plan.token.alive_name(),
        place: plan.here.place.clone(),
        process: system::this_process(),
        exe: plan.exe.clone(),
        build: plan.build.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        url: None,
        socket: socket.to_string_lossy().into_owned(),
        quic: None,
        node_id: String::new(),
        timings: Timings::default(),
        started_at: wall,
        predecessors: predecessors(before),
        unknown: before
            .and_then(Parsed::document)
            .map(|document| document.unknown.clone())
            .unwrap_or_default(),
    })
}

/// Lists every predecessor that has not said it ended, the latest first.
fn predecessors(before: Option<&Parsed>) -> Vec<Predecessor> {
    let Some(before) = before else {
        return Vec::new();
    };
    let document = before.document();
    let ended = document.is_some_and(|document| document.state == LeaseState::Ended);
    let last = before.as_predecessor().filter(|_| !ended);
    let older = document
        .map(|document| document.predecessors.clone())
        .unwrap_or_default();
    last.into_iter()
        .chain(older)
        .take(PREDECESSORS_MAX)
        .collect()
}

/// Returns who this process is to a lease.
pub(crate) fn here(host_id: &str) -> Here {
    Here {
        place: system::place(host_id),
        version: ReleaseVersion::new(env!("CARGO_PKG_VERSION")),
    }
}

/// Removes the sockets that dead predecessors left.
pub(crate) fn remove_dead_sockets(folder: &Path, lease: &LeaseDocument) {
    for predecessor in &lease.predecessors {
        if let Some(socket) = &predecessor.socket {
            fs_err::remove_file(socket).ok(); // gone already, or not ours: nobody connects to it
        }
        fs_err::remove_file(folder.join(predecessor.alive.as_str())).ok(); // free, so it shows death
    }
}
