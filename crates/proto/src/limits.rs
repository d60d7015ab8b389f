//! The bounds of texts, claims and the board, with the reason for each number.

use std::time::Duration;

/// Bytes of one line of intent: two lines of a terminal, little of an agent's context.
pub const INTENT_BYTES_MAX: usize = 280;

/// Bytes of any other name: clients, versions, branches.
pub const NAME_BYTES_MAX: usize = 200;

/// Bytes of one claimed path: deeper than any source tree, shorter than any system's own limit.
pub const CLAIM_BYTES_MAX: usize = 1_024;

/// Paths of one announcement: who touches more than this names folders.
pub const CLAIMS_MAX: usize = 64;

/// Bytes of all paths of one announcement together: what a row's bound leaves for them.
pub const CLAIMS_BYTES_MAX: usize = 3 * 1_024;

/// Bytes of the texts of one row, so that 1,000 rows fit into one answer of a sibling.
pub const ROW_BYTES_MAX: usize = 4 * 1_024;

/// Pairs of claims named for two peers, and colliding peers named in one answer; the rest is
/// counted.
pub const PAIRS_MAX: usize = 32;

/// Rows in one page of a board.
pub const PAGE_ROWS: usize = 32;

/// Attached peers of one board: half again what the load target of 10,000 sessions asks.
pub const ATTACHED_MAX: usize = 16_384;

/// Departed peers that a board keeps, the newest ones: a day's worth, not a museum.
pub const DEPARTED_MAX: usize = 32;

/// Open event streams of one peer: a client needs one, and a reconnecting one briefly two.
pub const STREAMS_MAX: usize = 16;

/// Lines of notice that wait for one peer; the last one counts those that found no room.
pub const NOTICES_MAX: usize = 8;

/// Bytes of a name or path as quoted in a notice: a notice points at the board, it is not one.
pub const NOTICE_NAME_BYTES_MAX: usize = 96;

/// Time without message, ping or open stream after which a peer has departed: three pings missed.
pub const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Rows of one node that its siblings are told of: more agents than one checkout has room for.
pub const SHARED_ROWS_MAX: usize = 1_024;

/// Bytes of all rows that siblings are told of, so that they fit into one message with room to
/// spare.
pub const SHARED_BYTES_MAX: usize = 960 * 1_024;

/// Siblings that a node keeps rows of; those of machines are bounded one by one.
pub const SIBLINGS_MAX: usize = 1_024;

/// Time after which the rows of a node that is gone are forgotten.
pub const LAST_SEEN_MAX: Duration = Duration::from_mins(10);

// A row holds a client's name and version, a branch, an intent and its claims.
const _: () = assert!(3 * NAME_BYTES_MAX + INTENT_BYTES_MAX + CLAIMS_BYTES_MAX <= ROW_BYTES_MAX);
const _: () = assert!(CLAIM_BYTES_MAX <= CLAIMS_BYTES_MAX);
