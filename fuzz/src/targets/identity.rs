//! Who a caller says to be.

use std::net::{IpAddr, Ipv4Addr};

use earshot_capability::{Caller, headers};
use earshot_trust::{
    LoopbackPolicy, Origin, PeerUid, RequestFacts, Surface, Transport, Writes, caller_verdict,
    parse_host,
};

const OWN_UID: u32 = 1000;
const OWN_PORT: u16 = 17_400;

/// The headers that are read, in the order in which an input gives them, a line each.
const NAMES: [&str; 10] = [
    headers::SEAT,
    headers::REQUEST,
    headers::ACKED,
    headers::CALLER_ROOT,
    headers::SESSION,
    headers::PARENT_SESSION,
    headers::ADDRESS,
    headers::CLI,
    headers::KEY,
    headers::PROBE,
];

/// Host and Origin decide as they are written, and an identity is what its form allows; what is
/// refused is not repeated.
///
/// # Panics
/// When that is not so.
pub fn headers_identity(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let host = lines.next().unwrap_or_default();
    let page = lines.next().unwrap_or_default();
    let values: Vec<&[u8]> = lines.collect();
    for peer_uid in [
        PeerUid::Known(OWN_UID),
        PeerUid::Known(0),
        PeerUid::NotFound,
    ] {
        verdict(host, page, peer_uid);
    }
    for origin in [
        Origin::Socket,
        Origin::Loopback(Writes::Allowed),
        Origin::Remote,
    ] {
        let value = |name: &str| {
            let at = NAMES.iter().position(|known| *known == name)?;
            values.get(at).copied().filter(|value| !value.is_empty())
        };
        match Caller::from_headers(origin, Surface::Mcp, value) {
            Ok(caller) => {
                let own = caller.seat.is_some() || caller.cli.is_some() || caller.address.is_some();
                assert!(!own || origin == Origin::Socket, "{caller:?}");
                for session in [&caller.session, &caller.parent_session]
                    .into_iter()
                    .flatten()
                {
                    let text = session.as_str();
                    let fits = (1..=128).contains(&text.len());
                    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
                    assert!(fits && text.bytes().all(plain), "{text:?}");
                }
                assert!(
                    caller
                        .root
                        .is_none_or(|root| root.starts_with('/') && !root.contains('\0'))
                );
            }
            Err(failure) => {
                let said = failure.to_string();
                assert!(!said.contains(|it: char| it.is_control()), "{said:?}");
            }
        }
    }
}

fn verdict(host: &[u8], page: &[u8], peer_uid: PeerUid) {
    let facts = RequestFacts {
        transport: Transport::Tcp {
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            peer_uid,
        },
        own_uid: OWN_UID,
        own_port: OWN_PORT,
        foreign_hosts: &[],
        hosts: &[host],
        target_authority: None,
        origins: if page.is_empty() { &[] } else { &[page] },
        fetch_site: None,
        forwarded: false,
        key_shown: false,
        policy: LoopbackPolicy::SameUser,
    };
    let Ok(origin) = caller_verdict(&facts) else {
        return;
    };
    assert_eq!(origin, Origin::Loopback(Writes::Allowed));
    assert_eq!(peer_uid, PeerUid::Known(OWN_UID));
    // Judged once more, by other means: an address of loopback or localhost, at this port or none.
    let host = std::str::from_utf8(host).expect("a host that was taken is text");
    let lower = host.trim().to_ascii_lowercase();
    let port = lower.rsplit_once(':').filter(|(_, port)| {
        port.is_empty() || port.parse::<u16>().is_ok_and(|port| port == OWN_PORT)
    });
    let name = port.map_or(lower.as_str(), |(name, _)| name);
    let name = name.strip_suffix('.').unwrap_or(name);
    let bare = name
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'))
        .unwrap_or(name);
    let loopback = bare
        .parse::<IpAddr>()
        .is_ok_and(|it| it.to_canonical().is_loopback());
    assert!(name == "localhost" || loopback, "{host:?}");
    assert!(
        parse_host(host).is_some_and(|host| host.is_loopback()),
        "{host:?}"
    );
    let page = page.strip_prefix(b"http://").unwrap_or_default();
    let page = String::from_utf8_lossy(page).to_ascii_lowercase();
    let own = page.is_empty()
        || page.rsplit_once(':').is_some_and(|(name, port)| {
            port.parse() == Ok(OWN_PORT) && !name.contains(['@', '/', ' '])
        });
    assert!(own, "{page:?}");
}
