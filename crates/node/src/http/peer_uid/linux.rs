//! The exact lookup of one TCP socket over `NETLINK_SOCK_DIAG`.
//!
//! One question costs tens of microseconds however many sockets the machine has; a reading of
//! `/proc/net/tcp` grows with them. The layouts are those of `linux/inet_diag.h`, which the kernel
//! keeps stable.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

use earshot_trust::PeerUid;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, netlink, recv, send,
    socket_with, sockopt,
};

/// `SOCK_DIAG_BY_FAMILY`: the type of a question, and of its answer.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR`: the type of an answer that carries an error number.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// Bytes of `nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Bytes of `nlmsghdr` and `inet_diag_req_v2`.
const QUESTION_BYTES: usize = HEADER_BYTES + 56;
/// Bytes of `nlmsghdr` and `inet_diag_msg`.
const ANSWER_BYTES_MIN: usize = HEADER_BYTES + 72;
/// Room for an answer with every attribute that a kernel adds unasked.
const ANSWER_BYTES_MAX: usize = 4096;
/// `TCP_ESTABLISHED`.
const ESTABLISHED: u8 = 1;
/// How long an answer may take. The kernel writes it before the question's `send` returns.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// What the kernel says of one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Socket {
    /// Whether the connection is established as this end sees it.
    established: bool,
    /// The user whose socket it is.
    uid: u32,
    /// Its inode; 0 when no process holds it any more.
    inode: u32,
}

/// Asks the kernel who is at the other end of loopback connections, over one socket kept open.
#[derive(Debug)]
pub(in super::super) struct PeerUids(Option<Diagnosis>);

impl PeerUids {
    /// Opens the way to ask. Where there is none, every answer is [`PeerUid::Unsupported`].
    pub(in super::super) fn open() -> Self {
        let diagnosis = Diagnosis::open()
            .inspect_err(|error| tracing::info!(%error, "peers' user ids cannot be read"));
        Self(diagnosis.ok())
    }

    /// Tells whose connection it is that `own` accepted from `peer`.
    pub(in super::super) fn of(&mut self, peer: SocketAddr, own: SocketAddr) -> PeerUid {
        let Some(diagnosis) = &mut self.0 else {
            return PeerUid::Unsupported;
        };
        match judge(diagnosis, canonical(peer), canonical(own)) {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::warn!(%error, "the kernel did not say whose a connection is");
                // Whatever is still under way on this socket would be read as a later answer.
                *self = Self::open();
                PeerUid::NotFound
            }
        }
    }
}

fn judge(diagnosis: &mut Diagnosis, peer: SocketAddr, own: SocketAddr) -> io::Result<PeerUid> {
    let Some(theirs) = diagnosis.find(peer, own)? else {
        return Ok(PeerUid::NotFound);
    };
    // Asked last: had the other end gone meanwhile, this end would know by now.
    let mine = diagnosis.find(own, peer)?;
    let vouched =
        theirs.established && theirs.inode != 0 && mine.is_some_and(|mine| mine.established);
    Ok(if vouched {
        PeerUid::Known(theirs.uid)
    } else {
        PeerUid::NotFound
    })
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The socket over which questions go.
#[derive(Debug)]
struct Diagnosis {
    socket: OwnedFd,
    sequence: u32,
}

impl Diagnosis {
    /// Opens the socket.
    fn open() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_WAIT))?;
        // Connected to the kernel: answers from anyone else are not received.
        connect(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Looks up the socket whose own address is `own` and whose peer is `peer`.
    ///
    /// An IPv4 connection may belong to a socket of either family.
    fn find(&mut self, own: SocketAddr, peer: SocketAddr) -> io::Result<Option<Socket>> {
        let families: &[AddressFamily] = if own.is_ipv4() {
            &[AddressFamily::INET, AddressFamily::INET6]
        } else {
            &[AddressFamily::INET6]
        };
        for family in families {
            if let Some(found) = self.ask(*family, own, peer)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn ask(
        &mut self,
        family: AddressFamily,
        own: SocketAddr,
        peer: SocketAddr,
    ) -> io::Result<Option<Socket>> {
        self.sequence = self.sequence.wrapping_add(1);
        send(
            &self.socket,
            &question(family, own, peer, self.sequence),
            SendFlags::empty(),
        )?;
        let mut buffer = [0_u8; ANSWER_BYTES_MAX];
        let (bytes, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        read_answer(&buffer[..bytes], self.sequence)
    }
}

fn question(family: AddressFamily, own: SocketAddr, peer: SocketAddr, sequence: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(QUESTION_BYTES);
    let length = u32::try_from(QUESTION_BYTES).expect("a constant far below the limit");
    bytes.extend(length.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    let family_byte = u8::try_from(family.as_raw()).expect("both families are small numbers");
    let protocol = 6_u8;
    bytes.extend([family_byte, protocol, 0, 0]);
    // The states are read for listings only; an exact lookup ignores them.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(own.port().to_be_bytes());
    bytes.extend(peer.port().to_be_bytes());
    for address in [own.ip(), peer.ip()] {
        bytes.extend(address_field(family, address));
    }
    // Any interface, any cookie.
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([0xff; 8]);
    debug_assert_eq!(bytes.len(), QUESTION_BYTES);
    bytes
}

fn address_field(family: AddressFamily, address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) if family == AddressFamily::INET => {
            let [a, b, c, d] = v4.octets();
            [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        }
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => Ipv6Addr::octets(&v6),
    }
}

fn read_answer(bytes: &[u8], sequence: u32) -> io::Result<Option<Socket>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "an answer of another form");
    let word = |at: usize| -> io::Result<u32> {
        let field = bytes.get(at..at + 4).ok_or_else(malformed)?;
        Ok(u32::from_ne_bytes(
            field.try_into().map_err(|_| malformed())?,
        ))
    };
    let kind = word(4)?.to_ne_bytes();
    let kind = u16::from_ne_bytes([kind[0], kind[1]]);
    if word(8)? != sequence {
        return Err(malformed());
    }
    match kind {
        ERROR => {
            let number = word(HEADER_BYTES)?.cast_signed();
            let error = io::Error::from_raw_os_error(-number);
            // ENOENT: there is no such socket.
            if error.kind() == io::ErrorKind::NotFound {
                Ok(None)
            } else {
                Err(error)
            }
        }
        BY_FAMILY if bytes.len() >= ANSWER_BYTES_MIN => Ok(Some(Socket {
            established: bytes.get(HEADER_BYTES + 1) == Some(&ESTABLISHED),
            uid: word(HEADER_BYTES + 64)?,
            inode: word(HEADER_BYTES + 68)?,
        })),
        _ => Err(malformed()),
    }
}
