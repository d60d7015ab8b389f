//! Decoding of server-sent events, byte by byte.
//!
//! Only the data of an event matters to the bridge: names, ids, retry times and comments are
//! skipped. Chunks may end anywhere, inside a character, a line end or the byte order mark.

use bytes::Bytes;

/// The data of one event is larger than the decoder takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {limit} bytes")]
pub struct EventTooLarge {
    /// The decoder's limit in bytes.
    pub limit: usize,
}

/// An incremental decoder of one event stream.
#[derive(Debug)]
pub struct SseDecoder {
    /// The line read so far, without its end.
    line: Vec<u8>,
    /// The data lines of the event read so far, each followed by a line feed.
    data: Vec<u8>,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    /// No line has ended yet: the first may begin with a byte order mark.
    first: bool,
    limit: usize,
}

impl SseDecoder {
    /// Returns a decoder that takes events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            after_return: false,
            first: true,
            limit,
        }
    }

    /// Takes the next chunk and appends the data of every event that it completes to `events`.
    ///
    /// An event without data is none; one that the stream ends in is never reported.
    ///
    /// # Errors
    ///
    /// The stream is of no use after [`EventTooLarge`].
    pub fn feed(&mut self, chunk: &[u8], events: &mut Vec<Bytes>) -> Result<(), EventTooLarge> {
        let mut rest = chunk;
        while let Some(&byte) = rest.first() {
            if std::mem::take(&mut self.after_return) && byte == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let part = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + self.data.len() + part.len() > self.limit {
                return Err(EventTooLarge { limit: self.limit });
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.end_line(events);
        }
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Bytes>) {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.first) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            let mut data = std::mem::take(&mut self.data);
            data.pop();
            if !data.is_empty() {
                events.push(Bytes::from(data));
            }
            return;
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (&line[..], &[][..]),
        };
        if field == b"data" {
            self.data
                .extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.data.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests;
