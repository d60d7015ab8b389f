//! Liveness and readiness.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode},
    response::Response,
};
use serde::Serialize;

use crate::lease::{NONCE_HEADER, PROOF_HEADER};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    stale: Option<String>,
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
///
/// A probe's nonce is answered too, so that the prober knows that this is the node of the lease.
pub(super) async fn ready(State(shared): State<Arc<Shared>>, request: Request) -> Response {
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
        stale: identity.stale.clone(),
        program: Program::of(&identity),
    };
    let mut response = json(status, &ready);
    let nonce = request
        .headers()
        .get(NONCE_HEADER)
        .map(HeaderValue::as_bytes);
    let proof = nonce.and_then(|nonce| shared.owner.prove(nonce));
    if let Some(proof) = proof.and_then(|proof| HeaderValue::from_str(&proof).ok()) {
        response.headers_mut().insert(PROOF_HEADER, proof);
    }
    response
}
