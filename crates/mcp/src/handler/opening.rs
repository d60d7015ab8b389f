//! The opening of a wire session: kept by the host first, then received by it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use earshot_capability::{Caller, Code, Failure};
use http::request::Parts;
use rmcp::{ErrorData, RoleServer, model::InitializeRequestParams, service::RequestContext};
use serde_json::Value;

use super::Projection;
use crate::{host::Greeting, sessions::Opened};

/// Longest handshake that is kept with its wire session, in bytes: names, capabilities and an
/// icon or two fit, and all sessions together stay far below what a disk can hold.
const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;

/// What an `initialize` notes for the head of its answer: that the board had no row for its
/// caller.
#[derive(Debug, Default)]
pub(crate) struct RowNote(AtomicBool);

impl RowNote {
    /// Says whether the row was absent.
    pub(crate) fn is_absent(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Projection {
    /// Receives the client of a new wire session, or of standard input. The host keeps the
    /// session before anybody is attached by it.
    pub(super) async fn receive(
        &self,
        context: &RequestContext<RoleServer>,
        caller: &Caller,
        greeting: Greeting,
        handshake: &InitializeRequestParams,
    ) -> Result<String, ErrorData> {
        let host = self.shared.host();
        let opened = context.extensions.get::<Opened>();
        if let Some(Opened(id)) = opened {
            let kept = match kept(handshake) {
                Ok(kept) => host.session_opened(id, kept, caller).await,
                Err(failure) => Err(failure),
            };
            kept.map_err(|failure| self.refusal(&failure))?;
        }
        let welcome = match self.greet(caller, greeting).await {
            Ok(welcome) => welcome,
            Err(error) => {
                if let Some(Opened(id)) = opened {
                    host.session_closed(id).await;
                }
                return Err(error);
            }
        };
        let parts = context.extensions.get::<Parts>();
        let note = parts.and_then(|parts| parts.extensions.get::<Arc<RowNote>>());
        if let Some(RowNote(absent)) = note.map(Arc::as_ref) {
            absent.store(welcome.row_absent, Ordering::Release);
        }
        Ok(welcome.instructions)
    }
}

/// Returns a handshake in the form in which it is kept.
fn kept(handshake: &InitializeRequestParams) -> Result<Value, Failure> {
    let kept = serde_json::to_value(handshake).map_err(|_| {
        Failure::new(
            Code::Internal,
            "the handshake could not be written down",
            "Report this.",
        )
    })?;
    if kept.to_string().len() > HANDSHAKE_BYTES_MAX {
        return Err(Failure::new(
            Code::TooLarge,
            format!("the handshake is longer than {HANDSHAKE_BYTES_MAX} bytes"),
            "Leave icons and experimental capabilities out of it.",
        ));
    }
    Ok(kept)
}
