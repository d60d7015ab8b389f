//! Measures, in the text form that Prometheus reads.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse as _, Response},
};

use super::site::Shared;

/// The label of what was not routed: unknown paths and turned away callers.
pub(super) const UNROUTED: &str = "unrouted";

/// Classes of statuses, as they are shown.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Requests by route and class of status. The routes are known from the start: no caller can make
/// a label.
#[derive(Debug)]
pub(super) struct RequestCounts(BTreeMap<String, [AtomicU64; CLASSES.len()]>);

impl RequestCounts {
    /// Prepares a counter for each route.
    pub(super) fn new(routes: impl IntoIterator<Item = String>) -> Self {
        let unrouted = std::iter::once(UNROUTED.to_owned());
        Self(
            unrouted
                .chain(routes)
                .map(|route| (route, Default::default()))
                .collect(),
        )
    }

    /// Counts an answer.
    pub(super) fn count(&self, route: &str, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        let counter = self.0.get(route).and_then(|classes| classes.get(class));
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Answers every measure of this process.
pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let text = render(&shared);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

fn render(shared: &Shared) -> String {
    let mut text = String::new();
    let identity = shared.identity.borrow().clone();
    family(
        &mut text,
        "earshot_build_info",
        "gauge",
        "The program that answers.",
    );
    let dirty = identity
        .dirty
        .map_or("unknown", |dirty| if dirty { "true" } else { "false" });
    let labels = [
        ("version", identity.version),
        ("commit", identity.commit),
        ("dirty", dirty),
    ];
    sample(&mut text, "earshot_build_info", &labels, 1);
    family(
        &mut text,
        "earshot_http_requests_total",
        "counter",
        "Answers by route and class of status.",
    );
    for (route, classes) in &shared.requests.0 {
        for (class, counter) in CLASSES.iter().zip(classes) {
            let value = counter.load(Ordering::Relaxed);
            if value > 0 {
                let labels = [("route", route.as_str()), ("status", class)];
                sample(&mut text, "earshot_http_requests_total", &labels, value);
            }
        }
    }
    family(
        &mut text,
        "earshot_startup_steps_total",
        "counter",
        "Work of start-up by step: it does not grow while the node answers.",
    );
    for (step, value) in earshot_capability::counts() {
        sample(
            &mut text,
            "earshot_startup_steps_total",
            &[("step", step)],
            value,
        );
    }
    for gauge in shared.owner.gauges() {
        family(&mut text, gauge.name, "gauge", gauge.help);
        sample(&mut text, gauge.name, &[], gauge.value);
    }
    text
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
        .expect("writing to a String cannot fail");
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: u64) {
    text.push_str(name);
    for (n, (label, content)) in labels.iter().enumerate() {
        let open = if n == 0 { '{' } else { ',' };
        let content = content
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', r"\n");
        write!(text, "{open}{label}=\"{content}\"").expect("writing to a String cannot fail");
    }
    if !labels.is_empty() {
        text.push('}');
    }
    writeln!(text, " {value}").expect("writing to a String cannot fail");
}
