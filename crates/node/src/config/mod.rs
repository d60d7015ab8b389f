//! Configuration, entering once: environment and files become values here.

mod environment;
mod file;
mod origin;
mod places;

pub(crate) use environment::Environment;
pub(crate) use file::{
    ConfigError, Loopback, MachineConfig, read_machine_config, read_or_make_key, read_or_make_seed,
};
pub(crate) use origin::{OriginError, judge_home, judge_root};
pub(crate) use places::{NodeFolder, PlaceError, Places};
