//! The access table: who may do what, decided per request, in one place, before any handler.

use std::net::IpAddr;

use crate::host::{HostName, parse_host};

/// What a capability changes. The order is from harmless to grave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Reads only.
    Read,
    /// Changes what this node holds: its board, its sessions.
    NodeState,
    /// Changes what this machine keeps beyond a node.
    MachineState,
    /// Changes files of the repository.
    RepositoryMutation,
    /// Changes who is trusted or how the machine is reached. For a person, through the CLI.
    Operator,
}

/// The surface through which a call arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// An MCP client, through a bridge or directly.
    Mcp,
    /// A plain HTTP route.
    Http,
    /// The `earshot` command line.
    Cli,
}

/// Where a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The node's Unix socket; the uid is what the system says of the other end.
    UnixSocket {
        /// The peer's user id.
        uid: u32,
    },
    /// TCP, from the given address.
    Tcp {
        /// The peer's address.
        peer: IpAddr,
        /// Whose connection it is, as far as the system tells. Asked for loopback peers only.
        peer_uid: PeerUid,
    },
}

/// Whose a loopback connection is (`attacks.md` 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerUid {
    /// The user id of the socket at the other end.
    Known(u32),
    /// The other end was not found, or no longer belongs to a process: nobody vouches for it.
    NotFound,
    /// This system has no way to tell.
    Unsupported,
}

/// The machine's setting `http.loopback`: what a loopback caller must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopbackPolicy {
    /// The connection must belong to the node's own user.
    SameUser,
    /// Nothing is asked: for systems where no uid can be read.
    Open,
    /// A key of mode 0600 comes as a header with every write.
    Key,
}

/// What a loopback caller still owes before it may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// Nothing.
    Allowed,
    /// The machine's key, which this request did not carry.
    KeyMissing,
}

/// Where an admitted caller stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The node's Unix socket, same user: a bridge or the CLI.
    Socket,
    /// Loopback TCP, same user as far as the system tells.
    Loopback(Writes),
    /// Another address, or a request that somebody forwarded.
    Remote,
}

/// Everything about a request that access depends on.
#[derive(Debug, Clone)]
pub struct RequestFacts<'a> {
    /// Where it came in.
    pub transport: Transport,
    /// The node's own user id.
    pub own_uid: u32,
    /// The TCP port that this node serves.
    pub own_port: u16,
    /// The addresses and names by which callers from elsewhere may call this node: the bound
    /// address, and names that the machine's configuration lists (lower case).
    pub foreign_hosts: &'a [String],
    /// Every Host header, undecoded: a correct request has exactly one.
    pub hosts: &'a [&'a [u8]],
    /// The authority of an absolute request target, if it had one.
    pub target_authority: Option<&'a str>,
    /// Every Origin header.
    pub origins: &'a [&'a [u8]],
    /// The Sec-Fetch-Site header.
    pub fetch_site: Option<&'a [u8]>,
    /// Whether a header says that somebody forwarded the request: see [`is_forwarding_header`].
    pub forwarded: bool,
    /// Whether the request carried the machine's key.
    pub key_shown: bool,
    /// The machine's setting.
    pub policy: LoopbackPolicy,
}

/// Why a caller was turned away. The text says what to do; it repeats nothing of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// The Host header is missing, doubled or malformed.
    #[error("the request must carry exactly one well-formed Host header")]
    HostMalformed,
    /// The Host header names another host: what DNS rebinding sends.
    #[error("this node answers only to localhost and loopback addresses at its own port")]
    HostForeign,
    /// A page of another origin sent this.
    #[error("requests from web pages of other origins are refused")]
    OriginForeign,
    /// The connection belongs to another user, or to nobody who can be named.
    #[error("this node serves its own user only, and this connection is not provably theirs")]
    OtherUser,
    /// A write without the key that the machine asks for.
    #[error("this machine asks for its key with every write")]
    KeyMissing,
    /// A caller from elsewhere asked for more than a reader may.
    #[error("callers from other addresses, and forwarded requests, may only read the board")]
    ReadersOnly,
    /// The capability is for a person at the command line of this machine.
    #[error("this is done by a person, with the earshot command on this machine")]
    OperatorOnly,
}

impl Denial {
    /// Returns the one thing to do about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::HostMalformed => "Send one Host header: localhost and this node's port.",
            Self::HostForeign => "Use http://localhost or http://127.0.0.1 with this node's port.",
            Self::OriginForeign => "Open the page from this node itself, or use the CLI.",
            Self::OtherUser => "Run your own node: `earshot up` in a checkout of yours.",
            Self::KeyMissing => {
                "Send the content of the machine's http.key file as the Earshot-Key header."
            }
            Self::ReadersOnly => {
                "Run the client on this machine, or reach it through `ssh -L` with the same port at both ends."
            }
            Self::OperatorOnly => "Run the earshot command in a terminal of this machine.",
        }
    }

    /// Says whether the request itself was malformed, rather than forbidden.
    pub const fn is_malformed(self) -> bool {
        matches!(self, Self::HostMalformed)
    }
}

/// Says whether a header, by its lower-case name, shows that a request was forwarded.
///
/// Tunnels and port forwarders reach the node from loopback; these headers tell them from a
/// caller on this machine (`attacks.md` 26).
pub fn is_forwarding_header(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip" | "x-original-host")
        || name.starts_with("x-forwarded-")
        || name.starts_with("cf-")
}

/// Judges where a caller stands, or turns it away.
///
/// # Errors
/// [`Denial`] when the request must not reach any handler, reads included.
pub fn caller_verdict(facts: &RequestFacts<'_>) -> Result<Origin, Denial> {
    match facts.transport {
        Transport::UnixSocket { uid } if uid == facts.own_uid => Ok(Origin::Socket),
        Transport::UnixSocket { .. } => Err(Denial::OtherUser),
        Transport::Tcp { peer, peer_uid } => {
            let loopback = peer.to_canonical().is_loopback();
            let host = judge_host(facts, loopback)?;
            judge_page(facts, &host)?;
            if loopback {
                judge_loopback(facts, peer_uid)
            } else {
                Ok(Origin::Remote)
            }
        }
    }
}

fn judge_loopback(facts: &RequestFacts<'_>, peer_uid: PeerUid) -> Result<Origin, Denial> {
    let mine = match (peer_uid, facts.policy) {
        (PeerUid::Known(uid), LoopbackPolicy::SameUser | LoopbackPolicy::Key) => {
            uid == facts.own_uid
        }
        (PeerUid::Unsupported, LoopbackPolicy::Key) | (_, LoopbackPolicy::Open) => true,
        (PeerUid::NotFound, LoopbackPolicy::SameUser | LoopbackPolicy::Key)
        | (PeerUid::Unsupported, LoopbackPolicy::SameUser) => false,
    };
    if !mine {
        return Err(Denial::OtherUser);
    }
    if facts.forwarded {
        return Ok(Origin::Remote);
    }
    let owes_key = facts.policy == LoopbackPolicy::Key && !facts.key_shown;
    Ok(Origin::Loopback(if owes_key {
        Writes::KeyMissing
    } else {
        Writes::Allowed
    }))
}

fn judge_host(facts: &RequestFacts<'_>, loopback: bool) -> Result<HostName, Denial> {
    let [host] = facts.hosts else {
        return Err(Denial::HostMalformed);
    };
    let host = std::str::from_utf8(host)
        .ok()
        .and_then(parse_host)
        .ok_or(Denial::HostMalformed)?;
    let target = match facts.target_authority {
        Some(authority) => Some(parse_host(authority).ok_or(Denial::HostMalformed)?),
        None => None,
    };
    let names_me = |host: &HostName| {
        let port_fits = host.port().is_none_or(|port| port == facts.own_port);
        let listed = || match host {
            HostName::Address(address, _) => facts
                .foreign_hosts
                .iter()
                .any(|own| own.parse() == Ok(*address)),
            HostName::Name(name, _) => facts.foreign_hosts.iter().any(|own| own == name),
        };
        port_fits
            && if loopback {
                host.is_loopback()
            } else {
                listed()
            }
    };
    if names_me(&host) && target.as_ref().is_none_or(names_me) {
        Ok(host)
    } else {
        Err(Denial::HostForeign)
    }
}

/// Refuses what a page of another origin sends. A request without these headers is no page's.
///
/// Its own origin is the very host that the request names: another loopback address, or the other
/// meaning of `localhost`, can be another user's server.
fn judge_page(facts: &RequestFacts<'_>, host: &HostName) -> Result<(), Denial> {
    let site_fits = facts
        .fetch_site
        .is_none_or(|site| site == b"same-origin" || site == b"none");
    let own = |origin: &&[u8]| {
        std::str::from_utf8(origin)
            .ok()
            .and_then(|text| text.strip_prefix("http://"))
            .and_then(parse_host)
            // An origin carries its port unless it is 80, which no node serves.
            .is_some_and(|page| page.port() == Some(facts.own_port) && page.is_same_host(host))
    };
    if site_fits && facts.origins.iter().all(own) {
        Ok(())
    } else {
        Err(Denial::OriginForeign)
    }
}

/// Says whether an admitted caller may use a capability of this effect.
///
/// # Errors
/// [`Denial`] with the reason. A capability that is `local_only` tells of this machine and is
/// never answered to a caller from elsewhere.
pub const fn may(
    origin: Origin,
    surface: Surface,
    effect: Effect,
    local_only: bool,
) -> Result<(), Denial> {
    match (origin, effect) {
        (Origin::Socket, Effect::Operator) => match surface {
            Surface::Cli => Ok(()),
            Surface::Mcp | Surface::Http => Err(Denial::OperatorOnly),
        },
        (Origin::Loopback(_) | Origin::Remote, Effect::Operator) => Err(Denial::OperatorOnly),
        (Origin::Socket | Origin::Loopback(Writes::Allowed), _)
        | (Origin::Loopback(Writes::KeyMissing), Effect::Read) => Ok(()),
        (Origin::Loopback(Writes::KeyMissing), _) => Err(Denial::KeyMissing),
        (Origin::Remote, Effect::Read) if !local_only => Ok(()),
        (Origin::Remote, _) => Err(Denial::ReadersOnly),
    }
}

#[cfg(test)]
mod tests;
