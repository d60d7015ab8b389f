//! Liveness and readiness.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Serialize;

use super::{answer::json, site::Shared, surfaces::Identity};

/// The program that answers.
#[derive(Debug, Serialize)]
struct Program {
    version: &'static str,
    commit: &'static str,
    dirty: Option<bool>,
}

impl Program {
    const fn of(identity: &Identity) -> Self {
        Self {
            version: identity.version,
            commit: identity.commit,
            dirty: identity.dirty,
        }
    }
}

#[derive(Debug, Serialize)]
struct Live {
    live: bool,
    #[serde(flatten)]
    program: Program,
}

#[derive(Debug, Serialize)]
struct Readiness {
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(flatten)]
    program: Program,
}

/// Answers that this process runs.
pub(super) async fn live(State(shared): State<Arc<Shared>>) -> Response {
    let program = Program::of(&shared.identity.borrow());
    json(
        StatusCode::OK,
        &Live {
            live: true,
            program,
        },
    )
}

/// Answers whether this process is the node of its checkout, from the program on disk.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let identity = shared.identity.borrow().clone();
    let reason = if identity.leaseholder {
        identity.stale.clone()
    } else {
        Some("this process no longer holds the lease of its checkout".to_owned())
    };
    let status = if reason.is_none() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let ready = Readiness {
        ready: reason.is_none(),
        reason,
        program: Program::of(&identity),
    };
    json(status, &ready)
}
