//! The HTTP surface of a node: the only place that knows axum and hyper.
//!
//! [`Site`] is built once, from [`Surfaces`]; [`serve_tcp`] and [`serve_unix`] run its accept
//! loops. On its way in a request is judged ([`access`]), bounded, and only then routed
//! ([`routes`]); on its way out every answer gets its request id, the version and the headers
//! that browsers heed ([`site`]).
//!
//! **Invariant**: nothing is looked up, read or answered for a caller before the access verdict.

mod access;
mod answer;
mod body;
mod budget;
mod capabilities;
mod connection;
mod health;
mod lanes;
mod metrics;
mod openapi;
mod pages;
mod peer_uid;
mod places;
mod query;
mod routes;
mod serve;
mod site;
mod surfaces;

pub(crate) use access::{AccessSettings, MachineKey};
pub(crate) use openapi::document as openapi_document;
pub(crate) use serve::{serve_tcp, serve_unix};
pub(crate) use site::Site;
pub(crate) use surfaces::{Gauge, Identity, Limits, McpService, Owner, Surfaces};

#[cfg(test)]
mod tests;
