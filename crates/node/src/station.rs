//! A checkout and its node, seen from outside: where it stands, and seeing to it that it runs.

use std::{
    ffi::OsString,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use earshot_checkout::{
    Checkout, RepositoryKeys, RootIndex, RootIndexError, common_dir_identity, resolve,
};
use earshot_proto::{
    Now,
    lease::{
        Epoch, Examination, HeartbeatWatch, Here, LeaseDocument, LeaseToken, Parsed, Predecessor,
        Standing, Verdict, holder_verdict, kill_target, standing,
    },
    text::Line,
};

use rustix::fs::OFlags;

use crate::{
    capabilities::StatusOutput,
    clock,
    config::{Environment, NodeFolder, PlaceError, Places},
    lease::{
        LockError, examine, here, is_held_lately, kill_holder, lock_within, pause, read_lease,
    },
    system,
    words::within,
};

/// Most bytes of the background log before it is put aside; one older log is kept.
const LOG_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Seconds without use after which a node that a client started ends.
pub(crate) const IDLE_DEFAULT: Duration = Duration::from_mins(15);

/// Longest pause between two looks at a lease: short against anything a person waits for.
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(20);

/// Probes in a row without an answer after which a successor is started: one may be lost.
const SILENT_BEFORE_START: u32 = 2;

/// And how long nothing about it may have moved: a node that is starting has no socket yet.
const STILL_BEFORE_START: Duration = Duration::from_secs(1);

/// How long one process may watch a holder before others do not count on it any more: it may have
/// been stopped itself. Twice the usual `stale_after`.
const WATCH_MAX: Duration = Duration::from_secs(20);

/// How long another starter is left to start a node: it takes some ten milliseconds.
const STARTER_PATIENCE: Duration = Duration::from_secs(2);

/// A checkout, and where its node keeps its state.
#[derive(Debug, Clone)]
pub(crate) struct Station {
    /// The checkout.
    pub(crate) checkout: Checkout,
    /// The state folder of its node.
    pub(crate) folder: NodeFolder,
    /// Who looks.
    pub(crate) here: Here,
    /// The key of its repository; `None` where it cannot be kept.
    pub(crate) repository_key: Option<String>,
}

/// Why a checkout has no station.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StationError {
    /// There is no checkout.
    #[error(transparent)]
    Resolve(#[from] earshot_checkout::ResolveError),
    /// There is no place for state.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The list of known roots cannot be used.
    #[error(transparent)]
    Index(#[from] RootIndexError),
}

/// One look at the node.
#[derive(Debug)]
pub(crate) struct Look {
    /// The verdict on the holder.
    pub(crate) verdict: Verdict,
    /// The standing.
    pub(crate) standing: Standing,
    /// What was seen.
    pub(crate) seen: Examination,
}

/// What `ensure` may do.
#[derive(Debug, Clone)]
pub(crate) struct Ensure {
    /// Seconds without use after which a node started here ends.
    pub(crate) idle: Duration,
    /// How long to wait for it.
    pub(crate) wait: Duration,
    /// The port that it should take.
    pub(crate) port: Option<u16>,
    /// The address that it should bind, named by a person; a bridge names none.
    pub(crate) host: Option<String>,
    /// The lowest epoch that will do.
    pub(crate) not_before: Option<u64>,
    /// Whether one may be started.
    pub(crate) may_start: bool,
}

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnsureError {
    /// The state folder cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A lock could not be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lease cannot be read.
    #[error("the lease cannot be read")]
    Lease(#[source] io::Error),
    /// The executable cannot be started.
    #[error("the node cannot be started")]
    Spawn(#[source] io::Error),
    /// It ended instead of serving.
    #[error("the node ended at once: {}", .last_words.why)]
    Ended {
        /// What it left in its log.
        last_words: LastWords,
        /// Its exit code; `None` when a signal ended it.
        code: Option<i32>,
    },
    /// It lives where it cannot be reached.
    #[error(
        "the node of this checkout runs in another container or namespace and cannot be reached"
    )]
    Elsewhere,
    /// It was not ready in time.
    #[error("the node was not ready {wait}; it is {standing}", wait = within(*wait), standing = .standing.as_str())]
    NotReady {
        /// How long was waited.
        wait: Duration,
        /// Where it stood then.
        standing: Standing,
    },
    /// None runs, and none may be started.
    #[error("no node runs here")]
    Absent,
}

/// What a node that ended at once left in its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastWords {
    /// Why it ended.
    pub(crate) why: String,
    /// What to do about it, where the node said so.
    pub(crate) remedy: Option<String>,
}

impl Station {
    /// Finds the checkout around a path, and the folder of its node.
    ///
    /// # Errors
    /// [`StationError`].
    pub(crate) fn find(start: &Path, places: &Places, host_id: &str) -> Result<Self, StationError> {
        earshot_capability::count(earshot_capability::Step::CheckoutResolved);
        let checkout = resolve(start)?;
        let host_folder = places.prepare_host_folder()?;
        let checkout = RootIndex::new(&host_folder).settle(checkout)?;
        let folder = places.node_folder(&checkout.id());
        let repository_key = repository_key(&checkout, places);
        Ok(Self {
            checkout,
            folder,
            here: here(host_id),
            repository_key,
        })
    }

    /// Looks once.
    ///
    /// # Errors
    /// When the lease is there and cannot be read.
    pub(crate) fn look(&self) -> io::Result<Look> {
        self.look_again(&mut HeartbeatWatch::default())
    }

    fn look_again(&self, watch: &mut HeartbeatWatch) -> io::Result<Look> {
        let seen = examine(&self.folder, &self.here.place)?;
        // Read afterwards: a probe that is not answered takes its time.
        let watched = watch.look(clock::now(), seen.lease.as_ref(), seen.beat, seen.answer);
        let verdict = holder_verdict(&seen, watched, &self.here);
        let standing = standing(verdict, &seen);
        Ok(Look {
            verdict,
            standing,
            seen,
        })
    }

    /// Sees to it that a node serves, starting one where none does, and returns its lease.
    ///
    /// Blocks the thread. Run twice it starts nothing; run by many at once, one starts a node and
    /// the others wait for it.
    ///
    /// # Errors
    /// [`EnsureError`].
    pub(crate) fn ensure(&self, ensure: &Ensure) -> Result<LeaseDocument, EnsureError> {
        let began = clock::now();
        let mut watch = HeartbeatWatch::default();
        let mut delay = Duration::from_millis(1);
        loop {
            let look = self.look_again(&mut watch).map_err(EnsureError::Lease)?;
            if let Some(lease) = look.serving(ensure.not_before) {
                return Ok(lease.clone());
            }
            // Silent and in another place: alive if it beats, and otherwise to be succeeded.
            if look.verdict == Verdict::Elsewhere && watch.has_progressed() {
                return Err(EnsureError::Elsewhere);
            }
            // One that hangs is watched by whoever would succeed it, so that is started in time. One
            // that starts has no socket yet, and is given a moment.
            let watched = watch.watched();
            let silent = matches!(look.standing, Standing::Stale | Standing::Elsewhere)
                || (watched.silent_probes >= SILENT_BEFORE_START
                    && watched.still_for >= STILL_BEFORE_START);
            // Nobody waits at the side of a holder whose lease only a later release understands.
            let silent = silent && look.verdict != Verdict::Newer;
            if look.verdict.may_take() || silent {
                if !ensure.may_start {
                    return Err(EnsureError::Absent);
                }
                if self.start_one(ensure, began, look.token())? {
                    delay = Duration::from_millis(1);
                }
            }
            if clock::now().since(began) >= ensure.wait {
                return Err(EnsureError::NotReady {
                    wait: ensure.wait,
                    standing: look.standing,
                });
            }
            pause(delay);
            delay = (delay * 2).min(LOOK_PAUSE_MAX);
        }
    }

    /// Starts a node unless another starter or successor is at it, and waits until its lease is
    /// there in the place of the one that was seen. Returns whether there is something new to see.
    fn start_one(
        &self,
        ensure: &Ensure,
        began: Now,
        seen: Option<&LeaseToken>,
    ) -> Result<bool, EnsureError> {
        self.folder.prepare()?;
        let _lock = match lock_within(&self.folder.spawn_lock(), Duration::ZERO) {
            Ok(lock) => Some(lock),
            Err(LockError::Held { .. }) if clock::now().since(began) < STARTER_PATIENCE => {
                return Ok(false);
            }
            // A starter can be stopped with the lock in its hand; the election itself lets one win.
            Err(LockError::Held { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if self.token().map_err(EnsureError::Lease)?.as_ref() != seen {
            return Ok(true);
        }
        if self.is_watched() {
            return Ok(false);
        }
        let (mut child, log_length) = self.spawn(ensure).map_err(EnsureError::Spawn)?;
        while clock::now().since(began) < ensure.wait {
            if self.token().map_err(EnsureError::Lease)?.as_ref() != seen {
                break;
            }
            match child.try_wait() {
                Ok(Some(status)) if !status.success() => {
                    return Err(EnsureError::Ended {
                        last_words: self.last_words(log_length, status),
                        code: status.code(),
                    });
                }
                // It found another one that holds, or is about to hold, the lease.
                Ok(Some(_)) => return Ok(false),
                Ok(None) | Err(_) => pause(Duration::from_millis(1)),
            }
        }
        // Collects the child whenever it ends, so that no zombie stays while this process lives.
        std::thread::spawn(move || child.wait());
        Ok(true)
    }

    /// Reads the token of the lease, without a look at its holder.
    fn token(&self) -> io::Result<Option<LeaseToken>> {
        let lease = read_lease(&self.folder.lease_file())?;
        Ok(lease.as_ref().and_then(Parsed::token).cloned())
    }

    /// Says whether a process is watching the holder already, to succeed it.
    fn is_watched(&self) -> bool {
        is_held_lately(&self.folder.watch_lock(), WATCH_MAX)
    }

    fn spawn(&self, ensure: &Ensure) -> io::Result<(Child, u64)> {
        let log = self.open_log()?;
        let log_length = log.metadata()?.len();
        let mut command = Command::new(system::executable()?);
        command
            .arg("serve")
            .arg("--background")
            .arg("--root")
            .arg(&self.checkout.root);
        command.arg("--idle").arg(ensure.idle.as_secs().to_string());
        if let Some(port) = ensure.port {
            command.arg("--port").arg(port.to_string());
        }
        if let Some(host) = &ensure.host {
            command.arg("--host").arg(host);
        }
        // What the caller left open is not the node's: a lock, or a pipe that somebody reads to its end.
        close_fds::set_fds_cloexec(3, &[]);
        command.env_clear().envs(kept_environment());
        command.current_dir(self.folder.path());
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok((child, log_length))
    }

    /// Kills the process of a holder, if the kernel shows it to be the one.
    ///
    /// # Errors
    /// Why it was not killed.
    pub(crate) fn kill(&self, holder: &Predecessor) -> Result<(), String> {
        let pid = kill_target(holder, &self.here.place).ok_or("it does not run here")?;
        kill_holder(self.folder.path(), pid, holder)
    }

    /// Opens the log of the background node, putting a full one aside.
    fn open_log(&self) -> io::Result<std::fs::File> {
        let path = self.folder.log_file();
        if fs_err::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
            fs_err::rename(&path, path.with_extension("log.1"))?;
        }
        std::fs::File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0))
            .open(path)
    }

    /// Returns why a node ended at once: what its log tells beyond the length it had before.
    fn last_words(&self, log_length: u64, status: std::process::ExitStatus) -> LastWords {
        let log = fs_err::read(self.folder.log_file()).unwrap_or_default();
        let before = usize::try_from(log_length).unwrap_or(usize::MAX);
        let own = log.get(before..).unwrap_or_default();
        last_words(&String::from_utf8_lossy(own)).unwrap_or_else(|| LastWords {
            why: status.to_string(),
            remedy: None,
        })
    }

    /// Says where the node stands, in the form of the contract.
    pub(crate) fn status(&self, look: &Look, desired_host: String) -> StatusOutput {
        let mut status = StatusOutput {
            standing: look.standing.as_str().to_owned(),
            checkout_id: self.checkout.id().to_string(),
            repository_id: self.checkout.repository_id().to_string(),
            repository_key: self.repository_key.clone(),
            branch: earshot_checkout::head(&self.checkout)
                .branch
                .map(|branch| Line::name(&branch).as_str().to_owned()),
            lease_path: Some(self.folder.lease_file().to_string_lossy().into_owned()),
            desired_host: Some(desired_host),
            ..StatusOutput::default()
        };
        status.lease_epoch = look
            .seen
            .lease
            .as_ref()
            .and_then(Parsed::epoch)
            .map(Epoch::number);
        let living = !matches!(look.standing, Standing::Absent);
        if let Some(lease) = look
            .seen
            .lease
            .as_ref()
            .and_then(Parsed::document)
            .filter(|_| living)
        {
            status.pid = Some(lease.process.pid.number());
            status.version = Some(lease.version.clone());
            status.commit = Some(lease.build.clone()).filter(|commit| !commit.is_empty());
            status.mcp_url = lease
                .url
                .as_ref()
                .map(|url| format!("{url}/c/{}/mcp", status.checkout_id));
            status.url.clone_from(&lease.url);
        }
        status
    }
}

impl Look {
    /// Says whether somebody holds the lease, as far as can be known.
    pub(crate) const fn is_held(&self) -> bool {
        !self.verdict.may_take()
    }

    /// Returns the lease of whoever holds it; `None` also for one that a later release wrote.
    pub(crate) fn holder(&self) -> Option<&LeaseDocument> {
        let lease = self.seen.lease.as_ref().and_then(Parsed::document)?;
        self.is_held().then_some(lease)
    }

    /// Returns the token of the lease that was seen.
    fn token(&self) -> Option<&LeaseToken> {
        self.seen.lease.as_ref().and_then(Parsed::token)
    }

    /// Returns the lease of a node that serves, of this epoch or a later one.
    pub(crate) fn serving(&self, not_before: Option<u64>) -> Option<&LeaseDocument> {
        let ready = matches!(self.standing, Standing::Ready | Standing::Outdated);
        let lease = self.seen.lease.as_ref().and_then(Parsed::document)?;
        let late_enough = not_before.is_none_or(|epoch| lease.epoch.number() >= epoch);
        (ready && late_enough).then_some(lease)
    }
}

/// Returns the key of a checkout's repository, minted at its first use.
fn repository_key(checkout: &Checkout, places: &Places) -> Option<String> {
    let found = || -> Result<String, Box<dyn std::error::Error>> {
        let identity = common_dir_identity(checkout)?;
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let keys = RepositoryKeys::new(&places.prepare_data_folder()?);
        Ok(keys.key_of(&identity, || random)?.to_string())
    };
    found()
        .inspect_err(|error| tracing::warn!(%error, "the repository's key cannot be kept"))
        .ok()
}

/// Lists the variables that a node in the background keeps: no client's session or credentials
/// reach a process that outlives the client.
fn kept_environment() -> Vec<(OsString, OsString)> {
    const KEPT: [&str; 13] = [
        "HOME",
        "PATH",
        "USER",
        "LOGNAME",
        "LANG",
        "TMPDIR",
        "EARSHOT_HOME",
        "EARSHOT_LOG",
        "EARSHOT_MESH",
        "EARSHOT_MESH_INTERFACES",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "RUST_BACKTRACE",
    ];
    std::env::vars_os()
        .filter(|(name, _)| {
            name.to_str().is_some_and(|name| {
                KEPT.contains(&name) || name.starts_with("XDG_") || name.starts_with("LC_")
            })
        })
        .collect()
}

/// Reads the error and the hint that a command ends with; without one, its last line.
fn last_words(log: &str) -> Option<LastWords> {
    let mut lines = log.lines().rev().filter(|line| !line.is_empty());
    let last = lines.clone().next()?;
    let mut remedy = None;
    let error = lines.find_map(|line| {
        if let Some(hint) = line.strip_prefix("hint: ") {
            remedy = Some(hint.to_owned());
        }
        line.strip_prefix("error: ")
    });
    Some(match error {
        Some(error) => LastWords {
            why: error.to_owned(),
            remedy,
        },
        None => LastWords {
            why: last.to_owned(),
            remedy: None,
        },
    })
}

/// Finds where to begin looking for the checkout: the ladder of `node.md`.
pub(crate) fn start_of(root: Option<&Path>, environment: &Environment) -> io::Result<PathBuf> {
    let named = root
        .map(Path::to_owned)
        .or_else(|| environment.root.clone())
        .or_else(|| environment.claude_project_dir.clone());
    named.map_or_else(std::env::current_dir, Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_node_are_its_error_and_its_hint() {
        let words = |why: &str, remedy: Option<&str>| {
            Some(LastWords {
                why: why.to_owned(),
                remedy: remedy.map(str::to_owned),
            })
        };
        for (log, expected) in [
            ("", None),
            ("\n\n", None),
            ("2026 INFO ended\n", words("2026 INFO ended", None)),
            (
                "error: no port\nhint: Free it.\n",
                words("no port", Some("Free it.")),
            ),
            (
                "error: old\nhint: Old.\n2026 INFO up\nerror: new\nhint: New.\n",
                words("new", Some("New.")),
            ),
            ("hint: Alone.\n", words("hint: Alone.", None)),
        ] {
            assert_eq!(last_words(log), expected, "{log:?}");
        }
    }
}
