//! What a bridge says to a node over its Unix socket, said by hand: seats, numbers, floors.

use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::http::{Answer, PATIENCE, exchange};

/// The bridge of one seat, reduced to what it sends.
#[derive(Debug, Clone)]
pub struct SeatClient {
    socket: PathBuf,
    seat: String,
}

impl SeatClient {
    /// Makes a client with a seat of its own.
    pub fn new(socket: &Path, seat: u128) -> Self {
        Self {
            socket: socket.to_owned(),
            seat: format!("{seat:032x}"),
        }
    }

    /// Sends a command under a number, naming the number up to which every answer has arrived.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&self, capability: &str, n: u64, acked: u64, body: &Value) -> io::Result<Answer> {
        let (n, acked) = (n.to_string(), acked.to_string());
        let headers = [
            ("content-type", "application/json"),
            ("earshot-seat", self.seat.as_str()),
            ("earshot-request", n.as_str()),
            ("earshot-acked", acked.as_str()),
        ];
        let path = format!("/api/v1/{}", capability.replace('.', "/"));
        socket_http(
            &self.socket,
            "POST",
            &path,
            &headers,
            body.to_string().as_bytes(),
        )
    }

    /// Sends a command, and returns its status and its body as the bytes that came.
    ///
    /// # Panics
    /// When the node cannot be reached.
    pub fn command(&self, capability: &str, n: u64, acked: u64, body: &Value) -> (u16, String) {
        let answer = self.send(capability, n, acked, body);
        let answer = answer.expect("the node answers");
        (
            answer.status,
            String::from_utf8_lossy(&answer.body).into_owned(),
        )
    }
}

/// Sends one request to a Unix socket, and reads the answer to its end.
///
/// # Errors
/// What the system says, and an answer that is not HTTP.
pub fn socket_http(
    socket: &Path,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Answer> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream, "localhost", (method, path), headers, body)
}
