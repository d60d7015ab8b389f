use std::sync::Mutex;

use earshot_trust::{Effect, Origin, Surface, Writes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;
use crate::{Capability, Draft, builtin};

#[derive(Debug, Default)]
struct Waiting(Mutex<Vec<String>>);

impl Notices for Waiting {
    fn take<'a>(&'a self, _: &'a Caller) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>> {
        Box::pin(async { std::mem::take(&mut *self.0.lock().unwrap()) })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    text: String,
    #[serde(default)]
    times: Option<u32>,
    #[serde(default)]
    nested: Option<Nested>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nested {
    #[expect(dead_code, reason = "only its schema and its reading matter here")]
    paths: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Output {
    text: String,
}

fn echo(id: &'static str, effect: Effect) -> Capability {
    Draft::<Input, Output>::command(id, "Echo", "Answers its own text.")
        .effect(effect)
        .handler(|_, input: Input| async move {
            let times = usize::try_from(input.times.unwrap_or(1)).unwrap_or(1);
            if input.nested.is_some() {
                return Err(Failure::new(
                    Code::Refused,
                    "nested is not echoed",
                    "Leave it out.",
                ));
            }
            Ok(Output {
                text: input.text.repeat(times),
            })
        })
}

fn dispatcher() -> (Arc<Dispatcher>, Arc<Waiting>) {
    let mut all = builtin();
    all.push(echo("test.echo", Effect::NodeState));
    all.push(echo("test.trust", Effect::Operator));
    let waiting = Arc::new(Waiting::default());
    let notices: Arc<dyn Notices> = Arc::<Waiting>::clone(&waiting);
    (
        Dispatcher::new(Registry::new(all), notices, "boot".to_owned()),
        waiting,
    )
}

async fn call_as(
    dispatcher: &Arc<Dispatcher>,
    (origin, surface): (Origin, Surface),
    id: &str,
    input: Value,
) -> Result<Map<String, Value>, Failure> {
    let caller = Arc::new(Caller::anonymous(origin, surface));
    let call = dispatcher.context(caller, dispatcher.request_id());
    match dispatcher.call(id, call, input).await? {
        Answer::Structured(fields) => Ok(fields),
        #[cfg(feature = "conformance")]
        Answer::Native(_) => panic!("no test answers natively"),
    }
}

const LOCAL: (Origin, Surface) = (Origin::Socket, Surface::Mcp);

#[tokio::test]
async fn an_answer_carries_what_waits_once() {
    let (dispatcher, waiting) = dispatcher();
    waiting.0.lock().unwrap().push("p2 claims src".to_owned());
    let first = call_as(&dispatcher, LOCAL, "test.echo", json!({"text": "a"}))
        .await
        .unwrap();
    assert_eq!(first["notices"], json!(["p2 claims src"]));
    let second = call_as(&dispatcher, LOCAL, "test.echo", json!({"text": "a"}))
        .await
        .unwrap();
    assert!(!second.contains_key("notices"));
}

#[tokio::test]
async fn a_refused_call_leaves_what_waits_for_the_next() {
    let (dispatcher, waiting) = dispatcher();
    waiting.0.lock().unwrap().push("p2 claims src".to_owned());
    call_as(&dispatcher, LOCAL, "test.echo", json!({}))
        .await
        .unwrap_err();
    let next = call_as(&dispatcher, LOCAL, "test.echo", json!({"text": "a"}))
        .await
        .unwrap();
    assert_eq!(next["notices"], json!(["p2 claims src"]));
}

#[tokio::test]
async fn invalid_input_names_the_argument() {
    let (dispatcher, _) = dispatcher();
    for (input, named) in [
        (json!({}), "text"),
        (json!({"text": 5}), "text"),
        (json!({"text": "a", "times": "b"}), "times"),
        (json!({"text": "a", "other": 1}), "other"),
        (
            json!({"text": "a", "nested": {"paths": ["a", 7]}}),
            "nested.paths[1]",
        ),
        (json!(["a"]), "object"),
    ] {
        let failure = call_as(&dispatcher, LOCAL, "test.echo", input.clone())
            .await
            .unwrap_err();
        assert_eq!(failure.code, Code::InvalidInput, "{input}");
        assert!(
            failure.message.contains(named),
            "{input}: {}",
            failure.message
        );
    }
}

#[tokio::test]
async fn access_is_judged_before_the_handler_also_through_capabilities_call() {
    let (dispatcher, _) = dispatcher();
    let input = json!({"text": "a"});
    let wrapped = json!({"id": "test.trust", "input": input});
    let remote = (Origin::Remote, Surface::Http);
    let denied = [
        call_as(&dispatcher, remote, "test.echo", input.clone()).await,
        call_as(&dispatcher, remote, "capabilities.call", wrapped.clone()).await,
        call_as(&dispatcher, LOCAL, "test.trust", input.clone()).await,
        call_as(&dispatcher, LOCAL, "capabilities.call", wrapped).await,
        call_as(
            &dispatcher,
            (Origin::Loopback(Writes::KeyMissing), Surface::Http),
            "test.echo",
            input.clone(),
        )
        .await,
    ];
    for answer in denied {
        assert_eq!(answer.unwrap_err().code, Code::Forbidden);
    }
    call_as(
        &dispatcher,
        (Origin::Socket, Surface::Cli),
        "test.trust",
        input,
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn operator_never_projected() {
    let (dispatcher, _) = dispatcher();
    let registry = dispatcher.registry();
    assert!(registry.tool("test_trust").is_none());
    assert!(registry.tool("test_echo").is_some());
    assert!(registry.projected().all(|it| it.id != "test.trust"));
    let found = call_as(
        &dispatcher,
        LOCAL,
        "capabilities.find",
        json!({"query": "test.trust"}),
    );
    assert!(
        !json!(found.await.unwrap())
            .to_string()
            .contains("test.trust")
    );
    let described = call_as(
        &dispatcher,
        LOCAL,
        "capabilities.describe",
        json!({"id": "test.trust"}),
    );
    assert_eq!(described.await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn capabilities_call_wraps_and_carries_notices_outside() {
    let (dispatcher, waiting) = dispatcher();
    waiting.0.lock().unwrap().push("n".to_owned());
    let input = json!({"id": "test.echo", "input": {"text": "a", "times": 2}});
    let answer = call_as(&dispatcher, LOCAL, "capabilities.call", input)
        .await
        .unwrap();
    assert_eq!(
        json!(answer),
        json!({"id": "test.echo", "output": {"text": "aa"}, "notices": ["n"]})
    );
    let nested = json!({"id": "capabilities.call", "input": {"id": "test.echo"}});
    let failure = call_as(&dispatcher, LOCAL, "capabilities.call", nested)
        .await
        .unwrap_err();
    assert_eq!(failure.code, Code::NotFound);
}

#[test]
fn listed_schemas_are_plain() {
    let (dispatcher, _) = dispatcher();
    for declaration in dispatcher.registry().projected() {
        let schemas = &declaration.schemas;
        for schema in [&schemas.input_listed, &schemas.output_listed] {
            let text = serde_json::to_string(schema).unwrap();
            for word in ["$ref", "\"title\":\"", "$schema", "$defs", "\"null\""] {
                assert!(!text.contains(word), "{}: {word} in {text}", declaration.id);
            }
        }
        assert!(
            schemas.output["properties"]["notices"].is_object(),
            "{}",
            declaration.id
        );
    }
}

#[test]
fn request_ids_rise_and_name_the_boot() {
    let (dispatcher, _) = dispatcher();
    assert_eq!(dispatcher.request_id().as_str(), "boot-0");
    assert_eq!(dispatcher.request_id().as_str(), "boot-1");
}
