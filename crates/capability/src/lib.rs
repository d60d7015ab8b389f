//! What a capability is, the registry of them, and the dispatcher that every projection calls.
//!
//! A capability is declared once, beside its handler, with [`Draft`]; MCP tools, HTTP routes,
//! OpenAPI, CLI verbs and the generated reference are read from its [`Declaration`]. Every call,
//! whatever its surface, goes through [`Dispatcher::call`], which judges access, reads the input,
//! fills `notices` and gives the answer its request id; no handler repeats any of it.
//!
//! **Invariant**: nothing here knows HTTP, stdio, MCP, or what any capability does.
#![warn(
    clippy::wildcard_enum_match_arm,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::as_conversions
)]

mod builtin;
mod caller;
mod declare;
mod dispatch;
mod failure;
mod registry;
mod schema;
mod startup;
mod values;

pub use builtin::{builtin, effect_word};
pub use caller::{Abandoned, Address, Caller, CliProcess, ClientName, RequestNumber, headers};
pub use declare::{Capability, CliVerb, Declaration, Draft, Kind, Listing};
pub use dispatch::{Answer, Call, DIGEST_BYTES, Dispatcher, Notices, RequestId};
pub use failure::{Code, Failure};
pub use registry::Registry;
pub use schema::Schemas;
pub use startup::{Step, count, counts};
pub use values::{VALUES_MAX, has_too_many_values};
