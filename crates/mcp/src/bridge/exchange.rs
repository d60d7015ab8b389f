//! One HTTP exchange with the node, told as events.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::mpsc;

use super::answer;
use super::headers::{EARSHOT_ROW, EVENT_STREAM, MCP_SESSION_ID, ROW_ABSENT};
use super::sse::SseDecoder;
use crate::upstream::{AnswerBody, SendError, Upstream};

/// Where the node serves MCP.
const ENDPOINT: &str = "/mcp";

/// Largest answer that is passed on, in bytes: twice what a request may have.
pub(super) const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Most of a refusal's body that is read, in bytes.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Names one exchange; never used twice.
pub(super) type AttemptId = u64;

/// An exchange to be carried out.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) attempt: AttemptId,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// What happens in an exchange, in this order: at most one head, messages, one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// The node took the message.
    Head {
        /// A stream of messages follows, not a single one.
        stream: bool,
        /// The wire session that the node made.
        session: Option<String>,
        /// The node's board has no row for this seat.
        row_absent: bool,
    },
    /// One message, on one line.
    Message(Bytes),
    /// The stream gave a sign of life.
    Heard,
    End(End),
}

/// How an exchange ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// The answer was read to its end.
    Done,
    /// The node answered with another status than success.
    Refused { status: StatusCode, body: Bytes },
    /// The connection failed.
    Lost { unsent: bool },
    /// The answer is larger than [`ANSWER_BYTES_MAX`].
    TooLarge,
}

/// Carries out `call` and reports it; ends early when nobody listens any more.
pub(super) async fn carry_out(
    call: Call,
    upstream: Arc<Upstream>,
    events: mpsc::Sender<(AttemptId, Event)>,
) {
    let attempt = call.attempt;
    let reporter = Reporter { attempt, events };
    let end = match exchange(call, &upstream, &reporter).await {
        Ok(end) => end,
        Err(SendError::TooLarge { .. }) => End::TooLarge,
        Err(error) => {
            tracing::debug!(%error, attempt, "an exchange with the node failed");
            End::Lost {
                unsent: error.is_unsent(),
            }
        }
    };
    reporter.report(Event::End(end)).await;
}

/// Builds the HTTP request of a call.
pub(super) fn request(call: Call) -> Request<Bytes> {
    let mut request = Request::new(call.body);
    *request.method_mut() = call.method;
    *request.uri_mut() = http::Uri::from_static(ENDPOINT);
    *request.headers_mut() = call.headers;
    request
}

struct Reporter {
    attempt: AttemptId,
    events: mpsc::Sender<(AttemptId, Event)>,
}

impl Reporter {
    async fn report(&self, event: Event) {
        // The receiver goes when the bridge ends, and this exchange with it.
        self.events.send((self.attempt, event)).await.ok();
    }
}

async fn exchange(call: Call, upstream: &Upstream, reporter: &Reporter) -> Result<End, SendError> {
    let response = upstream.send(request(call)).await?;
    let status = response.status();
    if !status.is_success() {
        let body = match response.into_body().collect(REFUSAL_BYTES_MAX).await {
            Err(SendError::TooLarge { .. }) => Bytes::new(),
            body => body?,
        };
        return Ok(End::Refused { status, body });
    }
    let stream = media_type(&response).is_some_and(|kind| kind.eq_ignore_ascii_case(EVENT_STREAM));
    let header = |name| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    reporter
        .report(Event::Head {
            stream,
            session: header(MCP_SESSION_ID).map(str::to_owned),
            row_absent: header(EARSHOT_ROW) == Some(ROW_ABSENT),
        })
        .await;
    let body = response.into_body();
    if stream {
        relay(body, reporter).await
    } else {
        let message = answer::flat(&body.collect(ANSWER_BYTES_MAX).await?);
        if !message.is_empty() {
            reporter.report(Event::Message(message)).await;
        }
        Ok(End::Done)
    }
}

/// Reports every message of an event stream.
async fn relay(mut body: AnswerBody, reporter: &Reporter) -> Result<End, SendError> {
    let mut decoder = SseDecoder::new(ANSWER_BYTES_MAX);
    let mut messages = Vec::new();
    while let Some(chunk) = body.chunk().await {
        if decoder.feed(&chunk?, &mut messages).is_err() {
            return Ok(End::TooLarge);
        }
        if messages.is_empty() {
            reporter.report(Event::Heard).await;
        }
        for message in messages.drain(..) {
            reporter
                .report(Event::Message(answer::flat(&message)))
                .await;
        }
    }
    Ok(End::Done)
}

fn media_type(response: &Response<AnswerBody>) -> Option<&str> {
    let value = response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}
