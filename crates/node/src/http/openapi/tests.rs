use std::collections::BTreeSet;

use earshot_capability::{Call, Draft, builtin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

/// Two modules of two crates, each with types of its own and one name in common.
mod first {
    use super::*;

    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    pub(super) struct Row {
        text: String,
        shared: Shared,
    }

    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    pub(super) struct Answer {
        pub(super) rows: Vec<Row>,
        /// Not a definition, though it is called as if.
        pub(super) title: Option<String>,
    }
}

mod second {
    use super::*;

    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    pub(super) struct Row {
        number: u32,
        holder: Holder,
    }

    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    pub(super) struct Holder {
        inner: Option<Box<Row>>,
    }

    #[derive(Debug, Deserialize, Serialize, JsonSchema)]
    pub(super) struct Input {
        rows: Vec<Row>,
        shared: Shared,
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Shared {
    word: Word,
}

/// A choice.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// Here.
    Here,
    /// There.
    There,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Flat {
    /// How many.
    limit: Option<u32>,
    paths: Vec<String>,
}

fn registry() -> Registry {
    let mut all = builtin();
    all.push(
        Draft::<Flat, first::Answer>::query("board.read", "Read", "Reads.").handler(
            |_: Call, _: Flat| async move {
                Ok(first::Answer {
                    rows: Vec::new(),
                    title: None,
                })
            },
        ),
    );
    all.push(
        Draft::<second::Input, Flat>::command("board.write", "Write", "Writes.").handler(
            |_: Call, _: second::Input| async move {
                Ok(Flat {
                    limit: None,
                    paths: Vec::new(),
                })
            },
        ),
    );
    all.push(
        Draft::<Flat, Flat>::command("trust.grant", "Grant", "Grants.")
            .effect(earshot_trust::Effect::Operator)
            .handler(|_: Call, input: Flat| async move { Ok(input) }),
    );
    Registry::new(all)
}

/// Calls `visit` for every value in a document, with the key that it stands under.
fn walk<'a>(key: &'a str, value: &'a Value, visit: &mut dyn FnMut(&'a str, &'a Value)) {
    visit(key, value);
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, value)| walk(key, value, visit)),
        Value::Array(items) => items.iter().for_each(|item| walk("", item, visit)),
        _ => {}
    }
}

#[test]
fn every_reference_resolves_inside_the_document() {
    let document = document(&registry());
    let mut references = 0;
    walk("", &document, &mut |key, value| {
        assert_ne!(key, "$defs");
        if let Some(reference) = value.as_str().filter(|_| key == "$ref") {
            let pointer = reference.strip_prefix('#').expect(reference);
            assert!(document.pointer(pointer).is_some(), "{reference}");
            references += 1;
        }
    });
    assert!(references > 50, "{references}");
}

#[test]
fn equal_definitions_are_one_and_different_ones_are_apart() {
    let document = document(&registry());
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.contains_key("Shared"), "equal in both");
    assert!(!schemas.contains_key("Row"), "two types of one name");
    assert!(
        schemas["board.read.output.Row"]["properties"]
            .get("text")
            .is_some()
    );
    assert!(
        schemas["board.write.input.Row"]["properties"]
            .get("number")
            .is_some()
    );
    // What refers to an ambiguous definition is as ambiguous.
    assert!(schemas.contains_key("board.write.input.Holder"));
}

#[test]
fn a_query_has_both_methods_and_a_command_has_post() {
    let document = document(&registry());
    let read = &document["paths"]["/api/v1/board/read"];
    let parameters = read["get"]["parameters"].as_array().unwrap();
    let limit = parameters.iter().find(|it| it["name"] == "limit").unwrap();
    assert_eq!(limit["required"], false);
    assert_eq!(limit["description"], "How many.");
    assert!(limit["schema"].get("description").is_none());
    let paths = parameters.iter().find(|it| it["name"] == "paths").unwrap();
    assert_eq!(paths["required"], true);
    assert!(read["post"]["requestBody"].is_object());
    let write = document["paths"]["/api/v1/board/write"]
        .as_object()
        .unwrap();
    assert_eq!(write.keys().collect::<Vec<_>>(), ["post"]);
}

#[test]
fn what_only_a_person_may_do_is_not_in_it() {
    let text = document(&registry()).to_string();
    assert!(!text.contains("trust"), "{text}");
}

#[test]
fn operations_are_unique_and_every_error_has_the_one_form() {
    let document = document(&registry());
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} twice");
            assert!(operation["summary"].is_string(), "{path}");
            let responses = operation["responses"].as_object().unwrap();
            for status in ALWAYS {
                assert!(responses.contains_key(status), "{method} {path}: {status}");
            }
        }
    }
    let responses = document["components"]["responses"].as_object().unwrap();
    for code in earshot_capability::Code::ALL {
        assert!(responses.contains_key(&code.status().to_string()), "{code}");
    }
    for (status, response) in responses {
        assert_eq!(
            response["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/Failure",
            "{status}"
        );
    }
}

#[test]
fn rendering_is_counted_and_always_the_same() {
    let counted = || {
        let all = earshot_capability::counts();
        all.into_iter()
            .find(|(step, _)| *step == "openapi_rendered")
            .unwrap()
            .1
    };
    let before = counted();
    let registry = registry();
    assert_eq!(render(&registry), render(&registry));
    assert!(counted() >= before + 2);
}
