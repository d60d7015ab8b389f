//! Refusals of this endpoint: a status, and a JSON-RPC error that says what to do.

use earshot_capability::{Code, Failure};
use http::{HeaderValue, Response, StatusCode, header};
use rmcp::model::{ErrorCode, ProtocolVersion};
use serde_json::{Value, json};

use super::body::{McpBody, McpResponse};
use crate::{message::Rejection, sessions::Full};

/// The code of a session that is not there: clients open a new one when they see it.
const SESSION_NOT_FOUND: ErrorCode = ErrorCode(-32001);

/// The code of an error whose reason is named in its data.
const REFUSED: ErrorCode = ErrorCode(-32000);

/// Seconds after which a client may try again when no wire session was left.
const SESSION_RETRY_AFTER: HeaderValue = HeaderValue::from_static("15");

/// Seconds after which a client may try again that came while too much was under way.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Why a request is not served, or why the SDK did not serve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The message itself is not well formed.
    Message(Rejection),
    /// The message is too long.
    TooLong,
    /// The connection broke while the message was read.
    Broken,
    /// The client takes neither form of an answer, or none that this method gives.
    NotAcceptable(&'static str),
    /// The message is not declared as JSON.
    MediaType,
    /// The method of HTTP is not served here. Carries those that are, where the SDK said so.
    Method(Option<HeaderValue>),
    /// A version that was never spoken.
    Version(Value),
    /// No wire session was named where one is needed.
    SessionRequired(Value),
    /// The wire session that was named is not there.
    SessionUnknown(Value),
    /// There is no room for another wire session.
    Full(Full, Value),
    /// The host failed. Carries its failure, and the id of this request.
    Failed(Box<Failure>, String, Value),
    /// The SDK refused with this status.
    Other(StatusCode, Value),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Message(_) | Self::Broken | Self::Version(_) | Self::SessionRequired(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NotAcceptable(_) => StatusCode::NOT_ACCEPTABLE,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::SessionUnknown(_) => StatusCode::NOT_FOUND,
            Self::Full(..) => StatusCode::TOO_MANY_REQUESTS,
            Self::Failed(failure, ..) => StatusCode::from_u16(failure.code.status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            Self::Other(status, _) => *status,
        }
    }

    fn body(self) -> Value {
        match self {
            Self::Message(rejection) => rejection.to_json(),
            Self::TooLong => Rejection::too_long().to_json(),
            Self::Broken => error(
                ErrorCode::PARSE_ERROR,
                &Value::Null,
                "the request ended before its body was whole",
            ),
            Self::NotAcceptable(expected) => {
                let text = format!("the Accept header must allow {expected}");
                error(ErrorCode::INVALID_REQUEST, &Value::Null, &text)
            }
            Self::MediaType => error(
                ErrorCode::INVALID_REQUEST,
                &Value::Null,
                "the Content-Type must be application/json",
            ),
            Self::Method(_) => error(
                ErrorCode::INVALID_REQUEST,
                &Value::Null,
                "this method of HTTP is not served here",
            ),
            Self::Version(id) => {
                let text = format!(
                    "the MCP-Protocol-Version is not one of {}",
                    supported_versions().join(", ")
                );
                let mut body = error(ErrorCode::INVALID_REQUEST, &id, &text);
                body["error"]["data"] = json!({ "supported": supported_versions() });
                body
            }
            Self::SessionRequired(id) => error(
                ErrorCode::INVALID_REQUEST,
                &id,
                "there is no Mcp-Session-Id header; open a session with `initialize` first",
            ),
            Self::SessionUnknown(id) => error(
                SESSION_NOT_FOUND,
                &id,
                "there is no such session, or not any more; open one with `initialize`",
            ),
            Self::Full(full, id) => {
                let who = match full {
                    Full::Seat => "this client holds as many sessions as it may",
                    Full::Execution => "this execution session holds as many sessions as it may",
                    Full::Node => "this node holds as many sessions as it can",
                };
                let text = format!("busy: {who}. Try again in a while.");
                let mut body = error(REFUSED, &id, &text);
                body["error"]["data"] = json!({ "code": "busy" });
                body
            }
            Self::Failed(failure, request_id, id) => {
                let mut body = error(REFUSED, &id, &failure.to_string());
                body["error"]["data"] = failure.to_json(Some(&request_id))["error"].take();
                body
            }
            Self::Other(status, id) => {
                let code = if status.is_server_error() {
                    ErrorCode::INTERNAL_ERROR
                } else {
                    ErrorCode::INVALID_REQUEST
                };
                let reason = status
                    .canonical_reason()
                    .unwrap_or("the request was refused");
                error(code, &id, reason)
            }
        }
    }

    /// Writes the answer.
    pub(crate) fn into_response(self) -> McpResponse {
        let status = self.status();
        let allow = match &self {
            Self::Method(allow) => allow.clone(),
            _ => None,
        };
        let retry_after = match &self {
            Self::Full(..) => Some(SESSION_RETRY_AFTER),
            Self::Failed(failure, ..) if failure.code == Code::Busy => Some(RETRY_AFTER),
            _ => None,
        };
        let mut response = Response::new(McpBody::full(self.body().to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        if let Some(allow) = allow {
            headers.insert(header::ALLOW, allow);
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// Returns the protocol versions that are spoken, oldest first.
pub fn supported_versions() -> Vec<&'static str> {
    ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .map(ProtocolVersion::as_str)
        .collect()
}

fn error(code: ErrorCode, id: &Value, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code.0, "message": message } })
}
