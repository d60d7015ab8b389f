//! Where a node listens.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::unix::{fs::PermissionsExt as _, net::UnixListener},
    path::Path,
};

use earshot_checkout::CheckoutId;

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

/// Where a node will listen over TCP, and the listener, once it is there.
#[derive(Debug)]
pub(crate) struct Doorway {
    address: IpAddr,
    own: u16,
    early: Option<TcpListener>,
    url: Option<String>,
}

impl Doorway {
    /// Binds the port that was asked for, else the checkout's own if it is free.
    ///
    /// Done before the node stands for election: an address that cannot be bound leaves no lease. The
    /// own port may still be held by a node that is about to be succeeded.
    ///
    /// # Errors
    /// When the address is none, or cannot be bound; names it.
    pub(crate) fn prepare(
        host: Option<&str>,
        port: Option<u16>,
        checkout: &CheckoutId,
    ) -> io::Result<Self> {
        let address: IpAddr = match host {
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(host) => host.parse().map_err(|_| {
                let why = format!("{host} is not an address");
                io::Error::new(io::ErrorKind::InvalidInput, why)
            })?,
        };
        let own = port.unwrap_or_else(|| port_of(checkout));
        let early = match bind(address, own) {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && port.is_none() => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            address,
            own,
            early,
            url: None,
        })
    }

    /// Opens the doorway: at the own port, else at any free one. `None` when it is open already.
    ///
    /// # Errors
    /// When no port can be bound; names the address.
    pub(crate) fn open(&mut self) -> io::Result<Option<TcpListener>> {
        if self.url.is_some() {
            return Ok(None);
        }
        let listener = match self.early.take() {
            Some(listener) => listener,
            None => bind(self.address, self.own).or_else(|_| bind(self.address, 0))?,
        };
        listener.set_nonblocking(true)?;
        self.url = Some(format!("http://{}", listener.local_addr()?));
        Ok(Some(listener))
    }

    /// Returns the url, once the doorway is open.
    pub(crate) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }
}

fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let at = SocketAddr::new(address, port);
    TcpListener::bind(at)
        .map_err(|error| io::Error::new(error.kind(), format!("{at} cannot be bound: {error}")))
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

    #[test]
    fn an_address_that_is_not_of_this_machine_is_named() {
        let checkout = CheckoutId::of(Path::new("/r"));
        let error = Doorway::prepare(Some("192.0.2.7"), Some(1), &checkout).unwrap_err();
        assert!(error.to_string().contains("192.0.2.7:1"), "{error}");
        let error = Doorway::prepare(Some("nowhere"), None, &checkout).unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
    }

    #[test]
    fn the_own_port_is_taken_once_it_is_free() {
        let checkout = CheckoutId::of(Path::new("/a checkout of this test alone"));
        let mut first = Doorway::prepare(None, None, &checkout).unwrap();
        let held = first.open().unwrap().unwrap();
        let mut second = Doorway::prepare(None, None, &checkout).unwrap();
        drop(held);
        let _held = second.open().unwrap().unwrap();
        assert_eq!(second.url(), first.url());
        assert!(second.open().unwrap().is_none(), "it is open already");
        let mut third = Doorway::prepare(None, None, &checkout).unwrap();
        let _held = third.open().unwrap().unwrap();
        assert_ne!(third.url(), first.url());
    }
}
