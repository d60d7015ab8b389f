//! Giving an answer the form that its client asked for: one JSON object, or a stream of events.

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    body::{McpBody, McpResponse, SdkBody},
    media::Accepts,
};

/// The name of the session header.
pub(crate) const SESSION_HEADER: &str = "mcp-session-id";

/// Turns the SDK's stream of events into one JSON answer where the client takes that, and the
/// answer is all there is. `None` when a client that takes JSON alone would be left without an
/// answer, because the stream ended before it.
pub(crate) async fn settle(
    answer: Response<SdkBody>,
    accepts: Accepts,
    opening: bool,
) -> Option<McpResponse> {
    let (mut parts, mut body) = answer.into_parts();
    if !accepts.prefers_json() && !opening {
        return Some(Response::from_parts(parts, McpBody::new(body)));
    }
    let mut read = BytesMut::new();
    let json = first_answer(&mut body, &mut read, accepts).await;
    let Some(json) = json else {
        let rest = McpBody::after(read.freeze(), body);
        return (accepts.stream > 0).then(|| Response::from_parts(parts, rest));
    };
    let refused = if opening { refusal(&json) } else { None };
    if let Some(status) = refused {
        // The client was turned away, so it has no session either.
        parts.headers.remove(SESSION_HEADER);
        parts.status = status;
    } else if !accepts.prefers_json() {
        let rest = McpBody::after(read.freeze(), body);
        return Some(Response::from_parts(parts, rest));
    }
    parts.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    parts.headers.remove("x-accel-buffering");
    Some(Response::from_parts(parts, McpBody::full(json)))
}

/// Turns a JSON answer into a stream of one event, for a client that takes nothing else.
pub(crate) async fn as_stream(answer: Response<SdkBody>) -> McpResponse {
    let (mut parts, body) = answer.into_parts();
    let Ok(json) = body.collect().await;
    let json = json.to_bytes();
    let mut event = BytesMut::with_capacity(json.len() + 8);
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(&json);
    event.extend_from_slice(b"\n\n");
    parts.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, McpBody::full(event.freeze()))
}

/// Reads events up to the answer. `None` when the stream must be passed on: it carries more than
/// the answer and the client can read that, or it ended without one. `read` then holds what was
/// taken from it.
async fn first_answer(body: &mut SdkBody, read: &mut BytesMut, accepts: Accepts) -> Option<Bytes> {
    let mut seen = 0;
    loop {
        while let Some(length) = event_length(read.get(seen..)?) {
            let event = read.get(seen..seen + length)?;
            let data = event_data(event);
            if data.as_deref().is_some_and(is_answer) {
                return data.map(Bytes::from);
            }
            if accepts.stream > 0 {
                return None;
            }
            seen += length;
        }
        let Ok(frame) = body.frame().await?;
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data);
        }
    }
}

/// Returns the length of the first whole event, with the blank line that ends it.
fn event_length(bytes: &[u8]) -> Option<usize> {
    bytes
        .windows(2)
        .position(|pair| pair == b"\n\n")
        .map(|at| at + 2)
}

fn event_data(event: &[u8]) -> Option<Vec<u8>> {
    let mut data: Option<Vec<u8>> = None;
    for line in event.split(|byte| *byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"data:") {
            let rest = rest.strip_prefix(b" ").unwrap_or(rest);
            let data = data.get_or_insert_default();
            if !data.is_empty() {
                data.push(b'\n');
            }
            data.extend_from_slice(rest);
        }
    }
    data
}

#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn is_answer(json: &[u8]) -> bool {
    serde_json::from_slice::<Probe<'_>>(json).is_ok_and(|probe| probe.method.is_none())
}

/// Returns the status that belongs to a refused opening, or `None` when it was not refused.
fn refusal(json: &[u8]) -> Option<StatusCode> {
    #[derive(Deserialize)]
    struct Error {
        data: Option<Data>,
    }
    #[derive(Deserialize)]
    struct Data {
        code: Option<String>,
    }
    let error = serde_json::from_slice::<Probe<'_>>(json).ok()?.error?;
    let code = serde_json::from_str::<Error>(error.get())
        .ok()
        .and_then(|error| earshot_capability::Code::parse(&error.data?.code?));
    let status = code.map_or(400, earshot_capability::Code::status);
    Some(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_cut_at_their_blank_line() {
        let stream = b": ping\n\ndata: {\"a\":1}\n\nid: 4\ndata: x\ndata: y\n\nda";
        let first = event_length(stream).unwrap();
        assert_eq!(event_data(&stream[..first]), None);
        let second = event_length(&stream[first..]).unwrap();
        assert_eq!(
            event_data(&stream[first..first + second]).unwrap(),
            b"{\"a\":1}"
        );
        let rest = &stream[first + second..];
        let third = event_length(rest).unwrap();
        assert_eq!(event_data(&rest[..third]).unwrap(), b"x\ny");
        assert_eq!(event_length(&rest[third..]), None);
    }

    #[test]
    fn a_refused_opening_has_the_status_of_its_code() {
        for (json, status) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None),
            (r#"{"id":1,"error":{"code":-1,"message":"m"}}"#, Some(400)),
            (
                r#"{"id":1,"error":{"code":-1,"message":"m","data":{"code":"busy"}}}"#,
                Some(429),
            ),
            (
                r#"{"id":1,"error":{"code":-1,"message":"m","data":{"code":"forbidden"}}}"#,
                Some(403),
            ),
        ] {
            assert_eq!(
                refusal(json.as_bytes()).map(|it| it.as_u16()),
                status,
                "{json}"
            );
        }
    }
}
