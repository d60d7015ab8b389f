//! One look at a lease and its holder.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use earshot_proto::lease::{
    AliveLock, Answer, Examination, LeaseState, Parsed, Place, ProcessFact,
};

use super::{alive::probe, files::read_lease};
use crate::{clock, config::NodeFolder, system};

/// Most bytes of a probe's answer that are read: the answer of `/api/v1/ready` is far smaller.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Looks at a lease and its holder, and asks the holder when it should answer.
///
/// # Errors
/// When the lease is there and cannot be read.
pub(crate) fn examine(folder: &NodeFolder, here: &Place) -> io::Result<Examination> {
    let lease = read_lease(&folder.lease_file())?;
    let (alive, beat) = match lease.as_ref().and_then(Parsed::alive) {
        Some(name) => probe(folder.path(), name),
        None => (AliveLock::Missing, None),
    };
    let document = lease.as_ref().and_then(Parsed::document);
    let process = document.map_or(ProcessFact::Unknown, |document| {
        let same_room = document.place.boot_id == here.boot_id
            && document.place.pid_ns == here.pid_ns
            && document.place.host_id == here.host_id;
        let pid = u32::try_from(document.process.pid.number())
            .ok()
            .filter(|_| same_room);
        match pid.map(system::process_start) {
            None => ProcessFact::Unknown,
            Some(Some(start)) if start == document.process.pid_start => ProcessFact::Running,
            Some(_) => ProcessFact::Gone,
        }
    });
    let answer = match document {
        Some(document) if document.state == LeaseState::Serving && alive == AliveLock::Held => ask(
            Path::new(&document.socket),
            document.timings.probe_timeout(),
        ),
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

/// Asks the holder whether it is ready, over its own socket.
///
/// The socket's name is derived from the lease's token and lies in a private folder, so whoever
/// answers there is the holder.
fn ask(socket: &Path, patience: Duration) -> Answer {
    let asked = || -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(
            b"GET /api/v1/ready HTTP/1.1\r\nHost: localhost\r\nEarshot-Probe: 1\r\n\
              Connection: close\r\n\r\n",
        )?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    };
    asked()
        .ok()
        .and_then(|answer| read_answer(&answer))
        .unwrap_or(Answer::Silent)
}

fn read_answer(answer: &[u8]) -> Option<Answer> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?;
    if status != "200" && status != "503" {
        return None;
    }
    let body: serde_json::Value = serde_json::from_str(body).ok()?;
    let executable_replaced = body.get("stale").is_some_and(|stale| !stale.is_null());
    Some(Answer::Answered {
        executable_replaced,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_a_strange_one_is_silence() {
        let fresh = b"HTTP/1.1 200 OK\r\nx: y\r\n\r\n{\"ready\":true}";
        assert_eq!(
            read_answer(fresh),
            Some(Answer::Answered {
                executable_replaced: false
            })
        );
        let stale = b"HTTP/1.1 503 Service Unavailable\r\n\r\n{\"stale\":\"replaced\"}";
        assert_eq!(
            read_answer(stale),
            Some(Answer::Answered {
                executable_replaced: true
            })
        );
        for strange in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n\r\nhello",
            b"SSH-2.0",
            b"\xff",
            b"HTTP/1.1 404 Not Found\r\n\r\n{}",
        ] {
            assert_eq!(read_answer(strange), None);
        }
    }
}
