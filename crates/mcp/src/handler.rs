//! The handler behind every transport: the registry as MCP sees it.

use std::sync::{Arc, OnceLock};

use earshot_capability::{Answer, Caller, ClientName, Code, Failure};
use earshot_trust::SessionId;
use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, DiscoverResult,
        ErrorCode, Extensions, Implementation, InitializeRequestParams, InitializeResult,
        ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerConfig, SubscriptionFilter,
        Tool,
    },
    service::{RequestContext, SubscriptionContext},
};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::{
    host::{Greeting, McpHost, Opening, Welcome},
    sessions::{Opened, Restored},
    tools,
};

#[cfg(feature = "conformance")]
mod fixtures;
mod opening;
#[cfg(feature = "conformance")]
use rmcp::model::{
    CompleteRequestParams, CompleteResult, GetPromptRequestParams, GetPromptResponse,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ReadResourceRequestParams,
    ReadResourceResponse, SubscribeRequestParams, UnsubscribeRequestParams,
};

#[cfg(feature = "conformance")]
pub use fixtures::FixturePeer;
pub(crate) use opening::RowNote;

/// The code of an error that a failure of ours is the reason for.
const REFUSED: ErrorCode = ErrorCode(-32000);

/// Longest part of a name that a caller sent which is repeated to it, in characters.
const NAME_SHOWN_MAX: usize = 80;

/// Methods that are served. When one of them reaches us as a method that the SDK does not know,
/// its parameters did not fit.
const SERVED: [&str; 3] = ["subscriptions/listen", "tools/call", "tools/list"];

/// What all handlers of one host share.
#[derive(Debug)]
pub(crate) struct Shared {
    host: Arc<dyn McpHost>,
    tools: Vec<Tool>,
    shutdown: CancellationToken,
}

impl Shared {
    /// Renders what does not change while the host lives.
    pub(crate) fn new(host: Arc<dyn McpHost>, shutdown: CancellationToken) -> Self {
        let tools = tools::render(host.dispatcher().registry());
        Self {
            host,
            tools,
            shutdown,
        }
    }

    /// Returns the host.
    pub(crate) fn host(&self) -> &dyn McpHost {
        self.host.as_ref()
    }

    /// Returns what is cancelled when the host stops.
    pub(crate) const fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }
}

/// How a handler's client is connected, and so where its caller is read.
#[derive(Debug, Clone)]
pub(crate) enum Link {
    /// HTTP: every request carries its caller.
    Http,
    /// Standard input and output: there is one caller, for the life of the process.
    Stdio(Arc<Caller>),
}

/// The handler of one wire session, one stateless request, or one stdio client.
#[derive(Debug)]
pub(crate) struct Projection {
    shared: Arc<Shared>,
    link: Link,
    /// What the client called itself in its handshake, once there was one.
    client: OnceLock<Implementation>,
    /// The instructions of the handshake: a repeated `initialize` gets them again, and attaches
    /// nobody. A session that was brought back has none until then.
    greeted: OnceCell<String>,
}

impl Projection {
    /// Makes a handler. It costs nothing: one is made for each stateless request.
    pub(crate) fn new(shared: Arc<Shared>, link: Link) -> Self {
        Self {
            shared,
            link,
            client: OnceLock::new(),
            greeted: OnceCell::new(),
        }
    }

    /// Returns who is calling, as the transport says, with what this request says of itself.
    fn caller(
        &self,
        context: &RequestContext<RoleServer>,
        client: Option<&Implementation>,
    ) -> Result<Caller, ErrorData> {
        let mut caller = match &self.link {
            Link::Stdio(caller) => Caller::clone(caller),
            Link::Http => caller_of(&context.extensions)?,
        };
        if let Some(Opened(session)) = context.extensions.get() {
            caller.wire_session = Some(session.clone());
        }
        caller.client = client.map(named).or(caller.client);
        if caller.session.is_none() {
            // Codex names its thread with each call: it is that call's execution session.
            let thread = context.meta.get("threadId").and_then(Value::as_str);
            caller.session = thread.and_then(|thread| SessionId::parse(thread).ok());
            caller.session_of_call = caller.session.is_some();
        }
        Ok(caller)
    }

    /// Returns what the client calls itself: in this request, or in its handshake.
    fn client_of(&self, context: &RequestContext<RoleServer>) -> Option<Implementation> {
        let said = context.meta.client_info();
        said.or_else(|| self.client.get().cloned())
    }

    async fn greet(&self, caller: &Caller, greeting: Greeting) -> Result<Welcome, ErrorData> {
        let greeted = self.shared.host().greet(caller, greeting).await;
        greeted.map_err(|failure| self.refusal(&failure))
    }

    fn refusal(&self, failure: &Failure) -> ErrorData {
        let request_id = self.shared.host().dispatcher().request_id();
        let data = failure.to_json(Some(request_id.as_str()));
        let data = data.get("error").cloned();
        let code = match failure.code {
            Code::InvalidInput => ErrorCode::INVALID_PARAMS,
            _ => REFUSED,
        };
        ErrorData::new(code, failure.to_string(), data)
    }

    async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let dispatcher = self.shared.host().dispatcher();
        let Some(declaration) = dispatcher.registry().tool(&request.name) else {
            // Not "method not found": over HTTP that is the status of a lost session.
            let shown: String = request.name.chars().take(NAME_SHOWN_MAX).collect();
            return Err(ErrorData::invalid_params(
                format!("there is no tool {shown:?}; capabilities_find looks them up by words"),
                None,
            ));
        };
        let client = self.client_of(&context);
        let caller = Arc::new(self.caller(&context, client.as_ref())?);
        let request_id = dispatcher.request_id();
        let call = dispatcher.context(caller, request_id.clone());
        #[cfg(feature = "conformance")]
        let call = fixtures::with_peer(call, &context, &request);
        let input = Value::Object(request.arguments.unwrap_or_default());
        let running = dispatcher.call(declaration.id, call, input);
        let Some(answer) = context.ct.run_until_cancelled(running).await else {
            return Err(ErrorData::new(REFUSED, "the call was cancelled", None));
        };
        match answer {
            Ok(Answer::Structured(fields)) => Ok(tools::success(fields).into()),
            #[cfg(feature = "conformance")]
            Ok(Answer::Native(result)) => fixtures::tool_response(result),
            Err(failure) => Ok(tools::failure(&failure, request_id.as_str()).into()),
        }
    }
}

fn caller_of(extensions: &Extensions) -> Result<Caller, ErrorData> {
    extensions
        .get::<Parts>()
        .and_then(|parts| parts.extensions.get::<Arc<Caller>>())
        .map(|caller| Caller::clone(caller))
        .ok_or_else(|| ErrorData::internal_error("the caller of this request is not known", None))
}

fn named(client: &Implementation) -> ClientName {
    ClientName {
        name: client.name.clone(),
        version: client.version.clone(),
    }
}

impl ServerHandler for Projection {
    fn get_info(&self) -> ServerConfig {
        let host = self.shared.host();
        ServerConfig::new(capabilities()).with_server_info(Implementation::new(
            host.server_name(),
            host.server_version(),
        ))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let mut result = self.negotiate_initialize(&request)?;
        let mut info = request;
        info.protocol_version = result.protocol_version.clone();
        if context.extensions.get::<Restored>().is_none() {
            let caller = self.caller(&context, Some(&info.client_info))?;
            let greeting = Greeting {
                client: caller.client.clone(),
                protocol: result.protocol_version.as_str().to_owned(),
                opening: Opening::Initialize,
            };
            let instructions = self
                .greeted
                .get_or_try_init(|| self.receive(&context, &caller, greeting, &info))
                .await?;
            result.instructions = Some(instructions.clone());
        }
        self.client.get_or_init(|| info.client_info.clone());
        context.peer.set_peer_info(info);
        Ok(result)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let client = context.meta.client_info();
        let caller = self.caller(&context, client.as_ref())?;
        let protocol = context.meta.protocol_version();
        let greeting = Greeting {
            client: caller.client.clone(),
            protocol: protocol
                .unwrap_or(ProtocolVersion::LATEST)
                .as_str()
                .to_owned(),
            opening: Opening::Discover,
        };
        let welcome = self.greet(&caller, greeting).await?;
        Ok(DiscoverResult::from_server_info(
            self.supported_protocol_versions().into_owned(),
            self.get_info().with_instructions(welcome.instructions),
        ))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        if cursor.is_some_and(|cursor| !cursor.is_empty()) {
            return Err(ErrorData::invalid_params(
                "the list has one page; ask without a cursor",
                None,
            ));
        }
        Ok(ListToolsResult::with_all_items(self.shared.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.shared
            .tools
            .iter()
            .find(|tool| tool.name == name)
            .cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(request, context).await
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        // The SDK reduces it to what the capabilities promise.
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let request = context.request_context();
        let client = self.client_of(request);
        let caller = self.caller(request, client.as_ref())?;
        let _open = self.shared.host().stream_opened(&caller);
        // A process must not stay for a stream that nobody reads any more.
        self.shared
            .shutdown
            .run_until_cancelled(context.cancelled())
            .await;
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if SERVED.contains(&request.method.as_str()) {
            return Err(ErrorData::invalid_params(
                format!("the parameters of {} do not fit it", request.method),
                None,
            ));
        }
        let shown: String = request.method.chars().take(NAME_SHOWN_MAX).collect();
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, shown, None))
    }

    #[cfg(feature = "conformance")]
    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.forward("fixture.complete", &request, &context).await
    }

    #[cfg(feature = "conformance")]
    #[expect(
        deprecated,
        reason = "the suite of the older generation asks for logging"
    )]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.forward("fixture.set_level", &request, &context).await
    }

    #[cfg(feature = "conformance")]
    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.forward("fixture.prompts_list", &request, &context)
            .await
    }

    #[cfg(feature = "conformance")]
    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let result = self
            .forward("fixture.prompts_get", &request, &context)
            .await?;
        fixtures::or_input(result, GetPromptResponse::InputRequired, |done| {
            GetPromptResponse::Complete(done)
        })
    }

    #[cfg(feature = "conformance")]
    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.forward("fixture.resources_list", &request, &context)
            .await
    }

    #[cfg(feature = "conformance")]
    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.forward("fixture.resource_templates", &request, &context)
            .await
    }

    #[cfg(feature = "conformance")]
    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let result = self
            .forward("fixture.resources_read", &request, &context)
            .await?;
        fixtures::or_input(result, ReadResourceResponse::InputRequired, |done| {
            ReadResourceResponse::Complete(done)
        })
    }

    #[cfg(feature = "conformance")]
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.forward("fixture.subscribe", &request, &context).await
    }

    #[cfg(feature = "conformance")]
    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.forward("fixture.unsubscribe", &request, &context)
            .await
    }
}

#[cfg(not(feature = "conformance"))]
fn capabilities() -> rmcp::model::ServerCapabilities {
    rmcp::model::ServerCapabilities::builder()
        .enable_tools()
        .enable_tool_list_changed()
        .build()
}

#[cfg(feature = "conformance")]
use fixtures::capabilities;
