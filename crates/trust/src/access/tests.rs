//! The access table, row by row (`surfaces.md`; `attacks.md` 6, 24–27).

use super::*;

const ME: u32 = 1000;
const PORT: u16 = 17_400;

fn tcp(peer: &str, peer_uid: PeerUid) -> Transport {
    Transport::Tcp {
        peer: peer.parse().unwrap(),
        peer_uid,
    }
}

/// One row: a request that differs from the honest loopback one in what `change` changes.
fn verdict(change: impl FnOnce(&mut RequestFacts<'_>)) -> Result<Origin, Denial> {
    let foreign = ["192.0.2.7".to_owned(), "build.lan".to_owned()];
    let mut facts = RequestFacts {
        transport: tcp("127.0.0.1", PeerUid::Known(ME)),
        own_uid: ME,
        own_port: PORT,
        foreign_hosts: &foreign,
        hosts: &[b"localhost:17400"],
        target_authority: None,
        origins: &[],
        fetch_site: None,
        forwarded: false,
        key_shown: false,
        policy: LoopbackPolicy::SameUser,
    };
    change(&mut facts);
    // The row borrows constants only, so the verdict can leave.
    caller_verdict(&facts)
}

#[test]
fn caller_verdict_unix_socket() {
    assert_eq!(
        verdict(|f| f.transport = Transport::UnixSocket { uid: ME }),
        Ok(Origin::Socket)
    );
    for uid in [0, 1001, 65_534] {
        assert_eq!(
            verdict(|f| f.transport = Transport::UnixSocket { uid }),
            Err(Denial::OtherUser)
        );
    }
}

#[test]
fn caller_verdict_loopback() {
    let allowed = Ok(Origin::Loopback(Writes::Allowed));
    assert_eq!(verdict(|_| ()), allowed);
    assert_eq!(
        verdict(|f| f.transport = tcp("::1", PeerUid::Known(ME))),
        allowed
    );
    assert_eq!(
        verdict(|f| f.transport = tcp("::ffff:127.0.0.1", PeerUid::Known(ME))),
        allowed
    );
    assert_eq!(
        verdict(|f| f.target_authority = Some("localhost:17400")),
        allowed
    );
    assert_eq!(verdict(|f| f.fetch_site = Some(b"same-origin")), allowed);
    assert_eq!(verdict(|f| f.fetch_site = Some(b"none")), allowed);
    // A page's own origin is the very host that it calls: another name of loopback may be another
    // user's server.
    let page = |host: &'static [u8], origin: &'static [u8]| {
        verdict(move |f| {
            f.hosts = vec![host].leak();
            f.origins = vec![origin].leak();
        })
    };
    for (host, origin) in [
        (&b"localhost:17400"[..], &b"http://localhost:17400"[..]),
        (b"127.0.0.1:17400", b"http://127.0.0.1:17400"),
        (b"[::1]:17400", b"http://[::1]:17400"),
        (b"LOCALHOST.:17400", b"http://localhost:17400"),
    ] {
        assert_eq!(page(host, origin), allowed);
    }
    for (host, origin) in [
        (&b"127.0.0.1:17400"[..], &b"http://localhost:17400"[..]),
        (b"127.0.0.1:17400", b"http://127.0.0.2:17400"),
        (b"localhost:17400", b"http://127.0.0.1:17400"),
        (b"127.0.0.1:17400", b"http://[::1]:17400"),
    ] {
        assert_eq!(page(host, origin), Err(Denial::OriginForeign));
    }
}

#[test]
fn peer_uid() {
    let cases = [
        (PeerUid::Known(ME), LoopbackPolicy::SameUser, true),
        (PeerUid::Known(ME), LoopbackPolicy::Key, true),
        (PeerUid::Known(0), LoopbackPolicy::SameUser, false),
        (PeerUid::Known(65_534), LoopbackPolicy::SameUser, false),
        (PeerUid::Known(1001), LoopbackPolicy::Key, false),
        (PeerUid::NotFound, LoopbackPolicy::SameUser, false),
        (PeerUid::NotFound, LoopbackPolicy::Key, false),
        (PeerUid::Unsupported, LoopbackPolicy::SameUser, false),
        (PeerUid::Unsupported, LoopbackPolicy::Key, true),
        (PeerUid::Unsupported, LoopbackPolicy::Open, true),
        (PeerUid::NotFound, LoopbackPolicy::Open, true),
        (PeerUid::Known(1001), LoopbackPolicy::Open, true),
    ];
    for (uid, policy, served) in cases {
        let answer = verdict(|f| {
            f.transport = tcp("127.0.0.1", uid);
            f.policy = policy;
        });
        assert_eq!(answer.is_ok(), served, "{uid:?} {policy:?}");
    }
}

#[test]
fn root_is_no_exception_and_passes_only_as_the_own_user() {
    let answer = verdict(|f| {
        f.own_uid = 0;
        f.transport = tcp("127.0.0.1", PeerUid::Known(0));
    });
    assert_eq!(answer, Ok(Origin::Loopback(Writes::Allowed)));
}

#[test]
fn caller_verdict_foreign_host() {
    for host in [
        &b"evil.example"[..],
        b"localhost.evil.example:17400",
        b"169.254.169.254",
        b"0.0.0.0",
        b"localhost:17401",
        b"192.0.2.7:17400",
        b"build.lan",
    ] {
        assert_eq!(
            verdict(|f| f.hosts = vec![host].leak()),
            Err(Denial::HostForeign),
            "{}",
            String::from_utf8_lossy(host)
        );
    }
    for hosts in [
        vec![],
        vec![&b"localhost"[..], b"localhost"],
        vec![b"[::1"],
        vec![b"\xff"],
    ] {
        assert_eq!(
            verdict(|f| f.hosts = hosts.leak()),
            Err(Denial::HostMalformed)
        );
    }
    assert_eq!(
        verdict(|f| f.target_authority = Some("evil.example")),
        Err(Denial::HostForeign)
    );
}

#[test]
fn caller_verdict_foreign_page() {
    for origin in [
        &b"null"[..],
        b"http://evil.example",
        b"https://localhost:17400",
        b"http://localhost",
        b"http://localhost:17401",
        b"http://localhost.evil.example:17400",
        b"",
    ] {
        assert_eq!(
            verdict(|f| f.origins = vec![origin].leak()),
            Err(Denial::OriginForeign),
            "{}",
            String::from_utf8_lossy(origin)
        );
    }
    for site in [&b"cross-site"[..], b"same-site", b"", b"SAME-ORIGIN"] {
        assert_eq!(
            verdict(|f| f.fetch_site = Some(site)),
            Err(Denial::OriginForeign)
        );
    }
}

#[test]
fn caller_verdict_elsewhere() {
    assert_eq!(verdict(|f| f.forwarded = true), Ok(Origin::Remote));
    let lan = |host: &'static [u8]| {
        verdict(move |f| {
            f.transport = tcp("192.0.2.9", PeerUid::Unsupported);
            f.hosts = vec![host].leak();
        })
    };
    assert_eq!(lan(b"192.0.2.7:17400"), Ok(Origin::Remote));
    assert_eq!(lan(b"BUILD.lan"), Ok(Origin::Remote));
    assert_eq!(lan(b"localhost:17400"), Err(Denial::HostForeign));
    assert_eq!(lan(b"192.0.2.8:17400"), Err(Denial::HostForeign));
}

#[test]
fn caller_verdict_key() {
    let with = |key_shown| {
        verdict(move |f| {
            f.policy = LoopbackPolicy::Key;
            f.key_shown = key_shown;
        })
    };
    assert_eq!(with(true), Ok(Origin::Loopback(Writes::Allowed)));
    assert_eq!(with(false), Ok(Origin::Loopback(Writes::KeyMissing)));
}

#[test]
fn forwarding_headers() {
    for name in [
        "forwarded",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-real-ip",
        "x-original-host",
        "cf-connecting-ip",
    ] {
        assert!(is_forwarding_header(name), "{name}");
    }
    for name in ["host", "x-request-id", "accept", "x-forwarded", "cfx"] {
        assert!(!is_forwarding_header(name), "{name}");
    }
}

#[test]
fn effect_by_origin() {
    use Effect::{MachineState, NodeState, Operator, Read, RepositoryMutation};
    let origins = [
        Origin::Socket,
        Origin::Loopback(Writes::Allowed),
        Origin::Loopback(Writes::KeyMissing),
        Origin::Remote,
    ];
    for surface in [Surface::Mcp, Surface::Http, Surface::Cli] {
        for origin in origins {
            let local_writer = matches!(origin, Origin::Socket | Origin::Loopback(Writes::Allowed));
            assert!(may(origin, surface, Read, false).is_ok());
            assert_eq!(
                may(origin, surface, Read, true).is_ok(),
                origin != Origin::Remote
            );
            for effect in [NodeState, MachineState, RepositoryMutation] {
                assert_eq!(may(origin, surface, effect, false).is_ok(), local_writer);
            }
            let person = origin == Origin::Socket && surface == Surface::Cli;
            assert_eq!(may(origin, surface, Operator, false).is_ok(), person);
        }
    }
}
