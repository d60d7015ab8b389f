//! A host without a board: it greets everybody and notes nothing.

use std::{pin::Pin, sync::Arc};

use earshot_capability::{Caller, Dispatcher, Failure, Notices};
use earshot_mcp::{Greeting, HostFuture, McpHost, OpenStream, Welcome};
use serde_json::Value;

/// No notices wait for anybody.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Notices for Nothing {
    fn take<'a>(&'a self, _: &'a Caller) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>> {
        Box::pin(async { Vec::new() })
    }
}

/// The host of the fixtures.
#[derive(Debug)]
pub(crate) struct FixtureHost(Arc<Dispatcher>);

impl FixtureHost {
    /// Makes the host of these capabilities.
    pub(crate) fn new(dispatcher: Arc<Dispatcher>) -> Self {
        Self(dispatcher)
    }
}

impl McpHost for FixtureHost {
    fn dispatcher(&self) -> &Arc<Dispatcher> {
        &self.0
    }

    fn greet<'a>(&'a self, _: &'a Caller, _: Greeting) -> HostFuture<'a, Result<Welcome, Failure>> {
        Box::pin(async {
            Ok(Welcome {
                instructions: "The fixtures of the conformance suite.".to_owned(),
                row_absent: false,
            })
        })
    }

    fn session_opened<'a>(
        &'a self,
        _: &'a str,
        _: Value,
        _: &'a Caller,
    ) -> HostFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn session_lookup<'a>(&'a self, _: &'a str) -> HostFuture<'a, Result<Option<Value>, Failure>> {
        Box::pin(async { Ok(None) })
    }

    fn session_closed<'a>(&'a self, _: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async {})
    }

    fn touched(&self, _: &Caller) {}

    fn stream_opened(&self, _: &Caller) -> OpenStream {
        Box::new(())
    }

    fn left<'a>(&'a self, _: &'a Caller) -> HostFuture<'a, ()> {
        Box::pin(async {})
    }

    fn server_name(&self) -> &'static str {
        "earshot-conformance"
    }

    fn server_version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}
