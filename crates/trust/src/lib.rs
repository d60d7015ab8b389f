//! Who is calling, and what they may do; who signed what.
//!
//! Values only: no sockets, no files, no clock, no message format. A projection collects the
//! facts of a request ([`RequestFacts`]), asks [`caller_verdict`] once, before anything else
//! looks at the request, and asks [`may`] once more for the capability that it names.
#![warn(
    clippy::wildcard_enum_match_arm,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::as_conversions
)]

mod access;
mod bytes;
mod certificate;
mod envelope;
mod host;
mod ids;
mod keys;

pub use access::is_forwarding_header;
pub use access::{
    Denial, Effect, LoopbackPolicy, Origin, PeerUid, RequestFacts, Surface, Transport, Writes,
    caller_verdict, may,
};
pub use certificate::{CERTIFICATE_BYTES, CHECKOUT_ID_BYTES, CertificateError, NodeCertificate};
pub use envelope::{
    ENVELOPE_OVERHEAD, ENVELOPE_VERSION, EnvelopeError, EnvelopeHeader, Expected, LinkId, Opened,
    open, seal, sign_presence, verify_presence,
};
pub use host::{HostName, parse_host};
pub use ids::{IdError, Seat, SeatId, SessionId};
pub use keys::{KEY_BYTES, PublicKey, SIGNATURE_BYTES, SecretKey, Signature};
