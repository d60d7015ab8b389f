//! One request, from the socket to its answer: judged, bounded, routed, signed.

use std::{fmt, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{MatchedPath, Request},
    http::{HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use earshot_capability::{Dispatcher, Failure, RequestId};
use earshot_trust::{Denial, Origin, Transport};
use tokio::{
    net::UnixStream,
    sync::{Semaphore, mpsc, watch},
};
use tower::ServiceExt as _;

use crate::lease::moved;

use super::{
    access::{AccessSettings, admit, bound_headers},
    answer::{Refusal, render},
    body::{Rest, SharedBody},
    budget::{Budget, Charge, Holder},
    lanes::Lanes,
    metrics::{RequestCounts, UNROUTED},
    openapi, routes,
    surfaces::{Identity, Limits, Owner, Surfaces},
};

/// Requests for these paths look at the node without using it.
const NOT_USE: [&str; 3] = ["/api/v1/live", "/api/v1/ready", "/metrics"];

/// Headers of every answer that does not say otherwise itself: nothing is kept, guessed, embedded
/// or told to others.
const DEFAULTS: [(HeaderName, HeaderValue); 5] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// What the handlers share.
pub(super) struct Shared {
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) identity: watch::Receiver<Identity>,
    pub(super) owner: Arc<dyn Owner>,
    pub(super) requests: RequestCounts,
    pub(super) budget: Arc<Budget>,
    pub(super) calls: Semaphore,
    pub(super) openapi: Bytes,
}

/// The HTTP surface of one node, as each of its listeners serves it.
pub(crate) struct Site {
    router: Router,
    shared: Arc<Shared>,
    access: AccessSettings,
    limits: Limits,
    version: HeaderValue,
    links: mpsc::Sender<UnixStream>,
    lanes: Lanes,
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").finish_non_exhaustive()
    }
}

impl Site {
    /// Builds the surface, once: renders the OpenAPI document and lays out the routes.
    ///
    /// # Panics
    /// When two capabilities, or one and a path of the surface itself, have the same route: a
    /// mistake in this program, found by the first test that builds a site.
    pub(crate) fn new(surfaces: Surfaces) -> Arc<Self> {
        let version = surfaces.identity.borrow().version;
        let routes = routes::all(surfaces.dispatcher.registry(), &surfaces.mcp);
        let document = openapi::render(surfaces.dispatcher.registry());
        let shared = Arc::new(Shared {
            dispatcher: surfaces.dispatcher,
            identity: surfaces.identity,
            owner: surfaces.owner,
            requests: RequestCounts::new(routes.iter().map(|(path, _)| path.clone())),
            budget: Arc::default(),
            calls: Semaphore::new(surfaces.limits.calls),
            openapi: document,
        });
        Arc::new(Self {
            router: routes::router(routes, Arc::clone(&shared)),
            shared,
            access: surfaces.access,
            limits: surfaces.limits,
            version: HeaderValue::from_static(version),
            links: surfaces.links,
            lanes: Lanes::new(),
        })
    }

    /// Returns how long and how much.
    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns what decides who is served first.
    pub(super) const fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// Hands a sibling's connection to the links.
    pub(super) async fn take_link(&self, transport: Transport, stream: UnixStream) {
        // Others are not even told that links are spoken here.
        if transport
            == (Transport::UnixSocket {
                uid: self.access.own_uid,
            })
        {
            self.links.send(stream).await.ok(); // the links have ended: so does the connection
        }
    }

    /// Answers one request. What is left of its body, to be drained while the answer is sent,
    /// comes with the answer.
    pub(super) async fn answer(
        &self,
        transport: Transport,
        request: Request,
    ) -> (Response, Option<SharedBody>) {
        let request_id = self.shared.dispatcher.request_id();
        let (parts, body) = request.into_parts();
        let waits_for_continue = parts.headers.contains_key(header::EXPECT);
        let method = parts.method.clone();
        let body = SharedBody::new(body, self.limits.body_stall);
        let mut response = match self
            .admitted(transport, parts, body.clone(), &request_id)
            .await
        {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        };
        let (closes, rest) = match body.handled(waits_for_continue, self.limits.rest_stall) {
            Rest::Nothing => (false, None),
            Rest::Drained(rest) => (false, Some(rest)),
            Rest::TooMuch(rest) => (true, Some(rest)),
            Rest::Unreadable => (true, None),
        };
        if closes {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        render(&mut response, &request_id);
        self.sign(&mut response, &request_id);
        let route = response.extensions_mut().remove::<MatchedPath>();
        let route = route.as_ref().map_or(UNROUTED, MatchedPath::as_str);
        self.shared.requests.count(route, response.status());
        tracing::debug!(%request_id, %method, route, status = response.status().as_u16(), "answered");
        (response, rest)
    }

    async fn admitted(
        &self,
        transport: Transport,
        mut parts: Parts,
        body: SharedBody,
        request_id: &RequestId,
    ) -> Result<Response, Refusal> {
        let caller = admit(&self.access, transport, &parts)?;
        bound_headers(&parts).map_err(|failure| {
            Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, failure)
        })?;
        if !NOT_USE.contains(&parts.uri.path()) {
            self.shared.owner.pass().await?;
            if !caller.probe {
                self.shared.owner.used(&caller);
            }
        }
        if caller.origin == Origin::Remote && parts.method == Method::DELETE {
            return Err(Failure::from(Denial::ReadersOnly).into());
        }
        let budget = Arc::clone(&self.shared.budget);
        body.count(Charge::new(budget, Holder::of(&caller)));
        let abandoned = caller.abandoned.clone();
        parts.extensions.insert(caller);
        parts.extensions.insert(request_id.clone());
        let request = Request::from_parts(parts, Body::new(body));
        match self.router.clone().oneshot(request).await {
            // Whatever the handler made of it, the call was not executed here.
            Ok(_) if abandoned.is_set() => Err(moved().into()),
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }

    /// Puts on what every answer carries.
    fn sign(&self, response: &mut Response, request_id: &RequestId) {
        let headers = response.headers_mut();
        headers.insert("earshot-version", self.version.clone());
        match HeaderValue::from_str(request_id.as_str()) {
            Ok(id) => {
                headers.insert("earshot-request-id", id);
            }
            Err(error) => tracing::error!(%error, "a request id is no header value"),
        }
        for (name, value) in DEFAULTS {
            headers.entry(name).or_insert(value);
        }
    }
}
