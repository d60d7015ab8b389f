//! Declaring a capability, once, beside its handler.

use std::{fmt, marker::PhantomData, pin::Pin, sync::Arc};

use earshot_trust::Effect;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    dispatch::{Answer, Call},
    failure::{Code, Failure},
    schema::Schemas,
};

/// Whether a capability asks or changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Answers and changes nothing.
    Query,
    /// Changes something.
    Command,
}

/// Whether a capability stands in the default tool list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// It is listed: an agent sees it without asking. At most twelve are.
    Listed,
    /// It can be called by its tool name, and is found through `capabilities.find`.
    Unlisted,
}

/// The friendly verb of a capability on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CliVerb {
    /// The verb: `earshot <verb>`.
    pub verb: &'static str,
    /// The input field that the first bare word fills, if any.
    pub first: Option<&'static str>,
    /// The input field that the further bare words fill, if any.
    pub rest: Option<&'static str>,
}

/// Everything that projections need to know of a capability.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Its id: dotted lower-case words, as `peers.announce`.
    pub id: &'static str,
    /// A title of a few words.
    pub title: &'static str,
    /// What it is for and when to use it, in a few sentences.
    pub description: &'static str,
    /// Whether it asks or changes.
    pub kind: Kind,
    /// What it changes.
    pub effect: Effect,
    /// Whether it tells of this machine, and so is never answered to a caller from elsewhere.
    pub local_only: bool,
    /// Whether it stands in the default tool list.
    pub listing: Listing,
    /// Its verb on the command line.
    pub cli: Option<CliVerb>,
    /// Its schemas.
    pub schemas: Arc<Schemas>,
}

impl Declaration {
    /// Returns the tool name: the id with dots as underscores.
    pub fn tool_name(&self) -> String {
        self.id.replace('.', "_")
    }

    /// Returns the path of the HTTP route.
    pub fn route(&self) -> String {
        format!("/api/v1/{}", self.id.replace('.', "/"))
    }

    /// Says whether projections other than the CLI show it: operator capabilities are for a
    /// person at this machine, so no other surface has them (`attacks.md` 27).
    pub fn is_projected(&self) -> bool {
        self.effect != Effect::Operator
    }
}

type Running = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send>>;
type Handler = dyn Fn(Call, Value) -> Running + Send + Sync;

/// A capability: its declaration and its handler.
#[derive(Clone)]
pub struct Capability {
    /// The declaration.
    pub declaration: Declaration,
    handler: Arc<Handler>,
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Capability")
            .field(&self.declaration.id)
            .finish()
    }
}

impl Capability {
    /// Reads the input and runs the handler. Only the dispatcher calls this: it judges first.
    pub(crate) fn run(&self, call: Call, input: Value) -> Running {
        (self.handler)(call, input)
    }
}

/// A capability being declared: takes `I`, answers `O`.
#[derive(Debug)]
pub struct Draft<I, O> {
    declaration: Declaration,
    types: PhantomData<fn(I) -> O>,
}

impl<I: DeserializeOwned + JsonSchema, O: Serialize + JsonSchema> Draft<I, O> {
    /// Begins a query.
    pub fn query(id: &'static str, title: &'static str, description: &'static str) -> Self {
        Self::new(Kind::Query, Effect::Read, [id, title, description])
    }

    /// Begins a command that changes what the node holds.
    pub fn command(id: &'static str, title: &'static str, description: &'static str) -> Self {
        Self::new(Kind::Command, Effect::NodeState, [id, title, description])
    }

    fn new(kind: Kind, effect: Effect, [id, title, description]: [&'static str; 3]) -> Self {
        let declaration = Declaration {
            id,
            title,
            description,
            kind,
            effect,
            local_only: false,
            listing: Listing::Unlisted,
            cli: None,
            schemas: Arc::new(Schemas::of::<I, O>()),
        };
        Self {
            declaration,
            types: PhantomData,
        }
    }

    /// Declares another effect than the kind's own.
    #[must_use]
    pub const fn effect(mut self, effect: Effect) -> Self {
        self.declaration.effect = effect;
        self
    }

    /// Declares that it tells of this machine: no caller from elsewhere is answered.
    #[must_use]
    pub const fn local_only(mut self) -> Self {
        self.declaration.local_only = true;
        self
    }

    /// Puts it into the default tool list.
    #[must_use]
    pub const fn listed(mut self) -> Self {
        self.declaration.listing = Listing::Listed;
        self
    }

    /// Gives it a verb on the command line.
    #[must_use]
    pub const fn cli(mut self, verb: CliVerb) -> Self {
        self.declaration.cli = Some(verb);
        self
    }

    /// Binds the handler.
    pub fn handler<F, R>(self, handler: F) -> Capability
    where
        F: Fn(Call, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, Failure>> + Send + 'static,
        I: Send + 'static,
        O: 'static,
    {
        let handler = Arc::new(handler);
        self.bind(move |call, input| {
            let input = read_input::<I>(input);
            let handler = Arc::clone(&handler);
            Box::pin(async move { to_answer(&handler(call, input?).await?) })
        })
    }

    /// Binds a handler that gives a ready-made answer.
    #[cfg(feature = "conformance")]
    pub fn answering<F, R>(self, handler: F) -> Capability
    where
        F: Fn(Call, Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Answer, Failure>> + Send + 'static,
    {
        self.bind(move |call, input| Box::pin(handler(call, input)))
    }

    fn bind(self, handler: impl Fn(Call, Value) -> Running + Send + Sync + 'static) -> Capability {
        Capability {
            declaration: self.declaration,
            handler: Arc::new(handler),
        }
    }
}

/// Reads the input, naming the argument that does not fit.
fn read_input<I: DeserializeOwned>(input: Value) -> Result<I, Failure> {
    // Serde would read a list as the fields in their order: no caller means that.
    if !input.is_object() {
        return Err(Failure::new(
            Code::InvalidInput,
            "the input is not an object",
            "Send a JSON object of named arguments.",
        ));
    }
    serde_path_to_error::deserialize(input).map_err(|error| {
        let path = error.path().to_string();
        let why = error.inner();
        let message = if path == "." {
            why.to_string()
        } else {
            format!("`{path}`: {why}")
        };
        Failure::new(
            Code::InvalidInput,
            message,
            "Correct that argument; capabilities.describe shows the whole schema.",
        )
    })
}

fn to_answer<O: Serialize>(output: &O) -> Result<Answer, Failure> {
    match serde_json::to_value(output) {
        Ok(Value::Object(fields)) => Ok(Answer::Structured(fields)),
        Ok(_) | Err(_) => Err(Failure::new(
            Code::Internal,
            "the answer could not be written as an object",
            "Report this as a fault of earshot.",
        )),
    }
}
