//! MCP over Streamable HTTP: the one place that builds session manager, configuration and layers.

mod body;
mod large;
mod media;
mod refuse;
mod settle;
mod wire;

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use earshot_capability::Caller;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body::Body;
use http_body_util::{BodyExt as _, Empty, Full};
use rmcp::{
    model::ProtocolVersion,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

pub use self::{body::McpBody, refuse::supported_versions};
use self::{
    body::{McpResponse, ReadError, SdkBody},
    large::Large,
    media::Accepts,
    refuse::Refusal,
    settle::SESSION_HEADER,
};
use crate::{
    bridge::headers::{EARSHOT_ROW, ROW_ABSENT},
    handler::{Link, Projection, Shared},
    host::McpHost,
    message::{self, MESSAGE_BYTES_MAX, Message},
    sessions::{Manager, Twins, WireSessions},
};

/// The header that names the protocol version.
const VERSION_HEADER: &str = "mcp-protocol-version";

/// How often a comment is sent on a silent stream, so that nothing between takes it for dead.
const STREAM_COMMENT: Duration = Duration::from_secs(15);

/// Most wire sessions of a node: far more than a machine has agents, far fewer than its memory.
const SESSIONS_MAX: usize = 10_240;

/// How long a wire session may be silent: three pings of a bridge.
const SESSION_IDLE: Duration = Duration::from_secs(90);

/// What the endpoint is built with.
#[derive(Debug)]
pub struct HttpSettings {
    /// Runs what the endpoint has to do beside its requests.
    pub tracker: TaskTracker,
    /// Ends every session and stream when it is cancelled.
    pub shutdown: CancellationToken,
    /// Most wire sessions at once.
    pub sessions_max: usize,
    /// How long a wire session may go without message, ping or open stream.
    pub session_idle: Duration,
}

impl HttpSettings {
    /// Returns the settings of a node.
    pub const fn new(tracker: TaskTracker, shutdown: CancellationToken) -> Self {
        Self {
            tracker,
            shutdown,
            sessions_max: SESSIONS_MAX,
            session_idle: SESSION_IDLE,
        }
    }
}

/// The SDK's part of the endpoint.
type Sdk = StreamableHttpService<Projection, Manager>;

/// The `/mcp` endpoint, as a tower service. Clones are cheap and share everything.
///
/// It expects, as an extension of every request, the `Arc<Caller>` that the node's access
/// layer has judged: it checks neither Host nor Origin itself. A request may be answered before its
/// body has been read, whose rest is the host's to deal with. A [`Failure`] among the causes of an
/// error of the body is answered as what it says.
///
/// [`Failure`]: earshot_capability::Failure
#[derive(Clone)]
pub struct McpService {
    sdk: Sdk,
    shared: Arc<Shared>,
    sessions: Arc<WireSessions>,
    twins: Arc<Twins>,
    large: Large,
    tracker: TaskTracker,
}

impl fmt::Debug for McpService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpService")
            .field("sessions", &self.sessions.count())
            .finish_non_exhaustive()
    }
}

/// Builds the `/mcp` endpoint of a host.
///
/// # Panics
/// When it is called outside a Tokio runtime, where it has to start the watch over its sessions.
pub fn http_service(host: Arc<dyn McpHost>, settings: HttpSettings) -> McpService {
    let HttpSettings {
        tracker,
        shutdown,
        sessions_max,
        session_idle,
    } = settings;
    let shared = Arc::new(Shared::new(host, shutdown.clone()));
    let sessions = WireSessions::new(
        Arc::clone(&shared),
        sessions_max,
        session_idle,
        tracker.clone(),
    );
    tracker.spawn(Arc::clone(&sessions).watch(shutdown.clone()));
    let config = StreamableHttpServerConfig::default()
        // Access is judged before this service; a second rule would only disagree with it.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_legacy_session_mode(true)
        .with_json_response(true)
        .with_sse_retry(None)
        .with_sse_keep_alive(Some(STREAM_COMMENT))
        .with_max_request_body_bytes(MESSAGE_BYTES_MAX)
        .with_cancellation_token(shutdown);
    let for_each = Arc::clone(&shared);
    let sdk = StreamableHttpService::new(
        move || Ok(Projection::new(Arc::clone(&for_each), Link::Http)),
        Arc::new(Manager(Arc::clone(&sessions))),
        config,
    );
    McpService {
        sdk,
        shared,
        sessions,
        twins: Arc::default(),
        large: Large::new(tracker.clone()),
        tracker,
    }
}

impl<B> Service<Request<B>> for McpService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + 'static,
{
    type Response = Response<McpBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            let answer = service.serve(request).await;
            Ok(answer.unwrap_or_else(Refusal::into_response))
        })
    }
}

impl McpService {
    /// Returns how many wire sessions there are, for metrics.
    pub fn wire_sessions(&self) -> usize {
        self.sessions.count()
    }

    async fn serve<B>(&self, request: Request<B>) -> Result<McpResponse, Refusal>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + 'static,
    {
        let (mut parts, body) = request.into_parts();
        drop_blank(&mut parts.headers, SESSION_HEADER);
        drop_blank(&mut parts.headers, VERSION_HEADER);
        // Access is judged already; the SDK still insists on a host that it can read.
        parts
            .headers
            .insert(header::HOST, HeaderValue::from_static("localhost"));
        match parts.method {
            Method::POST => self.post(parts, body).await,
            Method::GET => self.get(parts).await,
            Method::HEAD => self.head(parts).await,
            Method::DELETE => self.delete(parts).await,
            _ => self.pass_on(parts).await.map(|it| it.map(McpBody::new)),
        }
    }

    async fn post<B>(&self, mut parts: Parts, body: B) -> Result<McpResponse, Refusal>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + 'static,
    {
        let accepts = Accepts::read(&parts.headers);
        if accepts.nothing() {
            return Err(Refusal::NotAcceptable(
                "application/json or text/event-stream",
            ));
        }
        if !media::is_json(&parts.headers) {
            return Err(Refusal::MediaType);
        }
        let declared = parts.headers.get(header::CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = body::read(body, declared)
            .await
            .map_err(|error| match error {
                ReadError::TooLong => Refusal::TooLong,
                ReadError::Broken => Refusal::Broken,
                ReadError::Refused(failure) => self.failed(failure, Value::Null),
            })?;
        let without_bom = bytes.len() - message::without_bom(&bytes).len();
        let bytes = bytes.slice(without_bom..);
        let (message, large) = self.large.check(&bytes).await?;
        self.recall(&parts, message.id()).await?;
        self.prepare(&mut parts, &message)?;
        let caller = self.recognise(&mut parts)?;
        self.shared.host().touched(&caller);
        let turn = self.turn(&mut parts, &caller, &message).await?;

        let named = session_of(&parts.headers);
        let opening = message.is_initialize();
        let note = opening
            .then(|| self.admit(&mut parts, &caller, &message))
            .transpose()?;
        parts.headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        parts.headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        let renewed = parts.headers.get(SESSION_HEADER).filter(|_| opening);
        let renewed = renewed.cloned();
        let request = Request::from_parts(parts, Full::new(bytes));
        let answer = if opening {
            self.open(request, &message).await?
        } else {
            self.large.handle(&self.sdk, request, large).await?
        };
        let answer = self.judge(answer, &message, named.as_deref())?;
        let answer = if is_type(&answer, "text/event-stream") {
            settle::settle(answer, accepts, opening)
                .await
                .ok_or_else(|| Refusal::Other(StatusCode::SERVICE_UNAVAILABLE, message.id()))?
        } else if accepts.json == 0 && answer.status() == StatusCode::OK {
            settle::as_stream(answer).await
        } else {
            answer.map(McpBody::new)
        };
        let answer = match turn {
            Some(turn) => answer.map(|body| body.holding(Box::new(turn))),
            None => answer,
        };
        let row_absent = caller.seat.is_some() && note.is_some_and(|note| note.is_absent());
        Ok(with_head(answer, renewed, row_absent))
    }

    /// Opens a stream for what the server sends unasked.
    async fn get(&self, mut parts: Parts) -> Result<McpResponse, Refusal> {
        if Accepts::read(&parts.headers).stream == 0 {
            return Err(Refusal::NotAcceptable("text/event-stream"));
        }
        check_version(&parts.headers, Value::Null)?;
        self.recall(&parts, Value::Null).await?;
        let caller = self.recognise(&mut parts)?;
        self.shared.host().touched(&caller);
        parts.headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        // No event carries an id: one that comes is another server's.
        parts.headers.remove("last-event-id");
        let answer = self.pass_on(parts).await?;
        let open = self.shared.host().stream_opened(&caller);
        Ok(answer.map(|body| McpBody::new(body).holding(open)))
    }

    async fn pass_on(&self, parts: Parts) -> Result<Response<SdkBody>, Refusal> {
        let named = session_of(&parts.headers);
        let request = Request::from_parts(parts, Empty::<Bytes>::new().boxed());
        let answer = self.sdk.handle(request).await;
        self.judge(answer, &Message::Notification, named.as_deref())
    }

    /// Takes from the headers what this message makes meaningless, and refuses what no later
    /// step may see.
    fn prepare(&self, parts: &mut Parts, message: &Message) -> Result<(), Refusal> {
        match message {
            Message::Request {
                offered_version: Some(offered),
                ..
            } => {
                // The handshake settles the version; a header that says otherwise is of another
                // conversation.
                let header = parts.headers.get(VERSION_HEADER);
                let fits = header.is_some_and(|header| header.as_bytes() == offered.as_bytes());
                if !fits || !header.is_some_and(is_known) {
                    parts.headers.remove(VERSION_HEADER);
                }
                // A client that lost its session may still carry its id.
                if session_of(&parts.headers).is_none_or(|id| !self.sessions.knows(&id)) {
                    parts.headers.remove(SESSION_HEADER);
                }
                Ok(())
            }
            // The SDK compares the two, and answers in the terms of that generation.
            Message::Request {
                own_version: Some(_),
                ..
            } => Ok(()),
            Message::Request { .. } | Message::Notification | Message::Reply => {
                check_version(&parts.headers, message.id())
            }
        }
    }

    /// Takes the caller that the access layer found, completes it with its wire session, and
    /// leaves it for the handler.
    fn recognise(&self, parts: &mut Parts) -> Result<Arc<Caller>, Refusal> {
        let Some(caller) = parts.extensions.get::<Arc<Caller>>() else {
            tracing::error!("a request reached /mcp without having passed the access layer");
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            return Err(Refusal::Other(status, Value::Null));
        };
        let mut caller = Caller::clone(caller);
        caller.wire_session = session_of(&parts.headers).filter(|id| self.sessions.knows(id));
        let caller = Arc::new(caller);
        parts.extensions.insert(Arc::clone(&caller));
        Ok(caller)
    }

    /// Turns the SDK's plain-text refusals into answers that a client can read.
    fn judge(
        &self,
        answer: Response<SdkBody>,
        message: &Message,
        named: Option<&str>,
    ) -> Result<Response<SdkBody>, Refusal> {
        let status = answer.status();
        if status.is_success() || is_type(&answer, "application/json") {
            return Ok(answer);
        }
        let id = message.id();
        let lost = named.is_some_and(|named| !self.sessions.knows(named));
        Err(match status {
            StatusCode::NOT_FOUND => Refusal::SessionUnknown(id),
            // It was there when the request began.
            StatusCode::INTERNAL_SERVER_ERROR if lost => Refusal::SessionUnknown(id),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Refusal::Message(message::Rejection::unreadable(id))
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                Refusal::Method(answer.headers().get(header::ALLOW).cloned())
            }
            StatusCode::BAD_REQUEST if named.is_none() => Refusal::SessionRequired(id),
            other => Refusal::Other(other, id),
        })
    }
}

fn check_version(headers: &HeaderMap, id: Value) -> Result<(), Refusal> {
    match headers.get(VERSION_HEADER) {
        Some(version) if !is_known(version) => Err(Refusal::Version(id)),
        Some(_) | None => Ok(()),
    }
}

fn is_known(version: &HeaderValue) -> bool {
    ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .any(|known| known.as_str().as_bytes() == version.as_bytes())
}

/// Removes a header that is there and says nothing: what a client sends for an unset variable.
fn drop_blank(headers: &mut HeaderMap, name: &'static str) {
    if headers
        .get(name)
        .is_some_and(|value| value.as_bytes().trim_ascii().is_empty())
    {
        headers.remove(name);
    }
}

fn session_of(headers: &HeaderMap) -> Option<String> {
    headers
        .get(SESSION_HEADER)
        .and_then(|value| value.to_str().ok())
        .map(ToOwned::to_owned)
}

fn is_type(answer: &Response<SdkBody>, essence: &str) -> bool {
    answer
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(essence.as_bytes()))
}

/// Names the session again in the answer to a repeated `initialize`, whose client may not have
/// seen it, and says when the board has no row for its caller.
fn with_head(
    mut answer: McpResponse,
    renewed: Option<HeaderValue>,
    row_absent: bool,
) -> McpResponse {
    if !answer.status().is_success() {
        return answer;
    }
    let headers = answer.headers_mut();
    if let Some(id) = renewed {
        headers.insert(SESSION_HEADER, id);
    }
    if row_absent {
        headers.insert(EARSHOT_ROW, HeaderValue::from_static(ROW_ABSENT));
    }
    answer
}

#[cfg(test)]
mod tests;
