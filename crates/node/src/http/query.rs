//! Query strings: the flat input of a query, read into what its schema says.

use std::collections::BTreeMap;

use earshot_capability::{Code, Failure};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Number, Value};

/// How a value in a query string is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    Text,
    Integer,
    Number,
    Boolean,
}

/// What a field of an input is, as far as a query string can say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    One(Scalar),
    /// A list: its name is repeated.
    Many(Scalar),
}

/// The fields of an input that a query string can carry.
#[derive(Debug, Clone)]
pub(super) struct Parameters {
    shapes: BTreeMap<String, Shape>,
    complete: bool,
}

impl Parameters {
    /// Reads the fields from an input schema without references.
    pub(super) fn of(schema: &Map<String, Value>) -> Self {
        let fields = schema.get("properties").and_then(Value::as_object);
        let shapes: BTreeMap<String, Shape> = fields
            .into_iter()
            .flatten()
            .filter_map(|(name, field)| Some((name.clone(), shape(field)?)))
            .collect();
        let required = schema.get("required").and_then(Value::as_array);
        let complete = required
            .into_iter()
            .flatten()
            .all(|name| name.as_str().is_some_and(|name| shapes.contains_key(name)));
        Self { shapes, complete }
    }

    /// Says whether everything that the input requires can stand in a query string.
    pub(super) const fn complete(&self) -> bool {
        self.complete
    }

    /// Says whether a field can stand in a query string.
    pub(super) fn has(&self, name: &str) -> bool {
        self.shapes.contains_key(name)
    }

    /// Reads a query string. A name that the schema does not know is kept: the input's own
    /// reading says what is wrong with it.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] naming the field that does not fit.
    pub(super) fn read(&self, query: &str) -> Result<Map<String, Value>, Failure> {
        let mut input = Map::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name)?;
            let value = decode(value)?;
            let shape = self.shapes.get(&name);
            match shape.copied().unwrap_or(Shape::One(Scalar::Text)) {
                Shape::One(scalar) => {
                    let value = read(scalar, &name, &value)?;
                    if input.insert(name.clone(), value).is_some() {
                        return Err(misfit(&name, "is given twice"));
                    }
                }
                Shape::Many(scalar) => {
                    let value = read(scalar, &name, &value)?;
                    let list = input
                        .entry(name)
                        .or_insert_with(|| Value::Array(Vec::new()));
                    if let Value::Array(list) = list {
                        list.push(value);
                    }
                }
            }
        }
        Ok(input)
    }
}

fn shape(field: &Value) -> Option<Shape> {
    match field.get("type").and_then(Value::as_str) {
        Some("array") => scalar(field.get("items")?).map(Shape::Many),
        _ => scalar(field).map(Shape::One),
    }
}

fn scalar(field: &Value) -> Option<Scalar> {
    match field.get("type").and_then(Value::as_str) {
        Some("string") => Some(Scalar::Text),
        Some("integer") => Some(Scalar::Integer),
        Some("number") => Some(Scalar::Number),
        Some("boolean") => Some(Scalar::Boolean),
        Some(_) => None,
        // A choice of words may be written as alternatives, each a constant.
        None => field
            .get("oneOf")
            .and_then(Value::as_array)
            .filter(|words| {
                words
                    .iter()
                    .all(|word| word.get("const").is_some_and(Value::is_string))
            })
            .map(|_| Scalar::Text),
    }
}

fn read(scalar: Scalar, name: &str, text: &str) -> Result<Value, Failure> {
    match scalar {
        Scalar::Text => Ok(Value::String(text.to_owned())),
        Scalar::Integer => text
            .parse::<u64>()
            .map(Number::from)
            .or_else(|_| text.parse::<i64>().map(Number::from))
            .map(Value::Number)
            .map_err(|_| misfit(name, "is not a whole number")),
        Scalar::Number => text
            .parse::<f64>()
            .ok()
            .and_then(Number::from_f64)
            .map(Value::Number)
            .ok_or_else(|| misfit(name, "is not a number")),
        Scalar::Boolean => match text {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(misfit(name, "is neither true nor false")),
        },
    }
}

fn decode(text: &str) -> Result<String, Failure> {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| {
            Failure::new(
                Code::InvalidInput,
                "the query string is not percent-encoded UTF-8",
                "Encode it, or send the input as a JSON body with POST.",
            )
        })
}

fn misfit(name: &str, why: &str) -> Failure {
    Failure::new(
        Code::InvalidInput,
        format!("`{name}` {why}"),
        "Correct that argument; capabilities.describe shows the whole schema.",
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parameters() -> Parameters {
        let schema = json!({
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "count": {"type": "integer"},
                "share": {"type": "number"},
                "fresh": {"type": "boolean"},
                "paths": {"type": "array", "items": {"type": "string"}},
                "word": {"oneOf": [{"const": "here"}, {"const": "there"}]},
                "nested": {"type": "object"},
                "any": {},
            },
            "required": ["text"],
        });
        Parameters::of(schema.as_object().unwrap())
    }

    #[test]
    fn values_are_read_as_the_schema_says() {
        for (query, input) in [
            ("", json!({})),
            ("&&", json!({})),
            ("text=5&count=5", json!({"text": "5", "count": 5})),
            ("count=-5", json!({"count": -5})),
            ("count=18446744073709551615", json!({"count": u64::MAX})),
            ("share=0.5", json!({"share": 0.5})),
            ("fresh=true", json!({"fresh": true})),
            ("paths=a&paths=b%2Fc", json!({"paths": ["a", "b/c"]})),
            ("text=a+b%20c%2B%C3%BC", json!({"text": "a b c+ü"})),
            ("text", json!({"text": ""})),
            ("word=here", json!({"word": "here"})),
            ("unknown=1", json!({"unknown": "1"})),
        ] {
            assert_eq!(
                Value::Object(parameters().read(query).unwrap()),
                input,
                "{query}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (query, named) in [
            ("count=", "count"),
            ("count=1.5", "count"),
            ("count=99999999999999999999", "count"),
            ("share=NaN", "share"),
            ("fresh=1", "fresh"),
            ("text=a&text=b", "text"),
            ("text=%ff", "UTF-8"),
        ] {
            let failure = parameters().read(query).unwrap_err();
            assert_eq!(failure.code, Code::InvalidInput);
            assert!(
                failure.message.contains(named),
                "{query}: {}",
                failure.message
            );
        }
    }

    #[test]
    fn only_flat_fields_stand_in_a_query_string() {
        let flat = parameters();
        assert!(flat.complete() && flat.has("paths") && flat.has("word"));
        assert!(!flat.has("nested") && !flat.has("any"));
        let nested = json!({"properties": {"nested": {"type": "object"}}, "required": ["nested"]});
        assert!(!Parameters::of(nested.as_object().unwrap()).complete());
    }
}
