//! The body of a request: read at a pace, up to a size, and drained where nobody read it.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::StatusCode,
};
use earshot_capability::{Code, Failure};

use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{answer::Refusal, connection::Deadline};

/// Most bytes of the body of a capability's route.
pub(super) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes that are read and thrown away so that a client gets to read its answer.
const DRAIN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest time that a body is drained.
const DRAIN_WAIT: Duration = Duration::from_secs(10);
/// Bytes that bodies of all callers may hold at once; counted as they arrive, so that slow
/// callers hold what they sent and not what they may send.
const HELD_BYTES_MAX: usize = 64 * BODY_BYTES_MAX;
/// One permit of the budget.
const PERMIT_BYTES: usize = 1024;

/// What all bodies together may hold.
#[derive(Debug)]
pub(super) struct Budget(Semaphore);

impl Default for Budget {
    fn default() -> Self {
        Self(Semaphore::new(HELD_BYTES_MAX / PERMIT_BYTES))
    }
}

/// Why the body of a request could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// No byte came for too long.
    #[error("the request's body stopped coming")]
    Stalled,
    /// The connection broke, or the framing is wrong.
    #[error("the request's body broke off")]
    Broken(#[source] axum::Error),
}

/// A body that the handler reads and whose rest can be drained after it: both hold it.
#[derive(Debug, Clone)]
pub(super) struct SharedBody(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    body: Body,
    stall: Duration,
    deadline: Deadline,
    begun: bool,
    ended: bool,
}

impl SharedBody {
    pub(super) fn new(body: Body, stall: Duration) -> Self {
        Self(Arc::new(Mutex::new(Reading {
            body,
            stall,
            deadline: Deadline::default(),
            begun: false,
            ended: false,
        })))
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Reading) -> T) -> T {
        // The lock is held for one poll and nothing in it panics; a poisoned one is as good.
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads what the handler left, up to a bound: a connection that is closed while its client
    /// still writes would take the answer with it.
    ///
    /// A client that waits for `100 Continue` has sent nothing, and is not asked to.
    pub(super) async fn drain(mut self, waits_for_continue: bool) {
        let begun = self.with(|reading| reading.begun);
        if waits_for_continue && !begun {
            return;
        }
        let read_all = async {
            let mut left = DRAIN_BYTES_MAX;
            while !self.is_end_stream() {
                let Some(Ok(frame)) = self.frame().await else {
                    return;
                };
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(rest) = left.checked_sub(bytes) else {
                    return;
                };
                left = rest;
            }
        };
        // Whether it was drained whole makes no difference to the answer.
        tokio::time::timeout(DRAIN_WAIT, read_all).await.ok();
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.with(|reading| {
            reading.begun = true;
            if reading.ended {
                return Poll::Ready(None);
            }
            let polled = match Pin::new(&mut reading.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    reading.deadline.clear();
                    return Poll::Ready(Some(Ok(frame)));
                }
                Poll::Ready(Some(Err(error))) => Some(Err(BodyError::Broken(error))),
                Poll::Ready(None) => None,
                Poll::Pending => match reading.deadline.poll(context, reading.stall) {
                    Poll::Ready(()) => Some(Err(BodyError::Stalled)),
                    Poll::Pending => return Poll::Pending,
                },
            };
            reading.ended = true;
            Poll::Ready(polled)
        })
    }

    fn is_end_stream(&self) -> bool {
        self.with(|reading| reading.ended || reading.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|reading| reading.body.size_hint())
    }
}

/// A body in memory, and the part of the budget that it takes.
#[derive(Debug)]
pub(super) struct Held<'a> {
    pub(super) bytes: Vec<u8>,
    permit: Option<SemaphorePermit<'a>>,
}

/// Reads the body of a capability's route.
///
/// # Errors
/// Too large, too slow, broken off, or too many bodies at once.
pub(super) async fn read_whole(body: Body, budget: &Budget) -> Result<Held<'_>, Refusal> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > BODY_BYTES_MAX {
        return Err(too_large());
    }
    let mut body = body;
    let mut held = Held {
        bytes: Vec::new(),
        permit: None,
    };
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refuse_unread(&error))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let bytes = held.bytes.len() + data.len();
        if bytes > BODY_BYTES_MAX {
            return Err(too_large());
        }
        let more = bytes.div_ceil(PERMIT_BYTES) - taken;
        let more = u32::try_from(more).map_err(|_| too_large())?;
        let permit = budget.0.try_acquire_many(more).map_err(|_| busy())?;
        taken = bytes.div_ceil(PERMIT_BYTES);
        match &mut held.permit {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        held.bytes.extend_from_slice(data);
    }
    Ok(held)
}

fn too_large() -> Refusal {
    Refusal::from(Failure::new(
        Code::TooLarge,
        format!("a body has at most {BODY_BYTES_MAX} bytes"),
        "Send less at once.",
    ))
}

/// Returns the refusal of a caller who comes while too much is under way.
pub(super) fn busy() -> Refusal {
    Refusal::from(Failure::new(
        Code::Busy,
        "this node is answering as many requests as it can",
        "Try again in a second.",
    ))
}

fn refuse_unread(error: &axum::Error) -> Refusal {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(BodyError::Stalled) = error.downcast_ref() {
            return Refusal::new(
                StatusCode::REQUEST_TIMEOUT,
                Failure::new(
                    Code::InvalidInput,
                    "the request's body stopped coming",
                    "Send the whole body without a pause.",
                ),
            );
        }
        cause = error.source();
    }
    Refusal::from(Failure::new(
        Code::InvalidInput,
        "the request's body broke off",
        "Send the whole body, framed as its headers say.",
    ))
}
