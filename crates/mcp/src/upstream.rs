//! A small HTTP/1.1 client over one Unix socket, with kept-alive connections.
//!
//! Every call runs on a connection of its own, so that concurrent calls never wait for each other;
//! a connection whose answer was read to its end serves the next call. Dropping a call, or the body
//! of its answer before the end, closes its connection: that is how a call is aborted.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use http::header::{HOST, HeaderValue};
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Most header lines that an answer may have: the node sends fewer than twenty.
pub const ANSWER_HEADERS_MAX: usize = 64;

/// Largest head of an answer, and the read buffer of a connection, in bytes.
pub const ANSWER_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most idle connections kept for later: as many as calls may run at once.
pub const IDLE_CONNECTIONS_MAX: usize = 64;

/// Why a call over an [`Upstream`] brought no complete answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No connection could be made: nothing was sent.
    #[error("cannot connect to {}", socket.display())]
    Connect {
        /// The socket that was dialled.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The connection ended before the answer did: whether the request was carried out is unknown.
    #[error("the connection ended before the answer")]
    Lost(#[source] hyper::Error),
    /// The answer is larger than its reader takes.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The reader's limit in bytes.
        limit: usize,
    },
}

impl SendError {
    /// Returns whether the request certainly never reached the other side.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::Connect { .. })
    }
}

/// A client of the node behind one Unix socket.
///
/// Cheap to share behind an `Arc`; must be used within a Tokio runtime.
#[derive(Debug)]
pub struct Upstream {
    socket: PathBuf,
    pool: Arc<Pool>,
    tasks: TaskTracker,
}

impl Upstream {
    /// Returns a client of the node that listens on `socket`; connects at the first call.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            pool: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Returns the socket that this client dials.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends `request` and returns the head of its answer, with the body still to be read.
    ///
    /// A `Host` of `localhost` is added where the request has none. There is no time limit: the
    /// caller drops the future to give up.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; whether the request was carried out is unknown.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<AnswerBody>, SendError> {
        let mut request = request.map(Full::new);
        request
            .headers_mut()
            .entry(HOST)
            .or_insert(HeaderValue::from_static("localhost"));
        // A kept connection may have been closed by the node meanwhile. The loop ends: each turn
        // takes one out of the bounded pool, and a new connection is the last turn.
        while let Some(connection) = self.pool.take() {
            match connection.send(request, &self.pool).await {
                Ok(response) => return Ok(response),
                Err(Failed::Unsent(back, _)) => request = *back,
                Err(Failed::Lost(error)) => return Err(SendError::Lost(error)),
            }
        }
        let connection = self.connect().await?;
        connection
            .send(request, &self.pool)
            .await
            .map_err(|failed| match failed {
                Failed::Unsent(_, error) | Failed::Lost(error) => SendError::Lost(error),
            })
    }

    /// Closes every connection, idle or in use; calls under way end as [`SendError::Lost`].
    ///
    /// The client stays usable: the next call makes a new connection.
    pub fn close(&self) {
        self.pool.close();
    }

    async fn connect(&self) -> Result<Connection, SendError> {
        let all = self.pool.lock().all.clone();
        let failed = |source| SendError::Connect {
            socket: self.socket.clone(),
            source,
        };
        let stream = UnixStream::connect(&self.socket).await.map_err(failed)?;
        let (sender, driver) = http1::Builder::new()
            .max_headers(ANSWER_HEADERS_MAX)
            .max_buf_size(ANSWER_HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(io::Error::other(error)))?;
        let open = all.child_token();
        let closed = open.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = closed.cancelled() => {}
                result = driver => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection to the node ended");
                    }
                }
            }
        });
        Ok(Connection {
            sender,
            open: open.clone(),
            _guard: open.drop_guard(),
        })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.pool.close();
    }
}

/// The connections of one [`Upstream`].
#[derive(Debug, Default)]
struct Pool {
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    idle: Vec<Connection>,
    /// Parent of every connection's token; replaced when all are closed.
    all: CancellationToken,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // Every change of the state is a single step: a poisoned one is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connection used last: the others may then grow old and go.
    fn take(&self) -> Option<Connection> {
        self.lock().idle.pop()
    }

    fn put(&self, connection: Connection) {
        let mut state = self.lock();
        let usable = !connection.open.is_cancelled() && !connection.sender.is_closed();
        if usable && state.idle.len() < IDLE_CONNECTIONS_MAX {
            state.idle.push(connection);
        }
    }

    fn close(&self) {
        let mut state = self.lock();
        state.idle.clear();
        std::mem::take(&mut state.all).cancel();
    }
}

/// One connection; dropping it closes the socket.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    open: CancellationToken,
    _guard: DropGuard,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("sender", &self.sender)
            .finish_non_exhaustive()
    }
}

/// Why a request went unanswered on one connection.
enum Failed {
    /// The request came back: the connection was closed before it was written.
    Unsent(Box<Request<Full<Bytes>>>, hyper::Error),
    /// The request may have been received.
    Lost(hyper::Error),
}

impl Connection {
    async fn send(
        mut self,
        request: Request<Full<Bytes>>,
        pool: &Arc<Pool>,
    ) -> Result<Response<AnswerBody>, Failed> {
        if let Err(error) = self.sender.ready().await {
            return Err(Failed::Unsent(Box::new(request), error));
        }
        match self.sender.try_send_request(request).await {
            Ok(response) => Ok(response.map(|incoming| AnswerBody {
                incoming,
                connection: Some(self),
                pool: Arc::clone(pool),
            })),
            Err(mut failed) => match failed.take_message() {
                Some(back) => Err(Failed::Unsent(Box::new(back), failed.into_error())),
                None => Err(Failed::Lost(failed.into_error())),
            },
        }
    }
}

/// The body of an answer, read piece by piece.
///
/// Once it was read to its end, its connection serves the next call; dropped earlier, the
/// connection is closed.
#[derive(Debug)]
pub struct AnswerBody {
    incoming: Incoming,
    connection: Option<Connection>,
    pool: Arc<Pool>,
}

impl AnswerBody {
    /// Returns the next piece of the body, `None` at its end.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, SendError>> {
        loop {
            match self.incoming.frame().await {
                None => {
                    self.give_back();
                    return None;
                }
                Some(Err(error)) => return Some(Err(SendError::Lost(error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
            }
        }
    }

    /// Reads the rest of the body, at most `limit` bytes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection and loses what was read.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, SendError> {
        let mut whole = BytesMut::new();
        while let Some(chunk) = self.chunk().await {
            let chunk = chunk?;
            if whole.len() + chunk.len() > limit {
                return Err(SendError::TooLarge { limit });
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.freeze())
    }

    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.put(connection);
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // An empty body is at its end without having been read.
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }
}

#[cfg(test)]
mod tests;
