//! Nodes that tell each other what is on their boards.
//!
//! ```text
//! bytes ──> frame::Frames ──> link::Link ──> message::Message ──> siblings::Siblings
//!            (length)         (greeting,      (postcard)           (whom to dial, what each
//!                              hello,                                side holds of the other,
//!                              envelopes)                            replicas, gather)
//! ```
//!
//! A node tells only its own rows ([`origin::Origin`]) and keeps what the others tell
//! ([`replica::Replicas`]): nothing travels two hops. A state is named by (epoch, version, hash); a
//! delta names the state that it goes out from, and is applied whole or not at all.
//!
//! # Invariants
//!
//! 1. A message counts on one link, from one sender, in one place of its order.
//! 2. Of one node at most one link is in use; of two that were dialled at once both sides keep the
//!    same one.
//! 3. A replica is a state that its origin had: after a delta its hash is the one that the origin
//!    named, or the whole state is asked for.
//! 4. A gather ends at its deadline, and says of each sibling what became of it.
//! 5. No input makes it panic or grow past the bounds in [`limits`](crate::limits).

pub mod frame;
pub mod link;
pub mod message;
pub mod origin;
pub mod replica;
pub mod siblings;
