//! A client's file in the work tree: whether it may be written, and writing it whole.

use std::{
    fs::{File, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use earshot_checkout::Checkout;
use rustix::fs::OFlags;

use super::grown::line_at;
use crate::lease::sync_folder;

/// Most bytes of a file that init reads: no person writes a longer configuration.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// How the names of temporary files begin and end.
const TEMPORARY: (&str, &str) = (".earshot-init-", ".tmp");

/// Why a file is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The line, where it is about one.
    pub(super) line: Option<usize>,
    /// What is wrong, as a sentence without its full stop.
    pub(super) why: String,
    /// What to do about it, as a sentence.
    pub(super) remedy: String,
}

impl Refusal {
    /// Makes one that is about the file as a whole.
    pub(super) fn new(why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            line: None,
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    fn io(doing: &str, error: &io::Error) -> Self {
        Self::new(
            format!("it cannot be {doing}: {error}"),
            "Make it and its folder yours, readable and writable.",
        )
    }
}

/// Where a file is, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The file itself, behind links that stay in the checkout.
    path: PathBuf,
    /// Its mode and owner, where it is there.
    known: Option<Known>,
    /// The folders on the way to it that are not there, outermost first, relative to the root.
    missing: Vec<PathBuf>,
    /// What is in it; `None` where it is not there.
    pub(super) text: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    mode: u32,
    owner: (u32, u32),
}

impl Place {
    /// Looks at a file of a checkout, by its path relative to the root.
    ///
    /// # Errors
    /// Why it is left alone.
    pub(super) fn look(checkout: &Checkout, relative: &str) -> Result<Self, Refusal> {
        let mut path = checkout.root.clone();
        let mut missing = Vec::new();
        let mut so_far = PathBuf::new();
        let relative = Path::new(relative);
        let folders = relative.parent().unwrap_or_else(|| Path::new(""));
        for name in folders {
            path.push(name);
            so_far.push(name);
            match fs_err::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.push(so_far.clone());
                }
                Err(error) => return Err(Refusal::io("read", &error)),
                Ok(metadata) => {
                    if metadata.is_symlink() {
                        path = within(checkout, &path)?;
                    }
                    if !path.is_dir() {
                        let why = format!("{} is not a folder", so_far.display());
                        return Err(Refusal::new(why, "Move it out of the way."));
                    }
                }
            }
        }
        path.push(relative.file_name().unwrap_or_default());
        match fs_err::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    path,
                    known: None,
                    missing,
                    text: None,
                });
            }
            Err(error) => return Err(Refusal::io("read", &error)),
            Ok(metadata) if metadata.is_symlink() => path = within(checkout, &path)?,
            Ok(_) => {}
        }
        let (known, text) = read(&path)?;
        Ok(Self {
            path,
            known: Some(known),
            missing,
            text: Some(text),
        })
    }

    /// Refuses a file that nobody may write.
    ///
    /// # Errors
    /// That it is read-only.
    pub(super) fn refuse_read_only(&self) -> Result<(), Refusal> {
        match self.known {
            Some(known) if known.mode & 0o222 == 0 => Err(Refusal::new(
                "it is read-only",
                "Make it writable with `chmod u+w`, if it is yours to change.",
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Lists the folders that writing makes, relative to the root.
    pub(super) fn missing(&self) -> &[PathBuf] {
        &self.missing
    }

    /// Writes the file so that a reader sees the old one or the new one, whole.
    ///
    /// # Errors
    /// Why it was not written; it is then as it was.
    pub(super) fn write(&self, text: &str) -> Result<(), Refusal> {
        let folder = self.path.parent().unwrap_or_else(|| Path::new("/"));
        fs_err::create_dir_all(folder).map_err(|error| Refusal::io("written", &error))?;
        remove_left_behind(folder);
        let temporary = temporary_in(folder)?;
        let written = self
            .fill(&temporary, text)
            .map_err(|error| Refusal::io("written", &error))
            .and_then(|()| self.refuse_changed())
            .and_then(|()| {
                fs_err::rename(&temporary, &self.path)
                    .and_then(|()| sync_folder(folder))
                    .map_err(|error| Refusal::io("written", &error))
            });
        if written.is_err() {
            fs_err::remove_file(&temporary).ok(); // the error that is reported came first
        }
        written
    }

    /// Removes the file, and these folders where nothing else is in them.
    ///
    /// # Errors
    /// Why it was not removed.
    pub(super) fn remove(&self, root: &Path, folders: &[PathBuf]) -> Result<(), Refusal> {
        self.refuse_changed()?;
        fs_err::remove_file(&self.path).map_err(|error| Refusal::io("removed", &error))?;
        for folder in folders.iter().rev() {
            // One that others have put something into stays.
            fs_err::remove_dir(root.join(folder)).ok();
        }
        Ok(())
    }

    fn fill(&self, temporary: &Path, text: &str) -> io::Result<()> {
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o666) // less what the user's umask takes
            .open(temporary)?;
        if let Some(known) = self.known {
            let metadata = file.metadata()?;
            let (user, group) = known.owner;
            if (metadata.uid(), metadata.gid()) != known.owner {
                std::os::unix::fs::fchown(&file, Some(user), Some(group))?;
            }
            file.set_permissions(Permissions::from_mode(known.mode))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// Refuses to go over what somebody else wrote since it was looked at.
    fn refuse_changed(&self) -> Result<(), Refusal> {
        let now = match read(&self.path) {
            Ok((_, text)) => Some(text),
            Err(_) if !self.path.exists() => None,
            Err(refusal) => return Err(refusal),
        };
        if now == self.text {
            return Ok(());
        }
        Err(changed())
    }
}

/// Names a temporary file that nobody else has.
fn temporary_in(folder: &Path) -> Result<PathBuf, Refusal> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| {
        Refusal::new(
            format!("it cannot be written: {error}"),
            "Check the system's random source.",
        )
    })?;
    let (begin, end) = TEMPORARY;
    let number = u64::from_le_bytes(random);
    Ok(folder.join(format!("{begin}{number:016x}{end}")))
}

/// Says that somebody else was at it.
pub(super) fn changed() -> Refusal {
    Refusal::new(
        "it was changed while init was looking at it",
        "Run the command again.",
    )
}

fn read(path: &Path) -> Result<(Known, String), Refusal> {
    let io = |error: io::Error| Refusal::io("read", &error);
    let file = File::options()
        .read(true)
        // Not to wait for the other end of a pipe.
        .custom_flags(i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0))
        .open(path)
        .map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        return Err(Refusal::new(
            "it is not a regular file",
            "Move it out of the way.",
        ));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Refusal::new(
            format!("it is longer than {FILE_BYTES_MAX} bytes"),
            "Add the entry by hand: `earshot up` shows it.",
        ));
    }
    let text = String::from_utf8(bytes).map_err(|error| Refusal {
        line: Some(line_of_bytes(&error)),
        ..Refusal::new("it is not UTF-8", "Convert it to UTF-8.")
    })?;
    let known = Known {
        mode: metadata.permissions().mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
    };
    Ok((known, text))
}

fn line_of_bytes(error: &std::string::FromUtf8Error) -> usize {
    let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    line_at(&String::from_utf8_lossy(valid), valid.len())
}

/// Follows a link, as long as it stays in the checkout and out of git's own folder.
fn within(checkout: &Checkout, link: &Path) -> Result<PathBuf, Refusal> {
    let target = link.canonicalize().map_err(|_| {
        Refusal::new(
            format!("{} is a link that leads nowhere", name_in(checkout, link)),
            "Remove the link, or make what it leads to.",
        )
    })?;
    let in_git = [&checkout.git_dir, &checkout.common_dir]
        .into_iter()
        .flatten()
        .any(|git| target.starts_with(git));
    if target.starts_with(&checkout.root) && !in_git {
        return Ok(target);
    }
    Err(Refusal::new(
        format!(
            "{} is a link to {}, outside of the checkout",
            name_in(checkout, link),
            target.display()
        ),
        "Replace the link by a file of the checkout, or add the entry where it leads by hand.",
    ))
}

fn name_in(checkout: &Checkout, path: &Path) -> String {
    let relative = path.strip_prefix(&checkout.root).unwrap_or(path);
    relative.display().to_string()
}

/// Removes what an init that was killed left in a folder. Another one is not running: the caller
/// holds the lock.
fn remove_left_behind(folder: &Path) {
    let (begin, end) = TEMPORARY;
    for entry in fs_err::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_one = name
            .to_str()
            .is_some_and(|name| name.starts_with(begin) && name.ends_with(end));
        if is_one {
            fs_err::remove_file(entry.path()).ok(); // it does no harm where it is
        }
    }
}
