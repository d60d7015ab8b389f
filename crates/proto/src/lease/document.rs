//! The lease document: who holds a checkout, as `lease.json` says it.
//!
//! One type and one reader for election, status and everything else. The fields `schema`,
//! `min_reader`, `token`, `epoch`, `host_id` and `alive` are frozen for all releases: with them any
//! release can tell a living holder of any other from a dead one. Fields that this release does not
//! know are kept when the document is rewritten.

use std::time::Duration;

use serde_json::{Map, Value};

use super::fields::{Defect, Fields};
use super::{AliveName, DeclaredTimings, Epoch, LeaseToken, Pid, Timings};
use crate::Timestamp;

/// The format that this release writes.
pub const LEASE_SCHEMA: u32 = 1;
/// Largest document that is read; ours have 1 KiB plus a quarter for each predecessor.
pub const LEASE_BYTES_MAX: usize = 64 * 1024;
/// Predecessors that a lease lists: more than ever live at once, few enough to be waited for.
pub const PREDECESSORS_MAX: usize = 16;

/// The first `min_reader` that this release cannot read is one above this.
const READER: u32 = LEASE_SCHEMA;

/// What a tenure is doing, as its lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseState {
    /// The holder owns the lease, but does not answer yet.
    Starting,
    /// The holder answers.
    Serving,
    /// The holder finishes what runs and takes nothing new.
    Retiring,
    /// The tenure is over; nobody holds the checkout.
    Ended,
}

/// Where a process runs, as far as a signal to it is concerned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Id of the host: its machine id, else its name.
    pub host_id: String,
    /// The kernel's boot id; empty where there is none.
    pub boot_id: String,
    /// Inode of the pid namespace; `None` where there are none.
    pub pid_ns: Option<u64>,
    /// Inode of the network namespace; `None` where there are none.
    pub net_ns: Option<u64>,
}

/// A process, so named that its number cannot be mistaken for a later process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Number within its pid namespace.
    pub pid: Pid,
    /// Start time as the kernel tells it, in the kernel's unit.
    pub pid_start: u64,
}

/// A tenure that was taken over and was not yet seen to have ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Predecessor {
    /// Its token.
    pub token: LeaseToken,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its alive file.
    pub alive: AliveName,
    /// Where it runs; `None` when its lease could not be read that far.
    pub place: Option<Place>,
    /// Its process; `None` when its lease could not be read that far.
    pub process: Option<Process>,
    /// Path of its Unix socket; `None` when its lease could not be read that far.
    pub socket: Option<String>,
}

/// The whole lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseDocument {
    /// Format of this document.
    pub schema: u32,
    /// Least [`LEASE_SCHEMA`] of a release that can read this document.
    pub min_reader: u32,
    /// The holder's token.
    pub token: LeaseToken,
    /// The holder's epoch.
    pub epoch: Epoch,
    /// What the holder is doing.
    pub state: LeaseState,
    /// The holder's alive file.
    pub alive: AliveName,
    /// Where the holder runs.
    pub place: Place,
    /// The holder's process.
    pub process: Process,
    /// Path of the holder's executable.
    pub exe: String,
    /// The build of that executable: its commit, with a mark when the tree was dirty.
    pub build: String,
    /// The release of that executable, see [`super::ReleaseVersion`].
    pub version: String,
    /// The holder's own url for direct clients; `None` until it has bound one.
    pub url: Option<String>,
    /// Path of the holder's Unix socket.
    pub socket: String,
    /// Address of the holder's link endpoint; `None` while it has none.
    pub quic: Option<String>,
    /// Id of the holder's node key.
    pub node_id: String,
    /// The timings that the holder is judged by.
    pub timings: Timings,
    /// When the holder wrote its first lease of this tenure.
    pub started_at: Timestamp,
    /// Tenures taken over and not yet seen to have ended, the newest first.
    pub predecessors: Vec<Predecessor>,
    /// Fields of a later release, kept when the document is rewritten.
    pub unknown: Map<String, Value>,
}

/// The fields that every release can read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrozenFields {
    /// Format of the document.
    pub schema: u32,
    /// Least [`LEASE_SCHEMA`] of a release that can read the document.
    pub min_reader: u32,
    /// The holder's token.
    pub token: LeaseToken,
    /// The holder's epoch.
    pub epoch: Epoch,
    /// Id of the holder's host.
    pub host_id: String,
    /// The holder's alive file.
    pub alive: AliveName,
}

/// Why only the frozen fields of a lease could be read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FrozenReason {
    /// A later release wrote it in a format that this one must not interpret.
    Future,
    /// Another field is damaged.
    Damaged(Defect),
}

/// What the bytes of a lease file turned out to be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Parsed {
    /// A lease of this release or of one that it can read.
    Whole(Box<LeaseDocument>),
    /// A lease of which the frozen fields alone could be read.
    Frozen {
        /// Those fields.
        fields: FrozenFields,
        /// Why no more.
        reason: FrozenReason,
    },
    /// No lease: torn, empty, foreign.
    Unreadable {
        /// What is wrong with it, for the log.
        why: Defect,
    },
}

/// Reads the bytes of a lease file; hand in at most [`LEASE_BYTES_MAX`] + 1 of them.
pub fn parse(bytes: &[u8]) -> Parsed {
    let object = match read_object(bytes) {
        Ok(object) => object,
        Err(why) => return Parsed::Unreadable { why },
    };
    let mut fields = Fields::new(object);
    let frozen = match read_frozen(&mut fields) {
        Ok(frozen) => frozen,
        Err(why) => return Parsed::Unreadable { why },
    };
    if frozen.min_reader > READER {
        return Parsed::Frozen {
            fields: frozen,
            reason: FrozenReason::Future,
        };
    }
    match read_rest(&frozen, fields) {
        Ok(document) => Parsed::Whole(Box::new(document)),
        Err(defect) => Parsed::Frozen {
            fields: frozen,
            reason: FrozenReason::Damaged(defect),
        },
    }
}

impl Parsed {
    /// Returns the epoch, if that much could be read.
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Whole(document) => Some(document.epoch),
            Self::Frozen { fields, .. } => Some(fields.epoch),
            Self::Unreadable { .. } => None,
        }
    }

    /// Returns the token, if that much could be read.
    pub fn token(&self) -> Option<&LeaseToken> {
        match self {
            Self::Whole(document) => Some(&document.token),
            Self::Frozen { fields, .. } => Some(&fields.token),
            Self::Unreadable { .. } => None,
        }
    }

    /// Returns the alive file's name, if that much could be read.
    pub fn alive(&self) -> Option<&AliveName> {
        match self {
            Self::Whole(document) => Some(&document.alive),
            Self::Frozen { fields, .. } => Some(&fields.alive),
            Self::Unreadable { .. } => None,
        }
    }

    /// Returns the document, if all of it could be read.
    pub fn document(&self) -> Option<&LeaseDocument> {
        match self {
            Self::Whole(document) => Some(document),
            Self::Frozen { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// Returns the timings to judge the holder by: its own, else the defaults.
    pub fn timings(&self) -> Timings {
        self.document()
            .map(|document| document.timings)
            .unwrap_or_default()
    }

    /// Returns the holder as a predecessor of whoever takes the lease over.
    pub fn as_predecessor(&self) -> Option<Predecessor> {
        match self {
            Self::Whole(document) => Some(document.as_predecessor()),
            Self::Frozen { fields, .. } => Some(Predecessor {
                token: fields.token.clone(),
                epoch: fields.epoch,
                alive: fields.alive.clone(),
                place: None,
                process: None,
                socket: None,
            }),
            Self::Unreadable { .. } => None,
        }
    }
}

impl LeaseDocument {
    /// Returns the holder as a predecessor of whoever takes the lease over.
    pub fn as_predecessor(&self) -> Predecessor {
        Predecessor {
            token: self.token.clone(),
            epoch: self.epoch,
            alive: self.alive.clone(),
            place: Some(self.place.clone()),
            process: Some(self.process),
            socket: Some(self.socket.clone()),
        }
    }

    /// Returns the bytes of the lease file, one line-broken JSON object.
    ///
    /// Where the document would be too large to be read again, the unknown fields of a later
    /// release are dropped, then the oldest predecessors; those past [`PREDECESSORS_MAX`] always.
    pub fn encode(&self) -> Vec<u8> {
        let mut object = self.to_object(PREDECESSORS_MAX);
        for (name, value) in &self.unknown {
            object.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        let mut bytes = pretty(object);
        let mut count = PREDECESSORS_MAX;
        while bytes.len() > LEASE_BYTES_MAX && count > 0 {
            bytes = pretty(self.to_object(count));
            count = count.saturating_sub(1);
        }
        bytes
    }

    fn to_object(&self, predecessors_max: usize) -> Map<String, Value> {
        let predecessors: Vec<Value> = self
            .predecessors
            .iter()
            .take(predecessors_max)
            .map(predecessor_value)
            .collect();
        let timings = &self.timings;
        object([
            ("schema", self.schema.into()),
            ("min_reader", self.min_reader.into()),
            ("token", self.token.as_str().into()),
            ("epoch", self.epoch.number().into()),
            ("state", state_name(self.state).into()),
            ("host_id", self.place.host_id.as_str().into()),
            ("alive", self.alive.as_str().into()),
            ("boot_id", self.place.boot_id.as_str().into()),
            ("pid", self.process.pid.number().into()),
            ("pid_start", self.process.pid_start.into()),
            ("pid_ns", self.place.pid_ns.into()),
            ("net_ns", self.place.net_ns.into()),
            ("exe", self.exe.as_str().into()),
            ("build", self.build.as_str().into()),
            ("version", self.version.as_str().into()),
            ("url", self.url.as_deref().into()),
            ("socket", self.socket.as_str().into()),
            ("quic", self.quic.as_deref().into()),
            ("node_id", self.node_id.as_str().into()),
            (
                "timings",
                Value::Object(object([
                    ("heartbeat_ms", whole_ms(timings.heartbeat()).into()),
                    ("probe_timeout_ms", whole_ms(timings.probe_timeout()).into()),
                    ("stale_after_ms", whole_ms(timings.stale_after()).into()),
                    ("bind_grace_ms", whole_ms(timings.bind_grace()).into()),
                    ("busy_grace_ms", whole_ms(timings.busy_grace()).into()),
                ])),
            ),
            ("started_at", self.started_at.unix_ms().into()),
            ("predecessors", predecessors.into()),
        ])
    }
}

fn read_object(bytes: &[u8]) -> Result<Map<String, Value>, Defect> {
    if bytes.is_empty() {
        return Err(Defect::Empty);
    }
    if bytes.len() > LEASE_BYTES_MAX {
        return Err(Defect::TooLarge);
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_),
        ) => Err(Defect::NoObject),
        Err(error) if error.is_eof() => Err(Defect::Torn),
        Err(_) => Err(Defect::NoJson),
    }
}

fn read_frozen(fields: &mut Fields) -> Result<FrozenFields, Defect> {
    let token_text = fields.text("token")?;
    let token = LeaseToken::parse(&token_text).ok_or(Defect::Field("token"))?;
    let alive = match fields.optional_text("alive")? {
        None => token.alive_name(),
        Some(name) => AliveName::parse(&name).ok_or(Defect::Field("alive"))?,
    };
    Ok(FrozenFields {
        schema: fields.small_number("schema")?,
        min_reader: fields.small_number("min_reader")?,
        epoch: Epoch::new(fields.number("epoch")?),
        host_id: fields.text("host_id")?,
        token,
        alive,
    })
}

fn read_rest(frozen: &FrozenFields, mut fields: Fields) -> Result<LeaseDocument, Defect> {
    let state = state_of(&fields.text("state")?).ok_or(Defect::Field("state"))?;
    let mut timings = Fields::new(fields.object("timings")?);
    let declared = DeclaredTimings {
        heartbeat: timings.optional_ms("heartbeat_ms")?,
        probe_timeout: timings.optional_ms("probe_timeout_ms")?,
        stale_after: timings.optional_ms("stale_after_ms")?,
        bind_grace: timings.optional_ms("bind_grace_ms")?,
        busy_grace: timings.optional_ms("busy_grace_ms")?,
    };
    let mut predecessors = Vec::new();
    for object in fields.objects("predecessors", PREDECESSORS_MAX)? {
        predecessors.push(read_predecessor(Fields::new(object))?);
    }
    Ok(LeaseDocument {
        schema: frozen.schema,
        min_reader: frozen.min_reader,
        token: frozen.token.clone(),
        epoch: frozen.epoch,
        alive: frozen.alive.clone(),
        state,
        place: Place {
            host_id: frozen.host_id.clone(),
            boot_id: fields.text("boot_id")?,
            pid_ns: fields.optional_number("pid_ns")?,
            net_ns: fields.optional_number("net_ns")?,
        },
        process: Process {
            pid: fields.pid("pid")?,
            pid_start: fields.number("pid_start")?,
        },
        exe: fields.text("exe")?,
        build: fields.text("build")?,
        version: fields.text("version")?,
        url: fields.optional_text("url")?,
        socket: fields.text("socket")?,
        quic: fields.optional_text("quic")?,
        node_id: fields.text("node_id")?,
        timings: Timings::clamped(&declared),
        started_at: Timestamp::from_unix_ms(fields.number("started_at")?),
        predecessors,
        unknown: fields.into_rest(),
    })
}

fn read_predecessor(mut fields: Fields) -> Result<Predecessor, Defect> {
    let wrong = Defect::Field("predecessors");
    let token = LeaseToken::parse(&fields.text("token")?).ok_or_else(|| wrong.clone())?;
    let alive = AliveName::parse(&fields.text("alive")?).ok_or(wrong)?;
    let place = match fields.optional_text("host_id")? {
        None => None,
        Some(host_id) => Some(Place {
            host_id,
            boot_id: fields.text("boot_id")?,
            pid_ns: fields.optional_number("pid_ns")?,
            net_ns: fields.optional_number("net_ns")?,
        }),
    };
    let process = match fields.optional_pid("pid")? {
        None => None,
        Some(pid) => Some(Process {
            pid,
            pid_start: fields.number("pid_start")?,
        }),
    };
    Ok(Predecessor {
        token,
        epoch: Epoch::new(fields.number("epoch")?),
        alive,
        place,
        process,
        socket: fields.optional_text("socket")?,
    })
}

fn predecessor_value(predecessor: &Predecessor) -> Value {
    let mut value = object([
        ("token", predecessor.token.as_str().into()),
        ("epoch", predecessor.epoch.number().into()),
        ("alive", predecessor.alive.as_str().into()),
        ("socket", predecessor.socket.as_deref().into()),
    ]);
    if let Some(place) = &predecessor.place {
        value.extend(object([
            ("host_id", place.host_id.as_str().into()),
            ("boot_id", place.boot_id.as_str().into()),
            ("pid_ns", place.pid_ns.into()),
            ("net_ns", place.net_ns.into()),
        ]));
    }
    if let Some(process) = &predecessor.process {
        value.extend(object([
            ("pid", process.pid.number().into()),
            ("pid_start", process.pid_start.into()),
        ]));
    }
    Value::Object(value)
}

fn object<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn pretty(object: Map<String, Value>) -> Vec<u8> {
    format!("{:#}\n", Value::Object(object)).into_bytes()
}

/// Returns the whole milliseconds of a timing; the bounds of timings keep them small.
fn whole_ms(timing: Duration) -> u64 {
    u64::try_from(timing.as_millis()).unwrap_or(u64::MAX)
}

const fn state_name(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Starting => "starting",
        LeaseState::Serving => "serving",
        LeaseState::Retiring => "retiring",
        LeaseState::Ended => "ended",
    }
}

fn state_of(name: &str) -> Option<LeaseState> {
    match name {
        "starting" => Some(LeaseState::Starting),
        "serving" => Some(LeaseState::Serving),
        "retiring" => Some(LeaseState::Retiring),
        "ended" => Some(LeaseState::Ended),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A serving node's lease.
    pub(in crate::lease) fn sample() -> LeaseDocument {
        let token = LeaseToken::from_random([1; 16]);
        LeaseDocument {
            schema: LEASE_SCHEMA,
            min_reader: 1,
            epoch: Epoch::new(1_000_001),
            state: LeaseState::Serving,
            alive: token.alive_name(),
            token,
            place: Place {
                host_id: "host".to_owned(),
                boot_id: "boot".to_owned(),
                pid_ns: Some(4_026_531_836),
                net_ns: None,
            },
            process: Process {
                pid: Pid::new(4_711),
                pid_start: 123_456,
            },
            exe: "/opt/earshot/bin/earshot".to_owned(),
            build: "abcdef0".to_owned(),
            version: "1.0.0-alpha.10".to_owned(),
            url: Some("http://127.0.0.1:17400/c/0/mcp".to_owned()),
            socket: "/run/earshot/0.sock".to_owned(),
            quic: None,
            node_id: "00ff".to_owned(),
            timings: Timings::default(),
            started_at: Timestamp::from_unix_ms(1_000_000),
            predecessors: vec![],
            unknown: Map::new(),
        }
    }

    fn predecessors() -> Vec<Predecessor> {
        let mut whole = sample().as_predecessor();
        whole.token = LeaseToken::from_random([2; 16]);
        let frozen = Predecessor {
            place: None,
            process: None,
            socket: None,
            ..whole.clone()
        };
        vec![whole, frozen]
    }

    /// What a release far in the future might write.
    pub(in crate::lease) fn future_bytes(host_id: &str) -> Vec<u8> {
        format!(
            r#"{{"schema": 9, "min_reader": 7, "token": "0123-new-shape", "epoch": 12,
            "host_id": "{host_id}", "alive": "alive-9.lock", "state": {{"phase": 3}}, "pid": "x"}}"#
        )
        .into_bytes()
    }

    fn edited(edit: impl FnOnce(&mut Map<String, Value>)) -> Parsed {
        let Ok(Value::Object(mut object)) = serde_json::from_slice(&sample().encode()) else {
            panic!("a lease is an object")
        };
        edit(&mut object);
        parse(&pretty(object))
    }

    #[test]
    fn a_document_survives_writing_and_reading() {
        let mut document = sample();
        assert_eq!(
            parse(&document.encode()),
            Parsed::Whole(Box::new(document.clone()))
        );
        document.url = None;
        document.place.pid_ns = None;
        document.quic = Some("[::1]:17400".to_owned());
        document.predecessors = predecessors();
        for state in [
            LeaseState::Starting,
            LeaseState::Retiring,
            LeaseState::Ended,
        ] {
            document.state = state;
            assert_eq!(
                parse(&document.encode()),
                Parsed::Whole(Box::new(document.clone()))
            );
        }
    }

    #[test]
    fn what_is_no_lease_is_named() {
        let whole = sample().encode();
        for (bytes, why) in [
            (&b""[..], Defect::Empty),
            (&whole[..whole.len() / 2], Defect::Torn),
            (b"\0\0\0\0", Defect::NoJson),
            (b"pid 12", Defect::NoJson),
            (b"[1]", Defect::NoObject),
            (b"{}", Defect::Field("token")),
            (b"{\"token\": \"../x\"}", Defect::Field("token")),
            (&vec![b' '; LEASE_BYTES_MAX + 1], Defect::TooLarge),
        ] {
            assert_eq!(parse(bytes), Parsed::Unreadable { why });
        }
    }

    #[test]
    fn a_frozen_field_must_be_right() {
        for name in ["schema", "min_reader", "token", "epoch", "host_id", "alive"] {
            let parsed = edited(|object| {
                object.insert(name.to_owned(), Value::Bool(true));
            });
            assert_eq!(
                parsed,
                Parsed::Unreadable {
                    why: Defect::Field(name)
                }
            );
        }
    }

    #[test]
    fn another_damaged_field_leaves_the_frozen_ones() {
        for name in [
            "state",
            "pid",
            "timings",
            "started_at",
            "predecessors",
            "version",
            "url",
        ] {
            let parsed = edited(|object| {
                object.insert(name.to_owned(), Value::Bool(true));
            });
            let Parsed::Frozen { fields, reason } = parsed else {
                panic!("{name}: {parsed:?}")
            };
            assert_eq!(fields.token, sample().token);
            assert_eq!(reason, FrozenReason::Damaged(Defect::Field(name)));
        }
    }

    #[test]
    fn of_a_future_format_the_frozen_fields_are_read() {
        let parsed = parse(&future_bytes("far"));
        let Parsed::Frozen { fields, reason } = &parsed else {
            panic!("{parsed:?}")
        };
        assert_eq!(*reason, FrozenReason::Future);
        assert_eq!((fields.schema, fields.min_reader), (9, 7));
        assert_eq!(fields.epoch, Epoch::new(12));
        assert_eq!(fields.alive.as_str(), "alive-9.lock");
        assert_eq!(parsed.as_predecessor().unwrap().alive, fields.alive);
        assert_eq!(parsed.timings(), Timings::default());
    }

    #[test]
    fn unknown_fields_are_kept_when_rewritten() {
        let parsed = edited(|object| {
            object.insert("schema".to_owned(), 9.into());
            object.insert("later".to_owned(), serde_json::json!({"a": [1, 2]}));
        });
        let Parsed::Whole(mut document) = parsed else {
            panic!("{parsed:?}")
        };
        document.state = LeaseState::Ended;
        let again = parse(&document.encode());
        assert_eq!(again.document().unwrap().unknown["later"]["a"][1], 2);
        assert_eq!(again, Parsed::Whole(document));
    }

    #[test]
    fn any_process_number_can_be_read() {
        for (text, want) in [
            ("0", 0),
            ("1", 1),
            ("-1", -1),
            ("4194304", 4_194_304),
            ("99999999999", 99_999_999_999),
            ("99999999999999999999999", i64::MAX),
        ] {
            let bytes = String::from_utf8(sample().encode()).unwrap();
            let bytes = bytes.replace("\"pid\": 4711", &format!("\"pid\": {text}"));
            let parsed = parse(bytes.as_bytes());
            assert_eq!(parsed.document().unwrap().process.pid, Pid::new(want));
            assert_eq!(parsed.document().unwrap().process.pid.signalable(), None);
        }
    }

    #[test]
    fn timings_of_a_lease_are_held_within_bounds() {
        let parsed = edited(|object| {
            object.insert(
                "timings".to_owned(),
                serde_json::json!({"stale_after_ms": 1}),
            );
        });
        let timings = parsed.timings();
        assert_eq!(timings.stale_after(), Timings::default().heartbeat() * 3);
        assert_eq!(timings.busy_grace(), Timings::default().busy_grace());
    }

    #[test]
    fn an_oversized_document_sheds_what_is_least_needed() {
        let mut document = sample();
        document.predecessors = vec![predecessors().remove(0); PREDECESSORS_MAX + 4];
        let parsed = parse(&document.encode());
        assert_eq!(
            parsed.document().unwrap().predecessors.len(),
            PREDECESSORS_MAX
        );
        document
            .unknown
            .insert("later".to_owned(), "x".repeat(LEASE_BYTES_MAX).into());
        let parsed = parse(&document.encode());
        assert_eq!(parsed.document().unwrap().unknown, Map::new());
        for predecessor in &mut document.predecessors {
            predecessor.socket = Some("s".repeat(4_096));
        }
        let parsed = parse(&document.encode());
        let kept = parsed.document().unwrap().predecessors.len();
        assert!((1..PREDECESSORS_MAX).contains(&kept), "{kept}");
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            parse(&bytes);
        }

        #[test]
        fn reading_a_damaged_lease_never_panics(
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            length in any::<prop::sample::Index>(),
        ) {
            let mut document = sample();
            document.predecessors = predecessors();
            let mut bytes = document.encode();
            for (at, value) in flips {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let length = length.index(bytes.len());
            if let Parsed::Whole(document) = parse(&bytes) {
                parse(&document.encode());
            }
            parse(&bytes[..length]);
        }
    }
}
