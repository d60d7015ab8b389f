//! The dispatcher: the one way from any surface to a capability.

use std::{
    fmt,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use earshot_trust::may;
use serde_json::{Map, Value};

use crate::{
    caller::Caller,
    failure::{Code, Failure},
    registry::Registry,
};

/// Bytes of a call's digest: enough that no two calls of one caller meet by chance.
pub const DIGEST_BYTES: usize = 16;

/// The id of one request, shown with its answer and in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// Returns the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where the dispatcher asks what waits for a caller, and says who called.
pub trait Notices: fmt::Debug + Send + Sync {
    /// Takes the notices that wait for this caller: each is given out once.
    fn take<'a>(
        &'a self,
        caller: &'a Caller,
    ) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>>;
}

/// What a handler is given besides its input.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who calls.
    pub caller: Arc<Caller>,
    /// The id of the request.
    pub request_id: RequestId,
    /// A digest of what is called with which input: tells a repeated command from another one that
    /// was given the same number.
    pub digest: [u8; DIGEST_BYTES],
    /// The dispatcher, for a capability that calls another.
    pub dispatcher: Arc<Dispatcher>,
    /// What the projection hands to its own fixtures, to reach the calling peer.
    #[cfg(feature = "conformance")]
    pub peer: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

/// What a handler answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// An object that fits the output schema.
    Structured(Map<String, Value>),
    /// A result in MCP's own form: content blocks, or a request for more input.
    #[cfg(feature = "conformance")]
    Native(Value),
}

impl Answer {
    /// Returns the object, unless the answer is a fixture's own form.
    pub fn structured(self) -> Option<Map<String, Value>> {
        match self {
            Self::Structured(fields) => Some(fields),
            #[cfg(feature = "conformance")]
            Self::Native(_) => None,
        }
    }
}

/// The way from any surface to a capability: judges, runs, fills in.
#[derive(Debug)]
pub struct Dispatcher {
    registry: Registry,
    notices: Arc<dyn Notices>,
    boot: String,
    requests: AtomicU64,
}

impl Dispatcher {
    /// Makes the dispatcher of one process. `boot` begins every request id, and tells the ids of
    /// one process from those of the next.
    pub fn new(registry: Registry, notices: Arc<dyn Notices>, boot: String) -> Arc<Self> {
        Arc::new(Self {
            registry,
            notices,
            boot,
            requests: AtomicU64::new(0),
        })
    }

    /// Returns the registry.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Mints the id of a request, for a projection that needs it before, or without, a call.
    pub fn request_id(&self) -> RequestId {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        RequestId(format!("{}-{n}", self.boot))
    }

    /// Mints the context of a call by this caller.
    pub fn context(self: &Arc<Self>, caller: Arc<Caller>, request_id: RequestId) -> Call {
        Call {
            caller,
            request_id,
            digest: [0; DIGEST_BYTES],
            dispatcher: Arc::clone(self),
            #[cfg(feature = "conformance")]
            peer: None,
        }
    }

    /// Calls a capability: judges access, reads the input, runs it, adds what waits for the caller.
    ///
    /// # Errors
    /// The [`Failure`] of the first step that refuses. Notices are kept for the next answer then.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call; a handler that has begun a change finishes it.
    pub async fn call(&self, id: &str, call: Call, input: Value) -> Result<Answer, Failure> {
        let caller = Arc::clone(&call.caller);
        let digest = digest_of(&caller, id, &input);
        let mut answer = self.run(id, Call { digest, ..call }, input).await?;
        let waiting = self.notices.take(&caller).await;
        if !waiting.is_empty() {
            add_notices(&mut answer, waiting);
        }
        Ok(answer)
    }

    /// Calls a capability from within another, whose answer will carry the notices.
    pub(crate) async fn run(&self, id: &str, call: Call, input: Value) -> Result<Answer, Failure> {
        let capability = self.registry.get(id).ok_or_else(|| {
            Failure::new(
                Code::NotFound,
                "there is no such capability",
                "Look it up by words with capabilities.find.",
            )
        })?;
        let declaration = &capability.declaration;
        let caller = &call.caller;
        may(
            caller.origin,
            caller.surface,
            declaration.effect,
            declaration.local_only,
        )?;
        capability.run(call, input).await
    }
}

/// Digests a numbered call; others are never repeated, and never looked up by it.
fn digest_of(caller: &Caller, id: &str, input: &Value) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    if caller.request.is_some() {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(id.as_bytes())
            .update(&[0])
            .update(input.to_string().as_bytes());
        hasher.finalize_xof().fill(&mut digest);
    }
    digest
}

fn add_notices(answer: &mut Answer, waiting: Vec<String>) {
    match answer {
        Answer::Structured(fields) => {
            fields.insert("notices".to_owned(), waiting.into());
        }
        #[cfg(feature = "conformance")]
        Answer::Native(_) => {}
    }
}

#[cfg(test)]
mod tests;
