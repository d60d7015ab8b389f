//! Who is calling: the facts of a request, collected, and the verdict on them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header, request::Parts, uri::Authority};
use earshot_capability::{Caller, Code, Failure, headers};
use earshot_trust::{
    LoopbackPolicy, RequestFacts, Surface, Transport, caller_verdict, is_forwarding_header,
};

/// What decides who may call, fixed when the node starts to serve.
#[derive(Debug, Clone)]
pub(crate) struct AccessSettings {
    /// The node's own user id.
    pub(crate) own_uid: u32,
    /// The TCP port that it serves, once it does.
    pub(crate) own_port: Arc<AtomicU16>,
    /// The addresses and names (lower case) by which callers from elsewhere may call it.
    pub(crate) foreign_hosts: Vec<String>,
    /// What a loopback caller must show.
    pub(crate) policy: LoopbackPolicy,
    /// The machine's key, where there is one.
    pub(crate) key: Option<MachineKey>,
}

/// The key that `http.loopback = "key"` asks for; only its hash is kept.
#[derive(Clone)]
pub(crate) struct MachineKey(blake3::Hash);

impl MachineKey {
    /// Takes the content of the key file.
    pub(crate) fn new(key: &str) -> Self {
        Self(blake3::hash(key.trim().as_bytes()))
    }

    /// Compares in a time that does not depend on the key: the comparison of hashes is constant.
    fn is(&self, shown: &[u8]) -> bool {
        self.0 == blake3::hash(shown.trim_ascii())
    }
}

impl fmt::Debug for MachineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MachineKey(..)")
    }
}

/// Admits a caller, or says why not. Nothing has looked at the request before.
///
/// # Errors
/// [`Code::Forbidden`] or [`Code::InvalidInput`], without a word of what the request said.
pub(super) fn admit(
    settings: &AccessSettings,
    transport: Transport,
    request: &Parts,
) -> Result<Arc<Caller>, Failure> {
    let origin = caller_verdict(&facts(
        settings,
        transport,
        request,
        &values(&request.headers, header::HOST.as_str()),
        &values(&request.headers, header::ORIGIN.as_str()),
    ))?;
    let surface = surface(transport, request);
    if let Some(name) = doubled(&request.headers) {
        return Err(Failure::new(
            Code::InvalidInput,
            format!("the header {name} came more than once"),
            "Send it once.",
        ));
    }
    let caller = Caller::from_headers(origin, surface, |name| {
        request.headers.get(name).map(HeaderValue::as_bytes)
    })?;
    Ok(Arc::new(caller))
}

/// Finds a header of ours that came more than once: which one counts is nobody's to guess.
fn doubled(headers: &HeaderMap) -> Option<&str> {
    headers
        .keys()
        .map(HeaderName::as_str)
        .filter(|name| name.starts_with("earshot-"))
        .find(|name| headers.get_all(*name).iter().nth(1).is_some())
}

fn facts<'a>(
    settings: &'a AccessSettings,
    transport: Transport,
    request: &'a Parts,
    hosts: &'a [&'a [u8]],
    origins: &'a [&'a [u8]],
) -> RequestFacts<'a> {
    let headers = &request.headers;
    RequestFacts {
        transport,
        own_uid: settings.own_uid,
        own_port: settings.own_port.load(Ordering::Relaxed),
        foreign_hosts: &settings.foreign_hosts,
        hosts,
        target_authority: request.uri.authority().map(Authority::as_str),
        origins,
        fetch_site: fetch_site(headers),
        forwarded: headers
            .keys()
            .any(|name| is_forwarding_header(name.as_str())),
        key_shown: key_shown(settings, headers),
        policy: settings.policy,
    }
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect()
}

fn fetch_site(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all("sec-fetch-site").iter();
    match (values.next(), values.next()) {
        (None, _) => None,
        (Some(one), None) => Some(one.as_bytes()),
        // No browser says it twice: neither value counts.
        (Some(_), Some(_)) => Some(b""),
    }
}

fn key_shown(settings: &AccessSettings, headers: &HeaderMap) -> bool {
    match (&settings.key, headers.get(headers::KEY)) {
        (Some(key), Some(shown)) => key.is(shown.as_bytes()),
        (None, _) | (_, None) => false,
    }
}

fn surface(transport: Transport, request: &Parts) -> Surface {
    let over_socket = matches!(transport, Transport::UnixSocket { .. });
    if is_mcp_path(&request.uri) {
        Surface::Mcp
    } else if over_socket && request.headers.contains_key(headers::CLI) {
        Surface::Cli
    } else {
        Surface::Http
    }
}

/// Says whether a target is one of the paths that MCP is served at.
fn is_mcp_path(uri: &Uri) -> bool {
    let path = uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    path == "/mcp"
        || path
            .strip_prefix("/c/")
            .and_then(|rest| rest.strip_suffix("/mcp"))
            .is_some_and(|id| !id.contains('/'))
}

/// Most bytes of headers, names and values together: above the longest that earshot itself sends.
const HEADERS_BYTES_MAX: usize = 32 * 1024;
/// Most headers of a request.
const HEADERS_MAX: usize = 100;

/// Bounds the headers of a request.
///
/// # Errors
/// When there are too many, or they are too long.
pub(super) fn bound_headers(request: &Parts) -> Result<(), Failure> {
    let bytes: usize = request
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if request.headers.len() <= HEADERS_MAX && bytes <= HEADERS_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::new(
        Code::InvalidInput,
        format!("a request has at most {HEADERS_MAX} headers of {HEADERS_BYTES_MAX} bytes in all"),
        "Send fewer or shorter headers.",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mcp_paths() {
        for path in ["/mcp", "/mcp/", "/mcp?x=1", "/c/abc/mcp", "/c/abc/mcp/"] {
            assert!(is_mcp_path(&path.parse().unwrap()), "{path}");
        }
        for path in [
            "/",
            "//mcp",
            "/MCP",
            "/mcp/x",
            "/mcp//",
            "/c/mcp",
            "/c/a/b/mcp",
        ] {
            assert!(!is_mcp_path(&path.parse().unwrap()), "{path}");
        }
    }

    #[test]
    fn the_machine_key_is_compared_without_its_line_end_and_never_shown() {
        let key = MachineKey::new("s3cret\n");
        assert!(key.is(b"s3cret"));
        assert!(key.is(b" s3cret "));
        for other in [&b""[..], b"s3cre", b"s3crets"] {
            assert!(!key.is(other));
        }
        assert_eq!(format!("{key:?}"), "MachineKey(..)");
    }
}
