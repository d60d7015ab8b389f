//! JSON as the input of a capability.

use std::{cell::RefCell, collections::BTreeMap, pin::Pin, sync::Arc};

use earshot_capability::{
    Call, Caller, Code, Dispatcher, Draft, Failure, Notices, Registry, VALUES_MAX, builtin,
    has_too_many_values,
};
use earshot_trust::{Origin, Surface, Writes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

/// An input with a field of every kind.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fields {
    intent: String,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    offset: i64,
    #[serde(default)]
    fresh: Option<bool>,
    #[serde(default)]
    weight: Option<f64>,
    #[serde(default)]
    kind: Option<Kind>,
    #[serde(default)]
    more: BTreeMap<String, Inner>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Text,
    Symbol,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Inner {
    name: String,
}

#[derive(Debug)]
pub(super) struct Silent;

impl Notices for Silent {
    fn take<'a>(&'a self, _: &'a Caller) -> Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>> {
        Box::pin(async { Vec::new() })
    }
}

/// Returns a dispatcher over what every node has, and one capability more.
pub(super) fn dispatcher() -> Arc<Dispatcher> {
    let mut all = builtin();
    all.extend(earshot_mcp::capabilities());
    all.push(
        Draft::command("sample.echo", "Echo", "Answers its own input.")
            .listed()
            .handler(|_: Call, fields: Fields| async move { Ok::<_, Failure>(fields) }),
    );
    Dispatcher::new(Registry::new(all), Arc::new(Silent), "fuzz".to_owned())
}

thread_local! {
    static NODE: RefCell<(Runtime, Arc<Dispatcher>)> = RefCell::new((
        Builder::new_current_thread().build().expect("a runtime"),
        dispatcher(),
    ));
}

/// An input is taken or refused in words, never by a panic or as a fault of this program; what was
/// taken is answered so that it can be taken again.
///
/// # Panics
/// When that is not so.
pub fn http_json(data: &[u8]) {
    let many = has_too_many_values(data);
    let Ok(input) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    // Names count as well, so that twice as many are counted at most.
    let counted = values(&input);
    assert!(many || counted <= VALUES_MAX + 1, "{counted} values");
    assert!(!many || counted >= VALUES_MAX / 2, "{counted} values");
    for id in [
        "sample.echo",
        "capabilities.find",
        "capabilities.describe",
        "capabilities.call",
    ] {
        match call(id, input.clone()) {
            Ok(answer) if id == "sample.echo" => {
                let again = call(id, answer.clone());
                assert_eq!(again.as_ref().ok(), Some(&answer), "{again:?}");
            }
            Ok(_) => {}
            Err(failure) => {
                assert_ne!(failure.code, Code::Internal, "{failure}");
                assert!(!failure.remedy.is_empty(), "{failure}");
            }
        }
    }
}

fn call(id: &str, input: Value) -> Result<Value, Failure> {
    NODE.with_borrow(|(runtime, dispatcher)| {
        let caller = Caller::anonymous(Origin::Loopback(Writes::Allowed), Surface::Http);
        let context = dispatcher.context(Arc::new(caller), dispatcher.request_id());
        let answer = runtime.block_on(dispatcher.call(id, context, input))?;
        Ok(Value::Object(answer.structured().expect("an object")))
    })
}

fn values(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}
