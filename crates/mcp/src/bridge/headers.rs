//! The headers by which bridge and node speak about a frame without touching it.

use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use super::options::BridgeOptions;

/// The bridge's secret: 32 hexadecimal digits.
pub const EARSHOT_SEAT: HeaderName = HeaderName::from_static("earshot-seat");
/// The rising number of a request frame, from 1; a frame that is sent again keeps its number.
pub const EARSHOT_REQUEST: HeaderName = HeaderName::from_static("earshot-request");
/// The highest number up to which every request has been answered to the client.
pub const EARSHOT_ACKED: HeaderName = HeaderName::from_static("earshot-acked");
/// The root that the caller works in: its bytes, percent-encoded.
pub const EARSHOT_CALLER_ROOT: HeaderName = HeaderName::from_static("earshot-caller-root");
/// The session id of the execution identity.
pub const EARSHOT_SESSION: HeaderName = HeaderName::from_static("earshot-session");
/// The session that started this one.
pub const EARSHOT_PARENT_SESSION: HeaderName = HeaderName::from_static("earshot-parent-session");
/// Where the client can be reached: base64url (no padding) of a JSON object.
pub const EARSHOT_ADDRESS: HeaderName = HeaderName::from_static("earshot-address");
/// In an answer: `absent` where the node's board has no row for the caller's seat.
pub const EARSHOT_ROW: HeaderName = HeaderName::from_static("earshot-row");

/// The value of [`EARSHOT_ROW`] that makes the bridge repeat its client's announcement.
pub const ROW_ABSENT: &str = "absent";

/// The wire session of the generations up to 2025-11-25.
pub const MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The protocol version that the message is sent under.
pub const MCP_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The method of the message, from 2026-07-28 on.
pub const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// What the method is about, from 2026-07-28 on.
pub const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The media type of a single message.
pub const JSON: &str = "application/json";
/// The media type of a stream of messages.
pub const EVENT_STREAM: &str = "text/event-stream";

/// The first protocol version without wire sessions; versions compare as text.
pub const STATELESS_SINCE: &str = "2026-07-28";

/// The bytes of a path that stand for themselves.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');

/// Returns the headers that every request of one bridge carries.
pub(super) fn identity(options: &BridgeOptions) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut seat = value(&options.seat.expose());
    if let Some(seat) = &mut seat {
        seat.set_sensitive(true);
    }
    let root = percent_encode(options.caller_root.as_bytes(), PATH).to_string();
    let address = serde_json::to_vec(&options.address).ok();
    let address = address.map(|json| BASE64_URL_SAFE_NO_PAD.encode(json));
    put(&mut headers, EARSHOT_SEAT, seat);
    put(&mut headers, EARSHOT_CALLER_ROOT, value(&root));
    put(
        &mut headers,
        EARSHOT_ADDRESS,
        address.as_deref().and_then(value),
    );
    for (name, id) in [
        (EARSHOT_SESSION, &options.session),
        (EARSHOT_PARENT_SESSION, &options.parent_session),
    ] {
        let sendable = id.as_deref().and_then(value);
        if id.is_some() && sendable.is_none() {
            tracing::warn!(header = %name, "the session id cannot be sent: it holds control bytes");
        }
        put(&mut headers, name, sendable);
    }
    headers
}

/// Adds what a POST of one message needs.
pub(super) fn add_post(headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("application/json, text/event-stream"),
    );
}

/// Adds what a GET of the push stream needs.
pub(super) fn add_get(headers: &mut HeaderMap) {
    headers.insert(ACCEPT, HeaderValue::from_static(EVENT_STREAM));
}

/// Adds a request's number and how far its predecessors are answered.
pub(super) fn add_number(headers: &mut HeaderMap, n: u64, acked: u64) {
    headers.insert(EARSHOT_REQUEST, HeaderValue::from(n));
    headers.insert(EARSHOT_ACKED, HeaderValue::from(acked));
}

/// Adds the headers of a message within a wire session.
pub(super) fn add_session(headers: &mut HeaderMap, session: Option<&str>, version: Option<&str>) {
    put(headers, MCP_SESSION_ID, session.and_then(value));
    put(headers, MCP_PROTOCOL_VERSION, version.and_then(value));
}

/// Adds the headers of a message that stands alone.
///
/// There is no `Mcp-Param-*`: those repeat arguments which a tool's schema marks with
/// `x-mcp-header`, and no schema of this node does.
pub(super) fn add_stateless(
    headers: &mut HeaderMap,
    version: &str,
    method: &str,
    target: Option<&str>,
) {
    put(headers, MCP_PROTOCOL_VERSION, value(version));
    put(headers, MCP_METHOD, value(method));
    put(
        headers,
        MCP_NAME,
        target.and_then(|target| value(&encoded(target))),
    );
}

/// Wraps what cannot stand in a header as it is, in the form that `rmcp` unwraps.
fn encoded(text: &str) -> String {
    let wrapped = text.starts_with("=?base64?") && text.ends_with("?=");
    let padded = text.starts_with(' ') || text.ends_with(' ');
    let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if printable && !padded && !wrapped {
        text.to_owned()
    } else {
        format!("=?base64?{}?=", BASE64_STANDARD.encode(text))
    }
}

/// Returns `text` as a header value; `None` where it holds bytes that no header may.
fn value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_bytes(text.as_bytes()).ok()
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::bridge::{Address, Seat};

    fn options(root: &[u8], session: Option<&str>) -> BridgeOptions {
        BridgeOptions {
            seat: Seat::new([7; 16]),
            caller_root: OsString::from_vec(root.to_vec()),
            session: session.map(str::to_owned),
            parent_session: None,
            address: Address {
                machine: "m".to_owned(),
                pid: 4,
                pid_started_at: 5,
                session: None,
                socket: Some("/run/s".to_owned()),
            },
            request_deadline: Duration::from_secs(1),
            client_gone: CancellationToken::new(),
        }
    }

    #[test]
    fn identity_headers_carry_what_the_options_say() {
        let headers = identity(&options("/süd/a b%\n".as_bytes(), Some("s-1")));

        assert_eq!(headers[EARSHOT_SEAT], "07".repeat(16));
        assert_eq!(headers[EARSHOT_CALLER_ROOT], "/s%C3%BCd/a%20b%25%0A");
        assert_eq!(headers[EARSHOT_SESSION], "s-1");
        assert!(!headers.contains_key(EARSHOT_PARENT_SESSION));
        let address = BASE64_URL_SAFE_NO_PAD
            .decode(&headers[EARSHOT_ADDRESS])
            .unwrap();
        assert_eq!(
            String::from_utf8(address).unwrap(),
            r#"{"machine":"m","pid":4,"pid_started_at":5,"session":null,"socket":"/run/s"}"#
        );
    }

    #[test]
    fn the_seat_never_shows_in_debug_output_of_the_headers() {
        let shown = format!("{:?}", identity(&options(b"/", None)));

        assert!(!shown.contains("0707"), "{shown}");
    }

    #[test]
    fn a_session_id_with_control_bytes_is_left_out() {
        let headers = identity(&options(b"/", Some("a\nb")));

        assert!(!headers.contains_key(EARSHOT_SESSION));
    }

    #[test]
    fn names_are_wrapped_only_where_a_header_could_not_carry_them() {
        for (plain, wire) in [
            ("peers_list", "peers_list"),
            ("", ""),
            ("a b", "a b"),
            (" a", "=?base64?IGE=?="),
            ("ü", "=?base64?w7w=?="),
            ("a\tb", "=?base64?YQli?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ] {
            assert_eq!(encoded(plain), wire, "{plain:?}");
        }
    }
}
