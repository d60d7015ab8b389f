//! Capabilities as tools: how they are listed, and how their answers and failures read.

use std::{borrow::Cow, sync::Arc};

use earshot_capability::{Declaration, Failure, Kind, Registry, Step, count, effect_word};
use earshot_trust::Effect;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// Renders the default tool list, in the order of the ids. Done once, when the node starts.
///
/// Titles are left out: the description says what a tool is for, and an agent pays for every byte.
pub(crate) fn render(registry: &Registry) -> Vec<Tool> {
    count(Step::ToolListRendered);
    registry.listed().map(tool).collect()
}

fn tool(declaration: &Declaration) -> Tool {
    let mut tool = Tool::new_with_raw(
        declaration.tool_name(),
        Some(Cow::Borrowed(declaration.description)),
        Arc::new(declaration.schemas.input_listed.clone()),
    );
    tool.output_schema = Some(Arc::new(declaration.schemas.output_listed.clone()));
    #[cfg(feature = "conformance")]
    if is_native(&declaration.schemas.output_listed) {
        tool.output_schema = None;
    }
    tool.annotations = Some(annotations(declaration));
    tool.meta = Some(MetaObject::from(object(json!({
        "earshot": {
            "id": declaration.id,
            "effect": effect_word(declaration.effect),
        },
    }))));
    tool
}

/// Says whether an output has no field of its own: a fixture that answers in MCP's own form.
#[cfg(feature = "conformance")]
fn is_native(schema: &Map<String, Value>) -> bool {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|fields| fields.keys().all(|field| field == "notices"))
}

/// Derives the hints from the effect, erring on the side that a caller survives: nothing that
/// changes something is announced as safe to repeat, and what writes the repository is announced
/// as able to overwrite.
fn annotations(declaration: &Declaration) -> ToolAnnotations {
    let reads = declaration.kind == Kind::Query && declaration.effect == Effect::Read;
    let overwrites = declaration.effect >= Effect::RepositoryMutation;
    // Nothing here reaches beyond the machine and its siblings.
    ToolAnnotations::from_raw(
        None,
        Some(reads),
        Some(overwrites),
        Some(reads),
        Some(false),
    )
}

/// Writes an answer: whole as structure, and whole as text for clients that read only that.
pub(crate) fn success(fields: Map<String, Value>) -> CallToolResult {
    CallToolResult::structured(Value::Object(fields))
}

/// Writes a failure. It carries no structure: that would be held against the output schema.
pub(crate) fn failure(failure: &Failure, request_id: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(failure.to_string())]).with_meta(Some(
        MetaObject::from(object(failure.to_json(Some(request_id)))),
    ))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
