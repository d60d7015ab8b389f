//! What the bridge reads of one line from its client.
//!
//! A frame stays the bytes that it was: [`scan`] borrows the few members that decide where a
//! message goes and parses nothing else. Ids are compared and echoed as raw bytes, so that `1`,
//! `"1"`, `1.0` and `9007199254740993` are four ids. Nesting costs no stack, whatever its depth.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Longest line that is taken from the client, in bytes without its line end.
///
/// Room for a whole source file in an argument; a longer line is answered with an error.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// JSON-RPC: the line is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: the line is JSON, but not a message that can be taken.
pub const INVALID_REQUEST: i32 = -32600;

/// The member of `params._meta` in which a 2026-07-28 request names its protocol version.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// One JSON-RPC message, as far as the bridge looks into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan<'a> {
    /// What kind of message it is.
    pub kind: Kind<'a>,
    /// `params._meta["io.modelcontextprotocol/protocolVersion"]`, where it is a string.
    pub version: Option<String>,
}

/// The three kinds of JSON-RPC message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind<'a> {
    /// It has a method and an id, and is owed one answer.
    Request {
        /// The id, exactly as it was written.
        id: &'a str,
        /// The method, unescaped.
        method: String,
        /// What the method is about: `params.name`, `params.uri` or `params.taskId`.
        target: Option<String>,
    },
    /// It has a method and no id: it is never answered.
    Notification {
        /// The method, unescaped.
        method: String,
        /// `params.requestId`, exactly as it was written.
        cancels: Option<&'a str>,
    },
    /// The client's answer to a request of the node: it is never answered.
    Response,
}

/// Why a line is not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Fault {
    /// The JSON-RPC error code to answer with.
    pub code: i32,
    /// One sentence for the client.
    pub reason: &'static str,
}

const fn not_json(reason: &'static str) -> Fault {
    Fault {
        code: PARSE_ERROR,
        reason,
    }
}

const fn invalid(reason: &'static str) -> Fault {
    Fault {
        code: INVALID_REQUEST,
        reason,
    }
}

/// Removes what some clients put around a line: a byte order mark, a carriage return, blanks.
pub fn trim(line: &[u8]) -> &[u8] {
    let line = line.trim_ascii();
    line.strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(line)
        .trim_ascii()
}

/// Reads one line, which [`trim`] has been applied to.
///
/// # Errors
///
/// The fault to answer with, under the id `null`.
pub fn scan(line: &[u8]) -> Result<Scan<'_>, Fault> {
    let text = std::str::from_utf8(line).map_err(|_| not_json("the line is not UTF-8"))?;
    let whole: &RawValue =
        serde_json::from_str(text).map_err(|_| not_json("the line is not JSON"))?;
    if !whole.get().starts_with('{') {
        return Err(invalid(
            "a message is one JSON object; batches are not taken",
        ));
    }
    let top: Top<'_> = serde_json::from_str(whole.get())
        .map_err(|_| invalid("the members of the message cannot be told apart"))?;
    if top.jsonrpc.and_then(string).as_deref() != Some("2.0") {
        return Err(invalid("the member jsonrpc must be \"2.0\""));
    }
    let Some(method) = top.method else {
        return response(&top);
    };
    let method = string(method).ok_or(invalid("the method must be a string"))?;
    let params = Params::of(top.params);
    let kind = match top.id {
        None => Kind::Notification {
            method,
            cancels: params.request_id.map(RawValue::get),
        },
        Some(id) if is_id(id.get()) => {
            let target = params.target(&method);
            Kind::Request {
                id: id.get(),
                method,
                target,
            }
        }
        Some(_) => return Err(invalid("the id must be a string or a number")),
    };
    Ok(Scan {
        kind,
        version: params.version(),
    })
}

/// Judges a message without a method.
fn response<'a>(top: &Top<'a>) -> Result<Scan<'a>, Fault> {
    let known = top.id.is_some_and(|id| is_id(id.get()));
    // An error about a message whose id could not be read has the id null; answering it with an
    // error of our own could go on for ever.
    let unknown = top.id.is_some_and(|id| id.get() == "null") && top.error.is_some();
    if (known && (top.result.is_some() || top.error.is_some())) || unknown {
        return Ok(Scan {
            kind: Kind::Response,
            version: None,
        });
    }
    Err(invalid("the message has neither a method nor a result"))
}

/// Returns whether `raw` is a JSON string or number: all that an id may be.
pub(super) fn is_id(raw: &str) -> bool {
    raw.starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
}

/// Returns the text of a JSON string, `None` for any other value.
pub(super) fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

/// Keeps `null` apart from an absent member.
pub(super) fn present<'de, D>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct Top<'a> {
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

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId", deserialize_with = "present")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId", deserialize_with = "present")]
    request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta", deserialize_with = "present")]
    meta: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    /// Reads the members; params that are no object, or name one twice, are the node's to refuse.
    fn of(raw: Option<&'a RawValue>) -> Self {
        raw.filter(|raw| raw.get().starts_with('{'))
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default()
    }

    /// Returns what the header `Mcp-Name` repeats, by the rule that `rmcp` checks it with.
    fn target(&self, method: &str) -> Option<String> {
        match method {
            "tools/call" | "prompts/get" => self.name,
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => self.uri,
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.task_id,
            _ => None,
        }
        .and_then(string)
    }

    fn version(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Meta<'m> {
            #[serde(
                borrow,
                default,
                rename = "io.modelcontextprotocol/protocolVersion",
                deserialize_with = "present"
            )]
            version: Option<&'m RawValue>,
        }
        // Most messages carry none: the second look is spared.
        let meta = self.meta.filter(|raw| raw.get().contains(META_VERSION))?;
        let meta: Meta<'_> = meta
            .get()
            .starts_with('{')
            .then(|| serde_json::from_str(meta.get()).ok())??;
        meta.version.and_then(string)
    }
}

/// Finds the id of a message of which only the beginning is known.
///
/// Returns the raw id where the member `id` of the outermost object stands whole in `start`.
pub fn id_in_prefix(start: &[u8]) -> Option<&str> {
    let mut walk = Prefix { rest: start };
    walk.take(b'{')?;
    loop {
        let key = walk.value()?;
        walk.take(b':')?;
        let value = walk.value()?;
        if key == b"\"id\"" {
            let id = std::str::from_utf8(value).ok()?;
            let raw: &RawValue = serde_json::from_str(id).ok()?;
            return is_id(raw.get()).then_some(id);
        }
        walk.take(b',')?;
    }
}

/// A walk over the beginning of a JSON text.
struct Prefix<'a> {
    rest: &'a [u8],
}

impl<'a> Prefix<'a> {
    fn take(&mut self, byte: u8) -> Option<()> {
        self.rest = self.rest.trim_ascii_start().strip_prefix(&[byte])?;
        Some(())
    }

    /// Steps over one value and returns its bytes; `None` where the text ends inside it.
    fn value(&mut self) -> Option<&'a [u8]> {
        self.rest = self.rest.trim_ascii_start();
        let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
        for (at, &byte) in self.rest.iter().enumerate() {
            let outermost = depth == 0 && !quoted;
            if outermost && at > 0 && matches!(byte, b',' | b':' | b'}' | b']') {
                let (value, rest) = self.rest.split_at(at);
                self.rest = rest;
                return Some(value.trim_ascii_end());
            }
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b'{' | b'[' if !quoted => depth += 1,
                b'}' | b']' if !quoted => depth = depth.checked_sub(1)?,
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
