//! Whether git would trust a repository, judged as git does.
//!
//! git trusts a repository whose work tree, `.git` file and git directory belong to the user. That
//! part is three looks at the disk. Anything else (`safe.directory`, a user behind `sudo`) is the
//! user's own configuration, which only git reads correctly on every machine, so git is asked.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::environment;
use crate::runner::{GitError, GitRunner, Plumbing};

/// Why a repository is not looked at any further.
#[derive(Debug)]
pub(crate) enum Distrust {
    /// It belongs to somebody else; git's own words.
    Dubious(String),
    /// git refuses it for another reason, or could not be asked.
    Refused(String),
}

/// Judges the repository at `top`, whose `parts` are what has to belong to the user.
pub(crate) fn verify(top: &Path, parts: &[&Path]) -> Result<(), Distrust> {
    let mine = parts
        .iter()
        .map(|part| belongs_to_me(part))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|error| Distrust::Refused(format!("its owner cannot be read: {error}")))?;
    if mine.iter().all(|mine| *mine) && !environment::assumes_different_owner() {
        return Ok(());
    }
    ask_git(top)
}

fn belongs_to_me(path: &Path) -> io::Result<bool> {
    Ok(fs_err::symlink_metadata(path)?.uid() == rustix::process::geteuid().as_raw())
}

fn ask_git(top: &Path) -> Result<(), Distrust> {
    let runner = match GitRunner::new() {
        Ok(runner) => runner.looking_into_bare_repositories(),
        Err(GitError::Absent) => {
            let reason =
                "it belongs to another user, and no git is there to ask about safe.directory";
            return Err(Distrust::Dubious(reason.to_owned()));
        }
        Err(error) => return Err(Distrust::Refused(error.to_string())),
    };
    match runner.run(top, Plumbing::RevParse, &["--git-dir"]) {
        Ok(_) => Ok(()),
        Err(GitError::Failed { message, .. }) if is_about_ownership(&message) => {
            Err(Distrust::Dubious(message))
        }
        Err(GitError::Failed { message, .. }) => Err(Distrust::Refused(message)),
        Err(error) => Err(Distrust::Refused(error.to_string())),
    }
}

/// The wording of git 2.35.3 and later, and of the two releases before.
fn is_about_ownership(message: &str) -> bool {
    message.contains("dubious ownership") || message.contains("unsafe repository")
}
