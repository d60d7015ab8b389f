//! One look at a lease and its holder.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        net::UnixStream,
    },
    path::Path,
    time::Duration,
};

use earshot_proto::lease::{
    AliveLock, Answer, Examination, LeaseDocument, LeaseState, LeaseToken, Parsed, Place,
    Predecessor, ProcessFact,
};

use super::{alive::probe, files::read_lease};
use crate::{clock, config::NodeFolder, system};

/// Most bytes of a probe's answer that are read: the answer of `/api/v1/ready` is far smaller.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// The header of a probe that carries its nonce.
pub(crate) const NONCE_HEADER: &str = "earshot-nonce";

/// The header that carries the answer to it.
pub(crate) const PROOF_HEADER: &str = "earshot-proof";

/// Looks at a lease and its holder, and asks the holder when it should answer.
///
/// # Errors
/// When the lease is there and cannot be read.
pub(crate) fn examine(folder: &NodeFolder, here: &Place) -> io::Result<Examination> {
    look(folder, here, ask)
}

fn look(
    folder: &NodeFolder,
    here: &Place,
    ask: impl FnOnce(&LeaseDocument) -> Answer,
) -> io::Result<Examination> {
    let lease = read_lease(&folder.lease_file())?;
    let (alive, beat) = match lease.as_ref().and_then(Parsed::alive) {
        Some(name) => probe(folder.path(), name),
        None => (AliveLock::Missing, None),
    };
    let document = lease.as_ref().and_then(Parsed::document);
    let process = document.map_or(ProcessFact::Unknown, |document| {
        process_of(&document.as_predecessor(), here)
    });
    let answer = match document {
        Some(document) if alive != AliveLock::Free && document.state != LeaseState::Ended => {
            ask(document)
        }
        Some(_) | None => Answer::NotAsked,
    };
    Ok(Examination {
        lease,
        alive,
        beat,
        process,
        answer,
        wall: clock::wall(),
    })
}

/// Looks at the process of a holder, where it can be seen from here.
pub(super) fn process_of(holder: &Predecessor, here: &Place) -> ProcessFact {
    let same_room = holder.place.as_ref().is_some_and(|place| {
        place.boot_id == here.boot_id
            && place.pid_ns == here.pid_ns
            && place.host_id == here.host_id
    });
    let Some(process) = holder.process.filter(|_| same_room) else {
        return ProcessFact::Unknown;
    };
    // A number that no process can have is nobody's.
    let pid = process
        .pid
        .signalable()
        .and_then(|pid| u32::try_from(pid).ok());
    match pid.and_then(system::process_start) {
        Some(start) if start == process.pid_start => ProcessFact::Running,
        Some(_) | None => ProcessFact::Gone,
    }
}

/// Looks at a lease and its holder without asking it.
///
/// # Errors
/// When the lease is there and cannot be read.
pub(super) fn examine_quietly(folder: &NodeFolder, here: &Place) -> io::Result<Examination> {
    look(folder, here, |_| Answer::NotAsked)
}

/// Returns the answer to a nonce: only who has the token can give it.
pub(crate) fn prove(token: &LeaseToken, nonce: &[u8]) -> String {
    let key = blake3::derive_key("earshot 2026 probe", token.as_str().as_bytes());
    blake3::keyed_hash(&key, nonce).to_hex().to_string()
}

/// Asks the holder of a lease whether it is ready, over its socket.
fn ask(lease: &LeaseDocument) -> Answer {
    let mut random = [0; 16];
    if getrandom::fill(&mut random).is_err() {
        return Answer::NotAsked;
    }
    // A document is no order: only a socket in a folder that nobody else writes is dialled.
    if !is_private_socket(Path::new(&lease.socket)) {
        return Answer::Silent;
    }
    let nonce = format!("{:032x}", u128::from_be_bytes(random));
    let patience = lease.timings.probe_timeout();
    exchange(Path::new(&lease.socket), &nonce, patience)
        .ok()
        .and_then(|answer| read_answer(&answer, &prove(&lease.token, nonce.as_bytes())))
        .unwrap_or(Answer::Silent)
}

fn is_private_socket(socket: &Path) -> bool {
    let private = |folder: &Path| {
        fs_err::symlink_metadata(folder).is_ok_and(|metadata| {
            metadata.is_dir()
                && metadata.uid() == rustix::process::getuid().as_raw()
                && metadata.permissions().mode() & 0o022 == 0
        })
    };
    socket.is_absolute() && socket.parent().is_some_and(private)
}

fn exchange(socket: &Path, nonce: &str, patience: Duration) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let request = format!(
        "GET /api/v1/ready HTTP/1.1\r\nHost: localhost\r\nEarshot-Probe: 1\r\n\
         {NONCE_HEADER}: {nonce}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

fn read_answer(answer: &[u8], proof: &str) -> Option<Answer> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let proven = head
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| name.eq_ignore_ascii_case(PROOF_HEADER) && value.trim() == proof);
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    let executable_replaced = body.get("stale").is_some_and(|stale| !stale.is_null());
    proven.then_some(Answer::Answered {
        executable_replaced,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_proven_answer_counts() {
        let token = LeaseToken::from_random([5; 16]);
        let proof = prove(&token, b"nonce");
        let answer = |proof: &str, body: &str| {
            let text = format!("HTTP/1.1 503 X\r\nearshot-proof: {proof}\r\n\r\n{body}");
            text.into_bytes()
        };
        let told = |bytes: &[u8]| read_answer(bytes, &proof);
        assert_eq!(
            told(&answer(&proof, "{\"ready\":true}")),
            Some(Answer::Answered {
                executable_replaced: false
            })
        );
        assert_eq!(
            told(&answer(&proof, "{\"stale\":\"replaced\"}")),
            Some(Answer::Answered {
                executable_replaced: true
            })
        );
        let other = prove(&LeaseToken::from_random([6; 16]), b"nonce");
        for strange in [
            answer(&other, "{}"),
            answer("", "{}"),
            answer(&proof, "hello"),
            b"SSH-2.0".to_vec(),
            b"\xff".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(told(&strange), None);
        }
        assert_ne!(proof, prove(&token, b"other"));
    }
}
