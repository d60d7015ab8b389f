//! Cutting a stream of bytes into frames: four bytes of length, big-endian, and so many bytes.

/// Bytes of the longest frame: the longest payload and its envelope.
pub const FRAME_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + earshot_trust::ENVELOPE_OVERHEAD;

/// Bytes of the longest payload: a thousand rows of usual size, in one piece.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

const LENGTH_BYTES: usize = 4;

/// A length that no frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {bytes} bytes; the longest has {FRAME_BYTES_MAX}, and none is empty")]
pub struct FrameError {
    /// The length that was said.
    pub bytes: usize,
}

/// Bytes that came, and frames that they make.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Adds what came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Takes the next frame, `None` when it has not come whole.
    ///
    /// # Errors
    /// [`FrameError`], before anything of the frame is waited for; the stream is of no use then.
    pub fn pull(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let bytes = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if bytes == 0 || bytes > FRAME_BYTES_MAX {
            return Err(FrameError { bytes });
        }
        let Some(frame) = rest.get(..bytes).map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        self.bytes.drain(..LENGTH_BYTES + bytes);
        Ok(Some(frame))
    }

    /// Takes what came as it is, out of any frame, when so much of it is there.
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.bytes.first_chunk::<N>()?;
        self.bytes.drain(..N);
        Some(taken)
    }
}

/// Returns a frame that holds these bytes, at most [`FRAME_BYTES_MAX`] of them.
pub fn framed(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    [length.to_be_bytes().as_slice(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_they_are_cut(
            sent in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..20),
            cut in 1..64_usize,
        ) {
            let stream: Vec<u8> = sent.iter().flat_map(|frame| framed(frame)).collect();
            let mut frames = Frames::default();
            let mut got = Vec::new();
            for piece in stream.chunks(cut) {
                frames.push(piece);
                while let Some(frame) = frames.pull().unwrap() {
                    got.push(frame);
                }
            }
            prop_assert_eq!(got, sent);
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused_at_once() {
        for bytes in [0, FRAME_BYTES_MAX + 1, 0xffff_ffff] {
            let mut frames = Frames::default();
            frames.push(&u32::try_from(bytes).unwrap().to_be_bytes());
            assert_eq!(frames.pull(), Err(FrameError { bytes }));
        }
    }
}
