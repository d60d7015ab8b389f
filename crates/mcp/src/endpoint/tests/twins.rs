//! Requests of one wire session under one id.

use futures_util::future::join_all;

use super::*;

fn echo(id: &str, text: &str) -> String {
    let params = json!({ "name": "sample_echo", "arguments": { "text": text } });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
}

#[tokio::test]
async fn twins_are_all_answered_each_with_its_own_result() {
    let world = World::new();
    let session = world.open().await;
    let headers = [("mcp-session-id", session.as_str())];

    let texts: Vec<String> = (0..8).map(|at| format!("text {at}")).collect();
    let asked = texts
        .iter()
        .map(|text| world.post(&headers, echo("7", text)));
    let answers = join_all(asked).await;

    for (answer, text) in answers.iter().zip(&texts) {
        assert_eq!(answer.status, 200, "{}", answer.text);
        let content = &answer.json()["result"]["structuredContent"];
        assert_eq!(&content["text"], text.as_str());
    }
    assert!(world.service.twins.is_empty());
}

#[tokio::test]
async fn only_the_very_same_id_in_the_same_session_waits() {
    let world = World::new();
    let (one, other) = (world.open().await, world.open().await);
    let turn = world.service.twins.turn(one.clone(), "7".to_owned()).await;

    for (session, id) in [(&one, "\"7\""), (&one, "8"), (&other, "7")] {
        let headers = [("mcp-session-id", session.as_str())];
        let answer = world.post(&headers, echo(id, "a")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(answer.text.contains(&format!("\"id\":{id}")));
    }
    let headers = [("mcp-session-id", one.as_str())];
    let waiting = async { world.post(&headers, echo("7", "a")).await.status };
    let mut waiting = std::pin::pin!(waiting);
    assert!(futures_util::poll!(waiting.as_mut()).is_pending());
    drop(turn);
    assert_eq!(waiting.await, 200);
}

#[tokio::test]
async fn an_answer_that_nobody_reads_any_more_lets_the_next_one_in() {
    let world = World::new();
    let session = world.open().await;
    let headers = [JSON, BOTH, ("mcp-session-id", session.as_str())];
    let unread = world.send("POST", &headers, echo("7", "a")).await;
    drop(unread);
    let mut given_up = Box::pin(world.send("POST", &headers, echo("7", "b")));
    assert!(futures_util::poll!(given_up.as_mut()).is_pending());
    drop(given_up);

    let answer = world.ask("POST", &headers, echo("7", "c")).await;

    assert_eq!(answer.status, 200, "{}", answer.text);
    wait_for(|| world.service.twins.is_empty()).await;
}

#[tokio::test]
async fn too_many_twins_are_refused_under_their_id() {
    let world = World::new();
    let session = world.open().await;
    let headers = [("mcp-session-id", session.as_str())];
    let held = world
        .service
        .twins
        .turn(session.clone(), "7".to_owned())
        .await;
    let mut waiting: Vec<_> = (0..15)
        .map(|_| Box::pin(world.post(&headers, echo("7", "a"))))
        .collect();
    for one in &mut waiting {
        assert!(futures_util::poll!(one.as_mut()).is_pending());
    }

    let answer = world.post(&headers, echo("7", "a")).await;

    assert_eq!(answer.error(), (400, -32600, json!(7)));
    drop(held);
    for answer in join_all(waiting).await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}
