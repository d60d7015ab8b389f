//! Calling a capability of a running node, as any client does: over its Unix socket.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use bytes::Bytes;
use earshot_capability::{Address, CliProcess, Code, Failure, Kind, Registry, headers};
use earshot_mcp::upstream::Upstream;
use earshot_proto::lease::LeaseDocument;
use http::Request;
use serde_json::{Map, Value};

use super::{
    alone,
    context::Context,
    error::{CliError, Exit},
    printer::Format,
};
use crate::{
    config::Environment,
    station::{Ensure, EnsureError},
    system,
    words::nearest,
};

/// Taking an announcement back.
pub(super) const WITHDRAW: &str = "peers.withdraw";

/// Commands that have nothing to do where no node runs, so they start none.
const NEEDS_A_NODE: [&str; 2] = [WITHDRAW, "server.stop"];

/// Most characters of an id that nobody knows which an error says again.
const ECHO_MAX: usize = 100;

/// Most bytes of an answer that the CLI reads.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Calls a capability. A command sees to it that a node runs; a query never starts one.
///
/// # Errors
/// The node's own refusal, or why no node answered.
pub(crate) async fn call(
    context: &Context,
    registry: &Registry,
    id: &str,
    input: Value,
) -> Result<Map<String, Value>, CliError> {
    let declaration = registry
        .get(id)
        .map(|capability| &capability.declaration)
        .ok_or_else(|| unknown(registry, id))?;
    if context.environment.off {
        let answer = alone::call(context, declaration, input).await;
        return answer.map_err(|error| for_a_person(context, id, error));
    }
    let ensure = Ensure {
        may_start: declaration.kind == Kind::Command && !NEEDS_A_NODE.contains(&id),
        ..context.ensure_defaults()?
    };
    let lease = match context.try_ensure(ensure).await? {
        Ok(lease) => lease,
        // Whoever is done with a checkout need not care whether its node is.
        Err(EnsureError::Absent) if id == WITHDRAW => {
            return Ok(Map::from_iter([("withdrawn".to_owned(), false.into())]));
        }
        Err(error) => return Err(error.into()),
    };
    let answer = send(context, &lease, &declaration.route(), &input).await;
    answer.map_err(|error| for_a_person(context, id, error))
}

/// Refuses an id that no capability has, naming the one that was probably meant.
pub(super) fn unknown(registry: &Registry, id: &str) -> CliError {
    let dotted = id.replace('_', ".");
    let ids = registry.declarations().map(|declaration| declaration.id);
    let meant =
        nearest(&dotted, ids).map_or_else(String::new, |meant| format!("Did you mean `{meant}`? "));
    CliError::new(
        Exit::Usage,
        Code::NotFound,
        format!(
            "there is no capability {}",
            id.chars().take(ECHO_MAX).collect::<String>()
        ),
        format!("{meant}See `earshot capabilities list` for all."),
    )
}

/// Words a remedy that names a capability as the command that a person types.
fn for_a_person(context: &Context, id: &str, mut error: CliError) -> CliError {
    if context.printer.format() == Format::Text {
        let command = format!("`earshot capabilities describe {id}`");
        let remedy = &mut error.failure.remedy;
        *remedy = remedy.replace("capabilities.describe", &command);
    }
    error
}

/// Sends a request to the node of a lease, and reads its answer.
///
/// # Errors
/// The node's own refusal, or that it did not answer.
pub(crate) async fn send(
    context: &Context,
    lease: &LeaseDocument,
    route: &str,
    input: &Value,
) -> Result<Map<String, Value>, CliError> {
    let body = Bytes::from(input.to_string());
    let mut request = Request::post(route)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json");
    let environment = &context.environment;
    for (name, value) in [
        (headers::SESSION, &environment.session),
        (headers::PARENT_SESSION, &environment.parent_session),
    ] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    if let Some(CliProcess { pid, started_at }) = caller_process() {
        request = request
            .header(headers::CLI, format!("{pid}:{started_at}"))
            .header(headers::ADDRESS, address(environment, pid, started_at));
    }
    let request = request.body(body).map_err(|error| {
        let remedy = "Correct EARSHOT_SESSION_ID, or unset it.".to_owned();
        CliError::new(Exit::Usage, Code::InvalidInput, error.to_string(), remedy)
    })?;
    let upstream = Upstream::new(lease.socket.as_str());
    let answer = upstream
        .send(request)
        .await
        .map_err(|error| no_answer(&error))?;
    let status = answer.status();
    let bytes = answer
        .into_body()
        .collect(ANSWER_BYTES_MAX)
        .await
        .map_err(|error| no_answer(&error))?;
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(fields)) if status.is_success() => Ok(fields),
        Ok(Value::Object(fields)) => Err(refusal(&fields)),
        Ok(_) | Err(_) => Err(CliError::new(
            Exit::Unknown,
            Code::Internal,
            format!("the node answered {status} with something that cannot be read"),
            "Look at its log, then `earshot serve stop` and try again.".to_owned(),
        )),
    }
}

/// Returns the process on whose behalf this command runs: the shell or agent that started it.
pub(super) fn caller_process() -> Option<CliProcess> {
    let pid = system::parent_pid()?;
    Some(CliProcess {
        pid,
        started_at: system::process_start(pid)?,
    })
}

/// Writes where the worker at this command line can be reached, as a header carries it.
fn address(environment: &Environment, pid: u32, started_at: u64) -> String {
    let address = Address {
        machine: Some(system::host_name()),
        pid: Some(pid),
        pid_started_at: Some(started_at),
        session: environment.session.clone(),
        socket: environment.message_socket.clone(),
    };
    let json = serde_json::to_vec(&address).expect("texts and numbers can be written");
    BASE64_URL_SAFE_NO_PAD.encode(json)
}

fn no_answer(error: &dyn std::error::Error) -> CliError {
    CliError::new(
        Exit::Failed,
        Code::Unavailable,
        format!(
            "the node did not answer: {}",
            super::error::with_causes(error)
        ),
        "Look at `earshot serve status`, then try again.".to_owned(),
    )
}

fn refusal(fields: &Map<String, Value>) -> CliError {
    let text = |name: &str| {
        let found = fields
            .get("error")
            .and_then(|error| error.get(name))
            .and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let code = Code::parse(&text("code")).unwrap_or(Code::Internal);
    let failure = Failure::new(code, text("message"), text("remedy"));
    CliError::answered(
        failure,
        Some(text("request_id")).filter(|id| !id.is_empty()),
    )
}
