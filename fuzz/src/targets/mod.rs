//! The targets, and what they promise.

mod endpoint;
mod identity;
mod input;
mod link;
mod text;

pub use endpoint::mcp_line;
pub use identity::headers_identity;
pub use input::http_json;
pub use link::{envelope, frame, sync_delta};
pub use text::{claim_path, display_text};
