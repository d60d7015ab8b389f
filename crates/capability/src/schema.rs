//! Schemas of a capability: the full form, and the short one that tool lists carry.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::startup::{Step, count};

/// The schemas of one capability's input and output.
#[derive(Debug, Clone)]
pub struct Schemas {
    /// The whole input schema: for the reference, OpenAPI and `capabilities.describe`.
    pub input: Value,
    /// The whole output schema, with `notices`.
    pub output: Value,
    /// The input schema of a tool list: no `$ref`, titles or `$schema` (`mcp.md` 3).
    pub input_listed: Map<String, Value>,
    /// The output schema of a tool list: the names and types of its fields, one level deep.
    pub output_listed: Map<String, Value>,
}

impl Schemas {
    /// Generates the schemas of a capability that takes `I` and answers `O`.
    pub(crate) fn of<I: JsonSchema, O: JsonSchema>() -> Self {
        count(Step::SchemaGenerated);
        let mut output = full::<O>(SchemaSettings::draft2020_12().for_serialize());
        add_notices(&mut output);
        let mut input = full::<I>(SchemaSettings::draft2020_12());
        if let Value::Object(fields) = &mut input {
            fields.entry("properties").or_insert_with(|| json!({}));
        }
        let input_listed = listed_input(&full::<I>(inline(SchemaSettings::draft2020_12())));
        let mut inline_output = full::<O>(inline(SchemaSettings::draft2020_12()).for_serialize());
        add_notices(&mut inline_output);
        let output_listed = listed_output(&inline_output);
        Self {
            input,
            output,
            input_listed,
            output_listed,
        }
    }
}

fn inline(mut settings: SchemaSettings) -> SchemaSettings {
    settings.inline_subschemas = true;
    settings
}

fn full<T: JsonSchema>(mut settings: SchemaSettings) -> Value {
    settings.meta_schema = None;
    let mut schema: Value = settings.into_generator().into_root_schema_for::<T>().into();
    strip(&mut schema, &["title", "format"]);
    schema
}

/// Every answer may carry what waits for its caller.
fn add_notices(output: &mut Value) {
    if let Some(fields) = output.as_object_mut() {
        let properties = fields.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert(
                "notices".to_owned(),
                json!({
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "What has come up for you since your last call.",
                }),
            );
        }
    }
}

/// Removes keywords wherever they stand as keywords: not where a property has such a name.
fn strip(schema: &mut Value, keywords: &[&str]) {
    match schema {
        Value::Object(fields) => {
            for keyword in keywords {
                if fields.get(*keyword).is_some_and(Value::is_string) {
                    fields.shift_remove(*keyword);
                }
            }
            for (name, field) in fields {
                let names_properties = name == "properties" || name == "$defs";
                if let Some(properties) = field.as_object_mut().filter(|_| names_properties) {
                    properties
                        .values_mut()
                        .for_each(|property| strip(property, keywords));
                } else {
                    strip(field, keywords);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| strip(item, keywords)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn listed_input(schema: &Value) -> Map<String, Value> {
    let mut schema = schema.clone();
    collapse_nullable(&mut schema);
    plain_words(&mut schema);
    let mut fields = as_object(schema);
    // The tool's own description says what it is for; the type's would say it twice. That an
    // unknown argument is refused, the refusal says: naming it.
    fields.shift_remove("description");
    fields.shift_remove("additionalProperties");
    fields.entry("properties").or_insert_with(|| json!({}));
    fields
}

fn listed_output(schema: &Value) -> Map<String, Value> {
    let mut schema = schema.clone();
    collapse_nullable(&mut schema);
    let mut fields = as_object(schema);
    fields.shift_remove("description");
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        for property in properties.values_mut() {
            *property = shallow(property);
        }
    }
    fields
}

/// Keeps the type of a field, and of an array's items, and nothing below.
fn shallow(schema: &Value) -> Value {
    let kind = |schema: &Value| schema.get("type").cloned();
    match (kind(schema), schema.get("items")) {
        (Some(array), Some(items)) if array == "array" => match kind(items) {
            Some(item) => json!({ "type": "array", "items": { "type": item } }),
            None => json!({ "type": "array", "items": {} }),
        },
        (Some(kind), _) => json!({ "type": kind }),
        (None, _) => json!({}),
    }
}

/// Turns `["string", "null"]` into `"string"`: some clients refuse a list of types, and an absent
/// field is what a tool's caller sends for nothing.
fn collapse_nullable(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(any)) = fields.get_mut("anyOf") {
                any.retain(|kind| kind.get("type").is_none_or(|kind| kind != "null"));
                if let [Value::Object(only)] = any.as_slice() {
                    let only = only.clone();
                    fields.shift_remove("anyOf");
                    for (name, value) in only {
                        fields.entry(name).or_insert(value);
                    }
                }
            }
            fields.values_mut().for_each(collapse_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(collapse_nullable),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Writes a choice of words as an `enum`, which every client reads, and descriptions on one line.
/// Defaults go: a field that is not required says enough.
fn plain_words(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    fields.shift_remove("default");
    if let Some(Value::String(description)) = fields.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    let words: Option<Vec<Value>> =
        fields
            .get("oneOf")
            .and_then(Value::as_array)
            .and_then(|choices| {
                choices
                    .iter()
                    .map(|choice| choice.get("const").cloned())
                    .collect()
            });
    if let Some(words) = words {
        fields.shift_remove("oneOf");
        fields.insert("type".to_owned(), json!("string"));
        fields.insert("enum".to_owned(), Value::Array(words));
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(plain_words);
    }
    if let Some(items) = fields.get_mut("items") {
        plain_words(items);
    }
}

fn as_object(schema: Value) -> Map<String, Value> {
    match schema {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
