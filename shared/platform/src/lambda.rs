//! The shape of Lambda's events and answers: SQS batches, stream batches, deadlines.

use std::collections::{HashMap, HashSet};

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use aws_sdk_dynamodb::types::AttributeValue;
use domain::ports::Received;
use domain::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A message of an SQS batch, with the queue that it came from.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The message.
    pub message: Received,
    /// ARN of its queue.
    pub queue_arn: String,
}

/// The messages of a batch. A record without a message id cannot be reported one by one: it fails the invocation, and
/// the whole batch returns.
pub fn sqs_messages(event: SqsEvent) -> Result<Vec<Delivered>, String> {
    event.records.into_iter().map(sqs_message).collect()
}

fn sqs_message(message: SqsMessage) -> Result<Delivered, String> {
    let message_id = message.message_id.filter(|id| !id.is_empty()).ok_or("an SQS record has no messageId")?;
    let number = |name: &str| message.attributes.get(name).and_then(|v| v.parse::<i64>().ok());
    Ok(Delivered {
        message: Received {
            message_id,
            receipt: message.receipt_handle.unwrap_or_default(),
            body: message.body.unwrap_or_default(),
            receives: number("ApproximateReceiveCount").and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
            sent_at: Millis(number("SentTimestamp").unwrap_or_default()),
            sender: message.attributes.get("SenderId").cloned(),
        },
        queue_arn: message.event_source_arn.unwrap_or_default(),
    })
}

/// The end of an invocation, from the runtime's context.
pub fn deadline(ms: u64) -> Millis {
    Millis(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// The answer to a batch: which items are to come back. Anything but this shape, or an id that is not of the batch, would
/// bring the whole batch back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchAnswer {
    /// What could not be settled.
    #[serde(rename = "batchItemFailures")]
    pub failures: Vec<ItemFailure>,
}

/// One item that is to come back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ItemFailure {
    /// SQS message id, or stream sequence number.
    #[serde(rename = "itemIdentifier")]
    pub id: String,
}

impl BatchAnswer {
    /// Reports `failed`, each once, and only ids of the batch.
    pub fn new<'a>(batch: impl IntoIterator<Item = &'a str>, failed: impl IntoIterator<Item = String>) -> Self {
        let known: HashSet<&str> = batch.into_iter().filter(|id| !id.is_empty()).collect();
        let mut seen = HashSet::new();
        let failures = failed
            .into_iter()
            .filter(|id| known.contains(id.as_str()) && seen.insert(id.clone()))
            .map(|id| ItemFailure { id })
            .collect();
        Self { failures }
    }
}

/// A batch of a DynamoDB stream.
#[derive(Debug, Deserialize)]
pub struct StreamEvent {
    /// The changes.
    #[serde(rename = "Records")]
    pub records: Vec<StreamRecord>,
}

/// One change.
#[derive(Debug, Deserialize)]
pub struct StreamRecord {
    /// What changed.
    #[serde(rename = "dynamodb")]
    pub change: StreamChange,
}

/// The part of a change that is looked at.
#[derive(Debug, Deserialize)]
pub struct StreamChange {
    /// Its place in the stream.
    #[serde(rename = "SequenceNumber", default)]
    pub sequence_number: String,
    /// The item after the change.
    #[serde(rename = "NewImage", default)]
    new_image: HashMap<String, Value>,
}

impl StreamChange {
    /// The item after the change, in the form that the table's own reads have. Attributes of types that we never write
    /// are left out.
    pub fn image(&self) -> HashMap<String, AttributeValue> {
        self.new_image.iter().filter_map(|(name, value)| Some((name.clone(), attribute(value)?))).collect()
    }
}

fn attribute(value: &Value) -> Option<AttributeValue> {
    let (kind, value) = value.as_object()?.iter().next()?;
    Some(match kind.as_str() {
        "S" => AttributeValue::S(value.as_str()?.to_owned()),
        "N" => AttributeValue::N(value.as_str()?.to_owned()),
        "BOOL" => AttributeValue::Bool(value.as_bool()?),
        "L" => AttributeValue::L(value.as_array()?.iter().filter_map(attribute).collect()),
        "M" => {
            AttributeValue::M(value.as_object()?.iter().filter_map(|(n, v)| Some((n.clone(), attribute(v)?))).collect())
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_has_exactly_the_documented_shape() {
        let answer = BatchAnswer::new(["a", "b"], ["b".to_owned()]);
        assert_eq!(serde_json::to_string(&answer).unwrap(), r#"{"batchItemFailures":[{"itemIdentifier":"b"}]}"#);
        assert_eq!(serde_json::to_string(&BatchAnswer::default()).unwrap(), r#"{"batchItemFailures":[]}"#);
    }

    #[test]
    fn a_record_without_an_id_fails_the_invocation() {
        let event: SqsEvent = serde_json::from_str(r#"{"Records":[{"body":"x"}]}"#).unwrap();
        assert!(sqs_messages(event).unwrap_err().contains("messageId"));
        let event: SqsEvent = serde_json::from_str(r#"{"Records":[{"messageId":"m","body":null}]}"#).unwrap();
        assert_eq!(sqs_messages(event).unwrap()[0].message.body, "");
    }

    proptest! {
        #[test]
        fn an_answer_never_holds_an_empty_unknown_or_repeated_id(
            batch in proptest::collection::vec("[a-c]{0,2}", 0..10), failed in proptest::collection::vec("[a-d]{0,2}", 0..12),
        ) {
            let answer = BatchAnswer::new(batch.iter().map(String::as_str), failed.clone());
            let ids: Vec<&String> = answer.failures.iter().map(|f| &f.id).collect();
            let distinct: HashSet<&&String> = ids.iter().collect();
            prop_assert_eq!(distinct.len(), ids.len());
            for id in &ids {
                prop_assert!(!id.is_empty() && batch.contains(id));
            }
            for id in failed.iter().filter(|id| !id.is_empty() && batch.contains(id)) {
                prop_assert!(ids.contains(&id));
            }
        }
    }
}
