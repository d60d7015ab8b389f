//! What a person sees: the home page and the page that shows the OpenAPI document.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde::Serialize;

use super::{
    answer::{JSON, json},
    routes::Route,
    site::Shared,
    surfaces::Identity,
};

/// What a page may do: load its own script and style, and ask this node. No markup is ever made
/// from text, and Trusted Types hold the script to it.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// The files that pages load: path, media type, content.
const ASSETS: [(&str, &str, &str); 2] = [
    (
        "/assets/page.css",
        "text/css; charset=utf-8",
        include_str!("assets/page.css"),
    ),
    (
        "/assets/swagger.js",
        "text/javascript; charset=utf-8",
        include_str!("assets/swagger.js"),
    ),
];

/// A surface of the node: its name, where it is, and what it is.
struct Surface {
    name: &'static str,
    path: String,
    what: &'static str,
}

fn surfaces(checkout_id: &str) -> [Surface; 7] {
    let at = |name, path: &str, what| Surface {
        name,
        path: path.to_owned(),
        what,
    };
    [
        at("home", "/", "this page; JSON for programs"),
        at(
            "mcp",
            &format!("/c/{checkout_id}/mcp"),
            "MCP over HTTP, for agents; also at /mcp",
        ),
        at("swagger", "/swagger", "every route, to read and to try"),
        at("openapi", "/openapi.json", "the routes as OpenAPI 3.1"),
        at("live", "/api/v1/live", "whether this process runs"),
        at(
            "ready",
            "/api/v1/ready",
            "whether it is the node of its checkout",
        ),
        at("metrics", "/metrics", "measures for Prometheus"),
    ]
}

/// The identity as it is answered.
#[derive(Debug, Serialize)]
struct Home<'a> {
    #[serde(flatten)]
    identity: &'a Identity,
    surfaces: BTreeMap<&'static str, String>,
}

/// Answers who this node is: JSON, or a page where a browser asks.
pub(super) async fn home(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let identity = shared.identity.borrow().clone();
    let surfaces = surfaces(&identity.checkout_id);
    let mut response = if wants_page(&headers) {
        page(home_page(&identity, &surfaces))
    } else {
        let surfaces = surfaces.into_iter().map(|it| (it.name, it.path)).collect();
        let identity = &identity;
        json(StatusCode::OK, &Home { identity, surfaces })
    };
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Answers the page that shows the OpenAPI document.
pub(super) async fn swagger() -> Response {
    page(include_str!("assets/swagger.html").to_owned())
}

/// Answers the OpenAPI document.
pub(super) async fn openapi(State(shared): State<Arc<Shared>>) -> Response {
    ([(header::CONTENT_TYPE, JSON)], shared.openapi.clone()).into_response()
}

/// Returns the routes of the files that pages load.
pub(super) fn assets() -> impl Iterator<Item = Route> {
    ASSETS.into_iter().map(|(path, kind, content)| {
        let asset = get(move || async move { ([(header::CONTENT_TYPE, kind)], content) });
        (path.to_owned(), asset)
    })
}

fn page(html: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HTML),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
    ];
    (headers, html).into_response()
}

/// Says whether a caller asks for a page by name, and likes nothing better.
fn wants_page(headers: &HeaderMap) -> bool {
    let accept: Vec<&str> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let page = weight(&accept, "text/html");
    page > 0 && page > weight(&accept, "application/json")
}

/// Returns the weight that a list of media ranges gives to a type by name, in thousandths.
fn weight(accept: &[&str], kind: &str) -> u32 {
    accept
        .iter()
        .filter_map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next()?.eq_ignore_ascii_case(kind);
            let weight =
                parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            named.then(|| weight.map_or(Some(1000), thousandths).unwrap_or(0))
        })
        .max()
        .unwrap_or(0)
}

/// Reads a weight: a digit, and up to three more after a point.
fn thousandths(weight: &str) -> Option<u32> {
    let (whole, rest) = weight.split_once('.').unwrap_or((weight, ""));
    let digits = format!("{whole}{rest:0<3}");
    let fits = whole.len() == 1 && rest.len() <= 3;
    fits.then(|| digits.parse().ok()).flatten()
}

fn home_page(identity: &Identity, surfaces: &[Surface]) -> String {
    let mut facts = String::new();
    let dirty = match identity.dirty {
        Some(true) => " with uncommitted changes",
        Some(false) => "",
        None => ", uncommitted changes unknown",
    };
    fact(&mut facts, "Release", identity.version);
    fact(
        &mut facts,
        "Built from",
        &format!("{}{dirty}", identity.commit),
    );
    if let Some(why) = &identity.stale {
        fact(&mut facts, "Stale", why);
    }
    fact(&mut facts, "Checkout", &identity.checkout_id);
    let optional = [
        ("Repository", &identity.repository_id),
        ("Branch", &identity.branch),
        ("Head", &identity.head),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            fact(&mut facts, name, value);
        }
    }
    let yes_or_no = |yes: bool| if yes { "yes" } else { "no" };
    fact(
        &mut facts,
        "Linked worktree",
        yes_or_no(identity.linked_worktree),
    );
    fact(
        &mut facts,
        "Holds the lease",
        yes_or_no(identity.leaseholder),
    );
    let mut list = String::new();
    for surface in surfaces {
        writeln!(
            list,
            "<li><a href=\"{path}\">{path}</a> <span>{what}</span></li>",
            path = escape(&surface.path),
            what = escape(surface.what)
        )
        .expect("writing to a String cannot fail");
    }
    include_str!("assets/home.html")
        .replace("{{surfaces}}", &list)
        .replace("{{facts}}", &facts)
}

fn fact(facts: &mut String, name: &str, value: &str) {
    writeln!(
        facts,
        "<div><dt>{}</dt><dd>{}</dd></div>",
        escape(name),
        escape(value)
    )
    .expect("writing to a String cannot fail");
}

fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut html, c| {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            // Braces would be taken for a place of the template.
            '{' => html.push_str("&#123;"),
            _ => html.push(c),
        }
        html
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_for_those_who_ask_for_one_by_name() {
        let wants = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            wants_page(&headers)
        };
        for browser in [
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "TEXT/HTML",
            "application/json;q=0.5, text/html",
            "text/html;q=0.9",
        ] {
            assert!(wants(browser), "{browser}");
        }
        for program in [
            "*/*",
            "",
            "application/json",
            "text/html, application/json",
            "text/html;q=0.4, application/json;q=0.5",
            "text/html;q=0",
            "text/html;q=nonsense",
            "text/*",
        ] {
            assert!(!wants(program), "{program}");
        }
        assert!(!wants_page(&HeaderMap::new()));
    }

    #[test]
    fn nothing_in_an_identity_becomes_markup() {
        let identity = Identity {
            version: "0.1.0",
            commit: "unknown",
            dirty: None,
            stale: Some("<script>".to_owned()),
            checkout_id: "c\"1".to_owned(),
            repository_id: None,
            branch: Some("a<b>&'{{facts}}".to_owned()),
            head: None,
            linked_worktree: false,
            leaseholder: true,
        };
        let html = home_page(&identity, &surfaces(&identity.checkout_id));
        for raw in ["<script>", "c\"1", "a<b>", "{{"] {
            assert!(!html.contains(raw), "{raw} in {html}");
        }
        assert!(html.contains("a&lt;b&gt;&amp;&#39;&#123;&#123;facts}}"));
    }
}
