//! Notice of the death of the process that started this one.

use std::io;

/// Starts to watch the parent process.
///
/// Call it first thing: a parent that has died before is no longer known, and the process that took
/// over its children is watched instead. Must be called within a Tokio runtime.
///
/// # Errors
///
/// When the system has no way to watch a process.
pub fn parent_watch() -> io::Result<ParentWatch> {
    imp::parent().map(ParentWatch)
}

/// A watch on one process, which holds on to that very process: an id given to another later does
/// not mislead it, nor does a change of parent.
#[derive(Debug)]
pub struct ParentWatch(imp::Watch);

impl ParentWatch {
    /// Returns when the process has ended.
    ///
    /// # Cancel safety
    ///
    /// The watch ends with the future; nothing else is lost.
    pub async fn gone(self) {
        self.0.gone().await;
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// `None` where the parent lives outside of this process's pid namespace: it cannot be watched.
    #[derive(Debug)]
    pub(super) struct Watch(Option<AsyncFd<OwnedFd>>);

    pub(super) fn parent() -> io::Result<Watch> {
        loop {
            let Some(parent) = getppid() else {
                return Ok(Watch(None));
            };
            let watch = on(parent);
            // The parent may have died, and its id been given away, between the two calls.
            if getppid() == Some(parent) {
                return watch;
            }
        }
    }

    #[expect(
        deprecated,
        reason = "its successor is unsafe, and what that guards against cannot happen: an OwnedFd \
                  keeps its descriptor"
    )]
    pub(super) fn on(pid: Pid) -> io::Result<Watch> {
        let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        AsyncFd::with_interest(pidfd, Interest::READABLE)
            .map(Some)
            .map(Watch)
    }

    impl Watch {
        pub(super) async fn gone(self) {
            match self.0 {
                Some(pidfd) => {
                    if let Err(error) = pidfd.readable().await {
                        tracing::warn!(%error, "the parent process can no longer be watched");
                        std::future::pending::<()>().await;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    /// There is no descriptor of a process here: the end of standard input has to do.
    #[derive(Debug)]
    pub(super) struct Watch;

    pub(super) fn parent() -> io::Result<Watch> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Watch {
        pub(super) async fn gone(self) {
            std::future::pending().await
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::Pid;

    use super::*;

    #[tokio::test]
    async fn the_end_of_the_watched_process_is_noticed() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .env_clear()
            .spawn()
            .unwrap();
        let watch = ParentWatch(imp::on(Pid::from_child(&child)).unwrap());
        let mut gone = Box::pin(watch.gone());

        assert!(
            futures_util::poll!(gone.as_mut()).is_pending(),
            "the process still runs"
        );

        drop(child.stdin.take());
        gone.await;
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_living_parent_is_not_gone() {
        let gone = Box::pin(parent_watch().unwrap().gone());

        assert!(futures_util::poll!(gone).is_pending());
    }
}
