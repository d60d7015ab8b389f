//! The shell around the bridge's decisions: pipes, exchanges, searches and time.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::clock::Clock;
use super::exchange::{self, AttemptId, Call, Event};
use super::finder::{FindError, Finder, Found, Want};
use super::headers;
use super::lines::Lines;
use super::options::BridgeOptions;
use super::session::{Effect, Input, SearchId, Session};
use crate::upstream::Upstream;

/// Events of exchanges that may wait for the bridge; senders wait beyond that.
const EVENTS_MAX: usize = 64;
/// Lines that may wait for the client; beyond that nothing is taken from either side.
const OUTBOX_MAX: usize = 64;
/// Lines that the writer may hold.
const WRITER_QUEUE_MAX: usize = 16;
/// Lines are written together up to this size, in bytes.
const WRITE_BYTES: usize = 64 * 1024;
/// How long the goodbye to the node, and the last lines to the client, may take together.
const FAREWELL: Duration = Duration::from_millis(500);

/// How a bridge ended.
#[derive(Debug)]
pub enum BridgeEnd<R, W> {
    /// The client's input ended, or its process is gone.
    ClientGone,
    /// The client reads no more.
    OutputClosed,
    /// No node can be started: the client is to be served by this process.
    ///
    /// None of the pending frames was answered.
    Alone {
        /// Why, in one sentence without a full stop.
        reason: String,
        /// What was read and not served: goes before what `stdin` still holds.
        pending: Bytes,
        /// The client's input.
        stdin: R,
        /// The client's output.
        stdout: W,
    },
}

/// Serves one client between `stdin` and `stdout` until it goes.
///
/// Returns within 2 s of the end of `stdin`, of the client's process
/// ([`BridgeOptions::client_gone`]) or of a failing `stdout`. Tasks that it starts end with it.
///
/// # Panics
///
/// When one of its tasks does.
///
/// # Cancel safety
///
/// Dropping the future breaks everything off: requests stay unanswered.
pub async fn run<R, W, F>(stdin: R, stdout: W, options: BridgeOptions, finder: F) -> BridgeEnd<R, W>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
    F: Finder,
{
    let tracker = TaskTracker::new();
    let (out, lines) = mpsc::channel(WRITER_QUEUE_MAX);
    let writer = tracker.spawn(write_lines(stdout, lines));
    let shell = Shell::new(&options, finder, out);
    shell.run(Lines::new(stdin), writer, &options).await
}

/// What happened to the shell.
enum Turn {
    Input(Input),
    OutputClosed,
    Nothing,
}

/// Why the loop is left.
enum Leave {
    Farewell(Option<Call>),
    Alone { reason: String, frames: Vec<Bytes> },
}

struct Shell<F> {
    session: Session,
    clock: Clock,
    finder: Arc<F>,
    upstream: Option<Arc<Upstream>>,
    tasks: JoinSet<()>,
    exchanges: BTreeMap<AttemptId, AbortHandle>,
    search: Option<AbortHandle>,
    events: mpsc::Sender<(AttemptId, Event)>,
    incoming: mpsc::Receiver<(AttemptId, Event)>,
    results: mpsc::Sender<(SearchId, Result<Found, FindError>)>,
    found: mpsc::Receiver<(SearchId, Result<Found, FindError>)>,
    outbox: VecDeque<Bytes>,
    out: mpsc::Sender<Bytes>,
}

impl<F: Finder> Shell<F> {
    fn new(options: &BridgeOptions, finder: F, out: mpsc::Sender<Bytes>) -> Self {
        let (events, incoming) = mpsc::channel(EVENTS_MAX);
        let (results, found) = mpsc::channel(1);
        Self {
            session: Session::new(headers::identity(options), options.request_deadline),
            clock: Clock::start(),
            finder: Arc::new(finder),
            upstream: None,
            tasks: JoinSet::new(),
            exchanges: BTreeMap::new(),
            search: None,
            events,
            incoming,
            results,
            found,
            outbox: VecDeque::new(),
            out,
        }
    }

    async fn run<R, W>(
        mut self,
        mut lines: Lines<R>,
        writer: JoinHandle<io::Result<W>>,
        options: &BridgeOptions,
    ) -> BridgeEnd<R, W>
    where
        R: AsyncRead + Unpin,
    {
        loop {
            let input = match self.turn(&mut lines, options).await {
                Turn::Input(input) => input,
                Turn::OutputClosed => {
                    // Nobody is left to be told.
                    self.outbox.clear();
                    if let Some(Leave::Farewell(goodbye)) = self.handle(Input::ClientGone) {
                        self.say_goodbye(goodbye).await;
                    }
                    return BridgeEnd::OutputClosed;
                }
                Turn::Nothing => continue,
            };
            match self.handle(input) {
                None => {}
                Some(Leave::Farewell(goodbye)) => {
                    self.farewell(goodbye, writer).await;
                    return BridgeEnd::ClientGone;
                }
                Some(Leave::Alone { reason, frames }) => {
                    return self.leave_alone(reason, frames, lines, writer).await;
                }
            }
        }
    }

    /// Waits for the next thing to happen. Every branch is cancel safe: receivers, a permit, a
    /// timer, and [`Lines::next`], which keeps what it has read.
    async fn turn<R>(&mut self, lines: &mut Lines<R>, options: &BridgeOptions) -> Turn
    where
        R: AsyncRead + Unpin,
    {
        let room = self.outbox.len() < OUTBOX_MAX;
        let wake = self.session.next_wake();
        tokio::select! {
            biased;
            () = options.client_gone.cancelled() => Turn::Input(Input::ClientGone),
            permit = self.out.reserve(), if !self.outbox.is_empty() => {
                match (permit, self.outbox.pop_front()) {
                    (Ok(permit), Some(line)) => { permit.send(line); Turn::Nothing }
                    _ => Turn::OutputClosed,
                }
            }
            () = self.out.closed() => Turn::OutputClosed,
            Some(ended) = self.tasks.join_next() => { pass_on_panic(ended); Turn::Nothing }
            Some((search, result)) = self.found.recv() => {
                Turn::Input(Input::Found(search, result))
            }
            Some((attempt, event)) = self.incoming.recv(), if room => {
                if matches!(event, Event::End(_)) {
                    self.exchanges.remove(&attempt);
                }
                Turn::Input(Input::Exchange(attempt, event))
            }
            () = self.clock.sleep_until(wake) => Turn::Input(Input::Wake),
            line = lines.next(), if room && self.session.wants_input() => {
                Turn::Input(Input::Line(line))
            }
        }
    }

    /// Hands one input in and carries out what is decided.
    fn handle(&mut self, input: Input) -> Option<Leave> {
        let mut leave = None;
        for effect in self.session.handle(self.clock.now(), input) {
            match effect {
                Effect::Write(line) => self.outbox.push_back(line),
                Effect::Find(search, want) => self.find(search, want),
                Effect::Detach => self.detach(),
                Effect::Attach(found) => {
                    self.upstream = Some(Arc::new(Upstream::new(found.socket)));
                }
                Effect::Call(call) => self.call(call),
                Effect::Abort(attempt) => {
                    if let Some(exchange) = self.exchanges.remove(&attempt) {
                        exchange.abort();
                    }
                }
                Effect::Alone { reason, frames } => leave = Some(Leave::Alone { reason, frames }),
                Effect::End { goodbye } => leave = Some(Leave::Farewell(goodbye)),
            }
        }
        leave
    }

    fn find(&mut self, id: SearchId, want: Want) {
        self.stop_search();
        let (finder, results) = (Arc::clone(&self.finder), self.results.clone());
        self.search = Some(self.tasks.spawn(async move {
            let result = finder.find(want).await;
            // The receiver goes when the bridge ends, and this search with it.
            results.send((id, result)).await.ok();
        }));
    }

    fn stop_search(&mut self) {
        if let Some(search) = self.search.take() {
            search.abort();
        }
    }

    fn call(&mut self, call: Call) {
        let Some(upstream) = self.upstream.clone() else {
            return;
        };
        let attempt = call.attempt;
        let task = exchange::carry_out(call, upstream, self.events.clone());
        self.exchanges.insert(attempt, self.tasks.spawn(task));
    }

    fn detach(&mut self) {
        for (_, exchange) in std::mem::take(&mut self.exchanges) {
            exchange.abort();
        }
        if let Some(upstream) = self.upstream.take() {
            upstream.close();
        }
    }

    /// Says goodbye to both sides, at the same time.
    async fn farewell<W>(mut self, goodbye: Option<Call>, writer: JoinHandle<io::Result<W>>) {
        self.stop_search();
        let outbox = std::mem::take(&mut self.outbox);
        let out = self.out.clone();
        let (closed, _) = mpsc::channel(1);
        self.out = closed;
        let writing = writer.abort_handle();
        let last_lines = timeout(FAREWELL, finish_writing(outbox, out, writer));
        tokio::join!(self.say_goodbye(goodbye), async {
            match last_lines.await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "the client did not take the last lines"),
                Err(_) => {
                    tracing::debug!("the client does not read its last lines");
                    writing.abort();
                }
            }
        });
    }

    async fn say_goodbye(&self, goodbye: Option<Call>) {
        let (Some(call), Some(upstream)) = (goodbye, &self.upstream) else {
            return;
        };
        match timeout(FAREWELL, upstream.send(exchange::request(call))).await {
            Ok(Ok(answer)) => tracing::debug!(status = %answer.status(), "the session was ended"),
            Ok(Err(error)) => tracing::debug!(%error, "the node was not told of the end"),
            Err(_) => tracing::debug!("the node does not answer the goodbye"),
        }
    }

    /// Gives the pipes back, with what was read from one and nothing left for the other.
    async fn leave_alone<R, W>(
        mut self,
        reason: String,
        frames: Vec<Bytes>,
        lines: Lines<R>,
        writer: JoinHandle<io::Result<W>>,
    ) -> BridgeEnd<R, W>
    where
        R: AsyncRead + Unpin,
    {
        let outbox = std::mem::take(&mut self.outbox);
        let Self { out, tasks, .. } = self;
        drop(tasks);
        let Ok(stdout) = finish_writing(outbox, out, writer).await else {
            return BridgeEnd::OutputClosed;
        };
        let (stdin, rest) = lines.into_rest();
        let mut pending = BytesMut::new();
        for frame in frames {
            pending.extend_from_slice(&frame);
            pending.extend_from_slice(b"\n");
        }
        pending.extend_from_slice(&rest);
        BridgeEnd::Alone {
            reason,
            pending: pending.freeze(),
            stdin,
            stdout,
        }
    }
}

/// Hands the last lines to the writer and returns its output.
async fn finish_writing<W>(
    outbox: VecDeque<Bytes>,
    out: mpsc::Sender<Bytes>,
    writer: JoinHandle<io::Result<W>>,
) -> io::Result<W> {
    for line in outbox {
        out.send(line)
            .await
            .map_err(|_| io::ErrorKind::BrokenPipe)?;
    }
    drop(out);
    match writer.await {
        Ok(result) => result,
        Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Err(cancelled) => Err(io::Error::other(cancelled)),
    }
}

/// Writes lines until there are no more; the only one that touches the client's output.
async fn write_lines<W>(mut stdout: W, mut lines: mpsc::Receiver<Bytes>) -> io::Result<W>
where
    W: AsyncWrite + Unpin,
{
    let mut batch = Vec::new();
    while let Some(line) = lines.recv().await {
        batch.extend_from_slice(&line);
        batch.push(b'\n');
        while batch.len() < WRITE_BYTES
            && let Ok(line) = lines.try_recv()
        {
            batch.extend_from_slice(&line);
            batch.push(b'\n');
        }
        stdout.write_all(&batch).await?;
        stdout.flush().await?;
        if batch.capacity() > WRITE_BYTES {
            batch = Vec::new();
        }
        batch.clear();
    }
    Ok(stdout)
}

/// A task that panics takes the bridge with it; one that was broken off is as expected.
fn pass_on_panic(ended: Result<(), JoinError>) {
    if let Err(failed) = ended
        && failed.is_panic()
    {
        std::panic::resume_unwind(failed.into_panic());
    }
}

#[cfg(test)]
mod tests;
