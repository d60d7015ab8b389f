//! Lines from the client's side of the bridge.

use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::frame::{self, FRAME_BYTES_MAX};

/// How many bytes are asked for in one read.
const READ_BYTES: usize = 8 * 1024;

/// What the client's input holds next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// One line, trimmed and not empty.
    Frame(Bytes),
    /// A line beyond the limit, which is being skipped.
    Oversized {
        /// Its raw id, where that stands before the limit.
        id: Option<Bytes>,
    },
    /// There is nothing more.
    End,
}

/// A reader of newline-delimited frames.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    buffer: BytesMut,
    /// How many bytes of the buffer are known to hold no line end.
    searched: usize,
    /// The rest of an oversized line is being skipped.
    skipping: bool,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self::with_limit(input, FRAME_BYTES_MAX)
    }

    fn with_limit(input: R, limit: usize) -> Self {
        Self {
            input,
            buffer: BytesMut::new(),
            searched: 0,
            skipping: false,
            limit,
        }
    }

    /// Returns the next line; the last one needs no line end. A failing input is at its end.
    ///
    /// # Cancel safety
    ///
    /// What was read stays in the buffer when the future is dropped.
    pub(super) async fn next(&mut self) -> Line {
        loop {
            if let Some(line) = self.buffered() {
                return line;
            }
            self.buffer.reserve(READ_BYTES);
            match self.input.read_buf(&mut self.buffer).await {
                Ok(0) => return self.last(),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::debug!(%error, "the client's input failed");
                    return self.last();
                }
            }
        }
    }

    /// Gives back the input and what was read of a line that is not yet whole.
    pub(super) fn into_rest(self) -> (R, BytesMut) {
        (self.input, self.buffer)
    }

    fn buffered(&mut self) -> Option<Line> {
        loop {
            let found = self.buffer[self.searched..]
                .iter()
                .position(|&byte| byte == b'\n');
            let Some(found) = found else {
                self.searched = self.buffer.len();
                return self.overflow();
            };
            let length = self.searched + found;
            let whole = self.buffer.split_to(length).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if self.buffer.is_empty() {
                // A large line's room is given back; the next read asks for what it needs.
                self.buffer = BytesMut::new();
            }
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if let Some(line) = self.judge(&whole) {
                return Some(line);
            }
        }
    }

    /// Judges one whole line; a blank one is none.
    fn judge(&self, whole: &Bytes) -> Option<Line> {
        let frame = frame::trim(whole);
        if frame.len() > self.limit {
            return Some(oversized(&frame[..self.limit]));
        }
        (!frame.is_empty()).then(|| Line::Frame(whole.slice_ref(frame)))
    }

    /// Lets go of a line without an end that is already too long.
    fn overflow(&mut self) -> Option<Line> {
        // Room for the mark, the return and blanks that do not count.
        if !self.skipping && self.buffer.len() <= self.limit + READ_BYTES {
            return None;
        }
        let start = std::mem::take(&mut self.buffer);
        self.searched = 0;
        let known = std::mem::replace(&mut self.skipping, true);
        (!known).then(|| oversized(frame::trim(&start)))
    }

    fn last(&mut self) -> Line {
        let whole = std::mem::take(&mut self.buffer).freeze();
        self.searched = 0;
        if std::mem::take(&mut self.skipping) {
            return Line::End;
        }
        self.judge(&whole).unwrap_or(Line::End)
    }
}

fn oversized(start: &[u8]) -> Line {
    let id = frame::id_in_prefix(start).map(|id| Bytes::copy_from_slice(id.as_bytes()));
    Line::Oversized { id }
}

#[cfg(test)]
mod tests;
