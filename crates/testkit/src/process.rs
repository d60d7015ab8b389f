//! Real processes: a scratch world for the built binary, and clients that drive it.

mod http;
mod stdio;
mod world;

pub use http::{Answer, http};
pub use stdio::StdioClient;
pub use world::{Ran, World};
