//! A host that notes what it hears, for the tests of this crate.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use earshot_capability::{
    Call, Caller, Capability, Code, Dispatcher, Draft, Failure, Notices, Registry, builtin,
};
use earshot_trust::Effect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::host::{Greeting, HostFuture, McpHost, OpenStream, Welcome};

#[derive(Debug, Default)]
struct Silent;

impl Notices for Silent {
    fn take<'a>(&'a self, _: &'a Caller) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>> {
        Box::pin(async { Vec::new() })
    }
}

/// Notes everybody who comes, and turns away who it is told to.
#[derive(Debug)]
pub(crate) struct FakeHost {
    dispatcher: Arc<Dispatcher>,
    pub(crate) greeted: Mutex<Vec<(Caller, Greeting)>>,
    pub(crate) left: Mutex<Vec<Caller>>,
    pub(crate) touched: AtomicUsize,
    pub(crate) streams: Arc<AtomicUsize>,
    pub(crate) refusing: Mutex<Option<Failure>>,
    /// What it keeps of the wire sessions, and outlives an endpoint.
    pub(crate) kept: Mutex<BTreeMap<String, Value>>,
    /// Why it can neither keep nor find a session.
    pub(crate) broken: Mutex<Option<Failure>>,
    /// How often it was asked for a session.
    pub(crate) lookups: AtomicUsize,
    /// Its store works while there is a permit.
    pub(crate) gate: Semaphore,
    pub(crate) row_absent: AtomicBool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EchoInput {
    text: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EchoOutput {
    text: String,
    session: Option<String>,
    wire_session: Option<String>,
    client: Option<String>,
}

fn echo() -> Capability {
    Draft::query("sample.echo", "Echo", "Answers its own text.")
        .listed()
        .handler(|call: Call, input: EchoInput| async move {
            if input.text == "refuse" {
                return Err(Failure::new(
                    Code::Conflict,
                    "that is taken",
                    "Choose another.",
                ));
            }
            let caller = &call.caller;
            Ok(EchoOutput {
                text: input.text,
                session: caller.session.as_ref().map(|it| it.as_str().to_owned()),
                wire_session: caller.wire_session.clone(),
                client: caller.client.as_ref().map(|it| it.name.clone()),
            })
        })
}

#[derive(Debug, Serialize, JsonSchema)]
struct Text {
    text: String,
}

fn unlisted(id: &'static str, effect: Effect) -> Capability {
    Draft::<EchoInput, Text>::command(id, "Unlisted", "Is not listed.")
        .effect(effect)
        .handler(|_, input: EchoInput| async move { Ok(Text { text: input.text }) })
}

impl FakeHost {
    pub(crate) fn new() -> Arc<Self> {
        let mut all = builtin();
        all.extend(crate::capabilities());
        all.push(echo());
        all.push(unlisted("sample.hidden", Effect::RepositoryMutation));
        all.push(unlisted("sample.operator", Effect::Operator));
        let dispatcher = Dispatcher::new(Registry::new(all), Arc::new(Silent), "t".to_owned());
        Arc::new(Self {
            dispatcher,
            greeted: Mutex::default(),
            left: Mutex::default(),
            touched: AtomicUsize::new(0),
            streams: Arc::default(),
            refusing: Mutex::default(),
            kept: Mutex::default(),
            broken: Mutex::default(),
            lookups: AtomicUsize::new(0),
            gate: Semaphore::new(1),
            row_absent: AtomicBool::new(false),
        })
    }

    /// Counts the greetings so far.
    pub(crate) fn greetings(&self) -> usize {
        self.greeted.lock().unwrap().len()
    }

    /// Names the sessions that are kept.
    pub(crate) fn kept_sessions(&self) -> Vec<String> {
        self.kept.lock().unwrap().keys().cloned().collect()
    }

    async fn store(&self) -> Result<(), Failure> {
        drop(self.gate.acquire().await.unwrap());
        let broken = self.broken.lock().unwrap().clone();
        broken.map_or(Ok(()), Err)
    }

    /// Counts the streams that are open.
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl McpHost for FakeHost {
    fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.dispatcher
    }

    fn greet<'a>(
        &'a self,
        caller: &'a Caller,
        greeting: Greeting,
    ) -> HostFuture<'a, Result<Welcome, Failure>> {
        Box::pin(async move {
            let refusing = self.refusing.lock().unwrap().clone();
            if let Some(failure) = refusing {
                return Err(failure);
            }
            self.greeted
                .lock()
                .unwrap()
                .push((caller.clone(), greeting));
            Ok(Welcome {
                instructions: "You are p1.".to_owned(),
                row_absent: self.row_absent.load(Ordering::SeqCst),
            })
        })
    }

    fn session_opened<'a>(
        &'a self,
        id: &'a str,
        initialize: Value,
        caller: &'a Caller,
    ) -> HostFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            self.store().await?;
            assert_eq!(caller.wire_session.as_deref(), Some(id));
            self.kept.lock().unwrap().insert(id.to_owned(), initialize);
            Ok(())
        })
    }

    fn session_lookup<'a>(&'a self, id: &'a str) -> HostFuture<'a, Result<Option<Value>, Failure>> {
        Box::pin(async move {
            self.lookups.fetch_add(1, Ordering::SeqCst);
            self.store().await?;
            Ok(self.kept.lock().unwrap().get(id).cloned())
        })
    }

    fn session_closed<'a>(&'a self, id: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move {
            self.store().await.ok();
            self.kept.lock().unwrap().remove(id);
        })
    }

    fn touched(&self, _: &Caller) {
        self.touched.fetch_add(1, Ordering::SeqCst);
    }

    fn stream_opened(&self, _: &Caller) -> OpenStream {
        self.streams.fetch_add(1, Ordering::SeqCst);
        Box::new(Counted(Arc::clone(&self.streams)))
    }

    fn left<'a>(&'a self, caller: &'a Caller) -> HostFuture<'a, ()> {
        Box::pin(async move { self.left.lock().unwrap().push(caller.clone()) })
    }

    fn server_name(&self) -> &'static str {
        "earshot"
    }

    fn server_version(&self) -> &'static str {
        "0.0.0"
    }
}
