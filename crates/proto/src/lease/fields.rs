//! Taking the fields of a JSON object one by one, each checked and bounded.

use std::time::Duration;

use serde_json::{Map, Value};

use super::Pid;

/// Longest text in a lease: a path, and no path is longer.
const TEXT_BYTES_MAX: usize = 4_096;

/// What is wrong with a lease file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Defect {
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It is larger than any lease.
    #[error("it is larger than a lease can be")]
    TooLarge,
    /// It ends in the middle.
    #[error("it ends in the middle of a value")]
    Torn,
    /// It is something else than JSON.
    #[error("it is not JSON")]
    NoJson,
    /// It is JSON, but no object.
    #[error("it is JSON, but not an object")]
    NoObject,
    /// This field is missing, of the wrong type, or out of its bounds.
    #[error("the field `{0}` is missing or wrong")]
    Field(&'static str),
}

/// An object whose known fields are taken out, so that the unknown ones remain.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) const fn new(object: Map<String, Value>) -> Self {
        Self(object)
    }

    /// Returns the fields that were not taken.
    pub(super) fn into_rest(self) -> Map<String, Value> {
        self.0
    }

    pub(super) fn text(&mut self, name: &'static str) -> Result<String, Defect> {
        self.optional_text(name)?.ok_or(Defect::Field(name))
    }

    pub(super) fn optional_text(&mut self, name: &'static str) -> Result<Option<String>, Defect> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= TEXT_BYTES_MAX => Ok(Some(text)),
            Some(_) => Err(Defect::Field(name)),
        }
    }

    pub(super) fn number(&mut self, name: &'static str) -> Result<u64, Defect> {
        self.optional_number(name)?.ok_or(Defect::Field(name))
    }

    pub(super) fn optional_number(&mut self, name: &'static str) -> Result<Option<u64>, Defect> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(Defect::Field(name)),
        }
    }

    pub(super) fn small_number(&mut self, name: &'static str) -> Result<u32, Defect> {
        u32::try_from(self.number(name)?).map_err(|_| Defect::Field(name))
    }

    pub(super) fn optional_ms(&mut self, name: &'static str) -> Result<Option<Duration>, Defect> {
        Ok(self.optional_number(name)?.map(Duration::from_millis))
    }

    pub(super) fn pid(&mut self, name: &'static str) -> Result<Pid, Defect> {
        self.optional_pid(name)?.ok_or(Defect::Field(name))
    }

    /// Takes a process number; one that does not fit is read as the greatest, which is as absurd.
    pub(super) fn optional_pid(&mut self, name: &'static str) -> Result<Option<Pid>, Defect> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(Pid::new(number.as_i64().unwrap_or(i64::MAX)))),
            Some(_) => Err(Defect::Field(name)),
        }
    }

    pub(super) fn object(&mut self, name: &'static str) -> Result<Map<String, Value>, Defect> {
        match self.take(name) {
            None => Ok(Map::new()),
            Some(Value::Object(object)) => Ok(object),
            Some(_) => Err(Defect::Field(name)),
        }
    }

    /// Takes a list of at most `count_max` objects; the ones after that are dropped.
    pub(super) fn objects(
        &mut self,
        name: &'static str,
        count_max: usize,
    ) -> Result<Vec<Map<String, Value>>, Defect> {
        let values = match self.take(name) {
            None => Vec::new(),
            Some(Value::Array(values)) => values,
            Some(_) => return Err(Defect::Field(name)),
        };
        let object = |value| match value {
            Value::Object(object) => Ok(object),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(Defect::Field(name)),
        };
        values.into_iter().take(count_max).map(object).collect()
    }

    /// Takes a field; `null` is as good as none.
    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.0.shift_remove(name).filter(|value| !value.is_null())
    }
}
