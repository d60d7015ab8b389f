//! What the tests of earshot share: the simulator, and the spawner of real processes.
//!
//! A dev-dependency of other crates, and never part of what is built for users.

pub mod mesh_sim;
pub mod process;
pub mod sim;
