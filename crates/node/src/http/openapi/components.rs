//! The shared parts of the document: schemas under unique names, responses, headers.

use std::collections::{BTreeMap, BTreeSet};

use earshot_capability::{Code, Declaration, Registry, headers};
use serde_json::{Map, Value, json};

/// Where the schemas of one type bring their own definitions.
const DEFS: &str = "#/$defs/";

/// The components of a document.
#[derive(Debug)]
pub(super) struct Components {
    schemas: Map<String, Value>,
}

/// One schema of a capability, with the name that it gets.
struct Root<'a> {
    name: String,
    schema: &'a Value,
}

impl Components {
    /// Collects the schemas of every projected capability.
    ///
    /// Definitions of one name are one schema where they are equal throughout the registry;
    /// where they differ, each is named after what it belongs to.
    pub(super) fn of(registry: &Registry) -> Self {
        let roots: Vec<Root<'_>> = registry
            .projected()
            .flat_map(|declaration| {
                [
                    Root {
                        name: input_name(declaration),
                        schema: &declaration.schemas.input,
                    },
                    Root {
                        name: output_name(declaration),
                        schema: &declaration.schemas.output,
                    },
                ]
            })
            .collect();
        let ambiguous = ambiguous(&roots);
        let mut schemas = own_schemas();
        for root in &roots {
            let name_of = |definition: &str| {
                if ambiguous.contains(definition) {
                    format!("{}.{definition}", root.name)
                } else {
                    definition.to_owned()
                }
            };
            for (definition, schema) in definitions(root.schema) {
                let mut schema = schema.clone();
                point(&mut schema, &name_of);
                schemas.insert(name_of(definition), schema);
            }
            let mut schema = root.schema.clone();
            if let Some(fields) = schema.as_object_mut() {
                fields.shift_remove("$defs");
            }
            point(&mut schema, &name_of);
            schemas.insert(root.name.clone(), schema);
        }
        schemas.sort_keys();
        Self { schemas }
    }

    /// Returns the `components` object.
    pub(super) fn into_object(self) -> Value {
        json!({
            "schemas": self.schemas,
            "responses": responses(),
            "parameters": super::parameters(),
            "headers": {
                "requestId": {
                    "description": "The id of this request, as the log has it.",
                    "schema": { "type": "string" },
                },
                "version": {
                    "description": "The release that answers.",
                    "schema": { "type": "string" },
                },
            },
            "securitySchemes": {
                "machineKey": {
                    "type": "apiKey",
                    "in": "header",
                    "name": headers::KEY,
                    "description": "Where the machine is configured with http.loopback = \"key\": \
                                    the content of its key file, with every write.",
                },
            },
        })
    }
}

/// Returns a reference to a schema.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Returns the name of the schema of a capability's input.
pub(super) fn input_name(declaration: &Declaration) -> String {
    format!("{}.input", declaration.id)
}

/// Returns the name of the schema of a capability's output.
pub(super) fn output_name(declaration: &Declaration) -> String {
    format!("{}.output", declaration.id)
}

/// Returns the headers of every answer.
pub(super) fn answer_headers() -> Value {
    json!({
        "Earshot-Request-Id": { "$ref": "#/components/headers/requestId" },
        "Earshot-Version": { "$ref": "#/components/headers/version" },
    })
}

fn definitions(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let definitions = schema.get("$defs").and_then(Value::as_object);
    definitions.into_iter().flatten()
}

/// Returns the names of definitions that mean different things in different schemas: those that
/// differ themselves, and those that refer to one that does.
fn ambiguous(roots: &[Root<'_>]) -> BTreeSet<String> {
    let mut known: BTreeMap<&str, &Value> = BTreeMap::new();
    let mut ambiguous: BTreeSet<String> = own_schemas().keys().cloned().collect();
    let all = || roots.iter().flat_map(|root| definitions(root.schema));
    for (name, schema) in all() {
        if *known.entry(name).or_insert(schema) != schema {
            ambiguous.insert(name.clone());
        }
    }
    loop {
        let infected: Vec<String> = all()
            .filter(|(name, schema)| {
                !ambiguous.contains(*name) && targets(schema).any(|it| ambiguous.contains(it))
            })
            .map(|(name, _)| name.clone())
            .collect();
        if infected.is_empty() {
            return ambiguous;
        }
        ambiguous.extend(infected);
    }
}

/// Iterates over the definitions that a schema refers to.
fn targets(schema: &Value) -> Box<dyn Iterator<Item = &str> + '_> {
    match schema {
        Value::Object(fields) => Box::new(fields.iter().flat_map(|(key, field)| {
            let own = field
                .as_str()
                .filter(|_| key == "$ref")
                .and_then(|it| it.strip_prefix(DEFS));
            own.into_iter().chain(targets(field))
        })),
        Value::Array(items) => Box::new(items.iter().flat_map(targets)),
        _ => Box::new(std::iter::empty()),
    }
}

/// Makes the references of a schema point at the components.
fn point(schema: &mut Value, name_of: &impl Fn(&str) -> String) {
    match schema {
        Value::Object(fields) => {
            for (key, field) in fields {
                let target = field
                    .as_str()
                    .filter(|_| key == "$ref")
                    .and_then(|it| it.strip_prefix(DEFS))
                    .map(name_of);
                match target {
                    Some(name) => *field = format!("#/components/schemas/{name}").into(),
                    None => point(field, name_of),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| point(item, name_of)),
        _ => {}
    }
}

/// The schemas of the surface itself.
fn own_schemas() -> Map<String, Value> {
    let text = json!({ "type": "string" });
    let flag = json!({ "type": "boolean" });
    let maybe_flag = json!({ "type": ["boolean", "null"] });
    let program = [
        ("version", text.clone()),
        ("commit", text.clone()),
        ("dirty", maybe_flag),
    ];
    let codes: Vec<&str> = Code::ALL.map(Code::as_str).into();
    let error = object(
        &[
            ("code", json!({ "type": "string", "enum": codes })),
            ("message", text.clone()),
            ("remedy", text.clone()),
            ("request_id", text.clone()),
        ],
        &[],
    );
    let identity: Vec<_> = program
        .iter()
        .cloned()
        .chain([
            ("stale", json!({ "type": ["string", "null"] })),
            ("checkout_id", text.clone()),
            ("linked_worktree", flag.clone()),
            ("leaseholder", flag.clone()),
            (
                "surfaces",
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            ),
        ])
        .collect();
    let with = |name, schema: &Value| {
        let mut fields = vec![(name, schema.clone())];
        fields.extend(program.iter().cloned());
        fields
    };
    let optional = ["repository_id", "branch", "head"].map(|name| (name, text.clone()));
    let schemas = [
        ("Failure", object(&[("error", error)], &[])),
        ("Identity", object(&identity, &optional)),
        ("Live", object(&with("live", &flag), &[])),
        (
            "Ready",
            object(&with("ready", &flag), &[("reason", text.clone())]),
        ),
    ];
    schemas
        .map(|(name, schema)| (name.to_owned(), schema))
        .into_iter()
        .collect()
}

fn object(required: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    let fields: Map<String, Value> = required
        .iter()
        .chain(optional)
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    json!({ "type": "object", "properties": fields, "required": names })
}

/// The answers that are errors, by status.
fn responses() -> Value {
    let further = [
        (408, "The body stopped coming: `invalid_input`."),
        (
            415,
            "The body is not said to be plain JSON: `invalid_input`.",
        ),
        (431, "Too many headers, or too long ones: `invalid_input`."),
    ]
    .map(|(status, description)| (status, description.to_owned()));
    let answers: Map<String, Value> = Code::ALL
        .into_iter()
        .map(|code| (code.status(), format!("{}: `{code}`.", meaning(code))))
        .chain(further)
        .map(|(status, description)| {
            let answer = json!({
                "description": description,
                "headers": answer_headers(),
                "content": { "application/json": { "schema": reference("Failure") } },
            });
            (status.to_string(), answer)
        })
        .collect();
    Value::Object(answers)
}

const fn meaning(code: Code) -> &'static str {
    match code {
        Code::InvalidInput => "The input does not fit",
        Code::Unauthenticated => "The caller must say who it is",
        Code::Forbidden => "The caller may not do this",
        Code::NotFound => "What was named does not exist",
        Code::Conflict => "It contradicts what is already there",
        Code::Gone => "It was there and is not any more",
        Code::TooLarge => "It exceeds a limit",
        Code::Refused => "It can be done in another way only",
        Code::Busy => "Too much at once",
        Code::Internal => "A fault of earshot itself",
        Code::Unavailable => "Something that this needs is not there right now",
    }
}
