//! The access rule before the endpoint: the facts of a request, and the verdict on its caller.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{ConnectInfo, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use earshot_capability::{Caller, Failure};
use earshot_trust::{
    LoopbackPolicy, Origin, PeerUid, RequestFacts, Surface, Transport, caller_verdict,
    is_forwarding_header,
};

/// Judges the caller of a request, and hands it on with the request.
pub(crate) async fn judge(
    State(port): State<u16>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = verdict(port, peer, &request).and_then(|origin| {
        Caller::from_headers(origin, Surface::Mcp, |name| {
            request.headers().get(name).map(HeaderValue::as_bytes)
        })
    });
    match caller {
        Ok(caller) => {
            request.extensions_mut().insert(Arc::new(caller));
            next.run(request).await
        }
        Err(failure) => {
            let status = StatusCode::from_u16(failure.code.status());
            let body = failure.to_json(Some("access")).to_string();
            let json = [(header::CONTENT_TYPE, "application/json")];
            (status.unwrap_or(StatusCode::FORBIDDEN), json, body).into_response()
        }
    }
}

fn verdict(port: u16, peer: SocketAddr, request: &Request) -> Result<Origin, Failure> {
    let headers = request.headers();
    let all = |name: HeaderName| -> Vec<&[u8]> {
        let values = headers.get_all(name).iter();
        values.map(HeaderValue::as_bytes).collect()
    };
    let authority = request.uri().authority().map(ToString::to_string);
    Ok(caller_verdict(&RequestFacts {
        transport: Transport::Tcp {
            peer: peer.ip(),
            peer_uid: PeerUid::Unsupported,
        },
        own_uid: rustix::process::geteuid().as_raw(),
        own_port: port,
        foreign_hosts: &[],
        hosts: &all(header::HOST),
        target_authority: authority.as_deref(),
        origins: &all(header::ORIGIN),
        fetch_site: headers.get("sec-fetch-site").map(HeaderValue::as_bytes),
        forwarded: headers
            .keys()
            .any(|name| is_forwarding_header(name.as_str())),
        key_shown: false,
        policy: LoopbackPolicy::Open,
    })?)
}
