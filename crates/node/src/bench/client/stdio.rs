//! The client over the standard streams of a bridge.

use std::{io, path::Path, process::Stdio};

use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout},
};

use super::{
    ClientError,
    frame::{self, Frame},
    introduction, within_patience,
};
use crate::bench::scratch::Scratch;

/// One client over a bridge. Dropping it kills the bridge.
#[derive(Debug)]
pub(in crate::bench) struct StdioClient {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    line: Vec<u8>,
    next: u64,
    /// Answers to requests that had been answered before.
    pub(super) repeated: u64,
}

impl StdioClient {
    /// Starts a bridge in a repository and initializes.
    pub(in crate::bench) async fn start(
        scratch: &Scratch,
        repository: &Path,
        name: &str,
    ) -> Result<Self, ClientError> {
        let mut command = scratch.earshot(repository, &["mcp"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(ClientError::Bridge)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped");
        };
        let stdout = BufReader::new(stdout);
        let mut client = Self {
            child,
            stdin,
            stdout,
            line: Vec::new(),
            next: 0,
            repeated: 0,
        };
        within_patience(async {
            client.ask("initialize", &introduction(name)).await?;
            client.send(frame::INITIALIZED).await
        })
        .await?;
        Ok(client)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a request and reads its answer, counting those that answer an earlier one again.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: &str,
    ) -> Result<Box<RawValue>, ClientError> {
        self.next += 1;
        let id = self.next;
        self.send(&frame::request(id, method, params)).await?;
        loop {
            if !self.read_line().await? {
                return Err(ClientError::Bridge(io::ErrorKind::UnexpectedEof.into()));
            }
            match frame::read(&self.line)? {
                Frame::Answer {
                    id: answered,
                    outcome,
                } if answered == id => {
                    return outcome.map_err(ClientError::Refused);
                }
                Frame::Answer { .. } => self.repeated += 1,
                Frame::Other => {}
            }
        }
    }

    async fn send(&mut self, message: &str) -> Result<(), ClientError> {
        let line = format!("{message}\n");
        self.stdin
            .write_all(line.as_bytes())
            .await
            .map_err(ClientError::Bridge)
    }

    /// Reads the next line; `false` at the end.
    async fn read_line(&mut self) -> Result<bool, ClientError> {
        self.line.clear();
        let read = self.stdout.read_until(b'\n', &mut self.line).await;
        Ok(read.map_err(ClientError::Bridge)? > 0)
    }

    /// Closes the bridge's input, reads what it still says and waits for its end.
    pub(super) async fn close(self) -> u64 {
        let Self {
            mut child,
            stdin,
            mut stdout,
            mut line,
            ..
        } = self;
        drop(stdin);
        let mut repeated = 0;
        let ended = async {
            loop {
                line.clear();
                let read = stdout.read_until(b'\n', &mut line).await;
                if read.map_err(ClientError::Bridge)? == 0 {
                    break;
                }
                repeated += u64::from(matches!(frame::read(&line), Ok(Frame::Answer { .. })));
            }
            child.wait().await.map_err(ClientError::Bridge)
        };
        within_patience(ended).await.ok(); // one that does not end is killed when it is dropped
        repeated
    }
}
