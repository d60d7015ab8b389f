//! Whether the holder of a lease lives: one function for election, `ensure` and status.
//!
//! What cannot be proven dead is alive. The rules, in the order in which they are asked:
//!
//! 1. No lease, or none that can be read: nobody holds it. An `ended` one: nobody either.
//! 2. A free alive lock on this host proves death, whatever process number the lease names and
//!    whatever its format. A held one proves life, whatever the boot id says. A missing or
//!    unreadable alive file proves nothing.
//! 3. Where the lock proves nothing, death is proven by the process (number and start time, in the
//!    same boot and pid namespace) being gone.
//! 4. A holder without an answer to three probes and without progress for its own `stale_after`
//!    (`bind_grace` while it starts) is hung. Progress is watched, never computed from two clocks.
//! 5. One that did not answer and runs in another place (host, boot, namespace) is elsewhere.
//! 6. The rest is alive, and compared by version: newer is left alone, older or replaced on disk is
//!    outdated.

use std::cmp::Ordering;
use std::time::Duration;

use super::document::{FrozenReason, LeaseState, Parsed, Place, Predecessor};
use super::{Beat, LeaseDocument, ReleaseVersion, Watched};
use crate::Timestamp;

/// Probes without an answer that a hung holder got: one may be lost in a full queue.
const PROBES_BEFORE_HUNG: u32 = 3;
/// Time without progress after which a holder is hung that cannot be asked, because a later
/// release wrote its lease: the greatest `stale_after` there is.
const STILL_BEFORE_HUNG_UNASKED: Duration = Duration::from_mins(2);
/// Age below which a lease is not called outdated by a node of the same version: two builds that
/// each find the other replaced would take the lease from one another for ever.
const YOUNG_LEASE: Duration = Duration::from_secs(10);

/// What trying the alive lock (shared, non-blocking) showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AliveLock {
    /// Somebody holds it.
    Held,
    /// The file is there and nobody holds it.
    Free,
    /// The file is not there: deleted under a living holder, or never made.
    Missing,
    /// The file could not be opened or locked.
    Unknown,
}

/// What a look at the holder's process (number and start time, same boot and namespace) showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProcessFact {
    /// That very process runs.
    Running,
    /// No process has that number and start time.
    Gone,
    /// It could not be looked at from here.
    Unknown,
}

/// What a probe of the holder's socket (a nonce, answered by a hash keyed with its token) showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// No probe was sent, or there is no socket to send one to.
    NotAsked,
    /// The holder of the token answered.
    Answered {
        /// The holder says that its executable was replaced or removed on disk.
        executable_replaced: bool,
    },
    /// Nobody answered within `probe_timeout`, or somebody without the token did.
    Silent,
}

/// Everything that one look at a lease and its holder showed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Examination {
    /// The lease; `None` when there is no file.
    pub lease: Option<Parsed>,
    /// The alive file that the lease names; `Missing` when there is no lease.
    pub alive: AliveLock,
    /// Its heartbeat; `None` when it could not be read.
    pub beat: Option<Beat>,
    /// The holder's process.
    pub process: ProcessFact,
    /// The holder's answer.
    pub answer: Answer,
    /// Wall time of the look.
    pub wall: Timestamp,
}

/// Who looks.
#[derive(Clone, Debug)]
pub struct Here {
    /// Where this process runs.
    pub place: Place,
    /// The release of this process.
    pub version: ReleaseVersion,
}

/// How death was proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proof {
    /// Nobody holds the alive lock.
    LockFree,
    /// The process is gone.
    ProcessGone,
}

/// Why a living holder should be succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outdated {
    /// It is an older release.
    OlderRelease,
    /// It says that its executable was replaced or removed on disk.
    Replaced,
}

/// What is true of the holder of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// There is no lease.
    Absent,
    /// There is a file, but no lease in it; it is taken over and named in the log.
    Unreadable,
    /// The last holder said that it ended.
    Ended,
    /// The last holder died.
    Dead(Proof),
    /// The holder exists, answers nothing and makes no progress.
    Hung,
    /// The holder lives where it cannot be reached from here.
    Elsewhere,
    /// The holder lives, and this release should succeed it.
    Outdated(Outdated),
    /// The holder lives and is a newer release; it is left alone.
    Newer,
    /// The holder lives.
    Live,
}

impl Verdict {
    /// Returns whether the lease may be taken: nobody holds it, or its holder is hung.
    pub const fn may_take(self) -> bool {
        match self {
            Self::Absent | Self::Unreadable | Self::Ended | Self::Dead(_) | Self::Hung => true,
            Self::Elsewhere | Self::Outdated(_) | Self::Newer | Self::Live => false,
        }
    }
}

/// Where the node of a checkout stands, as status and `ensure` name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// No node.
    Absent,
    /// A node that does not answer yet.
    Starting,
    /// A node that answers.
    Ready,
    /// A node that died, hangs or does not answer.
    Stale,
    /// A node that answers and should be succeeded.
    Outdated,
    /// A node that lives out of reach.
    Elsewhere,
    /// A node that ends.
    Retiring,
}

impl Standing {
    /// Returns the word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stale => "stale",
            Self::Outdated => "outdated",
            Self::Elsewhere => "elsewhere",
            Self::Retiring => "retiring",
        }
    }
}

/// Judges the holder of a lease; a first look has [`Watched::default`].
pub fn holder_verdict(seen: &Examination, watched: Watched, here: &Here) -> Verdict {
    let Some(lease) = &seen.lease else {
        return Verdict::Absent;
    };
    let place = match lease {
        Parsed::Unreadable { .. } => return Verdict::Unreadable,
        Parsed::Whole(document) if document.state == LeaseState::Ended => return Verdict::Ended,
        Parsed::Whole(document) => HolderPlace::whole(&document.place, &here.place),
        Parsed::Frozen { fields, .. } => HolderPlace::host(&fields.host_id, &here.place),
    };
    if let Some(proof) = proof_of_death(seen, place) {
        return Verdict::Dead(proof);
    }
    if is_hung(lease, seen.answer, watched) {
        return Verdict::Hung;
    }
    let heard = matches!(seen.answer, Answer::Answered { .. });
    if place != HolderPlace::Here && !heard {
        return Verdict::Elsewhere;
    }
    match lease {
        Parsed::Whole(document) => compare(document, seen, here),
        Parsed::Frozen {
            reason: FrozenReason::Future,
            ..
        } => Verdict::Newer,
        Parsed::Frozen {
            reason: FrozenReason::Damaged(_),
            ..
        }
        | Parsed::Unreadable { .. } => Verdict::Live,
    }
}

/// Returns where a node stands, from the verdict on it and what was seen.
pub fn standing(verdict: Verdict, seen: &Examination) -> Standing {
    let document = seen.lease.as_ref().and_then(Parsed::document);
    let by_state = |ready| match document.map(|document| document.state) {
        Some(LeaseState::Starting) => Standing::Starting,
        Some(LeaseState::Retiring) => Standing::Retiring,
        Some(LeaseState::Ended) => Standing::Absent,
        Some(LeaseState::Serving) if seen.answer == Answer::Silent => Standing::Stale,
        Some(LeaseState::Serving) => ready,
        None => Standing::Elsewhere,
    };
    match verdict {
        Verdict::Absent | Verdict::Ended => Standing::Absent,
        Verdict::Unreadable | Verdict::Dead(_) | Verdict::Hung => Standing::Stale,
        Verdict::Elsewhere => Standing::Elsewhere,
        Verdict::Outdated(_) => by_state(Standing::Outdated),
        Verdict::Newer | Verdict::Live => by_state(Standing::Ready),
    }
}

/// Returns the process to end when this holder hangs; `None` where it cannot be ended from here.
///
/// The shell still proves that the process is the one meant, through the kernel's lock table or
/// its start time, and holds on to it (by a process descriptor) while it does.
pub fn kill_target(holder: &Predecessor, here: &Place) -> Option<i32> {
    let place = holder.place.as_ref()?;
    let reachable = place.host_id == here.host_id
        && place.boot_id == here.boot_id
        && place.pid_ns == here.pid_ns;
    if reachable {
        holder.process?.pid.signalable()
    } else {
        None
    }
}

/// Where the holder runs, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HolderPlace {
    Here,
    /// Same host, but another boot, pid or network namespace.
    OtherRoom,
    OtherHost,
}

impl HolderPlace {
    fn whole(holder: &Place, here: &Place) -> Self {
        if holder == here {
            Self::Here
        } else {
            Self::host(&holder.host_id, here).but_not_here()
        }
    }

    fn host(host_id: &str, here: &Place) -> Self {
        if host_id == here.host_id {
            Self::Here
        } else {
            Self::OtherHost
        }
    }

    const fn but_not_here(self) -> Self {
        match self {
            Self::Here | Self::OtherRoom => Self::OtherRoom,
            Self::OtherHost => Self::OtherHost,
        }
    }
}

fn proof_of_death(seen: &Examination, place: HolderPlace) -> Option<Proof> {
    match (seen.alive, place, seen.process) {
        (AliveLock::Free, HolderPlace::Here | HolderPlace::OtherRoom, _) => Some(Proof::LockFree),
        (AliveLock::Missing | AliveLock::Unknown, HolderPlace::Here, ProcessFact::Gone) => {
            Some(Proof::ProcessGone)
        }
        // Another host's lock need not show here, and neither do its processes.
        (
            AliveLock::Held | AliveLock::Free | AliveLock::Missing | AliveLock::Unknown,
            HolderPlace::Here | HolderPlace::OtherRoom | HolderPlace::OtherHost,
            ProcessFact::Running | ProcessFact::Gone | ProcessFact::Unknown,
        ) => None,
    }
}

fn is_hung(lease: &Parsed, answer: Answer, watched: Watched) -> bool {
    if matches!(answer, Answer::Answered { .. }) {
        return false;
    }
    let Some(document) = lease.document() else {
        return watched.still_for >= STILL_BEFORE_HUNG_UNASKED;
    };
    let grace = match document.state {
        LeaseState::Starting => document.timings.bind_grace(),
        LeaseState::Serving | LeaseState::Retiring | LeaseState::Ended => {
            document.timings.stale_after()
        }
    };
    watched.still_for >= grace && watched.silent_probes >= PROBES_BEFORE_HUNG
}

fn compare(document: &LeaseDocument, seen: &Examination, here: &Here) -> Verdict {
    match ReleaseVersion::new(&document.version).cmp(&here.version) {
        Ordering::Greater => Verdict::Newer,
        Ordering::Less => Verdict::Outdated(Outdated::OlderRelease),
        Ordering::Equal => {
            let age_ms = seen.wall.unix_ms().abs_diff(document.started_at.unix_ms());
            let young = Duration::from_millis(age_ms) < YOUNG_LEASE;
            let replaced = seen.answer
                == Answer::Answered {
                    executable_replaced: true,
                };
            if replaced && !young {
                Verdict::Outdated(Outdated::Replaced)
            } else {
                Verdict::Live
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::{future_bytes, sample};
    use super::super::{DeclaredTimings, Pid, Timings, parse};
    use super::*;

    const OWN_VERSION: &str = "1.0.0-alpha.10";
    const STARTED_MS: u64 = 1_000_000;

    fn place(host_id: &str, boot_id: &str, pid_ns: u64) -> Place {
        Place {
            host_id: host_id.to_owned(),
            boot_id: boot_id.to_owned(),
            pid_ns: Some(pid_ns),
            net_ns: Some(9),
        }
    }

    fn here() -> Here {
        Here {
            place: place("host", "boot", 4),
            version: ReleaseVersion::new(OWN_VERSION),
        }
    }

    fn lease(change: impl FnOnce(&mut LeaseDocument)) -> Parsed {
        let mut document = sample();
        document.place = here().place;
        document.version = OWN_VERSION.to_owned();
        document.started_at = Timestamp::from_unix_ms(STARTED_MS);
        change(&mut document);
        Parsed::Whole(Box::new(document))
    }

    /// A holder in the place of the judge, whose lock is held and who was not asked.
    fn seen(lease: impl Into<Option<Parsed>>) -> Examination {
        Examination {
            lease: lease.into(),
            alive: AliveLock::Held,
            beat: None,
            process: ProcessFact::Running,
            answer: Answer::NotAsked,
            wall: Timestamp::from_unix_ms(STARTED_MS + 60_000),
        }
    }

    const fn still(seconds: u64, silent_probes: u32) -> Watched {
        Watched {
            still_for: Duration::from_secs(seconds),
            silent_probes,
        }
    }

    const HEARD: Answer = Answer::Answered {
        executable_replaced: false,
    };
    const REPLACED: Answer = Answer::Answered {
        executable_replaced: true,
    };

    #[track_caller]
    fn check(rule: &str, seen: &Examination, watched: Watched, want: Verdict) {
        assert_eq!(holder_verdict(seen, watched, &here()), want, "{rule}");
    }

    #[test]
    fn holder_verdict_of_an_empty_seat() {
        let none = Watched::default();
        check("no file", &seen(None), none, Verdict::Absent);
        for bytes in [&b""[..], b"{\"tok", b"null", b"<html>", b"{}"] {
            let seen = seen(Some(parse(bytes)));
            check(
                "a corrupt document is no lease",
                &seen,
                none,
                Verdict::Unreadable,
            );
        }
        let ended = seen(lease(|document| document.state = LeaseState::Ended));
        check(
            "ended, though its process still exits",
            &ended,
            none,
            Verdict::Ended,
        );
    }

    #[test]
    fn holder_verdict_by_alive_lock() {
        let by_lock = |alive| Examination {
            alive,
            ..seen(lease(|_| {}))
        };
        let free = by_lock(AliveLock::Free);
        let dead = Verdict::Dead(Proof::LockFree);
        check(
            "a free lock is death, a number in use again is not life",
            &free,
            still(0, 0),
            dead,
        );
        let mut reused = free;
        reused.lease = Some(lease(|document| document.process.pid = Pid::new(1)));
        check(
            "whatever number the lease names",
            &reused,
            still(0, 0),
            dead,
        );
        reused.lease = Some(lease(|document| {
            document.place.boot_id = "earlier".to_owned();
        }));
        check("free after a reboot", &reused, still(0, 0), dead);
        reused.lease = Some(lease(|document| document.place.pid_ns = Some(5)));
        check(
            "free in another namespace of this host",
            &reused,
            still(0, 0),
            dead,
        );

        let mut held = by_lock(AliveLock::Held);
        held.process = ProcessFact::Gone;
        check(
            "a held lock is life, whatever the process",
            &held,
            still(0, 0),
            Verdict::Live,
        );
        held.lease = Some(lease(|document| {
            document.place.boot_id = "another".to_owned();
        }));
        held.answer = HEARD;
        check(
            "boot id does not beat a held lock",
            &held,
            still(0, 0),
            Verdict::Live,
        );

        for alive in [AliveLock::Missing, AliveLock::Unknown] {
            let mut seen = by_lock(alive);
            check("no proof of death", &seen, still(9, 3), Verdict::Live);
            seen.process = ProcessFact::Unknown;
            check("no proof of death", &seen, still(9, 3), Verdict::Live);
            seen.process = ProcessFact::Gone;
            let dead = Verdict::Dead(Proof::ProcessGone);
            check("the process is the next proof", &seen, still(0, 0), dead);
            seen.lease = Some(lease(|document| {
                document.place.boot_id = "another".to_owned();
            }));
            check(
                "but not that of another boot",
                &seen,
                still(0, 0),
                Verdict::Elsewhere,
            );
        }
    }

    #[test]
    fn holder_verdict_by_progress() {
        let mut silent = Examination {
            answer: Answer::Silent,
            ..seen(lease(|_| {}))
        };
        check(
            "silent for less than stale_after",
            &silent,
            still(9, 9),
            Verdict::Live,
        );
        check(
            "still, but two probes only",
            &silent,
            still(99, 2),
            Verdict::Live,
        );
        check(
            "still for stale_after",
            &silent,
            still(10, 3),
            Verdict::Hung,
        );
        silent.alive = AliveLock::Missing;
        check(
            "without its alive file just the same",
            &silent,
            still(10, 3),
            Verdict::Hung,
        );
        silent.alive = AliveLock::Held;
        silent.answer = HEARD;
        check(
            "who answers is not hung",
            &silent,
            still(99, 0),
            Verdict::Live,
        );

        silent.answer = Answer::Silent;
        silent.lease = Some(lease(|document| document.state = LeaseState::Starting));
        check(
            "a start has a shorter grace",
            &silent,
            still(4, 3),
            Verdict::Live,
        );
        check(
            "a start has a shorter grace",
            &silent,
            still(5, 3),
            Verdict::Hung,
        );
        silent.lease = Some(lease(|document| document.state = LeaseState::Retiring));
        check(
            "retiring is judged like serving",
            &silent,
            still(9, 3),
            Verdict::Live,
        );

        let slow = DeclaredTimings {
            stale_after: Some(Duration::MAX),
            ..Default::default()
        };
        silent.lease = Some(lease(|document| document.timings = Timings::clamped(&slow)));
        check("by its own timings", &silent, still(119, 3), Verdict::Live);
        check("which are bounded", &silent, still(120, 3), Verdict::Hung);
    }

    #[test]
    fn holder_verdict_by_place() {
        let mut seen = Examination {
            answer: Answer::Silent,
            ..seen(None)
        };
        let change: [fn(&mut LeaseDocument); 4] = [
            |document| document.place.host_id = "other".to_owned(),
            |document| document.place.boot_id = "other".to_owned(),
            |document| document.place.pid_ns = None,
            |document| document.place.net_ns = Some(8),
        ];
        for change in change {
            seen.lease = Some(lease(change));
            seen.answer = Answer::Silent;
            check(
                "alive, but out of reach",
                &seen,
                still(9, 3),
                Verdict::Elsewhere,
            );
            check(
                "and hung like any other",
                &seen,
                still(10, 3),
                Verdict::Hung,
            );
            seen.answer = HEARD;
            check("within reach after all", &seen, still(0, 0), Verdict::Live);
        }
        seen.lease = Some(lease(|document| {
            document.place.host_id = "other".to_owned();
        }));
        seen.answer = Answer::Silent;
        seen.alive = AliveLock::Free;
        let rule = "the lock of another host need not show here";
        check(rule, &seen, still(0, 1), Verdict::Elsewhere);
    }

    #[test]
    fn holder_verdict_by_version() {
        let older = Verdict::Outdated(Outdated::OlderRelease);
        for (version, want) in [
            ("1.0.0-alpha.9", older),
            ("garbage", older),
            ("", older),
            ("v1.0.0", older),
            (OWN_VERSION, Verdict::Live),
            ("1.0.0-alpha.10+build7", Verdict::Live),
            ("1.0.0", Verdict::Newer),
            ("1.0.0+build7", Verdict::Newer),
        ] {
            let mut seen = seen(lease(|document| document.version = version.to_owned()));
            seen.answer = HEARD;
            check(version, &seen, still(0, 0), want);
        }
        let other_build = seen(lease(|document| {
            document.exe = "/elsewhere/earshot".to_owned();
            document.build = "another".to_owned();
        }));
        check(
            "same version, other path and build",
            &other_build,
            still(0, 0),
            Verdict::Live,
        );

        let mut replaced = Examination {
            answer: REPLACED,
            ..seen(lease(|_| {}))
        };
        let outdated = Verdict::Outdated(Outdated::Replaced);
        check(
            "replaced on disk, as it says itself",
            &replaced,
            still(0, 0),
            outdated,
        );
        for wall_ms in [STARTED_MS + 9_999, STARTED_MS - 9_999] {
            replaced.wall = Timestamp::from_unix_ms(wall_ms);
            check(
                "but a young lease stays",
                &replaced,
                still(0, 0),
                Verdict::Live,
            );
        }
        replaced.lease = Some(lease(|document| document.version = "1.0.0".to_owned()));
        check(
            "and so does a newer release",
            &replaced,
            still(0, 0),
            Verdict::Newer,
        );
    }

    #[test]
    fn holder_verdict_of_a_later_format() {
        let mut seen = seen(Some(parse(&future_bytes("host"))));
        check(
            "a living one is left alone",
            &seen,
            still(119, 0),
            Verdict::Newer,
        );
        check("it cannot be asked", &seen, still(120, 0), Verdict::Hung);
        seen.alive = AliveLock::Free;
        check(
            "a dead one is not",
            &seen,
            still(0, 0),
            Verdict::Dead(Proof::LockFree),
        );
        seen.lease = Some(parse(&future_bytes("other")));
        check("another host's", &seen, still(0, 0), Verdict::Elsewhere);

        let damaged = String::from_utf8(sample().encode())
            .unwrap()
            .replace("serving", "sleeping");
        seen.lease = Some(parse(damaged.as_bytes()));
        seen.alive = AliveLock::Held;
        let mut place = here();
        place.place.host_id = sample().place.host_id;
        assert_eq!(holder_verdict(&seen, still(0, 0), &place), Verdict::Live);
    }

    #[test]
    fn only_a_process_of_this_place_is_killed() {
        let holder = |change: fn(&mut LeaseDocument)| {
            let mut document = sample();
            document.place = here().place;
            document.process.pid = Pid::new(77);
            change(&mut document);
            document.as_predecessor()
        };
        let place = here().place;
        assert_eq!(kill_target(&holder(|_| {}), &place), Some(77));
        let cannot: [fn(&mut LeaseDocument); 6] = [
            |document| document.process.pid = Pid::new(0),
            |document| document.process.pid = Pid::new(1),
            |document| document.process.pid = Pid::new(-77),
            |document| document.place.host_id.clear(),
            |document| document.place.boot_id.clear(),
            |document| document.place.pid_ns = None,
        ];
        for change in cannot {
            assert_eq!(kill_target(&holder(change), &place), None);
        }
    }

    #[test]
    fn standing_names_what_the_verdict_found() {
        use LeaseState::{Ended, Retiring, Serving, Starting};
        let dead = Verdict::Dead(Proof::LockFree);
        let replaced = Verdict::Outdated(Outdated::Replaced);
        let older = Verdict::Outdated(Outdated::OlderRelease);
        let (silent, unasked) = (Answer::Silent, Answer::NotAsked);
        let table = [
            (Verdict::Absent, Serving, HEARD, Standing::Absent),
            (Verdict::Ended, Ended, HEARD, Standing::Absent),
            (dead, Serving, HEARD, Standing::Stale),
            (Verdict::Hung, Starting, silent, Standing::Stale),
            (Verdict::Elsewhere, Serving, silent, Standing::Elsewhere),
            (Verdict::Live, Starting, silent, Standing::Starting),
            (Verdict::Live, Serving, HEARD, Standing::Ready),
            (Verdict::Live, Serving, unasked, Standing::Ready),
            (Verdict::Live, Serving, silent, Standing::Stale),
            (Verdict::Live, Retiring, HEARD, Standing::Retiring),
            (Verdict::Newer, Serving, HEARD, Standing::Ready),
            (replaced, Serving, REPLACED, Standing::Outdated),
            (older, Starting, HEARD, Standing::Starting),
        ];
        for (verdict, state, answer, want) in table {
            let seen = Examination {
                answer,
                ..seen(lease(|document| document.state = state))
            };
            assert_eq!(
                standing(verdict, &seen),
                want,
                "{verdict:?} {state:?} {answer:?}"
            );
        }
        let frozen = seen(Some(parse(&future_bytes("host"))));
        assert_eq!(standing(Verdict::Newer, &frozen), Standing::Elsewhere);
        let unreadable = seen(Some(parse(b"")));
        assert_eq!(standing(Verdict::Unreadable, &unreadable), Standing::Stale);
    }
}
