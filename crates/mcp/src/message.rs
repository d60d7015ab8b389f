//! Looking at one JSON-RPC message before anything else does.
//!
//! The SDK answers what is not a well-formed message in ways that clients do not understand: a
//! plain-text status, silence, or the end of the connection. This check comes first on both
//! transports, so that each such message is answered by one JSON-RPC error with the right id.

use std::borrow::Cow;

use earshot_capability::{VALUES_MAX, has_too_many_values};
use rmcp::model::{ErrorCode, InitializeRequestParams};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, error::Category, value::RawValue};

/// Longest message that is read, in bytes: the largest tool argument an agent sends is a file.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Longest part of a parser's complaint that is passed on, in bytes.
const COMPLAINT_BYTES_MAX: usize = 200;

/// A message that is well formed as JSON-RPC, as far as routing needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// A request: it is owed exactly one answer.
    Request {
        /// Its id, a string or an integer of 64 bits.
        id: Value,
        /// The protocol version that it names for itself (2026 generation).
        own_version: Option<String>,
        /// The version that it offers, when it is an `initialize`.
        offered_version: Option<String>,
    },
    /// A notification: it is never answered.
    Notification,
    /// An answer to a request of ours.
    Reply,
}

impl Message {
    /// Returns the id to answer with: null for what is no request.
    pub(crate) fn id(&self) -> Value {
        match self {
            Self::Request { id, .. } => id.clone(),
            Self::Notification | Self::Reply => Value::Null,
        }
    }

    /// Says whether it opens a conversation of the 2025 generation.
    pub(crate) fn is_initialize(&self) -> bool {
        matches!(
            self,
            Self::Request {
                offered_version: Some(_),
                ..
            }
        )
    }
}

/// Why a message is not served, in JSON-RPC's own terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// The code.
    pub(crate) code: ErrorCode,
    /// The id of the message where it has one that can be read, else null.
    pub(crate) id: Value,
    /// What is wrong with it.
    pub(crate) message: String,
}

impl Rejection {
    fn new(code: ErrorCode, id: Value, message: impl Into<String>) -> Self {
        Self {
            code,
            id,
            message: message.into(),
        }
    }

    /// The answer to a message that is longer than [`MESSAGE_BYTES_MAX`].
    pub(crate) fn too_long() -> Self {
        let limit = MESSAGE_BYTES_MAX / 1024 / 1024;
        Self::new(
            ErrorCode::INVALID_REQUEST,
            Value::Null,
            format!("the message is longer than {limit} MiB"),
        )
    }

    /// The answer to a request under whose id too many others wait.
    pub(crate) fn crowded(id: Value) -> Self {
        Self::new(
            ErrorCode::INVALID_REQUEST,
            id,
            "too many requests with this id are under way in this session",
        )
    }

    /// The answer to a message that would take far more memory than its length.
    fn too_many_values(id: Value) -> Self {
        Self::new(
            ErrorCode::INVALID_REQUEST,
            id,
            format!("the message holds more than {VALUES_MAX} values; send less in one message"),
        )
    }

    /// The answer to a message whose content the SDK cannot read.
    pub(crate) fn unreadable(id: Value) -> Self {
        Self::new(
            ErrorCode::INVALID_REQUEST,
            id,
            "the message cannot be read: it is nested too deeply, or holds a value out of range",
        )
    }

    /// Returns the error as a JSON-RPC message.
    pub(crate) fn to_json(&self) -> Value {
        serde_json::json!({
            "jsonrpc": "2.0",
            "id": self.id,
            "error": { "code": self.code.0, "message": self.message },
        })
    }
}

/// The members of a message, each kept as it was written.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// Reads a member that is there, also when it is null: `Option` alone would take that for absent.
fn present<'de, D: Deserializer<'de>>(member: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(member).map(Some)
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion")]
    protocol_version: Option<Cow<'a, str>>,
}

/// Removes a UTF-8 byte order mark, which some clients put before their first message.
pub(crate) fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

/// Checks one message.
pub(crate) fn check(bytes: &[u8]) -> Result<Message, Rejection> {
    let envelope = read_envelope(bytes)?;
    let id = envelope.id.map(read_id);
    let known_id = || match &id {
        Some(Ok(id)) => id.clone(),
        Some(Err(())) | None => Value::Null,
    };
    if has_too_many_values(bytes) {
        return Err(Rejection::too_many_values(known_id()));
    }
    let invalid = |message: &str| Rejection::new(ErrorCode::INVALID_REQUEST, known_id(), message);
    let version = envelope.jsonrpc.map(RawValue::get).and_then(read_text);
    if version.as_deref() != Some("2.0") {
        return Err(invalid("`jsonrpc` is not \"2.0\""));
    }
    let is_reply = envelope.result.is_some() || envelope.error.is_some();
    let Some(method) = envelope.method else {
        return if is_reply {
            Ok(Message::Reply)
        } else {
            Err(invalid("there is no `method`, and it answers no request"))
        };
    };
    let method = read_text(method.get()).ok_or_else(|| invalid("`method` is not a string"))?;
    match id {
        None => Ok(Message::Notification),
        Some(Err(())) => Err(invalid(
            "`id` is neither a string nor an integer of at most 64 bits",
        )),
        Some(Ok(id)) => read_request(id, &method, envelope.params),
    }
}

fn read_envelope(bytes: &[u8]) -> Result<Envelope<'_>, Rejection> {
    let parse_error = |error: &dyn std::fmt::Display| {
        let mut complaint = error.to_string();
        let end = (0..=COMPLAINT_BYTES_MAX.min(complaint.len()))
            .rev()
            .find(|at| complaint.is_char_boundary(*at));
        complaint.truncate(end.unwrap_or(0));
        Rejection::new(
            ErrorCode::PARSE_ERROR,
            Value::Null,
            format!("the message is not JSON: {complaint}"),
        )
    };
    let invalid = |message| Rejection::new(ErrorCode::INVALID_REQUEST, Value::Null, message);
    let text = std::str::from_utf8(bytes).map_err(|error| parse_error(&error))?;
    let first = text.bytes().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(b'{') {
        // Serde would read a list as the members in their order: it is a batch, or nothing.
        let read = serde_json::from_str::<serde::de::IgnoredAny>(text);
        return Err(match read {
            Err(error) => parse_error(&error),
            Ok(_) if first == Some(b'[') => {
                invalid("batches are not spoken; send each message alone")
            }
            Ok(_) => invalid("the message is not an object"),
        });
    }
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => invalid("a member of the message occurs twice"),
        Category::Syntax | Category::Eof | Category::Io => parse_error(&error),
    })
}

/// Reads an id: only what can be echoed digit by digit.
fn read_id(id: &RawValue) -> Result<Value, ()> {
    let text = id.get();
    if text.starts_with('"') {
        return read_text(text).map(Value::String).ok_or(());
    }
    text.parse::<i64>()
        .ok()
        .filter(|number| number.to_string() == text)
        .map(Value::from)
        .ok_or(())
}

fn read_text(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

fn read_request(id: Value, method: &str, params: Option<&RawValue>) -> Result<Message, Rejection> {
    let params = params.map_or("null", RawValue::get);
    if !params.starts_with('{') && params != "null" {
        return Err(Rejection::new(
            ErrorCode::INVALID_PARAMS,
            id,
            "`params` is not an object",
        ));
    }
    let own_version = serde_json::from_str::<Params<'_>>(params)
        .ok()
        .and_then(|params| params.meta?.protocol_version)
        .map(Cow::into_owned);
    let mut offered_version = None;
    if method == "initialize" {
        match serde_json::from_str::<InitializeRequestParams>(params) {
            Ok(params) => offered_version = Some(params.protocol_version.as_str().to_owned()),
            // The generation that names its version in each request has no such method; the SDK
            // says so.
            Err(_) if own_version.is_some() => {}
            Err(error) => {
                return Err(Rejection::new(
                    ErrorCode::INVALID_PARAMS,
                    id,
                    format!("the parameters of `initialize` cannot be read: {error}"),
                ));
            }
        }
    }
    Ok(Message::Request {
        id,
        own_version,
        offered_version,
    })
}

#[cfg(test)]
mod tests;
