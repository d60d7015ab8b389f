//! What only the fixtures of the conformance suite need: answers in MCP's own form, resources and
//! prompts, and a way back to the calling client. No product build has it.

use std::sync::Arc;

use earshot_capability::{Answer, Call};
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolResponse, CallToolResult, ErrorCode, InputRequiredResult, ServerCapabilities},
    service::RequestContext,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Projection, REFUSED};

/// What a fixture finds in [`Call::peer`].
#[derive(Debug, Clone)]
pub struct FixturePeer {
    /// The context of the request, with the client behind it.
    pub context: RequestContext<RoleServer>,
    /// Every parameter of the request, as it came.
    pub params: Value,
}

/// Hands the request to a fixture.
pub(super) fn with_peer(
    mut call: Call,
    context: &RequestContext<RoleServer>,
    params: &impl Serialize,
) -> Call {
    call.peer = Some(Arc::new(FixturePeer {
        context: context.clone(),
        params: serde_json::to_value(params).unwrap_or_default(),
    }));
    call
}

/// Reads the result of a tool: content, or a request for input, or a protocol error.
pub(super) fn tool_response(result: Value) -> Result<CallToolResponse, ErrorData> {
    or_input(
        result,
        CallToolResponse::InputRequired,
        |done: CallToolResult| CallToolResponse::Complete(done),
    )
}

/// Reads a result that may be a request for input instead.
pub(super) fn or_input<R: DeserializeOwned, T>(
    result: Value,
    input: impl FnOnce(InputRequiredResult) -> T,
    done: impl FnOnce(R) -> T,
) -> Result<T, ErrorData> {
    let asks = result.get("resultType").and_then(Value::as_str) == Some("input_required");
    if asks {
        read(result).map(input)
    } else {
        read(result).map(done)
    }
}

fn read<R: DeserializeOwned>(mut result: Value) -> Result<R, ErrorData> {
    // A fixture refuses with a protocol error in this form.
    if let Some(error) = result.get_mut("protocolError") {
        return Err(serde_json::from_value(error.take())
            .unwrap_or_else(|error| ErrorData::internal_error(error.to_string(), None)));
    }
    // Older clients get it without; the SDK sees to that.
    if let Value::Object(fields) = &mut result {
        fields
            .entry("resultType")
            .or_insert_with(|| "complete".into());
    }
    serde_json::from_value(result)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl Projection {
    /// Answers a method that no product serves with the fixture of that name.
    pub(super) async fn forward<R: DeserializeOwned>(
        &self,
        fixture: &'static str,
        params: &impl Serialize,
        context: &RequestContext<RoleServer>,
    ) -> Result<R, ErrorData> {
        let dispatcher = self.shared.host().dispatcher();
        if dispatcher.registry().get(fixture).is_none() {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, fixture, None));
        }
        let caller = Arc::new(self.caller(context, None)?);
        let call = dispatcher.context(caller, dispatcher.request_id());
        let call = with_peer(call, context, params);
        match dispatcher.call(fixture, call, Value::Null).await {
            Ok(Answer::Native(result)) => read(result),
            Ok(Answer::Structured(fields)) => read(Value::Object(fields)),
            Err(failure) => Err(ErrorData::new(REFUSED, failure.to_string(), None)),
        }
    }
}

/// Promises what the fixtures keep.
pub(super) fn capabilities() -> ServerCapabilities {
    #[expect(
        deprecated,
        reason = "the suite of the older generation asks for logging"
    )]
    ServerCapabilities::builder()
        .enable_logging()
        .enable_completions()
        .enable_prompts()
        .enable_prompts_list_changed()
        .enable_resources()
        .enable_resources_list_changed()
        .enable_resources_subscribe()
        .enable_tools()
        .enable_tool_list_changed()
        .build()
}
