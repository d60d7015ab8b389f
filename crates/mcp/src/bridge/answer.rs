//! What the node's answers mean, and the bridge's own.

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::frame::{present, string};

/// JSON-RPC: the bridge could not get an answer for the client.
pub(super) const UNAVAILABLE: i32 = -32000;
/// JSON-RPC: what the node sent is no answer.
pub(super) const INTERNAL_ERROR: i32 = -32603;
/// JSON-RPC: the wire session is not known to the node.
const SESSION_GONE: i64 = -32001;

/// Most of a refusal's text that is passed on, in characters.
const SENTENCE_CHARS_MAX: usize = 500;

/// What one message from the node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// The answer to a request; `failed` where it is an error.
    Answer { failed: bool },
    /// Confirms a `subscriptions/listen`.
    Acknowledgement,
    /// Anything else for the client: a notification, or a request of the node's own.
    Other,
    /// No JSON-RPC message.
    Unreadable,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Reads an object; anything else, arrays too, is none.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    text.trim_start()
        .starts_with('{')
        .then(|| serde_json::from_str(text).ok())?
}

fn parts(body: &[u8]) -> Option<Parts<'_>> {
    object(std::str::from_utf8(body).ok()?)
}

/// Tells what `body` is.
pub(super) fn inspect(body: &[u8]) -> Message {
    match parts(body) {
        Some(Parts {
            method: Some(method),
            ..
        }) => match string(method).as_deref() {
            Some("notifications/subscriptions/acknowledged") => Message::Acknowledgement,
            _ => Message::Other,
        },
        Some(Parts { error: Some(_), .. }) => Message::Answer { failed: true },
        Some(Parts {
            result: Some(_), ..
        }) => Message::Answer { failed: false },
        _ => Message::Unreadable,
    }
}

/// Returns an answer under the very id of the request, byte for byte as the client wrote it.
pub(super) fn with_id(body: Bytes, id: &[u8]) -> Bytes {
    let Some(parts) = parts(&body) else {
        return body;
    };
    let (keep, resume, separator): (usize, usize, &[u8]) = match parts.id {
        Some(found) if found.get().as_bytes() == id => return body,
        Some(found) => {
            let start = found.get().as_ptr() as usize - body.as_ptr() as usize;
            (start, start + found.get().len(), b"")
        }
        None => {
            let open = body
                .iter()
                .position(|&byte| byte == b'{')
                .map_or(0, |at| at + 1);
            (open, open, b",")
        }
    };
    let label: &[u8] = if separator.is_empty() {
        b""
    } else {
        b"\"id\":"
    };
    [&body[..keep], label, id, separator, &body[resume..]]
        .concat()
        .into()
}

/// Returns the protocol version that the answer to an `initialize` settles on.
pub(super) fn negotiated(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Initialized<'a> {
        #[serde(
            borrow,
            default,
            rename = "protocolVersion",
            deserialize_with = "present"
        )]
        version: Option<&'a RawValue>,
    }
    let result: Initialized<'_> = object(parts(body)?.result?.get())?;
    result.version.and_then(string)
}

/// Returns whether the answer to a tool call says that the tool did its work.
pub(super) fn tool_succeeded(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Called<'a> {
        #[serde(borrow, default, rename = "isError", deserialize_with = "present")]
        is_error: Option<&'a RawValue>,
    }
    let called: Option<Called<'_>> =
        parts(body).and_then(|parts| object(parts.result.map(RawValue::get)?));
    called.is_some_and(|called| called.is_error.is_none_or(|raw| raw.get() != "true"))
}

/// What an HTTP status other than success means for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The wire session is not known; the line is the honest error, should that not change.
    SessionGone(Bytes),
    /// This is the answer.
    Answer(Bytes),
}

/// Judges a refusal of the request with this `id`, sent within a wire session or not.
pub(super) fn judge(status: StatusCode, body: &Bytes, id: &[u8], in_session: bool) -> Verdict {
    let error = parts(body).and_then(|parts| parts.error);
    let code = error.and_then(|error| error_code(error.get()));
    let line = match error {
        Some(_) => with_id(flat(body), id),
        None => error_line(Some(id), UNAVAILABLE, &sentence(status, body)),
    };
    let unknown = status == StatusCode::NOT_FOUND && code.is_none();
    if in_session && (unknown || code == Some(SESSION_GONE)) {
        return Verdict::SessionGone(line);
    }
    Verdict::Answer(line)
}

fn error_code(error: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Code {
        code: i64,
    }
    object::<Code>(error).map(|error| error.code)
}

/// Returns what the node said, in one sentence.
pub(super) fn sentence(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        code: Option<String>,
        message: String,
        remedy: Option<String>,
    }
    let text = String::from_utf8_lossy(body);
    let said = match object::<Problem>(&text) {
        Some(Problem {
            code,
            message,
            remedy,
        }) => [
            code.map(|code| format!("{code}: ")).unwrap_or_default(),
            message,
            remedy
                .map(|remedy| format!(". {remedy}"))
                .unwrap_or_default(),
        ]
        .concat(),
        None => text.trim().to_owned(),
    };
    let said: String = said
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(SENTENCE_CHARS_MAX)
        .collect();
    if said.is_empty() {
        format!("the node answered {status}")
    } else {
        said
    }
}

/// Returns a message as one line: a raw line end inside it, which JSON takes for a blank, is one.
pub(super) fn flat(body: &Bytes) -> Bytes {
    let trimmed = body.slice_ref(body.trim_ascii());
    if !trimmed.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return trimmed;
    }
    let blank = |&byte: &u8| {
        if matches!(byte, b'\r' | b'\n') {
            b' '
        } else {
            byte
        }
    };
    trimmed.iter().map(blank).collect::<Vec<u8>>().into()
}

/// Returns a JSON-RPC error of the bridge's own; without an id it is `null`.
pub(super) fn error_line(id: Option<&[u8]>, code: i32, message: &str) -> Bytes {
    let message = serde_json::Value::from(message);
    let error = format!(r#","error":{{"code":{code},"message":{message}}}}}"#);
    [
        br#"{"jsonrpc":"2.0","id":"#,
        id.unwrap_or(b"null"),
        error.as_bytes(),
    ]
    .concat()
    .into()
}

/// Returns the answer to a `ping`.
pub(super) fn pong_line(id: &[u8]) -> Bytes {
    [br#"{"jsonrpc":"2.0","id":"#, id, br#","result":{}}"#]
        .concat()
        .into()
}

#[cfg(test)]
mod tests;
