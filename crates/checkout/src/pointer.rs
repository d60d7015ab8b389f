//! Pure readers of the pointer files between work trees and git directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Why a `.git` file does not name a git directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitFileError {
    /// It does not begin as one.
    #[error("it does not begin with `gitdir: `")]
    NoPrefix,
    /// Nothing, or something that no path can be, follows the prefix.
    #[error("it names no path")]
    NoPath,
}

/// Returns the path that a `.git` file names, as written there.
///
/// A relative one is relative to the folder of the file.
///
/// # Errors
///
/// [`GitFileError`] for a file that git takes for invalid as well.
pub fn parse_git_file(content: &[u8]) -> Result<PathBuf, GitFileError> {
    let path = content
        .strip_prefix(b"gitdir: ")
        .ok_or(GitFileError::NoPrefix)?;
    to_path(trim_end(path, |byte| matches!(byte, b'\n' | b'\r'))).ok_or(GitFileError::NoPath)
}

/// Returns the path in a `gitdir` or `commondir` file, as written there, `None` where there is none.
///
/// A relative one is relative to the git directory that holds the file, whatever the working
/// directory is.
pub fn parse_link_file(content: &[u8]) -> Option<PathBuf> {
    to_path(trim_end(content, |byte| byte.is_ascii_whitespace()))
}

fn to_path(bytes: &[u8]) -> Option<PathBuf> {
    if bytes.is_empty() || bytes.contains(&0) {
        return None;
    }
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}

fn trim_end(bytes: &[u8], trimmed: impl Fn(u8) -> bool) -> &[u8] {
    let end = bytes
        .iter()
        .rposition(|byte| !trimmed(*byte))
        .map_or(0, |last| last + 1);
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_git_file_names_one_path() {
        for (content, expected) in [
            (&b"gitdir: ./.bare\n"[..], Ok("./.bare")),
            (b"gitdir: /r/.git/worktrees/a", Ok("/r/.git/worktrees/a")),
            (b"gitdir: ../with space \r\n", Ok("../with space ")),
            (b"gitdir: a\nb\n", Ok("a\nb")),
            (b"", Err(GitFileError::NoPrefix)),
            (b"gitdir:/r", Err(GitFileError::NoPrefix)),
            (b" gitdir: /r", Err(GitFileError::NoPrefix)),
            (b"gitdir: \n", Err(GitFileError::NoPath)),
            (b"gitdir: /r\0/x", Err(GitFileError::NoPath)),
        ] {
            assert_eq!(
                parse_git_file(content),
                expected.map(PathBuf::from),
                "{content:?}"
            );
        }
    }

    #[test]
    fn a_link_file_loses_what_whitespace_follows() {
        assert_eq!(parse_link_file(b"../..\n"), Some("../..".into()));
        assert_eq!(
            parse_link_file(b"/r/a b/.git \t\r\n"),
            Some("/r/a b/.git".into())
        );
        assert_eq!(parse_link_file(b" \n"), None);
        assert_eq!(parse_link_file(b"a\0b"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(content in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(path) = parse_git_file(&content) {
                prop_assert!(!path.as_os_str().is_empty());
            }
            if let Some(path) = parse_link_file(&content) {
                prop_assert!(!path.as_os_str().as_bytes().contains(&0));
            }
        }
    }
}
