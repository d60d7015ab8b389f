//! Real processes: a scratch world for the built binary, and clients that drive it.

mod http;
mod load;
mod root;
mod signal;
mod socket;
mod stdio;
mod wait;
mod wire;
mod world;

use http::PATIENCE;
pub use http::{Answer, http};
pub use load::{Load, Worked, come_and_go};
pub use root::{Mount, SOMEBODY_ELSE, skip_unless_root, skip_without};
pub use signal::{Stopped, is_running, kill, resume};
pub use socket::{SeatClient, socket_http};
pub use stdio::StdioClient;
pub use wait::eventually;
pub use wire::{WireClient, initialize, post};
pub use world::{Ran, World, serving_processes};
