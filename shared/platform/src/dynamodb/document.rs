//! JSON values as attributes of an item, and back.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Map, Value};

use super::item::Item;

/// An item as a JSON object. Sets and binary values have no JSON form and come out as `null`: no reader accepts it.
/// Texts are moved, not copied: some are secrets, and their reader wipes them.
pub(super) fn to_json(item: Item) -> Value {
    Value::Object(item.into_iter().map(|(name, value)| (name, value_of(value))).collect())
}

fn value_of(attribute: AttributeValue) -> Value {
    match attribute {
        AttributeValue::S(text) => Value::String(text),
        AttributeValue::N(number) => serde_json::from_str(&number).unwrap_or(Value::Null),
        AttributeValue::Bool(flag) => Value::Bool(flag),
        AttributeValue::L(list) => Value::Array(list.into_iter().map(value_of).collect()),
        AttributeValue::M(map) => to_json(map),
        _ => Value::Null,
    }
}

/// A JSON object as an item.
pub(super) fn from_json(object: Map<String, Value>) -> Item {
    object.into_iter().map(|(name, value)| (name, attribute_of(value))).collect::<HashMap<_, _>>()
}

fn attribute_of(value: Value) -> AttributeValue {
    match value {
        Value::Null => AttributeValue::Null(true),
        Value::Bool(flag) => AttributeValue::Bool(flag),
        Value::Number(number) => AttributeValue::N(number.to_string()),
        Value::String(text) => AttributeValue::S(text),
        Value::Array(list) => AttributeValue::L(list.into_iter().map(attribute_of).collect()),
        Value::Object(object) => AttributeValue::M(from_json(object)),
    }
}
