//! Links between nodes, over what carries them: today the Unix sockets of one machine.
//!
//! Each link is a task that moves bytes between a stream and a
//! [`Link`](earshot_proto::mesh::link::Link), which decides everything; the [`Carrier`] starts
//! them, hands them what is to be said, and reports what they heard. What a row means is not known
//! here.

mod carrier;

pub use carrier::{Carrier, Clocks, Report};
