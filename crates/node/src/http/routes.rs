//! Every path that the node answers, and how the others are refused.

use std::sync::Arc;

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    http::{StatusCode, Uri},
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
    routing::{MethodFilter, MethodRouter, get, on, on_service},
};
use earshot_capability::{Code, Failure, Registry};
use tower::ServiceExt as _;

use super::{
    answer::Refusal, capabilities, health, metrics, pages, site::Shared, surfaces::McpService,
};

/// A path pattern, and what is done at it.
pub(super) type Route = (String, MethodRouter<Arc<Shared>>);

/// The methods of the `/mcp` paths.
const MCP_METHODS: MethodFilter = MethodFilter::GET
    .or(MethodFilter::POST)
    .or(MethodFilter::DELETE);

/// Returns every route of the node.
pub(super) fn all(registry: &Registry, mcp: &McpService) -> Vec<Route> {
    let mut routes: Vec<Route> = vec![
        ("/".to_owned(), get(pages::home)),
        ("/swagger".to_owned(), get(pages::swagger)),
        ("/openapi.json".to_owned(), get(pages::openapi)),
        ("/api/v1/live".to_owned(), get(health::live)),
        ("/api/v1/ready".to_owned(), get(health::ready)),
        ("/metrics".to_owned(), get(metrics::metrics)),
    ];
    routes.extend(pages::assets());
    for path in ["/mcp", "/mcp/"] {
        routes.push((path.to_owned(), on_service(MCP_METHODS, mcp.clone())));
    }
    for path in ["/c/{checkout_id}/mcp", "/c/{checkout_id}/mcp/"] {
        routes.push((path.to_owned(), at_checkout(mcp.clone())));
    }
    routes.extend(capabilities::routes(registry));
    routes
}

/// Lays the routes out.
pub(super) fn router(routes: Vec<Route>, shared: Arc<Shared>) -> Router {
    routes
        .into_iter()
        .fold(Router::new(), |router, (path, route)| {
            router.route(&path, route)
        })
        .method_not_allowed_fallback(wrong_method)
        .route_layer(from_fn(name_route))
        .fallback(not_found)
        .with_state(shared)
}

/// Tells the answer which route it came from.
async fn name_route(route: MatchedPath, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.extensions_mut().insert(route);
    response
}

/// Serves MCP under a url that names its checkout: another node that came to have this port must
/// not answer for it (`attacks.md` 29).
fn at_checkout(mcp: McpService) -> MethodRouter<Arc<Shared>> {
    on(
        MCP_METHODS,
        |State(shared): State<Arc<Shared>>, request: Request| async move {
            let own = shared.identity.borrow().checkout_id.clone();
            if named_checkout(request.uri()) != Some(own.as_str()) {
                return misdirected(&own).into_response();
            }
            match mcp.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        },
    )
}

fn named_checkout(uri: &Uri) -> Option<&str> {
    let (id, _) = uri.path().strip_prefix("/c/")?.split_once('/')?;
    Some(id)
}

fn misdirected(own: &str) -> Refusal {
    Refusal::new(
        StatusCode::MISDIRECTED_REQUEST,
        Failure::new(
            Code::InvalidInput,
            format!("this is the node of another checkout; its own url is /c/{own}/mcp"),
            "Ask for the right url with `earshot serve status` in your checkout.",
        ),
    )
}

async fn not_found() -> Refusal {
    Refusal::from(Failure::new(
        Code::NotFound,
        "there is nothing at this path",
        "GET / names every surface, /openapi.json every route.",
    ))
}

async fn wrong_method() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        Failure::new(
            Code::InvalidInput,
            "this path does not know that method",
            "Use a method that the Allow header names.",
        ),
    )
}
