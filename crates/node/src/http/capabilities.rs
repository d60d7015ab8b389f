//! The routes of the capabilities: input from a body or a query string, output as JSON.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{Extensions, HeaderMap, StatusCode, header},
    response::Response,
    routing::{MethodRouter, get, post},
};
use earshot_capability::{
    Answer, Caller, Code, Failure, Kind, Registry, RequestId, VALUES_MAX, has_too_many_values,
};
use serde_json::{Map, Value};

use super::{
    answer::{Refusal, json},
    body::{busy, read_whole},
    query::Parameters,
    routes::Route,
    site::Shared,
};

/// The capability behind a route.
#[derive(Debug)]
struct Target {
    id: &'static str,
    parameters: Parameters,
}

/// Returns the route of every capability. Those that only a person may use are among them: the
/// CLI calls them over the Unix socket, and the access table refuses everyone else.
pub(super) fn routes(registry: &Registry) -> Vec<Route> {
    registry
        .declarations()
        .map(|declaration| {
            let target = Arc::new(Target {
                id: declaration.id,
                parameters: Parameters::of(&declaration.schemas.input_listed),
            });
            let mut route: MethodRouter<Arc<Shared>> = post({
                let target = Arc::clone(&target);
                move |State(shared): State<Arc<Shared>>, request: Request| async move {
                    write(&shared, &target, request).await
                }
            });
            if declaration.kind == Kind::Query {
                route = route.merge(get(
                    move |State(shared): State<Arc<Shared>>, request: Request| async move {
                        read(&shared, &target, request).await
                    },
                ));
            }
            (declaration.route(), route)
        })
        .collect()
}

async fn read(shared: &Shared, target: &Target, request: Request) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let input = target.parameters.read(query)?;
    call(shared, target, &parts.extensions, Value::Object(input)).await
}

async fn write(shared: &Shared, target: &Target, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let kind = judge_content(&parts.headers)?;
    let bytes = read_whole(body).await?;
    let input = if bytes.is_empty() {
        Value::Object(Map::new())
    } else if has_too_many_values(&bytes) {
        return Err(too_many_values());
    } else if kind == Content::Json {
        serde_json::from_slice(&bytes).map_err(|error| not_json(&error))?
    } else {
        return Err(not_json_type());
    };
    call(shared, target, &parts.extensions, input).await
}

async fn call(
    shared: &Shared,
    target: &Target,
    extensions: &Extensions,
    input: Value,
) -> Result<Response, Refusal> {
    let admitted = extensions
        .get::<Arc<Caller>>()
        .zip(extensions.get::<RequestId>());
    let Some((caller, request_id)) = admitted else {
        return Err(Refusal::from(Failure::new(
            Code::Internal,
            "a request reached its route without a verdict",
            "Report this as a fault of earshot.",
        )));
    };
    let _permit = shared.calls.try_acquire().map_err(|_| busy())?;
    let call = shared
        .dispatcher
        .context(Arc::clone(caller), request_id.clone());
    match shared.dispatcher.call(target.id, call, input).await? {
        Answer::Structured(fields) => Ok(json(StatusCode::OK, &fields)),
        #[cfg(feature = "conformance")]
        Answer::Native(result) => Ok(json(StatusCode::OK, &result)),
    }
}

/// What a request says that its body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Json,
    Unsaid,
}

/// Judges what a body is said to be. Only JSON is read: a page of another origin can send a form
/// or plain text without asking first, and JSON it cannot.
fn judge_content(headers: &HeaderMap) -> Result<Content, Refusal> {
    let plain = headers
        .get(header::CONTENT_ENCODING)
        .is_none_or(|coding| coding == "identity");
    let mut kinds = headers.get_all(header::CONTENT_TYPE).iter();
    match (kinds.next(), kinds.next()) {
        (None, _) if plain => Ok(Content::Unsaid),
        (Some(kind), None) if plain && is_json(kind.as_bytes()) => Ok(Content::Json),
        _ => Err(not_json_type()),
    }
}

fn is_json(kind: &[u8]) -> bool {
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    essence
        .trim_ascii()
        .eq_ignore_ascii_case(b"application/json")
}

fn too_many_values() -> Refusal {
    Refusal::from(Failure::new(
        Code::TooLarge,
        format!("a body holds at most {VALUES_MAX} values"),
        "Send less at once.",
    ))
}

fn not_json_type() -> Refusal {
    Refusal::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Failure::new(
            Code::InvalidInput,
            "the body must be plain JSON",
            "Send it uncompressed, with Content-Type: application/json.",
        ),
    )
}

fn not_json(error: &serde_json::Error) -> Refusal {
    Refusal::from(Failure::new(
        Code::InvalidInput,
        format!("the body is not JSON: {error}"),
        "Send a JSON object of named arguments.",
    ))
}
