//! The caller of a capability, read once from the headers that came with the request.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use base64::Engine as _;
use earshot_trust::{Origin, Seat, SessionId, Surface};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::failure::{Code, Failure};

/// The names of the headers that a caller may send, in lower case.
pub mod headers {
    /// The seat of a bridge's client: 32 hexadecimal digits, a secret. Unix socket only.
    pub const SEAT: &str = "earshot-seat";
    /// The number of a bridge's request, rising from 1; a re-sent request keeps its number.
    pub const REQUEST: &str = "earshot-request";
    /// The highest number up to which the bridge's client has every answer.
    pub const ACKED: &str = "earshot-acked";
    /// The root that the caller works in, percent-encoded UTF-8.
    pub const CALLER_ROOT: &str = "earshot-caller-root";
    /// The execution session.
    pub const SESSION: &str = "earshot-session";
    /// The parent execution session.
    pub const PARENT_SESSION: &str = "earshot-parent-session";
    /// Where the worker behind the peer can be reached: base64url JSON, see [`super::Address`].
    pub const ADDRESS: &str = "earshot-address";
    /// The key that `http.loopback = "key"` asks for.
    pub const KEY: &str = "earshot-key";
    /// Marks a probe: it is answered, and is not use.
    pub const PROBE: &str = "earshot-probe";
    /// The process at the command line: `pid:started_at`. Unix socket only.
    pub const CLI: &str = "earshot-cli";
}

/// Longest header of ours that is looked at, in bytes: a path of 4 KiB, percent-encoded.
const HEADER_BYTES_MAX: usize = 12 * 1024;

/// What a client calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientName {
    /// Its name, uncleaned: the board cleans what it keeps.
    pub name: String,
    /// Its version, uncleaned.
    pub version: String,
}

/// Where a bridge's request stands among those of its seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestNumber {
    /// Its number, rising from 1.
    pub n: u64,
    /// Every answer up to this number has arrived.
    pub acked: u64,
}

/// The process at the command line on whose behalf the CLI calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CliProcess {
    /// Its process id.
    pub pid: u32,
    /// When it started, in the system's own clock ticks: tells a reused pid.
    pub started_at: u64,
}

/// Where the worker behind a peer can be reached from outside its connection.
///
/// Shown on this machine only, and only when asked for; never a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// The worker's own process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When that process started, in clock ticks since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_started_at: Option<u64>,
    /// The provider's session id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The socket through which other sessions message it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
}

/// Who is calling: read from the transport and the headers, never from a capability's input.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Where the caller stands.
    pub origin: Origin,
    /// The surface it uses.
    pub surface: Surface,
    /// The seat, when a bridge calls.
    pub seat: Option<Seat>,
    /// The number of this request, when a bridge calls.
    pub request: Option<RequestNumber>,
    /// The MCP wire session (2025 generation), when it has one.
    pub wire_session: Option<String>,
    /// The execution session that the calling runtime named.
    pub session: Option<SessionId>,
    /// Whether that session came with this call alone, and the next may name another.
    pub session_of_call: bool,
    /// The parent of that session.
    pub parent_session: Option<SessionId>,
    /// The root that the caller works in, as it said.
    pub root: Option<String>,
    /// Where the worker can be reached.
    pub address: Option<Address>,
    /// The process at the command line, when the CLI calls.
    pub cli: Option<CliProcess>,
    /// What the client calls itself, where the request says so.
    pub client: Option<ClientName>,
    /// Whether this is a probe, which is answered but is not use.
    pub probe: bool,
    /// Whether the node gave the call up: see [`Abandoned`].
    pub abandoned: Abandoned,
}

/// Set when a node gave a call up without executing it, because it lost its lease meanwhile.
///
/// The surface that the call came by then says so in its own way, whatever the handler answered,
/// so that the caller sends it again to the node that can. All clones share it.
#[derive(Debug, Clone, Default)]
pub struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    /// Gives the call up.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Says whether the call was given up.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Caller {
    /// Makes a caller that says nothing of itself.
    pub fn anonymous(origin: Origin, surface: Surface) -> Self {
        Self {
            origin,
            surface,
            seat: None,
            request: None,
            wire_session: None,
            session: None,
            session_of_call: false,
            parent_session: None,
            root: None,
            address: None,
            cli: None,
            client: None,
            probe: false,
            abandoned: Abandoned::default(),
        }
    }

    /// Reads a caller from its headers. `header` returns the value of a header by its lower-case
    /// name.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] for a header that cannot be read, [`Code::Forbidden`] for one that
    /// this origin may not send. The value is never repeated.
    pub fn from_headers<'a>(
        origin: Origin,
        surface: Surface,
        header: impl Fn(&str) -> Option<&'a [u8]>,
    ) -> Result<Self, Failure> {
        let text = |name: &str| read_text(name, header(name));
        let mut caller = Self::anonymous(origin, surface);
        for name in [
            headers::SEAT,
            headers::REQUEST,
            headers::ADDRESS,
            headers::CLI,
        ] {
            if origin != Origin::Socket && header(name).is_some() {
                return Err(Failure::new(
                    Code::Forbidden,
                    format!("the header {name} is accepted over the node's Unix socket only"),
                    "Leave it out, or connect through `earshot mcp`.",
                ));
            }
        }
        caller.seat = text(headers::SEAT)?
            .map(Seat::parse)
            .transpose()
            .map_err(|error| malformed(headers::SEAT, &error))?;
        caller.request = read_number(text(headers::REQUEST)?, text(headers::ACKED)?)?;
        caller.session = read_session(headers::SESSION, text(headers::SESSION)?)?;
        caller.parent_session =
            read_session(headers::PARENT_SESSION, text(headers::PARENT_SESSION)?)?;
        caller.root = text(headers::CALLER_ROOT)?.map(read_root).transpose()?;
        caller.address = text(headers::ADDRESS)?.map(read_address).transpose()?;
        caller.cli = text(headers::CLI)?.map(read_cli).transpose()?;
        caller.probe = text(headers::PROBE)?.is_some_and(|value| value == "1");
        Ok(caller)
    }
}

fn malformed(name: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Code::InvalidInput,
        format!("the header {name} cannot be read: {why}"),
        "Correct the header, or leave it out.",
    )
}

fn read_text<'a>(name: &str, value: Option<&'a [u8]>) -> Result<Option<&'a str>, Failure> {
    match value {
        None => Ok(None),
        Some(bytes) if bytes.len() > HEADER_BYTES_MAX => Err(malformed(
            name,
            &format_args!("it is longer than {HEADER_BYTES_MAX} bytes"),
        )),
        Some(bytes) => std::str::from_utf8(bytes)
            .map(|text| Some(text.trim()))
            .map_err(|_| malformed(name, &"it is not UTF-8")),
    }
}

fn read_number(n: Option<&str>, acked: Option<&str>) -> Result<Option<RequestNumber>, Failure> {
    let number = |name: &str, text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        digits
            .then(|| text.parse::<u64>().ok())
            .flatten()
            .ok_or_else(|| malformed(name, &"it is not a number"))
    };
    let Some(n) = n else { return Ok(None) };
    let n = number(headers::REQUEST, n)?;
    let acked = acked.map_or(Ok(0), |text| number(headers::ACKED, text))?;
    if n == 0 || acked >= n {
        return Err(malformed(
            headers::REQUEST,
            &"numbers rise from 1, above what is acked",
        ));
    }
    Ok(Some(RequestNumber { n, acked }))
}

fn read_session(name: &str, text: Option<&str>) -> Result<Option<SessionId>, Failure> {
    // A client's configuration may send the header with an unset variable: that is no session.
    text.filter(|text| !text.is_empty())
        .map(SessionId::parse)
        .transpose()
        .map_err(|error| malformed(name, &error))
}

fn read_root(text: &str) -> Result<String, Failure> {
    let root = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| malformed(headers::CALLER_ROOT, &"it is not percent-encoded UTF-8"))?;
    if root.contains('\0') || !root.starts_with('/') {
        return Err(malformed(
            headers::CALLER_ROOT,
            &"it is not an absolute path",
        ));
    }
    Ok(root.into_owned())
}

fn read_address(text: &str) -> Result<Address, Failure> {
    let json = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| malformed(headers::ADDRESS, &"it is not base64url"))?;
    serde_json::from_slice(&json).map_err(|_| malformed(headers::ADDRESS, &"it is not an address"))
}

fn read_cli(text: &str) -> Result<CliProcess, Failure> {
    let why = || malformed(headers::CLI, &"it is not pid:started_at");
    let (pid, started_at) = text.split_once(':').ok_or_else(why)?;
    let pid = pid.parse().map_err(|_| why())?;
    let started_at = started_at.parse().map_err(|_| why())?;
    Ok(CliProcess { pid, started_at })
}

#[cfg(test)]
mod tests {
    use earshot_trust::Writes;

    use super::*;

    fn read(origin: Origin, pairs: &[(&str, &str)]) -> Result<Caller, Failure> {
        Caller::from_headers(origin, Surface::Mcp, |name| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.as_bytes())
        })
    }

    const SEAT: (&str, &str) = (headers::SEAT, "000102030405060708090a0b0c0d0e0f");

    #[test]
    fn a_bridge_is_read_whole() {
        let address = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .encode(r#"{"machine":"m","pid":7,"pid_started_at":9,"more":1}"#);
        let caller = read(
            Origin::Socket,
            &[
                SEAT,
                (headers::REQUEST, "7"),
                (headers::ACKED, "5"),
                (headers::SESSION, "s-1"),
                (headers::CALLER_ROOT, "/tmp/a%20b%C3%BC"),
                (headers::ADDRESS, &address),
            ],
        )
        .unwrap();
        assert!(caller.seat.is_some());
        assert_eq!(caller.request, Some(RequestNumber { n: 7, acked: 5 }));
        assert_eq!(caller.session.unwrap().as_str(), "s-1");
        assert_eq!(caller.root.as_deref(), Some("/tmp/a bü"));
        assert_eq!(caller.address.unwrap().pid, Some(7));
    }

    #[test]
    fn a_seat_comes_over_the_unix_socket_only() {
        for origin in [Origin::Loopback(Writes::Allowed), Origin::Remote] {
            let failure = read(origin, &[SEAT]).unwrap_err();
            assert_eq!(failure.code, Code::Forbidden);
            assert!(
                !failure.to_string().contains("0001"),
                "the seat leaked: {failure}"
            );
        }
    }

    #[test]
    fn unreadable_headers_are_named_and_not_repeated() {
        for (name, value) in [
            (headers::SEAT, "secret-value"),
            (headers::REQUEST, "0"),
            (headers::REQUEST, "-1"),
            (headers::REQUEST, "99999999999999999999999"),
            (headers::SESSION, "a b secret-value"),
            (headers::CALLER_ROOT, "relative/secret-value"),
            (headers::CALLER_ROOT, "/a%00secret-value"),
            (headers::ADDRESS, "!!"),
            (headers::CLI, "12"),
        ] {
            let failure = read(Origin::Socket, &[(name, value)]).unwrap_err();
            assert_eq!(failure.code, Code::InvalidInput, "{name}: {value}");
            assert!(failure.message.contains(name));
            assert!(!failure.to_string().contains("secret-value"));
        }
        let acked = [(headers::REQUEST, "3"), (headers::ACKED, "3")];
        assert_eq!(
            read(Origin::Socket, &acked).unwrap_err().code,
            Code::InvalidInput
        );
    }

    #[test]
    fn an_empty_session_header_is_none() {
        assert_eq!(
            read(Origin::Remote, &[(headers::SESSION, "")])
                .unwrap()
                .session,
            None
        );
    }
}
