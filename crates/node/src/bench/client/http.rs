//! The client over HTTP: one kept-alive connection, over TCP or a Unix socket.

use std::{io, path::PathBuf};

use bytes::Bytes;
use earshot_mcp::bridge::{
    headers::{
        EARSHOT_SESSION, EVENT_STREAM, JSON, MCP_METHOD, MCP_NAME, MCP_PROTOCOL_VERSION,
        MCP_SESSION_ID, STATELESS_SINCE,
    },
    sse::SseDecoder,
};
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_util::task::TaskTracker;

use super::{
    ANSWER_BYTES_MAX, ClientError, PROTOCOL_VERSION,
    frame::{self, Frame},
    introduction, within_patience,
};
use crate::bench::BenchError;

/// What a client connects to.
#[derive(Debug, Clone)]
pub(in crate::bench) struct Target {
    place: Place,
    /// What the `Host` header says.
    host: HeaderValue,
    path: String,
}

impl Target {
    /// Opens a TCP connection and nothing more.
    pub(in crate::bench) async fn connect(&self) -> io::Result<TcpStream> {
        match &self.place {
            Place::Tcp(address) => TcpStream::connect(address).await,
            Place::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(in crate::bench) fn path(&self) -> &str {
        &self.path
    }

    pub(in crate::bench) fn host(&self) -> &str {
        self.host.to_str().unwrap_or_default()
    }
}

#[derive(Debug, Clone)]
enum Place {
    /// Host and port.
    Tcp(String),
    Unix(PathBuf),
}

impl Target {
    /// Reads an `http://` url.
    pub(in crate::bench) fn tcp(url: &str) -> Result<Self, BenchError> {
        let wrong = || BenchError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
        let authority = authority.ok_or_else(wrong)?;
        let port = authority.port_u16().unwrap_or(80);
        Ok(Self {
            place: Place::Tcp(format!("{}:{port}", authority.host())),
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?,
            path: uri.path().to_owned(),
        })
    }

    /// Takes the Unix socket of a node, which serves everything there that it serves at `url`.
    pub(in crate::bench) fn unix(socket: PathBuf, url: &str) -> Result<Self, BenchError> {
        Ok(Self {
            place: Place::Unix(socket),
            host: HeaderValue::from_static("localhost"),
            ..Self::tcp(url)?
        })
    }
}

/// Which protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Generation {
    /// With a handshake and a wire session.
    Sessions,
    /// Without either: each request says who is calling.
    Stateless,
}

/// One client over HTTP.
#[derive(Debug)]
pub(in crate::bench) struct HttpClient {
    target: Target,
    name: String,
    tasks: TaskTracker,
    /// The connection; `None` once it was lost, until the next request makes another.
    sender: Option<SendRequest<Full<Bytes>>>,
    generation: Generation,
    /// The wire session, of the generation that has one.
    session: Option<HeaderValue>,
    next: u64,
    /// Answers beyond the first to one request.
    pub(super) repeated: u64,
}

impl HttpClient {
    /// Connects and initializes.
    pub(in crate::bench) async fn open(
        target: Target,
        name: String,
        tasks: TaskTracker,
    ) -> Result<Self, ClientError> {
        let mut client = Self::new(target, name, tasks, Generation::Sessions);
        client.initialize().await?;
        Ok(client)
    }

    /// Prepares a client that speaks without a handshake; it connects with its first request.
    pub(in crate::bench) const fn stateless(
        target: Target,
        name: String,
        tasks: TaskTracker,
    ) -> Self {
        Self::new(target, name, tasks, Generation::Stateless)
    }

    const fn new(target: Target, name: String, tasks: TaskTracker, generation: Generation) -> Self {
        Self {
            target,
            name,
            tasks,
            sender: None,
            generation,
            session: None,
            next: 0,
            repeated: 0,
        }
    }

    /// Opens a wire session in the place of the one before.
    pub(in crate::bench) async fn initialize(&mut self) -> Result<(), ClientError> {
        self.session = None;
        let introduction = introduction(&self.name);
        within_patience(async {
            self.ask("initialize", None, &introduction).await?;
            let message = frame::INITIALIZED.to_owned();
            let response = self.send(Method::POST, message, None).await?;
            drain(response).await
        })
        .await
    }

    /// Calls a tool and reads its answer.
    pub(super) async fn call(
        &mut self,
        tool: &str,
        arguments: &str,
    ) -> Result<Box<RawValue>, ClientError> {
        let meta = match self.generation {
            Generation::Sessions => String::new(),
            Generation::Stateless => frame::meta(&self.name) + ",",
        };
        let params = format!("{{{meta}\"name\":\"{tool}\",\"arguments\":{arguments}}}");
        self.ask("tools/call", Some(tool), &params).await
    }

    /// Sends a request and reads its answer.
    async fn ask(
        &mut self,
        method: &'static str,
        about: Option<&str>,
        params: &str,
    ) -> Result<Box<RawValue>, ClientError> {
        self.next += 1;
        let id = self.next;
        let repeated = Some((method, about));
        let response = self
            .send(Method::POST, frame::request(id, method, params), repeated)
            .await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND if self.session.is_some() => {
                drain(response).await?;
                return Err(ClientError::SessionGone);
            }
            status => {
                drain(response).await?;
                return Err(ClientError::Status(status));
            }
        }
        if let Some(session) = response.headers().get(MCP_SESSION_ID) {
            self.session = Some(session.clone());
        }
        let mut outcome = None;
        for message in messages(response).await? {
            if let Frame::Answer {
                id: answered,
                outcome: found,
            } = frame::read(&message)?
                && answered == id
            {
                if outcome.is_some() {
                    self.repeated += 1;
                }
                outcome.get_or_insert(found);
            }
        }
        outcome
            .ok_or(ClientError::NoAnswer)?
            .map_err(ClientError::Refused)
    }

    /// Sends a message of any form and throws its answer away.
    pub(in crate::bench) async fn post(&mut self, message: Bytes) -> Result<(), ClientError> {
        let response = self.send(Method::POST, message, None).await?;
        let status = response.status();
        drain(response).await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(ClientError::Status(status))
        }
    }

    /// Returns the id of the wire session.
    pub(in crate::bench) fn session(&self) -> Option<&str> {
        self.session.as_ref()?.to_str().ok()
    }

    /// Ends the wire session; whoever has none only hangs up.
    pub(super) async fn close(mut self) {
        if self.generation == Generation::Stateless {
            return;
        }
        let ended = async {
            let response = self.send(Method::DELETE, String::new(), None).await?;
            drain(response).await
        };
        within_patience(ended).await.ok(); // a server that is gone has forgotten it already
    }

    /// Sends a message; `repeated` is what the headers of the stateless generation repeat of it.
    async fn send(
        &mut self,
        method: Method,
        body: impl Into<Bytes> + Send,
        repeated: Option<(&'static str, Option<&str>)>,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::try_from(&self.target.path).map_err(|_| ClientError::NoAnswer)?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.target.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        if let Some(session) = &self.session {
            headers.insert(MCP_SESSION_ID, session.clone());
            headers.insert(
                MCP_PROTOCOL_VERSION,
                HeaderValue::from_static(PROTOCOL_VERSION),
            );
        }
        if self.generation == Generation::Stateless
            && let Some((method, about)) = repeated
        {
            let text = |text: &str| HeaderValue::from_str(text).map_err(|_| ClientError::NoAnswer);
            headers.insert(
                MCP_PROTOCOL_VERSION,
                HeaderValue::from_static(STATELESS_SINCE),
            );
            headers.insert(MCP_METHOD, HeaderValue::from_static(method));
            headers.insert(EARSHOT_SESSION, text(&self.name)?);
            if let Some(about) = about {
                headers.insert(MCP_NAME, text(about)?);
            }
        }
        // The connection is put back only when the answer's head has come.
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            Some(_) | None => self.connect().await?,
        };
        sender.ready().await.map_err(ClientError::Lost)?;
        let response = sender
            .send_request(request)
            .await
            .map_err(ClientError::Lost)?;
        self.sender = Some(sender);
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        match &self.target.place {
            Place::Tcp(_) => {
                let stream = self.target.connect().await.map_err(ClientError::Connect)?;
                stream.set_nodelay(true).map_err(ClientError::Connect)?;
                self.speak_over(stream).await
            }
            Place::Unix(socket) => {
                let stream = UnixStream::connect(socket)
                    .await
                    .map_err(ClientError::Connect)?;
                self.speak_over(stream).await
            }
        }
    }

    async fn speak_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<SendRequest<Full<Bytes>>, ClientError> {
        let greeted = http1::handshake(TokioIo::new(stream)).await;
        let (sender, driver) = greeted.map_err(ClientError::Lost)?;
        self.tasks.spawn(async move {
            driver.await.ok(); // the request under way tells what happened
        });
        Ok(sender)
    }
}

/// Reads an answer to its end, so that its connection serves the next request.
async fn drain(response: Response<Incoming>) -> Result<(), ClientError> {
    whole(response).await.map(drop)
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, ClientError> {
    let collected = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    match collected {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(error
            .downcast()
            .map_or(ClientError::NoAnswer, |error| ClientError::Lost(*error))),
    }
}

/// Reads the messages of an answer, which is one message or a stream of them.
async fn messages(response: Response<Incoming>) -> Result<Vec<Bytes>, ClientError> {
    let media = response.headers().get(CONTENT_TYPE);
    let stream = media.is_some_and(|media| media.as_bytes().starts_with(EVENT_STREAM.as_bytes()));
    let body = whole(response).await?;
    if !stream {
        return Ok(vec![body]);
    }
    let mut events = Vec::new();
    SseDecoder::new(ANSWER_BYTES_MAX)
        .feed(&body, &mut events)
        .map_err(|_| ClientError::NoAnswer)?;
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_can_be_measured_beside() {
        let target = Target::tcp("http://127.0.0.1:8000/mcp").unwrap();
        assert!(matches!(&target.place, Place::Tcp(address) if address == "127.0.0.1:8000"));
        assert_eq!(target.path, "/mcp");
        let plain = Target::tcp("http://localhost").unwrap();
        assert!(matches!(&plain.place, Place::Tcp(address) if address == "localhost:80"));
        for url in ["https://127.0.0.1/mcp", "127.0.0.1:8000", "/mcp", ""] {
            assert!(Target::tcp(url).is_err(), "{url}");
        }
    }
}
