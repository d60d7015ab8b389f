//! The accept loops: connections bounded in number and pace, none dropped while being answered.

use std::{convert::Infallible, io, net::SocketAddr, panic, sync::Arc};

use axum::{body::Body, extract::Request};
use earshot_proto::mesh::link::PROTOCOL_NAME;
use earshot_trust::{PeerUid, Transport};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::RecvFlags;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::{JoinError, JoinSet},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    connection::{Answer, Pace, Paced},
    peer_uid::PeerUids,
    places::{LEAVING_MAX, Places},
    site::Site,
    surfaces::Limits,
};

/// Bytes of a request's head that hyper reads; beyond it answers 431 by itself. Twice what the
/// surface allows, so that most clients that send too much get the error in its usual form.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Headers that hyper reads, for the same reason.
const HEADERS_MAX: usize = 256;

/// Serves the site at a TCP address until told to stop; returns when the last answer has left.
///
/// # Panics
/// When the answering of a request panicked.
///
/// # Cancel safety
/// Dropping the future cuts every connection off.
pub(crate) async fn serve_tcp(
    listener: TcpListener,
    site: Arc<Site>,
    shutdown: CancellationToken,
    tracker: TaskTracker,
) {
    let uids = PeerUids::open();
    serve(Tcp { listener, uids }, site, shutdown, tracker).await;
}

/// Serves the site at a Unix socket until told to stop; returns when the last answer has left.
///
/// # Panics
/// When the answering of a request panicked.
///
/// # Cancel safety
/// Dropping the future cuts every connection off.
pub(crate) async fn serve_unix(
    listener: UnixListener,
    site: Arc<Site>,
    shutdown: CancellationToken,
    tracker: TaskTracker,
) {
    serve(listener, site, shutdown, tracker).await;
}

/// A listener of either kind.
trait Accept {
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts a connection and says whose it is, before a byte of it is read.
    ///
    /// Cancel safe: no accepted connection is lost.
    async fn accept(&mut self) -> io::Result<(Self::Io, Transport)>;

    /// Gives a connection back that speaks HTTP, and hands any other to whom it belongs.
    fn sort(
        io: Self::Io,
        transport: Transport,
        site: Arc<Site>,
    ) -> impl Future<Output = Option<Self::Io>> + Send;
}

struct Tcp {
    listener: TcpListener,
    uids: PeerUids,
}

impl Accept for Tcp {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, Transport)> {
        let (stream, peer) = self.listener.accept().await?;
        let transport = self.transport(peer, stream.local_addr()?);
        // Answers are written whole: waiting to fill a packet only delays them.
        stream.set_nodelay(true)?;
        Ok((stream, transport))
    }

    async fn sort(io: TcpStream, _: Transport, _: Arc<Site>) -> Option<TcpStream> {
        Some(io)
    }
}

impl Tcp {
    fn transport(&mut self, peer: SocketAddr, own: SocketAddr) -> Transport {
        let loopback = peer.ip().to_canonical().is_loopback();
        Transport::Tcp {
            peer: peer.ip(),
            peer_uid: if loopback {
                self.uids.of(peer, own)
            } else {
                PeerUid::Unsupported
            },
        }
    }
}

impl Accept for UnixListener {
    type Io = UnixStream;

    async fn accept(&mut self) -> io::Result<(UnixStream, Transport)> {
        let (stream, _) = Self::accept(self).await?;
        let peer = stream.peer_cred()?;
        tracing::trace!(pid = peer.pid(), "accepted at the Unix socket");
        Ok((stream, Transport::UnixSocket { uid: peer.uid() }))
    }

    async fn sort(io: UnixStream, transport: Transport, site: Arc<Site>) -> Option<UnixStream> {
        let head = site.limits().head;
        match tokio::time::timeout(head, begins_a_link(&io)).await {
            Ok(Ok(false)) => Some(io),
            Ok(Ok(true)) => {
                site.take_link(transport, io).await;
                None
            }
            // Silent for as long as headers may take, or gone.
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

/// Looks at the first byte of a connection and leaves it there: the name of the links' protocol
/// begins with a small letter, a method of HTTP with a capital one.
async fn begins_a_link(stream: &UnixStream) -> io::Result<bool> {
    let mut first = [0];
    loop {
        stream.readable().await?;
        let looked = stream.try_io(Interest::READABLE, || {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            Ok(rustix::net::recv(stream, &mut first, flags)?.0)
        });
        match looked {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(PROTOCOL_NAME.starts_with(&first)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn serve<L: Accept>(
    mut listener: L,
    site: Arc<Site>,
    shutdown: CancellationToken,
    tracker: TaskTracker,
) {
    let limits = *site.limits();
    let mut connections = JoinSet::new();
    let mut places = Places::default();
    let mut failing = false;
    loop {
        let most = limits.connections.min(share_of_descriptors());
        // Somebody who leaves is told so only when somebody new has come.
        let room = connections.len() < most + LEAVING_MAX.min(most);
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = connections.join_next() => {
                rethrow(ended);
                continue;
            }
            accepted = listener.accept(), if room => accepted,
            // Nobody gave way when the last ones came; by now somebody may.
            () = tokio::time::sleep(limits.accept_pause), if !room => {
                places.make_room();
                continue;
            }
        };
        match accepted {
            Ok((io, transport)) => {
                failing = false;
                if connections.len() >= most {
                    places.make_room();
                }
                let site = Arc::clone(&site);
                let shutdown = shutdown.clone();
                let drains = tracker.clone();
                let pace = Arc::new(Pace::default());
                let leave = places.take(&pace);
                let attended = async move {
                    if let Some(io) = L::sort(io, transport, Arc::clone(&site)).await {
                        attend(io, transport, site, pace, (shutdown, drains)).await;
                    }
                };
                let attended = async move {
                    // Whoever gives its place up is cut off: it asks nothing, or for ever.
                    leave.run_until_cancelled(attended).await;
                };
                connections.spawn(tracker.track_future(attended));
            }
            Err(error) if concerns_one_connection(&error) => {
                tracing::debug!(%error, "a connection was gone before it was accepted");
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "no connection can be accepted; trying on");
                    failing = true;
                }
                pause(&limits, &shutdown).await;
            }
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        rethrow(ended);
    }
}

/// Returns how many connections of one listener leave the node descriptors for its own files: a
/// third of what the process may have, as there are two listeners. Asked each time, because the
/// limit of a running process can be changed.
fn share_of_descriptors() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(usize::MAX, |most| {
        usize::try_from(most / 3).unwrap_or(usize::MAX).max(1)
    })
}

/// Waits before the next attempt: with no descriptors left, every attempt fails at once.
async fn pause(limits: &Limits, shutdown: &CancellationToken) {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(limits.accept_pause) => {}
    }
}

/// A panic while answering is a fault of this program: whoever runs the loop must see it.
fn rethrow(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(cause) = error.try_into_panic()
    {
        panic::resume_unwind(cause);
    }
}

fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotConnected
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::Interrupted
    )
}

/// Answers the requests of one connection.
async fn attend(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    transport: Transport,
    site: Arc<Site>,
    pace: Arc<Pace>,
    (shutdown, drains): (CancellationToken, TaskTracker),
) {
    let limits = *site.limits();
    let allowance = Arc::new(site.lanes().arrive());
    let io = TokioIo::new(Paced::new(io, Arc::clone(&pace), limits));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answering = Arc::new(pace.begin());
        let site = Arc::clone(&site);
        let (allowance, drains) = (Arc::clone(&allowance), drains.clone());
        async move {
            let request: Request = request.map(Body::new);
            let answered = site.answer(transport, request);
            let (response, rest) = site.lanes().serve(&allowance, answered).await;
            if let Some(rest) = rest {
                // Beside the answer, which does not wait for it; it ends with the connection.
                let answering = Arc::clone(&answering);
                drains.spawn(async move {
                    rest.drain().await;
                    drop(answering);
                });
            }
            Ok::<_, Infallible>(response.map(|body| Answer::new(body, answering)))
        }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            // Only a backstop; but with it, hyper looks at the socket again after an answer, which
            // is when an idle connection's time begins.
            .header_read_timeout(limits.idle + limits.head)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(io, service)
    );
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            let Ok(ended) = tokio::time::timeout(limits.drain, connection).await else {
                tracing::debug!("an answer was cut off: the node ends");
                return;
            };
            ended
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, time::Duration};

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
        sync::mpsc,
    };

    use super::{super::tests::Fixture, *};

    /// A listener that fails as it is told to, and then accepts.
    struct Failing {
        errors: VecDeque<io::Error>,
        connections: mpsc::Receiver<DuplexStream>,
    }

    impl Accept for Failing {
        type Io = DuplexStream;

        async fn accept(&mut self) -> io::Result<(DuplexStream, Transport)> {
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            match self.connections.recv().await {
                Some(io) => Ok((io, Transport::UnixSocket { uid: 1000 })),
                None => std::future::pending().await,
            }
        }

        async fn sort(io: DuplexStream, _: Transport, _: Arc<Site>) -> Option<DuplexStream> {
            Some(io)
        }
    }

    #[tokio::test]
    async fn accept_errors_are_survived() {
        let mut fixture = Fixture::new();
        fixture.limits.accept_pause = Duration::from_millis(1);
        let no_descriptors = || io::Error::from_raw_os_error(24);
        let aborted = || io::Error::from(io::ErrorKind::ConnectionAborted);
        let (dial, connections) = mpsc::channel(1);
        let listener = Failing {
            errors: [
                no_descriptors(),
                aborted(),
                no_descriptors(),
                no_descriptors(),
            ]
            .into(),
            connections,
        };
        let (shutdown, tracker) = (CancellationToken::new(), TaskTracker::new());
        let ended = tracker.spawn(serve(
            listener,
            fixture.site(),
            shutdown.clone(),
            tracker.clone(),
        ));
        let (mut client, node) = tokio::io::duplex(64 * 1024);
        dial.send(node).await.unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        shutdown.cancel();
        ended.await.unwrap();
    }
}
