//! The bridge: newline-delimited JSON-RPC on one side, the node's Streamable HTTP on the other.
//!
//! [`run()`] serves one client for as long as it lives. It passes frames through byte for byte,
//! survives the loss of the node, and answers every request exactly once. What is decided is in
//! `session` (synchronous, without I/O); `run` and `exchange` carry it out.

mod answer;
mod clock;
mod exchange;
#[cfg(test)]
pub(crate) mod fake_node;
mod finder;
pub mod frame;
pub mod headers;
mod lines;
mod options;
mod parent;
mod run;
mod session;
pub mod sse;

pub use finder::{FindError, Finder, Found, Want};
pub use options::BridgeOptions;
pub use parent::{ParentWatch, parent_watch};
pub use run::{BridgeEnd, run};
