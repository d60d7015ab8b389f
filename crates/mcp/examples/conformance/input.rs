//! Fixture tools that ask for more input before they answer (2026 generation).

use earshot_capability::Capability;
use earshot_mcp::FixturePeer;
use serde_json::{Value, json};

use super::{answer, draft, protocol_error, text};

/// Returns the fixture tools that ask for input.
pub(crate) fn fixtures() -> Vec<Capability> {
    let mut all = stateless();
    all.extend(considerate());
    all.extend(stateful());
    all
}

/// Asks for one string.
pub(crate) fn question(message: &str, field: &str) -> Value {
    form(message, field, "string")
}

fn form(message: &str, field: &str, kind: &str) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": { field: { "type": kind } },
                "required": [field],
            },
        },
    })
}

fn sampling(message: &str, tokens: u32) -> Value {
    let content = json!({ "type": "text", "text": message });
    json!({
        "method": "sampling/createMessage",
        "params": {
            "messages": [{ "role": "user", "content": content }],
            "maxTokens": tokens,
        },
    })
}

fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// A request for input.
pub(crate) fn ask(requests: &Value, state: Option<&str>) -> Value {
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    result
}

/// Returns what the client answered to the request of this name.
pub(crate) fn response<'a>(peer: &'a FixturePeer, name: &str) -> Option<&'a Value> {
    peer.params["inputResponses"].get(name)
}

fn state(peer: &FixturePeer) -> Option<&str> {
    peer.params["requestState"].as_str()
}

fn stateless() -> Vec<Capability> {
    vec![
        answer(
            draft(
                "test.input_required_result_elicitation",
                "Asks for a name, and greets.",
            )
            .listed(),
            |peer| async move {
                let name =
                    response(&peer, "user_name").and_then(|it| it["content"]["name"].as_str());
                match name {
                    Some(name) => text(format!("Hello, {name}!")),
                    None => ask(
                        &json!({ "user_name": question("What is your name?", "name") }),
                        None,
                    ),
                }
            },
        ),
        answer(
            draft(
                "test.input_required_result_sampling",
                "Asks the client's model.",
            ),
            |peer| async move {
                if let Some(reply) = response(&peer, "capital_question") {
                    return text(reply["content"]["text"].to_string());
                }
                let question = sampling("What is the capital of France?", 100);
                ask(&json!({ "capital_question": question }), None)
            },
        ),
        answer(
            draft(
                "test.input_required_result_list_roots",
                "Asks for the roots.",
            ),
            |peer| async move {
                match response(&peer, "client_roots") {
                    Some(reply) => text(format!("Roots: {}", reply["roots"])),
                    None => ask(&json!({ "client_roots": roots() }), None),
                }
            },
        ),
    ]
}

fn considerate() -> Vec<Capability> {
    vec![
        answer(
            draft(
                "test.input_required_result_capabilities",
                "Asks only what the client declared that it can answer.",
            ),
            |peer| async move {
                let declared = peer.context.client_capabilities().unwrap_or_default();
                let declared = serde_json::to_value(declared).unwrap_or_default();
                let mut requests = json!({});
                if declared["sampling"].is_object() {
                    requests["greeting"] = sampling("Generate a greeting", 50);
                }
                if declared["elicitation"].is_object() {
                    requests["user_name"] = question("What is your name?", "name");
                }
                ask(&requests, None)
            },
        ),
        answer(
            draft(
                "test.streaming_elicitation",
                "Asks in the middle of a call.",
            )
            .listed(),
            |_| async {
                ask(
                    &json!({ "confirm": form("Please confirm", "ok", "boolean") }),
                    None,
                )
            },
        ),
    ]
}

fn stateful() -> Vec<Capability> {
    let confirm = || json!({ "confirm": form("Please confirm", "ok", "boolean") });
    vec![
        answer(
            draft(
                "test.input_required_result_request_state",
                "Carries a state.",
            ),
            move |peer| async move {
                match (response(&peer, "confirm"), state(&peer)) {
                    (Some(_), Some("state-1")) => text("state-ok"),
                    _ => ask(&confirm(), Some("state-1")),
                }
            },
        ),
        answer(
            draft(
                "test.input_required_result_tampered_state",
                "Refuses a state that it did not give.",
            ),
            move |peer| async move {
                match state(&peer) {
                    None => ask(&confirm(), Some("sealed-state")),
                    Some("sealed-state") => text("state-ok"),
                    Some(_) => {
                        protocol_error(-32602, "the request state was altered", &Value::Null)
                    }
                }
            },
        ),
        answer(
            draft(
                "test.input_required_result_multiple_inputs",
                "Asks three things.",
            ),
            |peer| async move {
                let names = ["user_name", "greeting", "client_roots"];
                if names.iter().all(|name| response(&peer, name).is_some()) {
                    return text("All three arrived.");
                }
                let requests = json!({
                    "user_name": question("What is your name?", "name"),
                    "greeting": sampling("Generate a greeting", 50),
                    "client_roots": roots(),
                });
                ask(&requests, Some("three"))
            },
        ),
        answer(
            draft("test.input_required_result_multi_round", "Asks twice."),
            |peer| async move {
                match state(&peer) {
                    Some("round-2") => text("Both rounds are done."),
                    Some("round-1") => ask(
                        &json!({ "step2": question("Step 2: What is your favorite color?", "color") }),
                        Some("round-2"),
                    ),
                    _ => ask(
                        &json!({ "step1": question("Step 1: What is your name?", "name") }),
                        Some("round-1"),
                    ),
                }
            },
        ),
    ]
}
