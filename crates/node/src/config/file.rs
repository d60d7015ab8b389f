//! The machine's configuration file, `config.toml`.

use std::{
    fs::File,
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::words::nearest;

/// The machine's configuration. Every field has a default; an unknown key is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MachineConfig {
    /// How this machine's nodes are reached over HTTP.
    pub http: HttpConfig,
    /// When nodes that a client started end by themselves.
    pub idle: IdleConfig,
    /// Roots that `EARSHOT_ROOT` may name from outside of their repository.
    pub roots: Vec<PathBuf>,
}

/// `[http]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpConfig {
    /// The address to bind; loopback when absent.
    pub host: Option<IpAddr>,
    /// What a loopback caller must show.
    pub loopback: Option<Loopback>,
    /// Names by which callers on other machines may call this one.
    pub names: Vec<String>,
}

/// `[idle]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct IdleConfig {
    /// Seconds without use after which a node that a client started ends.
    pub seconds: Option<u32>,
}

/// `http.loopback`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Loopback {
    /// The connection must be the user's own: the default where the system can tell.
    SameUser,
    /// Nothing is asked: the default elsewhere.
    Open,
    /// Every write shows the machine's key.
    Key,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file is there and cannot be read; what the system said names it.
    #[error("the configuration cannot be read")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line does not fit.
    #[error("{path}, line {line}: {why}", path = .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it, naming the key.
        why: String,
    },
}

impl ConfigError {
    /// Returns the one thing to do about it.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::Io { path, .. } => {
                format!(
                    "Make {} a file that you can read, or remove it.",
                    path.display()
                )
            }
            Self::Line { .. } => "Correct that line; an absent key has its default.".to_owned(),
        }
    }
}

/// Reads the machine's configuration; a file that is not there is an empty one.
///
/// # Errors
/// [`ConfigError`] when the file cannot be read or a line does not fit.
pub(crate) fn read_machine_config(path: &Path) -> Result<MachineConfig, ConfigError> {
    earshot_capability::count(earshot_capability::Step::ConfigRead);
    match fs_err::read_to_string(path) {
        Ok(text) => parse(&text).map_err(|(line, why)| ConfigError::Line {
            path: path.to_owned(),
            line,
            why,
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(MachineConfig::default()),
        Err(source) => Err(ConfigError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

/// What stands at each key, in the words of the documentation.
const KEYS: [(&str, &str); 6] = [
    ("http", "the table [http]"),
    ("http.host", "an address, as \"192.0.2.7\""),
    ("http.loopback", "\"same-user\", \"open\" or \"key\""),
    ("http.names", "a list of names, as [\"build.lan\"]"),
    ("idle", "the table [idle]"),
    ("idle.seconds", "a whole number of seconds, 0 or more"),
];

/// Reads the text of a configuration, or says which line does not fit, and why.
fn parse(text: &str) -> Result<MachineConfig, (usize, String)> {
    let line_of = |error: &toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        before.map_or(1, |before| 1 + before.matches('\n').count())
    };
    let syntax = |error: toml::de::Error| (line_of(&error), error.message().to_owned());
    let document = toml::Deserializer::parse(text).map_err(syntax)?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let key = error.path().to_string();
        (
            line_of(error.inner()),
            misfit(&key, error.inner().message()),
        )
    })
}

/// Says what is wrong at a key, from the path that was read and serde's message, whose own words
/// are those of a programmer.
fn misfit(key: &str, message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        // An entry of a list is told of by the list.
        let key = key.split('[').next().unwrap_or(key);
        let known = KEYS.iter().find(|(known, _)| *known == key);
        return known.map_or_else(
            || message.to_owned(),
            |(name, expected)| format!("`{name}` is not {expected}"),
        );
    };
    let unknown = rest.split('`').next().unwrap_or(rest);
    let table = key.strip_suffix(unknown).unwrap_or(key).trim_matches('.');
    let full = |name: &str| match table {
        "" => name.to_owned(),
        table => format!("{table}.{name}"),
    };
    let siblings = KEYS.iter().filter_map(|(known, _)| {
        let (parent, name) = known.rsplit_once('.').unwrap_or(("", known));
        (parent == table).then_some(name)
    });
    let meant = nearest(unknown, siblings).map_or_else(String::new, |name| {
        format!("; did you mean `{}`?", full(name))
    });
    format!("there is no key `{}`{meant}", full(unknown))
}

/// Reads the key that writes must show; makes one, 0600, where there is none.
///
/// # Errors
/// When it cannot be read or made, or others can read it.
pub(crate) fn read_or_make_key(path: &Path) -> io::Result<String> {
    match fs_err::read_to_string(path) {
        Ok(key) => {
            let mode = fs_err::metadata(path)?.permissions().mode() & 0o777;
            if mode & 0o077 != 0 || key.trim().is_empty() {
                let why = format!(
                    "{} is empty, or open to others (mode {mode:03o})",
                    path.display()
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut random = [0; 32];
            getrandom::fill(&mut random)?;
            let key = blake3::Hash::from_bytes(random).to_hex().to_string();
            if let Some(folder) = path.parent() {
                fs_err::create_dir_all(folder)?;
            }
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(path)?;
            file.write_all(key.as_bytes())?;
            file.sync_all()?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

/// Reads the seed of a signing key; makes one, 0600, where there is none.
///
/// Two processes that make one at once end with the same.
///
/// # Errors
/// When it cannot be read or made, is none, or others can read it: then it is no secret any more.
pub(crate) fn read_or_make_seed(path: &Path) -> io::Result<[u8; 32]> {
    match read_seed(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    // A file without a name until it is whole; the link fails where somebody was faster.
    let mut file = tempfile_in(folder)?;
    file.file.write_all(hex_of(&seed).as_bytes())?;
    file.file.sync_all()?;
    match fs_err::hard_link(&file.path, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    File::open(folder)?.sync_all()?;
    read_seed(path)
}

fn read_seed(path: &Path) -> io::Result<[u8; 32]> {
    let text = fs_err::read_to_string(path)?;
    let mode = fs_err::metadata(path)?.permissions().mode() & 0o777;
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let shown = path.display();
    if mode & 0o077 != 0 {
        return refuse(format!(
            "{shown} can be read by others (mode {mode:03o}): if nobody did, run `chmod 600` on it, \
             else delete it, and a new key is made"
        ));
    }
    match blake3::Hash::from_hex(text.trim()) {
        Ok(seed) => Ok(*seed.as_bytes()),
        Err(_) => refuse(format!(
            "{shown} is no key: delete it, and a new one is made"
        )),
    }
}

fn hex_of(seed: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*seed).to_hex().to_string()
}

/// A private file beside its destination; dropped, its name goes.
struct Beside {
    file: File,
    path: PathBuf,
}

impl Drop for Beside {
    fn drop(&mut self) {
        fs_err::remove_file(&self.path).ok(); // a name that stays harms nobody
    }
}

fn tempfile_in(folder: &Path) -> io::Result<Beside> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)?;
    let path = folder.join(format!("key-{:016x}.tmp", u64::from_be_bytes(random)));
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    Ok(Beside { file, path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_refused_when_others_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config/http.key");
        let key = read_or_make_key(&path).unwrap();
        assert_eq!(key.len(), 64);
        assert_eq!(read_or_make_key(&path).unwrap(), key);
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_or_make_key(&path).is_err());
    }

    #[test]
    fn a_seed_is_made_once_by_however_many_and_refused_when_others_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.key");
        let made: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| read_or_make_seed(&path).unwrap()))
                .collect();
            makers.into_iter().map(|it| it.join().unwrap()).collect()
        });
        assert!(made.iter().all(|seed| *seed == made[0]), "{made:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = read_or_make_seed(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        fs_err::write(&path, "short").unwrap();
        let refused = read_or_make_seed(&path).unwrap_err().to_string();
        assert!(refused.contains("is no key"), "{refused}");
    }

    #[test]
    fn a_whole_file_is_read() {
        let config = parse(
            "[http]\nhost = \"192.0.2.7\"\nloopback = \"key\"\nnames = [\"build.lan\"]\n\
             [idle]\nseconds = 60\n",
        )
        .unwrap();
        assert_eq!(config.http.host, Some("192.0.2.7".parse().unwrap()));
        assert_eq!(config.http.loopback, Some(Loopback::Key));
        assert_eq!(config.idle.seconds, Some(60));
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_line_and_its_key() {
        for (text, line, why) in [
            (
                "[http]\n\nlopback = \"key\"\n",
                3,
                "there is no key `http.lopback`; did you mean `http.loopback`?",
            ),
            ("[http]\nport = 1\n", 2, "there is no key `http.port`"),
            ("[mesh]\n", 1, "there is no key `mesh`"),
            ("[htp]\n", 1, "there is no key `htp`; did you mean `http`?"),
            (
                "[http]\nloopback = \"none\"\n",
                2,
                "`http.loopback` is not \"same-user\", \"open\" or \"key\"",
            ),
            (
                "[http]\nhost = \"nowhere\"\n",
                2,
                "`http.host` is not an address, as \"192.0.2.7\"",
            ),
            (
                "[http]\nnames = [\"a\", 1]\n",
                2,
                "`http.names` is not a list of names, as [\"build.lan\"]",
            ),
            (
                "[idle]\nseconds = -1\n",
                2,
                "`idle.seconds` is not a whole number of seconds, 0 or more",
            ),
            ("idle = 5\n", 1, "`idle` is not the table [idle]"),
        ] {
            assert_eq!(parse(text).unwrap_err(), (line, why.to_owned()), "{text:?}");
        }
        let (line, why) = parse("\n[http\n").unwrap_err();
        assert!(line == 2 && !why.is_empty(), "line {line}: {why}");
    }

    #[test]
    fn the_whole_path_of_the_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs_err::write(&path, "[idle]\nseconds = true\n").unwrap();
        let error = read_machine_config(&path).unwrap_err().to_string();
        let begin = format!("{}, line 2: `idle.seconds` is not", path.display());
        assert!(error.starts_with(&begin), "{error}");
    }

    #[test]
    fn a_missing_file_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let config = read_machine_config(&folder.path().join("config.toml")).unwrap();
        assert_eq!(config, MachineConfig::default());
    }
}
