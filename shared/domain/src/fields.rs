//! Reading a JSON object strictly: field by field, every problem collected, unknown fields refused by name, and no value
//! repeated in a message, because a value may be a secret.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::time::Millis;

/// One field that is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its name, with dots for fields inside of fields.
    pub field: String,
    /// What it must be.
    pub message: String,
}

impl Problem {
    /// A problem of a field.
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), message: message.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` {}", self.field, self.message)
    }
}

/// The fields of an object, taken out one by one; what is left over at the end is unknown.
pub struct Fields {
    prefix: String,
    map: Map<String, Value>,
    /// What was wrong so far.
    pub problems: Vec<Problem>,
}

impl Fields {
    /// The fields of an object that is itself called `prefix` (empty: the outermost).
    pub fn of(prefix: &str, value: Value) -> Result<Self, Vec<Problem>> {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}.") };
        let Value::Object(map) = value else {
            return Err(vec![Problem::new(prefix.trim_end_matches('.'), "must be an object")]);
        };
        Ok(Self { prefix, map, problems: Vec::new() })
    }

    /// Notes a problem.
    pub fn wrong(&mut self, field: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(&format!("{}{field}", self.prefix), message));
    }

    /// A field of any type; `null` counts as absent. `must` says what it must be.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str, must: &str) -> Option<T> {
        let value = self.map.remove(name).filter(|v| !v.is_null())?;
        let read = serde_json::from_value(value).ok();
        if read.is_none() {
            self.wrong(name, must);
        }
        read
    }

    /// A whole number in a range.
    pub fn number(&mut self, name: &str, least: u32, most: u32) -> Option<u32> {
        let must = format!("must be a whole number from {least} to {most}");
        let number = self.take::<u32>(name, &must)?;
        if !(least..=most).contains(&number) {
            self.wrong(name, must);
        }
        Some(number)
    }

    /// A list of anything.
    pub fn list(&mut self, name: &str) -> Option<Vec<Value>> {
        self.take(name, "must be a list")
    }

    /// A time.
    pub fn time(&mut self, name: &str) -> Option<Millis> {
        let must = "must be an RFC 3339 time with offset";
        let text = self.take::<String>(name, must)?;
        let time = Millis::parse_rfc3339(&text);
        if time.is_none() {
            self.wrong(name, must);
        }
        time
    }

    /// Nothing was wrong, and nothing is left over.
    pub fn finish(mut self) -> Result<(), Vec<Problem>> {
        let unknown: Vec<String> = self.map.keys().cloned().collect();
        for name in unknown {
            let name: String = name.chars().take(64).collect();
            self.wrong(&name, "is no field of an endpoint");
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }
}
