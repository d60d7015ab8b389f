//! The body of a request: read at a pace, up to a size, within a budget, and drained where nobody
//! read it.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use super::{
    answer::Refusal,
    budget::{Charge, Exhausted},
    connection::Deadline,
};
use axum::{
    body::{Body, Bytes, HttpBody},
    http::StatusCode,
};
use earshot_capability::{Code, Failure};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;

/// Most bytes of the body of a capability's route.
pub(super) const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes that are read and thrown away so that a client gets to read its answer.
const DRAIN_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest time that a body is drained.
const DRAIN_WAIT: Duration = Duration::from_secs(10);

/// Why the body of a request could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    /// No byte came for too long.
    #[error("the request's body stopped coming")]
    Stalled,
    /// The connection broke, or the framing is wrong.
    #[error("the request's body broke off")]
    Broken(#[source] axum::Error),
    /// All bodies together hold as much as they may.
    #[error("there is no room for the request's body")]
    NoRoom(#[source] Failure),
}

/// A body that the handler reads and whose rest can be drained after it: both hold it.
#[derive(Debug, Clone)]
pub(super) struct SharedBody(Arc<Mutex<Reading>>);

#[derive(Debug)]
struct Reading {
    body: Body,
    stall: Duration,
    deadline: Deadline,
    /// Counts what is read, from when it is known for whom.
    charge: Option<Charge>,
    read: Read,
}

/// How much of a body has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    Nothing,
    Part,
    Whole,
    /// It stalled or broke off.
    Broken,
}

/// What is left of a body when its request has been handled. Unless it is read to its end, the
/// connection must be closed: what is left would be taken for the next request.
#[derive(Debug)]
pub(super) enum Rest {
    /// It has been read whole, or there was none.
    Nothing,
    /// It is drained while the answer is sent; its end may or may not be reached.
    Drained(SharedBody),
    /// It is longer than what is drained: that much is, so that the answer can be read.
    TooMuch(SharedBody),
    /// It cannot be read on.
    Unreadable,
}

impl SharedBody {
    pub(super) fn new(body: Body, stall: Duration) -> Self {
        Self(Arc::new(Mutex::new(Reading {
            body,
            stall,
            deadline: Deadline::default(),
            charge: None,
            read: Read::Nothing,
        })))
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Reading) -> T) -> T {
        // The lock is held for one poll and nothing in it panics; a poisoned one is as good.
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts what is read from here on.
    pub(super) fn count(&self, charge: Charge) {
        self.with(|reading| reading.charge = Some(charge));
    }

    /// Says that the request has been handled: nothing of its body is held any longer, and what
    /// is left of it is of no use, so that each of its bytes may be waited for so long and no longer.
    pub(super) fn handled(self, waits_for_continue: bool, stall: Duration) -> Rest {
        let (read, left) = self.with(|reading| {
            reading.charge = None;
            reading.stall = stall;
            reading.deadline.clear();
            (reading.read, reading.body.size_hint().lower())
        });
        match read {
            Read::Broken => Rest::Unreadable,
            _ if self.is_end_stream() => Rest::Nothing,
            // It has sent nothing and is not asked to: nobody knows what it sends next.
            Read::Nothing if waits_for_continue => Rest::Unreadable,
            _ if left > DRAIN_BYTES_MAX => Rest::TooMuch(self),
            _ => Rest::Drained(self),
        }
    }

    /// Reads what the handler left, up to a bound: a connection that is closed while its client
    /// still writes would take the answer with it.
    pub(super) async fn drain(mut self) {
        let read_all = async {
            let mut left = DRAIN_BYTES_MAX;
            while !self.is_end_stream() {
                let Some(Ok(frame)) = self.frame().await else {
                    return;
                };
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(rest) = left.checked_sub(u64::try_from(bytes).unwrap_or(u64::MAX)) else {
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
            match reading.read {
                Read::Nothing => reading.read = Read::Part,
                Read::Part => {}
                Read::Whole | Read::Broken => return Poll::Ready(None),
            }
            let polled = match Pin::new(&mut reading.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    reading.deadline.clear();
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    let charged = reading.charge.as_mut().map(|charge| charge.add(bytes));
                    if let Some(Err(Exhausted)) = charged {
                        // What is left is drained; nobody reads it.
                        return Poll::Ready(Some(Err(BodyError::NoRoom(no_room()))));
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Poll::Ready(Some(Err(error))) => Some(Err(BodyError::Broken(error))),
                Poll::Ready(None) => None,
                Poll::Pending => match reading.deadline.poll(context, reading.stall) {
                    Poll::Ready(()) => Some(Err(BodyError::Stalled)),
                    Poll::Pending => return Poll::Pending,
                },
            };
            reading.read = if polled.is_none() {
                Read::Whole
            } else {
                Read::Broken
            };
            Poll::Ready(polled)
        })
    }

    fn is_end_stream(&self) -> bool {
        self.with(|reading| {
            matches!(reading.read, Read::Whole | Read::Broken) || reading.body.is_end_stream()
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|reading| reading.body.size_hint())
    }
}

/// Reads the body of a capability's route.
///
/// # Errors
/// Too large, too slow, broken off, or too many bytes of bodies at once.
pub(super) async fn read_whole(mut body: Body) -> Result<Vec<u8>, Refusal> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > BODY_BYTES_MAX {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refuse_unread(&error))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if bytes.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
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

fn no_room() -> Failure {
    Failure::new(
        Code::Busy,
        "too many bytes of requests are under way at this node",
        "Try again in a second; send large requests one after another.",
    )
}

fn refuse_unread(error: &axum::Error) -> Refusal {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        match error.downcast_ref() {
            Some(BodyError::Stalled) => {
                return Refusal::new(
                    StatusCode::REQUEST_TIMEOUT,
                    Failure::new(
                        Code::InvalidInput,
                        "the request's body stopped coming",
                        "Send the whole body without a pause.",
                    ),
                );
            }
            Some(BodyError::NoRoom(failure)) => return failure.clone().into(),
            Some(BodyError::Broken(_)) | None => cause = error.source(),
        }
    }
    Refusal::from(Failure::new(
        Code::InvalidInput,
        "the request's body broke off",
        "Send the whole body, framed as its headers say.",
    ))
}
