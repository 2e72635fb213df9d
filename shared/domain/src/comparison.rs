//! What a change of a definition changes, field by field, for the person who has to agree. Values of headers are hidden:
//! they may be credentials.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::definition::Definition;

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name, with dots for fields inside of fields.
    pub field: String,
    /// What it is now; absent: not set.
    pub from: Option<String>,
    /// What it will be; absent: not set any more.
    pub to: Option<String>,
}

/// What stands in place of a header's value.
const HIDDEN: &str = "(hidden)";

/// The fields that differ, in order of their names. Compared with nothing, every field is new.
pub fn compare(old: Option<&Definition>, new: &Definition) -> Vec<Change> {
    let (old, new) = (old.map(flat).unwrap_or_default(), flat(new));
    let fields = old.keys().chain(new.keys().filter(|field| !old.contains_key(*field)));
    let mut changes: Vec<Change> = fields
        .filter(|field| old.get(*field) != new.get(*field))
        .map(|field| {
            let shown = |value: Option<&String>| {
                value.map(|value| if field.starts_with("headers.") { HIDDEN.to_owned() } else { value.clone() })
            };
            Change { field: field.clone(), from: shown(old.get(field)), to: shown(new.get(field)) }
        })
        .collect();
    changes.sort_by(|a, b| a.field.cmp(&b.field));
    changes
}

fn flat(definition: &Definition) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    collect("", &definition.to_json(), &mut fields);
    fields
}

fn collect(name: &str, value: &Value, fields: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            for (inner, value) in map {
                let name = if name.is_empty() { inner.clone() } else { format!("{name}.{inner}") };
                collect(&name, value, fields);
            }
        }
        Value::String(text) => {
            fields.insert(name.to_owned(), text.clone());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            fields.insert(name.to_owned(), value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(value: Value) -> Definition {
        Definition::from_json(value).unwrap()
    }

    fn lines(old: Option<Value>, new: Value) -> Vec<String> {
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let changes = compare(old.map(definition).as_ref(), &definition(new));
        changes.iter().map(|c| format!("{}: {} > {}", c.field, word(&c.from), word(&c.to))).collect()
    }

    #[test]
    fn fields_that_are_new_changed_or_gone_are_named_and_the_same_ones_are_not() {
        let old = json!({"url": "https://a.example.test/", "timeout_seconds": 5, "retry": {"max_attempts": 3}});
        let new =
            json!({"url": "https://a.example.test/", "timeout_seconds": 6, "retry": {"schedule_seconds": [1, 2]}});
        assert_eq!(
            lines(Some(old.clone()), new),
            ["retry.max_attempts: 3 > -", "retry.schedule_seconds: - > [1,2]", "timeout_seconds: 5 > 6"]
        );
        assert!(lines(Some(old.clone()), old).is_empty());
        assert_eq!(
            lines(None, json!({"url": "https://a.example.test/"})),
            [r#"signatures: - > ["v1"]"#, "url: - > https://a.example.test/"]
        );
    }

    #[test]
    fn the_value_of_a_header_is_never_shown() {
        let with = |value| json!({"url": "https://a.example.test/", "headers": {"authorization": value}});
        assert_eq!(lines(Some(with("s3cr3t")), with("0ther")), ["headers.authorization: (hidden) > (hidden)"]);
    }
}
