//! The machine's configuration file, `config.toml`.

use std::{
    fmt,
    fs::File,
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use serde::Deserialize;

/// The machine's configuration. Every field has a default; an unknown key is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MachineConfig {
    /// How this machine's nodes are reached over HTTP.
    pub http: HttpConfig,
    /// When nodes that a client started end by themselves.
    pub idle: IdleConfig,
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
#[derive(Debug)]
pub(crate) enum ConfigError {
    /// The file is there and cannot be read.
    Io(io::Error),
    /// A line does not fit; names the line, and the nearest known key for an unknown one.
    Line(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => f.write_str("the configuration file cannot be read"),
            Self::Line(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Line(_) => None,
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
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(MachineConfig::default()),
        Err(error) => Err(ConfigError::Io(error)),
    }
}

fn parse(text: &str) -> Result<MachineConfig, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        let message = error.message();
        let hint = nearest_known(message)
            .map_or_else(String::new, |key| format!("; did you mean `{key}`?"));
        ConfigError::Line(format!("line {line}: {message}{hint}"))
    })
}

/// Finds the known key nearest to the unknown one that serde's message names.
fn nearest_known(message: &str) -> Option<&str> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    message.starts_with("unknown field").then_some(())?;
    let unknown = quoted.next()?;
    quoted.min_by_key(|known| edits(unknown, known))
}

/// Counts the single-letter edits between two short words (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
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
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known() {
        let error = parse("[http]\n\nlopback = \"key\"\n")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("line 3:"), "{error}");
        assert!(error.ends_with("did you mean `loopback`?"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_line() {
        for (text, line) in [
            ("[http]\nloopback = \"none\"\n", 2),
            ("[http]\nhost = \"nowhere\"\n", 2),
            ("[idle]\nseconds = -1\n", 2),
            ("[http\n", 1),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("line {line}:")),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn a_missing_file_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let config = read_machine_config(&folder.path().join("config.toml")).unwrap();
        assert_eq!(config, MachineConfig::default());
    }
}
