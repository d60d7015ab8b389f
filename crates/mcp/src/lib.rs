//! The only crate that speaks MCP: the projection of the registry, and the bridge.
//!
//! - The projection serves a node's capabilities as tools, over Streamable HTTP
//!   ([`http_service`]) and over standard input and output ([`serve_stdio`]). What it asks of the
//!   node is [`McpHost`].
//! - The [`bridge`] is what a client starts: it carries its frames, untouched, to the node.
//!
//! **Invariant**: nothing here knows boards, leases or brains. Tools come from the registry when
//! the node starts; none is declared here twice.

pub mod bridge;
mod clock;
mod endpoint;
mod handler;
mod host;
mod message;
mod projection;
mod sessions;
mod stdio;
#[cfg(test)]
mod testing;
mod tools;
pub mod upstream;

pub use endpoint::{HttpSettings, McpBody, McpService, http_service, supported_versions};
#[cfg(feature = "conformance")]
pub use handler::FixturePeer;
pub use host::{Greeting, HostFuture, McpHost, OpenStream, Opening, Welcome};
pub use projection::capabilities;
pub use stdio::serve_stdio;
