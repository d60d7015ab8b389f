//! Where a node listens.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
};

use earshot_checkout::CheckoutId;
use tokio::net::TcpListener;

use crate::config::MachineConfig;

/// The ports that checkouts are spread over.
const PORTS: std::ops::Range<u16> = 17_400..18_400;

/// Returns the address to bind, as it was named, and who named it; `None` when nobody did, which
/// means loopback. A command-line or environment value wins over the configuration.
pub(crate) fn desired_host(
    named: Option<&str>,
    config: &MachineConfig,
) -> Option<(String, &'static str)> {
    match (named, config.http.host) {
        (Some(host), _) => Some((host.to_owned(), "the command line or EARSHOT_HTTP_HOST")),
        (None, Some(host)) => Some((host.to_string(), "config.toml")),
        (None, None) => None,
    }
}

/// Returns the port of a checkout: the same at every start, unless it is taken.
pub(crate) fn port_of(checkout: &CheckoutId) -> u16 {
    let hash = blake3::hash(checkout.to_string().as_bytes());
    let [a, b, ..] = *hash.as_bytes();
    PORTS.start + u16::from_be_bytes([a, b]) % (PORTS.end - PORTS.start)
}

/// Binds TCP: at the port that was asked for, else at the checkout's own, else at any free one.
///
/// # Errors
/// When the address is none, or cannot be bound; names it.
pub(crate) async fn bind_tcp(
    host: Option<&str>,
    port: Option<u16>,
    checkout: &CheckoutId,
) -> io::Result<TcpListener> {
    let address: IpAddr = match host {
        None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(host) => host.parse().map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{host} is not an address"),
            )
        })?,
    };
    let named = |port: u16, error: &io::Error| {
        let at = SocketAddr::new(address, port);
        io::Error::new(error.kind(), format!("{at} cannot be bound: {error}"))
    };
    if let Some(port) = port {
        return TcpListener::bind((address, port))
            .await
            .map_err(|error| named(port, &error));
    }
    let own = port_of(checkout);
    match TcpListener::bind((address, own)).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => TcpListener::bind((address, 0))
            .await
            .map_err(|error| named(0, &error)),
        Err(error) => Err(named(own, &error)),
    }
}

/// Binds a Unix socket for this user alone, in the place of whatever has its path.
///
/// It is bound under another name first, so that nobody finds the path without a listener.
///
/// # Errors
/// What the system says.
pub(crate) fn bind_unix_at(path: &Path) -> io::Result<UnixListener> {
    let temporary = path.with_extension(format!("{}", std::process::id()));
    match fs_err::remove_file(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(&temporary)?;
    // The folder is private already; this holds where it lies in a shared runtime folder.
    fs_err::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
    fs_err::rename(&temporary, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_stay_in_their_range_and_differ() {
        let ports: std::collections::BTreeSet<u16> = (0..200)
            .map(|n| port_of(&CheckoutId::of(Path::new(&format!("/r/{n}")))))
            .collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        assert!(ports.len() > 150, "{} ports for 200 checkouts", ports.len());
    }

    #[test]
    fn the_named_host_wins_and_says_who_named_it() {
        let mut config = MachineConfig::default();
        assert_eq!(desired_host(None, &config), None);
        config.http.host = Some("192.0.2.7".parse().unwrap());
        assert_eq!(
            desired_host(None, &config),
            Some(("192.0.2.7".to_owned(), "config.toml"))
        );
        assert_eq!(desired_host(Some("::1"), &config).unwrap().0, "::1");
    }

    #[tokio::test]
    async fn an_address_that_is_not_of_this_machine_is_named() {
        let checkout = CheckoutId::of(Path::new("/r"));
        let error = bind_tcp(Some("192.0.2.7"), Some(1), &checkout)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("192.0.2.7:1"), "{error}");
        let error = bind_tcp(Some("nowhere"), None, &checkout)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
    }
}
