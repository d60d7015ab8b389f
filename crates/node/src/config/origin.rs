//! Variables that a repository could have set: tracked client files set them (`attacks.md` 28).

use std::path::{Path, PathBuf};

use earshot_checkout::{Checkout, is_tracked, resolve};

/// Why what the environment names is not followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginError {
    /// `EARSHOT_HOME` holds a configuration that came with a repository.
    #[error("EARSHOT_HOME names {0}, whose configuration is tracked by the repository around it")]
    TrackedHome(PathBuf),
    /// `EARSHOT_ROOT` leads to a repository that has nothing to do with the working directory.
    #[error("{variable} names {root}, which is no checkout of the repository that you are in")]
    ForeignRoot {
        /// The variable.
        variable: &'static str,
        /// The root that it names.
        root: PathBuf,
    },
}

impl OriginError {
    /// Returns the one thing to do about it.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Self::TrackedHome(_) => {
                "Set EARSHOT_HOME to a folder of your own, outside the repository.".to_owned()
            }
            Self::ForeignRoot { root, .. } => format!(
                "Name it with --root, or list it in config.toml: roots = [\"{}\"].",
                root.display()
            ),
        }
    }
}

/// Refuses a home that came with a repository: its configuration could open the node to others.
///
/// # Errors
/// [`OriginError::TrackedHome`].
pub(crate) fn judge_home(home: &Path) -> Result<(), OriginError> {
    let Some(around) = home.ancestors().find(|folder| folder.is_dir()) else {
        return Ok(());
    };
    let Ok(checkout) = resolve(around) else {
        return Ok(());
    };
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let tracked = ["config/config.toml", "config/http.key"]
        .iter()
        .any(|file| {
            home.join(file).starts_with(&checkout.root) && is_tracked(&checkout, &home.join(file))
        });
    if tracked {
        Err(OriginError::TrackedHome(home))
    } else {
        Ok(())
    }
}

/// Refuses a root that a variable names and neither the working directory nor the machine's
/// configuration vouches for.
///
/// # Errors
/// [`OriginError::ForeignRoot`].
pub(crate) fn judge_root(
    variable: &'static str,
    named: &Checkout,
    working_directory: Option<&Path>,
    listed: &[PathBuf],
) -> Result<(), OriginError> {
    let here = working_directory.and_then(|folder| resolve(folder).ok());
    let same = here.is_some_and(|here| {
        here.root == named.root || here.repository_id() == named.repository_id()
    });
    let is_listed = || {
        listed
            .iter()
            .any(|root| root.canonicalize().is_ok_and(|root| root == named.root))
    };
    if same || is_listed() {
        return Ok(());
    }
    Err(OriginError::ForeignRoot {
        variable,
        root: named.root.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, arguments: &[&str]) {
        let done = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t.invalid"])
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .status();
        assert!(done.unwrap().success(), "git {arguments:?}");
    }

    fn repository(folder: &Path, name: &str) -> PathBuf {
        let root = folder.join(name);
        fs_err::create_dir(&root).unwrap();
        git(&root, &["init", "-q"]);
        root.canonicalize().unwrap()
    }

    #[test]
    fn env_from_tracked_file() {
        let scratch = tempfile::tempdir().unwrap();
        let repo = repository(scratch.path(), "repo");
        let home = repo.join(".e");
        assert_eq!(judge_home(&home), Ok(()), "not there yet");
        fs_err::create_dir_all(home.join("config")).unwrap();
        fs_err::write(home.join("config/config.toml"), "").unwrap();
        assert_eq!(judge_home(&home), Ok(()), "untracked");
        git(&repo, &["add", "-f", ".e"]);
        assert_eq!(judge_home(&home), Err(OriginError::TrackedHome(home)));
        assert_eq!(judge_home(&scratch.path().join("elsewhere")), Ok(()));
    }

    #[test]
    fn a_root_is_followed_within_the_repository_or_when_listed() {
        let scratch = tempfile::tempdir().unwrap();
        let (repo, other) = (
            repository(scratch.path(), "a"),
            repository(scratch.path(), "b"),
        );
        git(&repo, &["commit", "-q", "--allow-empty", "-m", "x"]);
        git(&repo, &["worktree", "add", "-q", "../wt"]);
        let judge = |root: &Path, from: &Path, listed: &[PathBuf]| {
            judge_root("EARSHOT_ROOT", &resolve(root).unwrap(), Some(from), listed).is_ok()
        };
        assert!(judge(&repo, &repo, &[]));
        assert!(judge(&scratch.path().join("wt"), &repo, &[]));
        assert!(!judge(&other, &repo, &[]));
        assert!(judge(&other, &repo, std::slice::from_ref(&other)));
        assert!(!judge(&other, scratch.path(), &[]));
    }
}
