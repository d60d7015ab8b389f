//! JSON-RPC frames, written as text and read no further than needed.

use earshot_mcp::bridge::headers::STATELESS_SINCE;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ClientError;

/// The message that ends the handshake.
pub(super) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Most bytes of a refusal that are told.
const REFUSAL_BYTES_MAX: usize = 300;

/// Writes a request; the method needs no escapes, the parameters are JSON.
pub(super) fn request(id: u64, method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}")
}

/// Writes what the parameters of a stateless request say of its client; `name` needs no escapes.
pub(super) fn meta(name: &str) -> String {
    format!(
        "\"_meta\":{{\"io.modelcontextprotocol/protocolVersion\":\"{STATELESS_SINCE}\",\
         \"io.modelcontextprotocol/clientInfo\":{{\"name\":\"{name}\",\"version\":\"1\"}},\
         \"io.modelcontextprotocol/clientCapabilities\":{{}}}}"
    )
}

/// What a message from the server is.
#[derive(Debug)]
pub(super) enum Frame {
    /// The answer to a request.
    Answer {
        /// The request's id.
        id: u64,
        /// The result, or the error as it came.
        outcome: Result<Box<RawValue>, String>,
    },
    /// Something that answers nothing.
    Other,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// Reads one message.
pub(super) fn read(bytes: &[u8]) -> Result<Frame, ClientError> {
    let parts: Parts<'_> = serde_json::from_slice(bytes).map_err(|_| ClientError::NoAnswer)?;
    let outcome = match (parts.result, parts.error) {
        (Some(result), _) => Ok(result.to_owned()),
        (None, Some(error)) => Err(shortened(error.get())),
        (None, None) => return Ok(Frame::Other),
    };
    let id = parts.id.and_then(|id| id.get().parse().ok());
    let id = id.ok_or(ClientError::NoAnswer)?;
    Ok(Frame::Answer { id, outcome })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    #[serde(default)]
    is_error: bool,
}

/// Says whether a tool's result is one, or its refusal.
pub(super) fn check_tool_result(result: &RawValue) -> Result<(), ClientError> {
    let read: ToolResult = serde_json::from_str(result.get()).map_err(|_| ClientError::NoAnswer)?;
    if read.is_error {
        return Err(ClientError::Refused(shortened(result.get())));
    }
    Ok(())
}

fn shortened(text: &str) -> String {
    text.get(..text.floor_char_boundary(REFUSAL_BYTES_MAX))
        .unwrap_or(text)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_everything_else() {
        let answer = read(br#"{"jsonrpc":"2.0","id":7,"result":{"a":[1]}}"#).unwrap();
        assert!(
            matches!(&answer, Frame::Answer { id: 7, outcome: Ok(it) } if it.get() == r#"{"a":[1]}"#)
        );
        let refusal = read(br#"{"id":8,"error":{"code":-1}}"#).unwrap();
        assert!(matches!(
            refusal,
            Frame::Answer {
                id: 8,
                outcome: Err(_)
            }
        ));
        for other in [
            r#"{"method":"notifications/x"}"#,
            r#"{"id":"s1","method":"ping"}"#,
        ] {
            assert!(
                matches!(read(other.as_bytes()).unwrap(), Frame::Other),
                "{other}"
            );
        }
        for none in [r#"{"id":"x","result":{}}"#, "[", ""] {
            assert!(read(none.as_bytes()).is_err(), "{none}");
        }
    }

    #[test]
    fn a_tool_that_refuses_has_not_answered() {
        let result = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert!(check_tool_result(&result(r#"{"content":[]}"#)).is_ok());
        assert!(check_tool_result(&result(r#"{"isError":false}"#)).is_ok());
        let refused = check_tool_result(&result(r#"{"isError":true,"content":[]}"#));
        assert!(matches!(refused, Err(ClientError::Refused(_))));
    }
}
