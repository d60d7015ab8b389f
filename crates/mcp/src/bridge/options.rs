//! Who the bridge speaks for.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

/// The secret by which a node knows one bridge again, for the life of its client's process.
#[derive(Clone, PartialEq, Eq)]
pub struct Seat([u8; 16]);

impl Seat {
    /// Returns the seat of 128 random bits.
    pub fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// Returns the seat as it is sent: 32 hexadecimal digits.
    pub(super) fn expose(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seat(..)")
    }
}

/// Where the client can be reached on this machine; never holds a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Address {
    /// The machine's name.
    pub machine: String,
    /// The client's process id.
    pub pid: u32,
    /// When that process started, in the unit of the system's process table.
    pub pid_started_at: u64,
    /// The provider's session id, where one is known.
    pub session: Option<String>,
    /// The socket on which the client takes messages, where it has one.
    pub socket: Option<String>,
}

/// What the binary hands to [`run`](super::run).
#[derive(Debug, Clone)]
pub struct BridgeOptions {
    /// The bridge's seat.
    pub seat: Seat,
    /// The root that the client works in, as the system spells it.
    pub caller_root: OsString,
    /// The session id of the execution identity; `None` where the client supplies none.
    pub session: Option<String>,
    /// The session that started this one.
    pub parent_session: Option<String>,
    /// Where the client can be reached.
    pub address: Address,
    /// How long a request waits while there is no node, before it is answered with an error.
    pub request_deadline: Duration,
    /// Cancelled when the client's process is gone, whatever its pipes say.
    pub client_gone: CancellationToken,
}

impl BridgeOptions {
    /// The usual [`request_deadline`](Self::request_deadline): longer than any handoff or restart
    /// of a node, shorter than the patience of common clients.
    pub const REQUEST_DEADLINE: Duration = Duration::from_mins(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_never_shows_in_debug_output() {
        let seat = Seat::new([0xab; 16]);

        assert_eq!(format!("{seat:?}"), "Seat(..)");
        assert_eq!(seat.expose(), "ab".repeat(16));
        assert_eq!(Seat::new([0; 16]).expose(), "0".repeat(32));
    }
}
