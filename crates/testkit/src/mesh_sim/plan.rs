//! What a run is asked for, and what it came to.

/// How a world of nodes is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Nodes.
    pub nodes: usize,
    /// Changes of boards and faults, together.
    pub events: u64,
    /// Of 1,000 of them, how many are faults.
    pub faults: u64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent, with envelopes and frames.
    pub bytes: u64,
    /// Virtual time from the first dial until all replicas equalled their origins, microseconds.
    pub joined_us: u64,
    /// The same from the end of the storm.
    pub settled_us: u64,
    /// Messages of the joining alone.
    pub joining_messages: u64,
    /// Bytes of the joining alone.
    pub joining_bytes: u64,
    /// The longest of ten times from a change on one board to its arrival on the last one, without
    /// faults, in microseconds.
    pub slowest_us: u64,
}
