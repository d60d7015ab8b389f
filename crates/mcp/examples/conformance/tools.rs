//! Fixture tools: content of every kind, notifications while running, and requests to the client.

use std::time::Duration;

use earshot_capability::Capability;
use earshot_mcp::FixturePeer;
use rmcp::model::{CustomRequest, ServerNotification, ServerRequest};
use serde_json::{Value, json};

use super::{answer, draft, protocol_error, text};

/// A picture of one red pixel.
pub(crate) const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// A sound of no length.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// Between two notifications of one call, so that a client sees them arrive apart.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the fixture tools.
pub(crate) fn fixtures() -> Vec<Capability> {
    let mut all = content();
    all.extend(notifying());
    all.extend(asking());
    all.extend(asking_for_choices());
    all
}

fn fixed(id: &'static str, description: &'static str, result: Value) -> Capability {
    answer(draft(id, description), move |_| {
        let result = result.clone();
        async move { result }
    })
}

fn content() -> Vec<Capability> {
    let resource = |uri: &str, kind: &str, text: &str| {
        let resource = json!({ "uri": uri, "mimeType": kind, "text": text });
        json!({ "type": "resource", "resource": resource })
    };
    let picture = json!({ "type": "image", "data": PNG, "mimeType": "image/png" });
    vec![
        answer(
            draft("test.simple_text", "Answers a text.").listed(),
            |_| async { text("This is a simple text response for testing.") },
        ),
        fixed(
            "test.image_content",
            "Answers a picture.",
            json!({ "content": [picture] }),
        ),
        fixed(
            "test.audio_content",
            "Answers a sound.",
            json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] }),
        ),
        fixed(
            "test.embedded_resource",
            "Answers a resource.",
            json!({ "content": [resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )] }),
        ),
        fixed(
            "test.multiple_content_types",
            "Answers a text, a picture and a resource.",
            json!({ "content": [
                { "type": "text", "text": "Multiple content types test:" },
                picture,
                resource(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#,
                ),
            ] }),
        ),
        fixed(
            "test.error_handling",
            "Fails, always.",
            json!({
                "isError": true,
                "content": [{
                    "type": "text",
                    "text": "This tool intentionally returns an error for testing",
                }],
            }),
        ),
    ]
}

fn notifying() -> Vec<Capability> {
    vec![
        answer(
            draft(
                "test.tool_with_logging",
                "Sends log messages while it runs.",
            ),
            |peer| async move {
                let steps = [
                    "Tool execution started",
                    "Tool processing data",
                    "Tool execution completed",
                ];
                for step in steps {
                    log(&peer, step).await;
                    tokio::time::sleep(PAUSE).await;
                }
                text("Logged three messages.")
            },
        ),
        answer(
            draft(
                "test.logging_tool",
                "Sends log messages where the request asks for them.",
            )
            .listed(),
            |peer| async move {
                let wanted = &peer.params["_meta"]["io.modelcontextprotocol/logLevel"];
                if !wanted.is_null() {
                    log(&peer, "The request asked for this").await;
                }
                text("Done.")
            },
        ),
        answer(
            draft("test.tool_with_progress", "Reports its progress."),
            |peer| async move {
                if let Some(token) = peer.context.meta.get("progressToken").cloned() {
                    for progress in [0, 50, 100] {
                        notify(
                            &peer,
                            "notifications/progress",
                            json!({ "progressToken": token, "progress": progress, "total": 100 }),
                        )
                        .await;
                        tokio::time::sleep(PAUSE).await;
                    }
                }
                text("Done.")
            },
        ),
    ]
}

fn asking() -> Vec<Capability> {
    vec![
        answer(
            draft("test.sampling", "Asks the client's model."),
            |peer| async move {
                let prompt = peer.params["arguments"]["prompt"].clone();
                let content = json!({ "type": "text", "text": prompt });
                let question = json!({
                    "messages": [{ "role": "user", "content": content }],
                    "maxTokens": 100,
                });
                asked(&peer, "sampling/createMessage", question, |reply| {
                    format!("LLM response: {}", reply["content"]["text"])
                })
                .await
            },
        ),
        answer(
            draft("test.elicitation", "Asks the client's person."),
            |peer| async move {
                let message = peer.params["arguments"]["message"].clone();
                let question = json!({
                    "message": message,
                    "requestedSchema": {
                        "type": "object",
                        "properties": {
                            "username": { "type": "string", "description": "User's response" },
                            "email": { "type": "string", "description": "User's email address" },
                        },
                        "required": ["username", "email"],
                    },
                });
                elicited(&peer, question).await
            },
        ),
    ]
}

fn asking_for_choices() -> Vec<Capability> {
    vec![
        answer(
            draft("test.elicitation_sep1034_defaults", "Asks with defaults."),
            |peer| async move {
                let properties = json!({
                    "name": { "type": "string", "default": "John Doe" },
                    "age": { "type": "integer", "default": 30 },
                    "score": { "type": "number", "default": 95.5 },
                    "status": {
                        "type": "string",
                        "enum": ["active", "inactive", "pending"],
                        "default": "active",
                    },
                    "verified": { "type": "boolean", "default": true },
                });
                elicited(&peer, form(&properties)).await
            },
        ),
        answer(
            draft("test.elicitation_sep1330_enums", "Asks for choices."),
            |peer| async move { elicited(&peer, form(&choices())).await },
        ),
        answer(
            draft(
                "test.missing_capability",
                "Needs a capability that the client must declare.",
            )
            .listed(),
            |peer| async move {
                let declared = peer.context.client_capabilities().unwrap_or_default();
                let declared = serde_json::to_value(declared).unwrap_or_default();
                if declared["sampling"].is_object() {
                    return text("The client declared it.");
                }
                protocol_error(
                    -32021,
                    "Missing required client capability",
                    &json!({ "requiredCapabilities": { "sampling": {} } }),
                )
            },
        ),
    ]
}

fn choices() -> Value {
    let titled = |key: &str, title: &str| json!({ "const": key, "title": title });
    let options = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": { "type": "string", "enum": options },
        "titledSingle": { "type": "string", "oneOf": [
            titled("value1", "First Option"),
            titled("value2", "Second Option"),
            titled("value3", "Third Option"),
        ] },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": options } },
        "titledMulti": { "type": "array", "items": { "anyOf": [
            titled("value1", "First Choice"),
            titled("value2", "Second Choice"),
            titled("value3", "Third Choice"),
        ] } },
    })
}

fn form(properties: &Value) -> Value {
    json!({
        "message": "Please fill this in",
        "requestedSchema": { "type": "object", "properties": properties },
    })
}

async fn elicited(peer: &FixturePeer, question: Value) -> Value {
    asked(peer, "elicitation/create", question, |reply| {
        let (action, content) = (&reply["action"], &reply["content"]);
        format!("Elicitation completed: action={action}, content={content}")
    })
    .await
}

/// Sends a request to the client, and answers with its reply.
async fn asked(
    peer: &FixturePeer,
    method: &str,
    params: Value,
    reply: impl Fn(&Value) -> String,
) -> Value {
    let request = ServerRequest::CustomRequest(CustomRequest::new(method, Some(params)));
    match peer.context.peer.send_request(request).await {
        Ok(result) => text(reply(&serde_json::to_value(result).unwrap_or_default())),
        Err(error) => {
            let mut result = text(error.to_string());
            result["isError"] = true.into();
            result
        }
    }
}

async fn log(peer: &FixturePeer, data: &str) {
    let params = json!({ "level": "info", "logger": "fixtures", "data": data });
    notify(peer, "notifications/message", params).await;
}

async fn notify(peer: &FixturePeer, method: &str, params: Value) {
    let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    let notification: ServerNotification =
        serde_json::from_value(message).expect("a fixture's notification is well formed");
    // A client that has gone does not miss it.
    peer.context.peer.send_notification(notification).await.ok();
}
