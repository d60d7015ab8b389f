//! The OpenAPI 3.1 document: rendered once, from the registry.

mod components;

use axum::body::Bytes;
use earshot_capability::{Declaration, Kind, Registry, Step, count, effect_word, headers};
use serde_json::{Map, Value, json};

use self::components::Components;
use super::query::Parameters;
use crate::build;

/// Statuses of every route: what precedes it may refuse.
const ALWAYS: [&str; 6] = ["400", "403", "408", "429", "431", "500"];
/// Further statuses of a capability: each code may come from its handler.
const OF_CAPABILITIES: [&str; 7] = ["401", "404", "409", "410", "413", "422", "503"];
/// Further statuses where a body is read.
const OF_BODIES: [&str; 1] = ["415"];

/// Renders the document.
pub(super) fn render(registry: &Registry) -> Bytes {
    count(Step::OpenApiRendered);
    document(registry).to_string().into()
}

/// Returns the document of a registry.
pub(crate) fn document(registry: &Registry) -> Value {
    let mut paths = surface_paths();
    for declaration in registry.projected() {
        paths.insert(declaration.route(), path_item(declaration));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "earshot",
            "version": build::VERSION,
            "summary": "The node of one git checkout: its board, and what agents do there.",
            "description": "Every route is one capability, also served as an MCP tool and by \
                            `earshot call`. Errors have one form on all of them.",
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "machineKey": [] }],
        "tags": tags(registry),
        "paths": paths,
        "components": Components::of(registry).into_object(),
    })
}

fn tags(registry: &Registry) -> Vec<Value> {
    let mut tags = vec![json!({ "name": "node", "description": "The node itself." })];
    let mut last = "";
    for declaration in registry.projected() {
        let tag = tag(declaration);
        if tag != last {
            tags.push(json!({ "name": tag }));
            last = tag;
        }
    }
    tags
}

fn tag(declaration: &Declaration) -> &'static str {
    let id = declaration.id;
    id.split_once('.').map_or(id, |(first, _)| first)
}

fn path_item(declaration: &Declaration) -> Value {
    let mut item = Map::new();
    let parameters = Parameters::of(&declaration.schemas.input_listed);
    if declaration.kind == Kind::Query && parameters.complete() {
        item.insert("get".to_owned(), get(declaration, &parameters));
    }
    item.insert("post".to_owned(), post(declaration));
    Value::Object(item)
}

fn get(declaration: &Declaration, parameters: &Parameters) -> Value {
    let schema = &declaration.schemas.input_listed;
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &String| required.is_some_and(|all| all.iter().any(|it| it == name));
    let fields = schema.get("properties").and_then(Value::as_object);
    let mut list = who_parameters();
    list.extend(
        fields
            .into_iter()
            .flatten()
            .filter(|(name, _)| parameters.has(name))
            .map(|(name, field)| {
                let mut field = field.clone();
                let description = field
                    .as_object_mut()
                    .and_then(|field| field.shift_remove("description"));
                let mut parameter = json!({
                    "name": name,
                    "in": "query",
                    "required": is_required(name),
                    "schema": field,
                });
                if let Some(description) = description {
                    parameter["description"] = description;
                }
                parameter
            }),
    );
    let mut operation = operation(declaration, "_get", &[]);
    operation["parameters"] = list.into();
    operation
}

fn post(declaration: &Declaration) -> Value {
    let mut operation = operation(declaration, "", &OF_BODIES);
    operation["parameters"] = who_parameters().into();
    let schema = components::reference(&components::input_name(declaration));
    operation["requestBody"] = json!({
        "description": "The input; no body is an empty object.",
        "required": false,
        "content": { "application/json": { "schema": schema } },
    });
    operation
}

fn operation(declaration: &Declaration, suffix: &str, further: &[&'static str]) -> Value {
    let mut statuses: Vec<&str> = ALWAYS.into_iter().chain(OF_CAPABILITIES).collect();
    statuses.extend(further);
    let schema = components::reference(&components::output_name(declaration));
    json!({
        "operationId": format!("{}{suffix}", declaration.tool_name()),
        "tags": [tag(declaration)],
        "summary": declaration.title,
        "description": declaration.description,
        "responses": responses("The answer.", "application/json", &schema, &statuses),
        "x-earshot-id": declaration.id,
        "x-earshot-effect": effect_word(declaration.effect),
        "x-earshot-local-only": declaration.local_only,
    })
}

fn who_parameters() -> Vec<Value> {
    ["session", "parentSession", "callerRoot"]
        .map(|name| json!({ "$ref": format!("#/components/parameters/{name}") }))
        .into()
}

fn responses(description: &str, kind: &str, schema: &Value, further: &[&str]) -> Value {
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({
            "description": description,
            "headers": components::answer_headers(),
            "content": { kind: { "schema": schema } },
        }),
    );
    let mut statuses = further.to_vec();
    statuses.sort_unstable();
    for status in statuses {
        let reference = format!("#/components/responses/{status}");
        responses.insert(status.to_owned(), json!({ "$ref": reference }));
    }
    Value::Object(responses)
}

/// The paths that are no capability's.
fn surface_paths() -> Map<String, Value> {
    let text = json!({ "type": "string" });
    let object = json!({ "type": "object" });
    let schema = components::reference;
    let rows = [
        (
            "/",
            "home",
            "Who this node is",
            "application/json",
            schema("Identity"),
        ),
        (
            "/openapi.json",
            "openapi",
            "This document",
            "application/json",
            object,
        ),
        (
            "/swagger",
            "swagger",
            "This document as a page",
            "text/html",
            text.clone(),
        ),
        (
            "/api/v1/live",
            "live",
            "Whether this process runs",
            "application/json",
            schema("Live"),
        ),
        (
            "/api/v1/ready",
            "ready",
            "Whether it is the node of its checkout, from the program on disk",
            "application/json",
            schema("Ready"),
        ),
        (
            "/metrics",
            "metrics",
            "Measures, for Prometheus",
            "text/plain",
            text.clone(),
        ),
    ];
    let mut paths = Map::new();
    for (path, id, summary, kind, schema) in rows {
        let mut responses = responses("The answer.", kind, &schema, &ALWAYS);
        if path == "/api/v1/ready" {
            responses["503"] = json!({
                "description": "It is not, and why.",
                "headers": components::answer_headers(),
                "content": { kind: { "schema": schema } },
            });
        }
        if path == "/" {
            responses["200"]["content"]["text/html"] = json!({ "schema": text });
        }
        let operation = json!({
            "operationId": id,
            "tags": ["node"],
            "summary": summary,
            "responses": responses,
        });
        paths.insert(path.to_owned(), json!({ "get": operation }));
    }
    paths
}

/// The header parameters that say who calls.
fn parameters() -> Value {
    let header = |name: &str, description: &str| {
        json!({
            "name": name,
            "in": "header",
            "required": false,
            "description": description,
            "schema": { "type": "string" },
        })
    };
    json!({
        "session": header(headers::SESSION, "The execution session that calls."),
        "parentSession": header(headers::PARENT_SESSION, "The parent of that session."),
        "callerRoot": header(
            headers::CALLER_ROOT,
            "The absolute path that the caller works in, percent-encoded UTF-8.",
        ),
    })
}

#[cfg(test)]
mod tests;
