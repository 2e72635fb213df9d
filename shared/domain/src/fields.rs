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
    known: Vec<String>,
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
        Ok(Self { prefix, map, known: Vec::new(), problems: Vec::new() })
    }

    /// Notes a problem.
    pub fn wrong(&mut self, field: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(&format!("{}{field}", self.prefix), message));
    }

    /// A field of any type; `null` counts as absent. `must` says what it must be.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str, must: &str) -> Option<T> {
        self.known.push(name.to_owned());
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

    /// Takes a field away that may not be here, and says whether it was.
    pub fn has(&mut self, name: &str) -> bool {
        self.map.remove(name).is_some_and(|value| !value.is_null())
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

    /// The known field that begins most like this one: by four letters at least, and by half of it.
    fn alike(&self, name: &str) -> Option<&str> {
        let shared = |known: &str| known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        let best = self.known.iter().max_by_key(|known| (shared(known), std::cmp::Reverse(known.len())))?;
        (shared(best) >= 4.max(name.len().div_ceil(2))).then_some(best)
    }

    /// Nothing was wrong, and nothing is left over.
    pub fn finish(mut self) -> Result<(), Vec<Problem>> {
        let unknown: Vec<String> = self.map.keys().cloned().collect();
        for name in unknown {
            let name: String = name.chars().take(64).collect();
            let message = match self.alike(&name) {
                Some(known) => format!("is no field here; is `{known}` meant?"),
                None => format!("is no field here; there are {}", self.known.join(", ")),
            };
            self.wrong(&name, message);
        }
        if self.problems.is_empty() { Ok(()) } else { Err(self.problems) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unknown_field_is_answered_with_the_one_that_is_meant_or_with_all_there_are() {
        let told = |name: &str| {
            let mut fields = Fields::of("", json!({name: 1})).unwrap();
            for known in ["retry", "retry_statuses", "timeout_seconds"] {
                fields.take::<u32>(known, "");
            }
            fields.finish().unwrap_err()[0].message.clone()
        };
        for (name, meant) in [
            ("retry_statusses", "`retry_statuses`"),
            ("retries", "`retry`"),
            ("timeout", "`timeout_seconds`"),
            ("colour", "there are retry, retry_statuses, timeout_seconds"),
            ("ret", "there are"),
            ("retroactively_on", "there are"),
        ] {
            assert!(told(name).contains(meant), "{name}: {}", told(name));
        }
    }
}
