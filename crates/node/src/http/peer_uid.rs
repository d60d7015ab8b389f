//! Whose a loopback TCP connection is, asked of the kernel when the connection is accepted.
//!
//! A connection that its owner has closed or reset belongs to nobody, and its addresses can be
//! taken by another process; so the answer counts only while both ends are established and the
//! other end still has an inode.

#[cfg(target_os = "linux")]
#[path = "peer_uid/linux.rs"]
mod imp;

#[cfg(not(target_os = "linux"))]
mod imp {
    //! Systems that have no way to tell.

    use std::net::SocketAddr;

    use earshot_trust::PeerUid;

    /// A question that nobody answers.
    #[derive(Debug)]
    pub(in super::super) struct PeerUids;

    impl PeerUids {
        /// Has nothing to open.
        pub(in super::super) const fn open() -> Self {
            Self
        }

        /// Does not know.
        #[expect(clippy::needless_pass_by_ref_mut, reason = "as where it can be asked")]
        pub(in super::super) const fn of(&mut self, _: SocketAddr, _: SocketAddr) -> PeerUid {
            PeerUid::Unsupported
        }
    }
}

pub(super) use imp::PeerUids;

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        os::fd::{AsFd as _, OwnedFd},
    };

    use earshot_trust::PeerUid;

    use super::*;

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// A connection to a listener at `bind`, dialled as `dial`: both ends, and who the kernel
    /// says is at the other end once `between` has been at the dialled one.
    fn verdict(
        bind: &str,
        dial: Option<&str>,
        between: impl FnOnce(TcpStream) -> Option<TcpStream>,
    ) -> PeerUid {
        let listener = TcpListener::bind(bind).unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = dial.unwrap_or("127.0.0.1");
        let dialled = TcpStream::connect((host, port)).unwrap();
        let kept = between(dialled);
        let (accepted, peer) = listener.accept().unwrap();
        let verdict = PeerUids::open().of(peer, accepted.local_addr().unwrap());
        drop((accepted, kept));
        verdict
    }

    #[test]
    fn an_own_connection_is_mine_in_both_families() {
        let mine = PeerUid::Known(own_uid());
        assert_eq!(verdict("127.0.0.1:0", None, Some), mine);
        assert_eq!(verdict("[::1]:0", Some("::1"), Some), mine);
        // A dual-stack listener sees IPv4 callers at mapped addresses, and a dialler may use them.
        assert_eq!(verdict("[::]:0", None, Some), mine);
        assert_eq!(verdict("127.0.0.1:0", Some("::ffff:127.0.0.1"), Some), mine);
    }

    #[test]
    fn a_closed_peer_is_nobody() {
        assert_eq!(verdict("127.0.0.1:0", None, |_| None), PeerUid::NotFound);
    }

    #[test]
    fn a_reset_peer_is_nobody() {
        let reset = |stream: TcpStream| {
            let fd: OwnedFd = stream.into();
            let at_once = Some(std::time::Duration::ZERO);
            rustix::net::sockopt::set_socket_linger(fd.as_fd(), at_once).unwrap();
            None
        };
        assert_eq!(verdict("127.0.0.1:0", None, reset), PeerUid::NotFound);
    }

    #[test]
    fn a_peer_that_closed_its_half_is_nobody() {
        let half = |stream: TcpStream| {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            Some(stream)
        };
        assert_eq!(verdict("127.0.0.1:0", None, half), PeerUid::NotFound);
    }

    #[test]
    fn a_connection_that_never_was_is_nobody() {
        let mut uids = PeerUids::open();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        // The listener itself must not be taken for a connection.
        assert_eq!(
            uids.of("127.0.0.1:9".parse().unwrap(), own),
            PeerUid::NotFound
        );
        assert_eq!(
            uids.of(own, "127.0.0.1:9".parse().unwrap()),
            PeerUid::NotFound
        );
    }

    #[test]
    fn one_socket_answers_question_after_question() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let mut uids = PeerUids::open();
        for _ in 0..100 {
            let dialled = TcpStream::connect(own).unwrap();
            let (_accepted, peer) = listener.accept().unwrap();
            assert_eq!(uids.of(peer, own), PeerUid::Known(own_uid()));
            drop(dialled);
        }
    }
}
