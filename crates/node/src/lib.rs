//! The earshot node: the daemon, its HTTP surface, its command line and its configuration.
//!
//! This crate registers the capabilities of all others and composes them into one binary,
//! `earshot`. What decides is in `earshot-proto`, what a caller may do in `earshot-trust`; here is
//! what touches files, sockets, processes and clocks.

mod bench;
mod build;
mod capabilities;
mod cli;
mod clock;
mod config;
mod core;
mod daemon;
mod executable;
mod host;
mod http;
mod lease;
mod links;
mod net;
mod station;
mod system;
mod words;

pub use cli::main;
