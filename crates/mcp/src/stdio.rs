//! MCP on standard input and output, for a client that is served alone.

use std::{collections::VecDeque, io, sync::Arc};

use earshot_capability::Caller;
use rmcp::{
    RoleServer,
    model::{
        ClientJsonRpcMessage, ClientRequest, GetMeta as _, ProtocolVersion, ServerJsonRpcMessage,
    },
    service::serve_server_with_ct,
    transport::{Transport, TransportAdapterIdentity},
};
use tokio::{
    io::{
        AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader,
    },
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{
    handler::{Link, Projection, Shared},
    host::McpHost,
    message::{self, MESSAGE_BYTES_MAX, Message, Rejection},
};

/// Lines that wait to be written: a client that does not read holds up its own calls.
const LINES_MAX: usize = 64;

/// Serves one client on a pair of streams, until it closes its end or `shutdown` is cancelled.
///
/// # Errors
/// When the writing end fails: the client is gone then, and nothing else is wrong.
///
/// # Cancel safety
/// Not cancel safe: dropping the future drops answers that were not written yet.
pub async fn serve_stdio(
    host: Arc<dyn McpHost>,
    caller: Arc<Caller>,
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin,
    shutdown: CancellationToken,
) -> io::Result<()> {
    // Cancelled at the end of the input, so that an open `listen` does not hold the process.
    let ended = shutdown.child_token();
    // Cancelled when the output is gone: nothing that still runs could be answered.
    let stop = shutdown.child_token();
    let (lines, queue) = mpsc::channel(LINES_MAX);
    let shared = Arc::new(Shared::new(Arc::clone(&host), ended.clone()));
    let handler = Projection::new(shared, Link::Stdio(Arc::clone(&caller)));
    let frames = Frames {
        reader: BufReader::new(reader),
        line: Vec::new(),
        overlong: false,
        rejected: VecDeque::new(),
        lines,
        opened: false,
        ended,
        host: Arc::clone(&host),
        caller: Arc::clone(&caller),
    };
    let serving = {
        let stop = stop.clone();
        async move {
            match serve_server_with_ct::<_, _, _, TransportAdapterIdentity>(handler, frames, stop)
                .await
            {
                Ok(running) => {
                    running.waiting().await.ok();
                }
                Err(error) => tracing::debug!(%error, "the client left before its handshake"),
            }
        }
    };
    let writing = write(queue, writer);
    let ((), written) = tokio::join!(serving, async {
        let written = writing.await;
        stop.cancel();
        written
    });
    host.left(&caller).await;
    written
}

/// Writes lines until nobody is left to send one.
async fn write(
    mut queue: mpsc::Receiver<Vec<u8>>,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(line) = queue.recv().await {
        writer.write_all(&line).await?;
        if queue.is_empty() {
            writer.flush().await?;
        }
    }
    writer.flush().await
}

/// One line for each message, read and checked.
struct Frames<R> {
    reader: BufReader<R>,
    /// The line so far. It stays here when a read is abandoned half-way.
    line: Vec<u8>,
    /// Whether the line so far was too long and its rest is being skipped.
    overlong: bool,
    /// Answers to messages that the SDK never sees.
    rejected: VecDeque<Rejection>,
    lines: mpsc::Sender<Vec<u8>>,
    /// Whether the SDK is past the handshake: before it, it ends the connection at anything that
    /// is no request.
    opened: bool,
    ended: CancellationToken,
    host: Arc<dyn McpHost>,
    caller: Arc<Caller>,
}

impl<R: AsyncRead + Unpin + Send + 'static> Transport<RoleServer> for Frames<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let lines = self.lines.clone();
        async move {
            let line = to_line(&message)?;
            lines
                .send(line)
                .await
                .map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            while let Some(rejection) = self.rejected.front() {
                let line = to_line(&rejection.to_json()).ok()?;
                // Taken only once there is room, so that no answer is lost with this future.
                let room = self.lines.reserve().await.ok()?;
                room.send(line);
                self.rejected.pop_front();
            }
            let Some(line) = self.next_line().await else {
                self.ended.cancel();
                return None;
            };
            match line.and_then(|line| self.read(&line)) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(rejection) => self.rejected.push_back(rejection),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<R: AsyncRead + Unpin + Send> Frames<R> {
    /// Returns the next line, or why it is not one; `None` at the end of the input.
    async fn next_line(&mut self) -> Option<Result<Vec<u8>, Rejection>> {
        loop {
            let read = fill(&mut self.reader).await;
            let end = read.is_empty();
            let newline = read.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(read.len(), |at| at + 1);
            let text = read.get(..newline.unwrap_or(taken)).unwrap_or_default();
            if self.line.len() + text.len() > MESSAGE_BYTES_MAX {
                self.overlong = true;
                self.line = Vec::new();
            } else if !self.overlong {
                self.line.extend_from_slice(text);
            }
            self.reader.consume(taken);
            if end && self.line.is_empty() && !self.overlong {
                return None;
            }
            if end || newline.is_some() {
                let line = std::mem::take(&mut self.line);
                return Some(if std::mem::take(&mut self.overlong) {
                    Err(Rejection::too_long())
                } else {
                    Ok(line)
                });
            }
        }
    }

    /// Reads a line. `None` when it holds nothing that the SDK must see.
    fn read(&mut self, line: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Rejection> {
        let text = message::without_bom(line).trim_ascii();
        if text.is_empty() {
            return Ok(None);
        }
        let message = message::check(text)?;
        self.host.touched(&self.caller);
        let is_request = matches!(message, Message::Request { .. });
        if !is_request && !self.opened {
            return Ok(None);
        }
        let read: ClientJsonRpcMessage = match serde_json::from_slice(text) {
            Ok(read) => read,
            // What is not owed an answer gets none.
            Err(_) if !is_request => return Ok(None),
            Err(_) => return Err(Rejection::unreadable(message.id())),
        };
        self.opened |= opens(&read);
        Ok(Some(read))
    }
}

/// Returns what was read and not consumed yet; empty at the end. A broken input has ended.
async fn fill(reader: &mut (impl AsyncBufRead + Unpin)) -> &[u8] {
    reader.fill_buf().await.unwrap_or_default()
}

/// Says whether a message ends the SDK's handshake.
fn opens(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Request(request) = message else {
        return false;
    };
    let meta = request.request.get_meta();
    let complete = meta
        .missing_required_keys(&ProtocolVersion::V_2026_07_28)
        .is_empty();
    let spoken = meta
        .protocol_version()
        .is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version));
    match &request.request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::DiscoverRequest(_) | ClientRequest::PingRequest(_) => false,
        _ => complete && spoken,
    }
}

fn to_line(message: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests;
