//! Items in DynamoDB's JSON.

use aws_sdk_dynamodb::types::AttributeValue;
use domain::record::Record;
use platform::dynamodb::item;
use serde_json::{Map, Value, json};

/// An image as the stream carries it.
pub fn image(record: &Record) -> Value {
    fn attribute(value: &AttributeValue) -> Value {
        use AttributeValue as A;
        match value {
            A::S(text) => json!({ "S": text }),
            A::N(number) => json!({ "N": number }),
            A::Bool(flag) => json!({ "BOOL": flag }),
            A::L(list) => json!({ "L": list.iter().map(attribute).collect::<Vec<_>>() }),
            A::M(map) => {
                json!({ "M": map.iter().map(|(k, v)| (k.clone(), attribute(v))).collect::<Map<_, _>>() })
            }
            other => panic!("{other:?}"),
        }
    }
    item::encode(record).iter().map(|(name, value)| (name.clone(), attribute(value))).collect::<Map<_, _>>().into()
}
