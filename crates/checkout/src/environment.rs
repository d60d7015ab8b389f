//! What of this process's environment a git process may see.
//!
//! A hook, a parent git or a tracked client file can set `GIT_*` variables that send git to another
//! repository or inject configuration, so all of them are dropped, with four exceptions:
//!
//! - `GIT_CONFIG_GLOBAL`, `GIT_CONFIG_SYSTEM`, `GIT_CONFIG_NOSYSTEM` say which files hold the user's
//!   and the machine's own settings. git never sets them itself, `safe.directory` lives there, and
//!   whoever can set them can set `HOME` as well. The ones that carry settings in their value
//!   (`GIT_CONFIG_PARAMETERS`, `GIT_CONFIG_COUNT` and its pairs, `GIT_CONFIG`) are dropped.
//! - `GIT_TEST_ASSUME_DIFFERENT_OWNER` can only make git refuse more.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const ASSUME_DIFFERENT_OWNER: &str = "GIT_TEST_ASSUME_DIFFERENT_OWNER";

const KEPT: [&str; 4] = [
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    ASSUME_DIFFERENT_OWNER,
];

/// Set for every git process, whatever was inherited.
const SET: [(&str, &str); 6] = [
    ("LC_ALL", "C"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // A partial clone must not run its remote's transport to fetch a missing object.
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_PAGER", "cat"),
];

/// Returns the environment of a git process: this process's own, cleaned.
pub(crate) fn for_git() -> Vec<(OsString, OsString)> {
    cleaned(std::env::vars_os())
}

/// Returns where git is, by the absolute folders of `PATH`.
pub(crate) fn git_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    absolute_folders(&path)
        .map(|folder| folder.join("git"))
        .find(|candidate| {
            let executable = rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok();
            executable && candidate.is_file()
        })
}

/// Returns whether git was told to take every repository for somebody else's.
pub(crate) fn assumes_different_owner() -> bool {
    std::env::var_os(ASSUME_DIFFERENT_OWNER).is_some()
}

/// The rule of this module, over any environment.
fn cleaned(inherited: impl Iterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let mut kept: Vec<_> = inherited
        .filter(|(name, _)| {
            let dropped = name.as_bytes().starts_with(b"GIT_") || name == "LC_ALL";
            !dropped || KEPT.iter().any(|keep| name == keep)
        })
        .map(|(name, value)| {
            if name == "PATH" {
                (name, without_relative(&value))
            } else {
                (name, value)
            }
        })
        .collect();
    kept.extend(
        SET.iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value))),
    );
    kept
}

/// A relative folder in `PATH` would run a program out of the repository looked at.
fn absolute_folders(path: &OsStr) -> impl Iterator<Item = &Path> {
    path.as_bytes()
        .split(|byte| *byte == b':')
        .map(|folder| Path::new(OsStr::from_bytes(folder)))
        .filter(|folder| folder.is_absolute())
}

fn without_relative(path: &OsStr) -> OsString {
    let folders: Vec<_> = absolute_folders(path).map(Path::as_os_str).collect();
    folders.join(OsStr::new(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_own_git_variables_stay() {
        let inherited = [
            ("HOME", "/home/ann"),
            ("GIT_DIR", "/elsewhere/.git"),
            ("GIT_WORK_TREE", "/elsewhere"),
            ("GIT_INDEX_FILE", "/elsewhere/index"),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "safe.directory"),
            ("GIT_CONFIG_VALUE_0", "*"),
            ("GIT_CONFIG_PARAMETERS", "'safe.directory=*'"),
            ("GIT_CONFIG", "/elsewhere/config"),
            ("GIT_EXEC_PATH", "/elsewhere"),
            ("GIT_EXTERNAL_DIFF", "evil"),
            ("GIT_OPTIONAL_LOCKS", "1"),
            ("GIT_CONFIG_GLOBAL", "/home/ann/gc"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("LC_ALL", "de_DE"),
            ("PATH", ".:/usr/bin::bin:/bin"),
        ];
        let mut cleaned = cleaned(
            inherited
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        cleaned.sort();
        let expected = [
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("GIT_CONFIG_GLOBAL", "/home/ann/gc"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_PAGER", "cat"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("HOME", "/home/ann"),
            ("LC_ALL", "C"),
            ("PATH", "/usr/bin:/bin"),
        ];
        assert_eq!(
            cleaned,
            expected.map(|(name, value)| (name.into(), value.into()))
        );
    }
}
