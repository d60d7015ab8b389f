//! Signals to processes that a test started, and what became of those.

use rustix::process::{Pid, Signal, kill_process};

/// Ends a process at once.
///
/// # Panics
/// When there is no such process.
pub fn kill(pid: u32) {
    kill_process(system_pid(pid), Signal::KILL).expect("the process is there");
}

/// Lets a process go on that something else stopped.
///
/// # Panics
/// When there is no such process.
pub fn resume(pid: u32) {
    kill_process(system_pid(pid), Signal::CONT).expect("the process is there");
}

/// A process that is stopped; it goes on when this value is dropped.
#[derive(Debug)]
pub struct Stopped {
    pid: u32,
}

impl Stopped {
    /// Stops a process, and returns when it has come to a halt.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn stop(pid: u32) -> Self {
        kill_process(system_pid(pid), Signal::STOP).expect("the process is there");
        let halted = || (state(pid) == Some('T')).then_some(());
        super::eventually("the process halts", super::PATIENCE, halted);
        Self { pid }
    }

    /// Lets it go on.
    pub fn resume(self) {
        drop(self);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill_process(system_pid(self.pid), Signal::CONT).ok(); // ended meanwhile is as good
    }
}

/// Says whether a process runs or is stopped; one that ended and was not collected does not.
pub fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Returns the kernel's letter for what a process does; `None` when there is none.
fn state(pid: u32) -> Option<char> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn system_pid(pid: u32) -> Pid {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.expect("a number of a process")
}
