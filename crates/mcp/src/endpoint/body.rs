//! Bodies: reading one within its limit, and writing one that says when it is done.

use std::{
    convert::Infallible,
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use earshot_capability::Failure;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::BoxBody};

use crate::{host::OpenStream, message::MESSAGE_BYTES_MAX};

/// What the SDK answers with.
pub(crate) type SdkBody = BoxBody<Bytes, Infallible>;

/// Why a request's body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// It is longer than a message may be.
    TooLong,
    /// The connection broke.
    Broken,
    /// The host would not have it read on, and says why.
    Refused(Failure),
}

/// Reads a body whole, within the limit. What is left of one that is refused is for the host to
/// read and throw away.
pub(crate) async fn read<B>(body: B, declared: Option<u64>) -> Result<Bytes, ReadError>
where
    B: Body<Data = Bytes> + Send,
    B::Error: std::error::Error + 'static,
{
    let limit = u64::try_from(MESSAGE_BYTES_MAX).unwrap_or(u64::MAX);
    if declared.is_some_and(|declared| declared > limit) {
        return Err(ReadError::TooLong);
    }
    let mut body = std::pin::pin!(body);
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|error| refused(&error))?.into_data();
        let data = data.unwrap_or_default();
        if data.len() > MESSAGE_BYTES_MAX - read.len() {
            return Err(ReadError::TooLong);
        }
        read.extend_from_slice(&data);
    }
    Ok(read.freeze())
}

/// Finds what the host says among the causes of an error.
fn refused(error: &(dyn std::error::Error + 'static)) -> ReadError {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return ReadError::Refused(failure.clone());
        }
        cause = error.source();
    }
    ReadError::Broken
}

/// The body of an answer.
pub struct McpBody {
    /// What was read of the inner body before it was decided to pass it on.
    begun: Option<Bytes>,
    inner: SdkBody,
    /// Says that the stream is closed, once the body is dropped.
    _open: Option<OpenStream>,
}

impl fmt::Debug for McpBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpBody").finish_non_exhaustive()
    }
}

impl McpBody {
    /// Passes a body on as it is.
    pub(crate) fn new(inner: SdkBody) -> Self {
        Self {
            begun: None,
            inner,
            _open: None,
        }
    }

    /// Makes a body of these bytes.
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self::new(http_body_util::Full::new(bytes.into()).boxed())
    }

    /// Puts bytes before the rest of the body.
    pub(crate) fn after(begun: Bytes, inner: SdkBody) -> Self {
        Self {
            begun: Some(begun).filter(|begun| !begun.is_empty()),
            ..Self::new(inner)
        }
    }

    /// Holds something until the body is dropped.
    pub(crate) fn holding(self, open: OpenStream) -> Self {
        Self {
            _open: Some(open),
            ..self
        }
    }
}

impl Body for McpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(begun) = self.begun.take() {
            return Poll::Ready(Some(Ok(Frame::data(begun))));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.begun.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.begun {
            Some(_) => SizeHint::default(),
            None => self.inner.size_hint(),
        }
    }
}

/// An answer of this endpoint.
pub(crate) type McpResponse = Response<McpBody>;
