//! Reading and writing `lease.json`.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use earshot_proto::lease::{LEASE_BYTES_MAX, LeaseDocument, Parsed, parse};
use rustix::fs::OFlags;

/// Reads a lease; `None` when there is no file.
///
/// # Errors
/// When there is a file and it cannot be read, which says nothing about its holder.
pub(crate) fn read_lease(path: &Path) -> io::Result<Option<Parsed>> {
    let file = File::options()
        .read(true)
        // Not to wait for the other end of a pipe that somebody put in its place.
        .custom_flags(i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0))
        .open(path);
    let file = match file {
        Ok(file) if file.metadata()?.is_file() => file,
        Ok(_) => return Ok(Some(parse(b""))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(LEASE_BYTES_MAX)
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(Some(parse(&bytes)))
}

/// Writes a lease so that a reader sees the old or the new one, whole, also after a power cut.
///
/// The caller holds `lease.lock`.
///
/// # Errors
/// When any step fails; the old document then still stands.
pub(crate) fn write_lease(folder: &Path, lease: &LeaseDocument) -> io::Result<()> {
    let temporary = folder.join(format!("lease-{}.tmp", lease.token.as_str()));
    let written = write_private(&temporary, &lease.encode())
        .and_then(|()| fs_err::rename(&temporary, folder.join("lease.json")))
        .and_then(|()| sync_folder(folder));
    if written.is_err() {
        fs_err::remove_file(&temporary).ok(); // the error that is reported came first
    }
    written
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a rename in this folder lasting.
///
/// # Errors
/// What the system says.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
