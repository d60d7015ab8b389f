//! Where configuration, data and state live, and the folder of one node.

use std::{
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use earshot_checkout::CheckoutId;

use super::Environment;
use crate::words::shell_quoted;

/// Longest path of a Unix socket that every system takes, with room for a terminator.
const SOCKET_PATH_BYTES_MAX: usize = 100;

/// Bytes of a socket's short name, with the separator before it.
const SOCKET_NAME_BYTES: usize = 22;

/// The roots of configuration, data and state on this host.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    config: PathBuf,
    /// The highest folder of earshot's own above the state.
    base: PathBuf,
    state: PathBuf,
    /// The highest folder of earshot's own above the data.
    data_base: PathBuf,
    data: PathBuf,
    /// The highest folder of earshot's own above the sockets.
    run_base: PathBuf,
    run: PathBuf,
    host_id: String,
}

/// The state folder of one node.
#[derive(Debug, Clone)]
pub(crate) struct NodeFolder {
    base: PathBuf,
    path: PathBuf,
    run_base: PathBuf,
    run: PathBuf,
}

/// Why a state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// Neither `EARSHOT_HOME` nor `HOME` says where.
    #[error("there is no home folder to keep state in")]
    NoHome,
    /// `EARSHOT_HOME` is not an absolute path.
    #[error("EARSHOT_HOME is not an absolute path: {0}")]
    HomeNotAbsolute(PathBuf),
    /// It could not be made or read.
    #[error("the state folder {path} cannot be used")]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It belongs to somebody else, so what it says cannot be trusted (`attacks.md` 40).
    #[error("the state folder {path} belongs to user {owner}, not to you")]
    ForeignOwner {
        /// The folder.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
    },
    /// Others may write into it.
    #[error("the state folder {path} can be written by others (mode {mode:03o})")]
    OthersWrite {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is on a file system without working locks.
    #[error("the state folder {path} is on a {kind} file system, where locks cannot be relied on")]
    NoLocks {
        /// The folder.
        path: PathBuf,
        /// The kind of file system.
        kind: &'static str,
    },
}

impl PlaceError {
    /// Returns the one thing to do about it.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::NoHome => "Set HOME, or EARSHOT_HOME to a folder of your own.".to_owned(),
            Self::HomeNotAbsolute(_) => "Set EARSHOT_HOME to an absolute path.".to_owned(),
            Self::Io { path, .. } => {
                format!(
                    "Make {} writable, or set EARSHOT_HOME to another folder.",
                    path.display()
                )
            }
            Self::ForeignOwner { path, .. } => format!(
                "Run `sudo chown -R \"$(id -u)\" {}`, or set EARSHOT_HOME to a folder of your own.",
                shell_quoted(&path.to_string_lossy())
            ),
            Self::OthersWrite { path, .. } => {
                format!("Run `chmod 700 {}`.", shell_quoted(&path.to_string_lossy()))
            }
            Self::NoLocks { .. } => {
                "Set EARSHOT_HOME to a folder on a local disk of this machine.".to_owned()
            }
        }
    }
}

impl Places {
    /// Finds the places from the environment.
    ///
    /// # Errors
    /// [`PlaceError::NoHome`], [`PlaceError::HomeNotAbsolute`].
    pub(crate) fn new(environment: &Environment, host_id: String) -> Result<Self, PlaceError> {
        if let Some(home) = &environment.home {
            if !home.is_absolute() {
                return Err(PlaceError::HomeNotAbsolute(home.clone()));
            }
            let beside = home.join("run");
            let fits = beside.as_os_str().len() + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES_MAX;
            let (run_base, run) = if fits {
                (home.clone(), beside)
            } else {
                let run = runtime_folder(environment);
                (run.clone(), run)
            };
            return Ok(Self {
                config: home.join("config"),
                base: home.clone(),
                state: home.join("state"),
                data_base: home.clone(),
                data: home.join("data"),
                run_base,
                run,
                host_id,
            });
        }
        let home = environment.user_home.as_deref();
        let under = |xdg: &Option<PathBuf>, default: &str| {
            let base = match (xdg, home) {
                (Some(base), _) => base.clone(),
                (None, Some(home)) => home.join(default),
                (None, None) => return Err(PlaceError::NoHome),
            };
            Ok(base.join("earshot"))
        };
        let run = runtime_folder(environment);
        let state = under(&environment.xdg_state, ".local/state")?;
        let data = under(&environment.xdg_data, ".local/share")?;
        Ok(Self {
            data_base: data.clone(),
            data,
            config: under(&environment.xdg_config, ".config")?,
            base: state.clone(),
            state,
            run_base: run.clone(),
            run,
            host_id,
        })
    }

    /// Refuses a configuration that somebody else could have written.
    ///
    /// # Errors
    /// [`PlaceError`], with its remedy.
    pub(crate) fn refuse_shared_config(&self) -> Result<(), PlaceError> {
        for path in [&self.base, &self.config, &self.config_file()] {
            match refuse_shared(path) {
                Ok(()) => {}
                Err(PlaceError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the machine's configuration file.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// Returns the key that `http.loopback = "key"` asks for.
    pub(crate) fn http_key_file(&self) -> PathBuf {
        self.config.join("http.key")
    }

    /// Returns the machine's signing key.
    pub(crate) fn machine_key_file(&self) -> PathBuf {
        self.data
            .join("hosts")
            .join(&self.host_id)
            .join("machine.key")
    }

    /// Returns the folder that keeps what is known of this host's checkouts.
    pub(crate) fn host_folder(&self) -> PathBuf {
        self.state.join("hosts").join(&self.host_id)
    }

    /// Makes that folder, 0700, and refuses one that cannot be trusted.
    ///
    /// # Errors
    /// [`PlaceError`], with its remedy.
    pub(crate) fn prepare_host_folder(&self) -> Result<PathBuf, PlaceError> {
        let folder = self.host_folder();
        make_private(&self.base, &folder)?;
        Ok(folder)
    }

    /// Makes the folder that keeps what this host's checkouts must not lose, 0700, and refuses one
    /// that cannot be trusted.
    ///
    /// # Errors
    /// [`PlaceError`], with its remedy.
    pub(crate) fn prepare_data_folder(&self) -> Result<PathBuf, PlaceError> {
        let folder = self.data.join("hosts").join(&self.host_id);
        make_private(&self.data_base, &folder)?;
        Ok(folder)
    }

    /// Makes the folder that keeps what was written into the configuration of clients, 0700, and
    /// refuses one that cannot be trusted.
    ///
    /// # Errors
    /// [`PlaceError`], with its remedy.
    pub(crate) fn prepare_clients_folder(&self) -> Result<PathBuf, PlaceError> {
        let folder = self.data.join("hosts").join(&self.host_id).join("clients");
        make_private(&self.data_base, &folder)?;
        Ok(folder)
    }

    /// Returns the folder of the node of a checkout, which need not exist.
    pub(crate) fn node_folder(&self, checkout: &CheckoutId) -> NodeFolder {
        let path = self.host_folder().join("nodes").join(checkout.to_string());
        NodeFolder {
            base: self.base.clone(),
            path,
            run_base: self.run_base.clone(),
            run: self.run.clone(),
        }
    }
}

impl NodeFolder {
    /// Makes the folder, 0700, and refuses one that cannot be trusted.
    ///
    /// # Errors
    /// [`PlaceError`], with its remedy.
    pub(crate) fn prepare(&self) -> Result<(), PlaceError> {
        make_private(&self.base, &self.path)?;
        refuse_without_locks(&self.path)
    }

    /// Returns the folder's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the lease document.
    pub(crate) fn lease_file(&self) -> PathBuf {
        self.path.join("lease.json")
    }

    /// Returns the lock beside the lease document.
    pub(crate) fn lease_lock(&self) -> PathBuf {
        self.path.join("lease.lock")
    }

    /// Returns the lock that lets one of many starters start a node.
    pub(crate) fn spawn_lock(&self) -> PathBuf {
        self.path.join("spawn.lock")
    }

    /// Returns the lock of the process that watches a holder to succeed it.
    pub(crate) fn watch_lock(&self) -> PathBuf {
        self.path.join("watch.lock")
    }

    /// Returns the log of a node that was started in the background.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.path.join("node.log")
    }

    /// Returns the node's signing key.
    pub(crate) fn node_key_file(&self) -> PathBuf {
        self.path.join("node.key")
    }

    /// Returns the journal of the node.
    pub(crate) fn journal_file(&self) -> PathBuf {
        self.path.join("journal.db")
    }

    /// Returns the path of the node's Unix socket: in the folder, or under a short name in the
    /// runtime folder when that path would be too long for a socket.
    ///
    /// # Errors
    /// [`PlaceError`] when the runtime folder is needed and cannot be trusted.
    pub(crate) fn socket_file(&self) -> Result<PathBuf, PlaceError> {
        let beside = self.path.join("node.sock");
        if beside.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
            return Ok(beside);
        }
        make_private(&self.run_base, &self.run)?;
        let hash = blake3::hash(self.path.as_os_str().as_encoded_bytes());
        Ok(self.run.join(format!("{}.sock", &hash.to_hex()[..16])))
    }

    /// Removes alive files that nobody holds, but for one: those of tenures that are over.
    pub(crate) fn remove_free_alive_files(&self, kept: &str) {
        let entries = fs_err::read_dir(&self.path).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let is_alive_file = name
                .to_str()
                .and_then(|name| name.strip_prefix("alive-"))
                .is_some_and(|rest| rest.strip_suffix(".lock").is_some());
            if name == kept {
                continue;
            }
            let free = || {
                let file = std::fs::File::open(entry.path()).ok()?;
                file.try_lock().ok() // held until it is removed, so that nobody takes it meanwhile
            };
            if is_alive_file && free().is_some() {
                fs_err::remove_file(entry.path()).ok(); // one that stays is found free again
            }
        }
    }
}

/// Returns the folder for sockets whose own path would be too long.
fn runtime_folder(environment: &Environment) -> PathBuf {
    environment.xdg_runtime.as_ref().map_or_else(
        || std::env::temp_dir().join(format!("earshot-{}", rustix::process::getuid().as_raw())),
        |base| base.join("earshot"),
    )
}

/// Makes a folder, 0700, and refuses it unless it and every folder above it, up to the base, are the
/// user's own and closed to the writing of others: whoever can rename a folder above can put another
/// in the place of what lies below (`attacks.md` 40).
fn make_private(base: &Path, path: &Path) -> Result<(), PlaceError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| PlaceError::Io {
            path: path.to_owned(),
            source,
        })?;
    for folder in path
        .ancestors()
        .take_while(|folder| folder.starts_with(base))
    {
        refuse_shared(folder)?;
    }
    Ok(())
}

/// Refuses a file or folder that is not the user's own, or that others may write.
pub(super) fn refuse_shared(path: &Path) -> Result<(), PlaceError> {
    let metadata = fs_err::metadata(path).map_err(|source| PlaceError::Io {
        path: path.to_owned(),
        source,
    })?;
    let mode = metadata.permissions().mode() & 0o777;
    if metadata.uid() != rustix::process::getuid().as_raw() {
        return Err(PlaceError::ForeignOwner {
            path: path.to_owned(),
            owner: metadata.uid(),
        });
    }
    if mode & 0o022 != 0 {
        return Err(PlaceError::OthersWrite {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

/// Refuses file systems on which a lock of one host is not one of another (`attacks.md` 15).
#[cfg(target_os = "linux")]
fn refuse_without_locks(path: &Path) -> Result<(), PlaceError> {
    // Magic numbers of linux/magic.h and the file systems' own headers.
    const REFUSED: [(u64, &str); 8] = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x517b, "SMB"),
        (0x6573_5546, "FUSE"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
    ];
    let io = |error: rustix::io::Errno| PlaceError::Io {
        path: path.to_owned(),
        source: error.into(),
    };
    let found = u64::try_from(rustix::fs::statfs(path).map_err(io)?.f_type).unwrap_or(0);
    match REFUSED
        .iter()
        .find(|(magic, _)| *magic == found & 0xffff_ffff)
    {
        Some((_, kind)) => Err(PlaceError::NoLocks {
            path: path.to_owned(),
            kind,
        }),
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_without_locks(_: &Path) -> Result<(), PlaceError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().unwrap();
        let environment = Environment {
            home: Some(folder.path().join("home")),
            ..Environment::default()
        };
        let places = Places::new(&environment, "host".to_owned()).unwrap();
        (folder, places)
    }

    fn open_to_all(path: &Path) {
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }

    #[test]
    fn every_folder_from_the_home_down_must_be_closed_to_others() {
        for shared in [
            "",
            "state",
            "state/hosts",
            "state/hosts/host",
            "state/hosts/host/nodes",
        ] {
            let (folder, places) = home();
            let node = places.node_folder(&CheckoutId::of(Path::new("/r")));
            node.prepare().unwrap();
            open_to_all(&folder.path().join("home").join(shared));
            let refused = node.prepare().unwrap_err();
            assert!(
                matches!(refused, PlaceError::OthersWrite { .. }),
                "{shared}: {refused}"
            );
        }
    }

    #[test]
    fn a_configuration_that_others_can_write_is_refused() {
        for shared in ["", "config", "config/config.toml"] {
            let (folder, places) = home();
            places.refuse_shared_config().unwrap();
            let config = folder.path().join("home/config");
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&config)
                .unwrap();
            fs_err::write(config.join("config.toml"), "").unwrap();
            places.refuse_shared_config().unwrap();
            open_to_all(&folder.path().join("home").join(shared));
            assert!(places.refuse_shared_config().is_err(), "{shared}");
        }
    }

    #[test]
    fn a_long_path_gets_its_socket_under_a_short_name() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(80));
        let environment = Environment {
            home: Some(long),
            xdg_runtime: Some(folder.path().join("run")),
            ..Environment::default()
        };
        let places = Places::new(&environment, "host".to_owned()).unwrap();
        let node = places.node_folder(&CheckoutId::of(Path::new("/r")));
        let socket = node.socket_file().unwrap();
        assert!(
            socket.as_os_str().len() <= SOCKET_PATH_BYTES_MAX,
            "{}",
            socket.display()
        );
    }
}
