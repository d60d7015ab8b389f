//! What a journal promises, tried on real files with real processes.

mod commands;
mod crash;
mod disk;
mod files;
mod fixture;
mod model;
mod scratch;
