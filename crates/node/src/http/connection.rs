//! The pace of one connection: no caller may hold it by being slow.
//!
//! hyper has one timer for headers, which counts the next request of an idle connection from the
//! end of the last answer, and none for answers. So the deadlines are kept here, between hyper
//! and the socket: headers are due from their first byte, an idle connection has longer, and an
//! answer must be taken.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use earshot_proto::Now;
use http_body::{Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use super::surfaces::Limits;
use crate::clock;

/// Where a connection stands between its requests, shared by its two ends: the socket below hyper
/// and the service above it.
#[derive(Debug)]
pub(super) struct Pace {
    /// Requests begun on this connection.
    begun: AtomicU64,
    /// Whether one of them is being answered.
    answering: AtomicBool,
    /// When it came, or last began or ended to be answered, in milliseconds of the process.
    changed: AtomicU64,
}

/// What a connection is used for, beginning with the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// It has asked nothing yet.
    New,
    /// It asks nothing now.
    Idle,
    /// It is being answered.
    Answered,
}

/// A request that is being answered, until its answer's last byte is handed over and its own last
/// byte has come.
#[derive(Debug)]
pub(super) struct Answering(Arc<Pace>);

impl Default for Pace {
    fn default() -> Self {
        let pace = Self {
            begun: AtomicU64::default(),
            answering: AtomicBool::default(),
            changed: AtomicU64::default(),
        };
        pace.change();
        pace
    }
}

impl Pace {
    /// Begins a request.
    pub(super) fn begin(self: &Arc<Self>) -> Answering {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.answering.store(true, Ordering::Relaxed);
        self.change();
        Answering(Arc::clone(self))
    }

    fn change(&self) {
        let now = clock::now().since_start().as_millis();
        self.changed
            .store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns what the connection is used for, and since when.
    pub(super) fn standing(&self) -> (Standing, Now) {
        let standing = if self.answering.load(Ordering::Relaxed) {
            Standing::Answered
        } else if self.begun.load(Ordering::Relaxed) > 0 {
            Standing::Idle
        } else {
            Standing::New
        };
        let since = Duration::from_millis(self.changed.load(Ordering::Relaxed));
        (standing, Now::from_start(since))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answering.store(false, Ordering::Relaxed);
        self.0.change();
    }
}

/// The body of an answer; dropped, it ends the answer.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    _answering: Arc<Answering>,
}

impl Answer {
    pub(super) const fn new(body: Body, answering: Arc<Answering>) -> Self {
        Self {
            body,
            _answering: answering,
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A deadline that runs from when it is first looked at.
#[derive(Debug, Default)]
pub(super) struct Deadline(Option<Pin<Box<Sleep>>>);

impl Deadline {
    /// Looks at the deadline: ready when `after` has passed since the first look.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, after: Duration) -> Poll<()> {
        self.start(after).as_mut().poll(context)
    }

    /// Starts it, unless it runs.
    fn start(&mut self, after: Duration) -> &mut Pin<Box<Sleep>> {
        self.0
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(after)))
    }

    /// Stops it; the next look starts it again.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

/// What the other side owes while no request is being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    /// The headers of the first request.
    FirstHead,
    /// Nothing: it may send another request.
    Another,
    /// The rest of the headers that it began.
    RestOfHead,
}

/// A socket that fails when its other side is too slow.
#[derive(Debug)]
pub(super) struct Paced<Io> {
    io: Io,
    pace: Arc<Pace>,
    limits: Limits,
    seen: u64,
    owed: Owed,
    reading: Deadline,
    writing: Deadline,
}

impl<Io> Paced<Io> {
    pub(super) fn new(io: Io, pace: Arc<Pace>, limits: Limits) -> Self {
        Self {
            io,
            pace,
            limits,
            seen: 0,
            owed: Owed::FirstHead,
            reading: Deadline::default(),
            writing: Deadline::default(),
        }
    }

    /// Brings what is owed up to date with the requests that have begun since.
    fn catch_up(&mut self) {
        let begun = self.pace.begun.load(Ordering::Relaxed);
        if begun != self.seen {
            self.seen = begun;
            self.owed = Owed::Another;
            self.reading.clear();
        }
    }

    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let after = match self.owed {
            Owed::FirstHead | Owed::RestOfHead => self.limits.head,
            Owed::Another => self.limits.idle,
        };
        self.reading.poll(context, after)
    }

    /// Gives a write that waits its deadline, and one that does not none.
    fn paced_write<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing.clear();
            return written;
        }
        ready!(self.writing.poll(context, self.limits.answer_stall));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Paced<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(context, buffer);
        this.catch_up();
        if this.pace.answering.load(Ordering::Relaxed) {
            return read;
        }
        if read.is_ready() {
            if buffer.filled().len() > before && this.owed == Owed::Another {
                this.owed = Owed::RestOfHead;
                this.reading.clear();
                this.reading.start(this.limits.head);
            }
            return read;
        }
        ready!(this.poll_overdue(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Paced<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.paced_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.paced_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.paced_write(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
