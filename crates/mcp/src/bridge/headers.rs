//! The headers by which bridge and node speak about a frame without touching it.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use earshot_capability::headers as names;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::options::BridgeOptions;

/// The bridge's secret.
pub const EARSHOT_SEAT: HeaderName = HeaderName::from_static(names::SEAT);
/// The rising number of a request frame, from 1; a frame that is sent again keeps its number.
pub const EARSHOT_REQUEST: HeaderName = HeaderName::from_static(names::REQUEST);
/// A number up to which every request has been answered to the client.
pub const EARSHOT_ACKED: HeaderName = HeaderName::from_static(names::ACKED);
/// The root that the caller works in, percent-encoded.
pub const EARSHOT_CALLER_ROOT: HeaderName = HeaderName::from_static(names::CALLER_ROOT);
/// The session of the execution identity.
pub const EARSHOT_SESSION: HeaderName = HeaderName::from_static(names::SESSION);
/// The session that started this one.
pub const EARSHOT_PARENT_SESSION: HeaderName = HeaderName::from_static(names::PARENT_SESSION);
/// Where the client can be reached.
pub const EARSHOT_ADDRESS: HeaderName = HeaderName::from_static(names::ADDRESS);
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
    put(&mut headers, EARSHOT_SEAT, seat);
    if let Some(root) = options.caller_root.to_str() {
        put(
            &mut headers,
            EARSHOT_CALLER_ROOT,
            value(&utf8_percent_encode(root, PATH).to_string()),
        );
    } else {
        // A node refuses a root that it cannot read: without one it serves its own.
        tracing::warn!("the caller's root is not UTF-8 and is not named to the node");
    }
    let address = serde_json::to_vec(&options.address).ok();
    let address = address.map(|json| BASE64_URL_SAFE_NO_PAD.encode(json));
    put(
        &mut headers,
        EARSHOT_ADDRESS,
        address.as_deref().and_then(value),
    );
    for (name, id) in [
        (EARSHOT_SESSION, &options.session),
        (EARSHOT_PARENT_SESSION, &options.parent_session),
    ] {
        put(
            &mut headers,
            name,
            id.as_ref().and_then(|id| value(id.as_str())),
        );
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

/// Adds a request's number and how far the requests before it are answered.
pub(super) fn add_number(headers: &mut HeaderMap, n: u64, acked: u64) {
    // What is said again on the bridge's own account was answered before: a node takes no
    // request at or below the number that it names itself.
    let acked = acked.min(n.saturating_sub(1));
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

    use earshot_capability::{Address, Caller};
    use earshot_trust::{Origin, Seat, SessionId, Surface};
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn options(root: &[u8]) -> BridgeOptions {
        BridgeOptions {
            seat: Seat::new([7; 16]),
            caller_root: OsString::from_vec(root.to_vec()).into(),
            session: Some(SessionId::parse("s-1").unwrap()),
            parent_session: None,
            address: Address {
                machine: Some("m".to_owned()),
                pid: Some(4),
                pid_started_at: Some(5),
                session: None,
                socket: Some("/run/s".to_owned()),
            },
            request_deadline: Duration::from_secs(1),
            client_gone: CancellationToken::new(),
        }
    }

    #[test]
    fn a_node_reads_what_the_bridge_says_of_itself() {
        let mut headers = identity(&options("/süd/a b%\n".as_bytes()));
        add_number(&mut headers, 3, 2);

        let caller = Caller::from_headers(Origin::Socket, Surface::Mcp, |name| {
            headers.get(name).map(HeaderValue::as_bytes)
        })
        .expect("readable");

        let options = options(b"/");
        assert_eq!(caller.seat, Some(options.seat));
        assert_eq!(caller.root.as_deref(), Some("/süd/a b%\n"));
        assert_eq!(caller.session, options.session);
        assert_eq!(caller.parent_session, None);
        assert_eq!(caller.address, Some(options.address));
        assert_eq!(
            caller.request.map(|request| (request.n, request.acked)),
            Some((3, 2))
        );
    }

    #[test]
    fn a_request_that_is_said_again_names_no_number_at_or_above_its_own() {
        let mut headers = HeaderMap::new();

        add_number(&mut headers, 3, 9);

        assert_eq!(
            (&headers[EARSHOT_REQUEST], &headers[EARSHOT_ACKED]),
            (&3.into(), &2.into())
        );
    }

    #[test]
    fn a_root_that_no_node_could_read_is_left_out() {
        let headers = identity(&options(b"/\xff"));

        assert!(!headers.contains_key(EARSHOT_CALLER_ROOT));
        assert!(headers.contains_key(EARSHOT_SEAT));
    }

    #[test]
    fn the_seat_never_shows_in_debug_output_of_the_headers() {
        let shown = format!("{:?}", identity(&options(b"/")));

        assert!(!shown.contains("0707"), "{shown}");
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
