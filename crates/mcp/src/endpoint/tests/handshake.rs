use earshot_capability::{Code, Failure};

use super::*;
use crate::host::Opening;

#[tokio::test]
async fn the_handshake_settles_the_version_whatever_the_header_says() {
    let world = World::new();
    for (offered, status, agreed) in [
        ("\"2099-01-01\"", 200, Some("2025-11-25")),
        ("\"foo\"", 200, Some("2025-11-25")),
        ("\"2026-07-28\"", 200, Some("2025-11-25")),
        ("\"2024-11-05\"", 200, Some("2024-11-05")),
        ("\"2025-03-26\"", 200, Some("2025-03-26")),
        ("\"2025-06-18\"", 200, Some("2025-06-18")),
        ("5", 400, None),
        ("null", 400, None),
    ] {
        let body = INITIALIZE.replace("\"2025-06-18\"", offered);
        for header in [None, Some("2099-01-01"), Some("2025-11-25"), Some("foobar")] {
            let mut headers = vec![];
            headers.extend(header.map(|header| ("mcp-protocol-version", header)));
            let answer = world.post(&headers, body.clone()).await;
            assert_eq!(
                answer.status, status,
                "{offered} {header:?}: {}",
                answer.text
            );
            match agreed {
                Some(agreed) => {
                    assert_eq!(answer.json()["result"]["protocolVersion"], agreed);
                    assert!(answer.header("mcp-session-id").is_some());
                }
                None => assert_eq!(answer.error(), (400, -32602, json!(1))),
            }
        }
    }
}

#[tokio::test]
async fn a_handshake_names_the_server_and_tells_what_the_host_says() {
    let world = World::new();
    let answer = world.post(&[], INITIALIZE).await.json();
    let result = &answer["result"];
    assert_eq!(result["serverInfo"]["name"], "earshot");
    assert_eq!(result["instructions"], "You are p1.");
    assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
    #[cfg(not(feature = "conformance"))]
    assert_eq!(
        result["capabilities"].as_object().unwrap().len(),
        1,
        "{result}"
    );
    let greeted = world.host.greeted.lock().unwrap().clone();
    let (caller, greeting) = &greeted[0];
    assert_eq!(greeting.opening, Opening::Initialize);
    assert_eq!(greeting.protocol, "2025-06-18");
    assert_eq!(greeting.client.as_ref().unwrap().name, "bank");
    assert!(caller.wire_session.is_some());
}

#[tokio::test]
async fn the_host_and_every_call_know_the_wire_session() {
    let world = World::new();
    let id = world.open().await;
    let greeted = world.host.greeted.lock().unwrap().clone();
    assert_eq!(greeted[0].0.wire_session.as_deref(), Some(id.as_str()));
    let answer = world.call(&id, "sample_echo", json!({ "text": "a" })).await;
    let content = &answer["result"]["structuredContent"];
    assert_eq!(content["wire_session"], id.as_str());
    assert_eq!(content["client"], "bank");
}

#[tokio::test]
async fn a_second_handshake_on_one_session_attaches_nobody() {
    let world = World::new();
    let id = world.open().await;
    let again = world.post(&[("mcp-session-id", &id)], INITIALIZE).await;
    assert_eq!(again.status, 200, "{}", again.text);
    assert_eq!(again.header("mcp-session-id"), Some(id.as_str()));
    assert_eq!(again.json()["result"]["instructions"], "You are p1.");
    assert_eq!(world.host.greetings(), 1);
    assert_eq!(world.service.wire_sessions(), 1);
}

#[tokio::test]
async fn a_client_that_is_turned_away_has_no_session() {
    let world = World::new();
    for (code, status) in [
        (Code::Busy, 429),
        (Code::Forbidden, 403),
        (Code::Unavailable, 503),
    ] {
        let failure = Failure::new(code, "not now", "Come back.");
        *world.host.refusing.lock().unwrap() = Some(failure);
        for accept in ["application/json, text/event-stream", "text/event-stream"] {
            let headers = [JSON, ("accept", accept)];
            let answer = world.ask("POST", &headers, INITIALIZE).await;
            assert_eq!(answer.error(), (status, -32000, json!(1)), "{accept}");
            assert_eq!(answer.header("mcp-session-id"), None);
            let data = &answer.json()["error"]["data"];
            assert_eq!(data["code"], code.as_str());
            assert!(data["request_id"].is_string());
        }
    }
    *world.host.refusing.lock().unwrap() = None;
    world.open().await;
}

#[tokio::test]
async fn the_generation_without_sessions_discovers_and_calls() {
    let world = World::new();
    let answer = world.modern("server/discover", json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let result = &answer.json()["result"];
    assert_eq!(result["instructions"], "You are p1.");
    assert!(
        result["supportedVersions"]
            .to_string()
            .contains("2026-07-28")
    );
    let greeted = world.host.greeted.lock().unwrap().clone();
    let (caller, greeting) = &greeted[0];
    assert_eq!(greeting.opening, Opening::Discover);
    assert_eq!(greeting.protocol, "2026-07-28");
    assert_eq!(greeting.client.as_ref().unwrap().name, "modern");
    assert_eq!(caller.wire_session, None);

    let params = json!({ "name": "sample_echo", "arguments": { "text": "a" } });
    let answer = world.modern("tools/call", params).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let content = &answer.json()["result"]["structuredContent"];
    assert_eq!(content["client"], "modern");
    assert_eq!(content["wire_session"], Value::Null);
    assert_eq!(world.service.wire_sessions(), 0);
}

#[tokio::test]
async fn a_subscription_is_open_until_it_is_dropped_or_the_node_stops() {
    let world = World::new();
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let open = async || {
        let (headers, body) = modern("subscriptions/listen", listen.clone());
        let mut all = vec![JSON, BOTH];
        all.extend(headers.iter().map(|(name, value)| (*name, value.as_str())));
        let mut stream = world.send("POST", &all, body).await.into_body();
        let first = stream.frame().await.unwrap().unwrap().into_data().unwrap();
        let first = String::from_utf8(first.to_vec()).unwrap();
        assert!(
            first.contains("notifications/subscriptions/acknowledged"),
            "{first}"
        );
        stream
    };
    let first = open().await;
    let second = open().await;
    wait_for(|| world.host.open_streams() == 2).await;
    drop(first);
    wait_for(|| world.host.open_streams() == 1).await;
    world.shutdown.cancel();
    second.collect().await.unwrap();
    wait_for(|| world.host.open_streams() == 0).await;
}
