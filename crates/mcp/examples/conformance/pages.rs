//! Fixture resources, prompts, completion and logging: what no product of this crate serves.

use earshot_capability::Capability;
use serde_json::{Value, json};

use super::{
    answer, draft,
    input::{ask, question, response},
    protocol_error,
    tools::PNG,
};

/// Returns the fixtures behind the methods that are no tools.
pub(crate) fn fixtures() -> Vec<Capability> {
    let mut all = resources();
    all.extend(prompts());
    all.extend([
        answer(draft("fixture.complete", "Completes nothing."), |_| async {
            json!({ "completion": { "values": ["test"], "total": 1, "hasMore": false } })
        }),
        answer(
            draft("fixture.set_level", "Takes a log level."),
            |_| async { Value::Null },
        ),
        answer(
            draft("fixture.subscribe", "Takes a subscription."),
            |_| async { Value::Null },
        ),
        answer(
            draft("fixture.unsubscribe", "Ends a subscription."),
            |_| async { Value::Null },
        ),
    ]);
    all
}

fn resources() -> Vec<Capability> {
    vec![
        answer(
            draft("fixture.resources_list", "Lists resources."),
            |_| async {
                let resource = |uri: &str, kind: &str| {
                    let description = format!("A fixture of {kind}.");
                    json!({ "uri": uri, "name": uri, "description": description, "mimeType": kind })
                };
                json!({ "resources": [
                resource("test://static-text", "text/plain"),
                resource("test://static-binary", "image/png"),
                resource("test://watched-resource", "text/plain"),
            ] })
            },
        ),
        answer(
            draft("fixture.resource_templates", "Lists resource templates."),
            |_| async {
                json!({ "resourceTemplates": [{
                    "uriTemplate": "test://template/{id}/data",
                    "name": "template",
                    "description": "A fixture with a parameter.",
                    "mimeType": "application/json",
                }] })
            },
        ),
        answer(
            draft("fixture.resources_read", "Reads a resource."),
            |peer| async move { read(peer.params["uri"].as_str().unwrap_or_default()) },
        ),
    ]
}

fn read(uri: &str) -> Value {
    let text = |kind: &str, text: String| json!({ "contents": [{ "uri": uri, "mimeType": kind, "text": text }] });
    let id = uri
        .strip_prefix("test://template/")
        .and_then(|rest| rest.strip_suffix("/data"));
    match (uri, id) {
        (_, Some(id)) => {
            let data = format!("Data for ID: {id}");
            let body = json!({ "id": id, "templateTest": true, "data": data });
            text("application/json", body.to_string())
        }
        ("test://static-text", None) => text(
            "text/plain",
            "This is the content of the static text resource.".to_owned(),
        ),
        ("test://watched-resource", None) => text("text/plain", "Watched.".to_owned()),
        ("test://static-binary", None) => {
            json!({ "contents": [{ "uri": uri, "mimeType": "image/png", "blob": PNG }] })
        }
        _ => protocol_error(-32002, "Resource not found", &json!({ "uri": uri })),
    }
}

fn prompts() -> Vec<Capability> {
    vec![
        answer(draft("fixture.prompts_list", "Lists prompts."), |_| async {
            let prompt = |name: &str, arguments: &[&str]| {
                let arguments: Vec<Value> = arguments
                    .iter()
                    .map(|name| json!({ "name": name, "description": "text", "required": true }))
                    .collect();
                json!({ "name": name, "description": "A fixture.", "arguments": arguments })
            };
            json!({ "prompts": [
                prompt("test_simple_prompt", &[]),
                prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
                prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
                prompt("test_prompt_with_image", &[]),
                prompt("test_input_required_result_prompt", &[]),
            ] })
        }),
        answer(
            draft("fixture.prompts_get", "Gets a prompt."),
            |peer| async move {
                let arguments = &peer.params["arguments"];
                let argument = |name: &str| arguments[name].as_str().unwrap_or_default();
                match peer.params["name"].as_str().unwrap_or_default() {
                    "test_simple_prompt" => said(&["This is a simple prompt for testing."]),
                    "test_prompt_with_arguments" => {
                        let (one, two) = (argument("arg1"), argument("arg2"));
                        said(&[&format!(
                            "Prompt with arguments: arg1='{one}', arg2='{two}'"
                        )])
                    }
                    "test_prompt_with_embedded_resource" => {
                        let resource = json!({
                            "uri": argument("resourceUri"),
                            "mimeType": "text/plain",
                            "text": "Embedded resource content for testing.",
                        });
                        shown(
                            &json!({ "type": "resource", "resource": resource }),
                            "Please process the embedded resource above.",
                        )
                    }
                    "test_prompt_with_image" => shown(
                        &json!({ "type": "image", "data": PNG, "mimeType": "image/png" }),
                        "Please analyze the image above.",
                    ),
                    "test_input_required_result_prompt" => {
                        if let Some(reply) = response(&peer, "user_context") {
                            return said(&[&format!("Context: {}", reply["content"]["context"])]);
                        }
                        let asked = question("What context should the prompt use?", "context");
                        ask(&json!({ "user_context": asked }), None)
                    }
                    _ => protocol_error(-32602, "there is no such prompt", &Value::Null),
                }
            },
        ),
    ]
}

fn said(texts: &[&str]) -> Value {
    let messages: Vec<Value> = texts
        .iter()
        .map(|text| json!({ "role": "user", "content": { "type": "text", "text": text } }))
        .collect();
    json!({ "messages": messages })
}

fn shown(content: &Value, then: &str) -> Value {
    let mut result = said(&[then]);
    if let Some(messages) = result["messages"].as_array_mut() {
        messages.insert(0, json!({ "role": "user", "content": content }));
    }
    result
}
