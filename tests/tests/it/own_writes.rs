//! WH-O-28: a write takes effect, its answer is lost, the SDK repeats it underneath us, and the repetition fails its
//! condition. It is our own write, not somebody else's.

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use domain::ports::{Claimed, Created, Deliveries, Swapped};
use domain::record::Record;
use domain::transition;
use platform::dynamodb::DeliveryTable;
use serde_json::json;
use testkit::samples::{claimed, lease, message};

use crate::items::image;
use crate::receiver::{Receiver, Reply};
use crate::world::START;

/// A table that drops the first answer, and then says that the condition failed, with this item.
async fn table(there: &Record) -> (DeliveryTable, Receiver) {
    let receiver = Receiver::start().await;
    let failed = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
        "message": "The conditional request failed",
        "Item": image(there),
    });
    let answer = format!(
        "HTTP/1.1 400 X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n{failed}",
        failed.to_string().len()
    );
    receiver.script("", [Reply::Close, Reply::Bytes(answer.into_bytes())]);
    (table_at(&receiver), receiver)
}

/// The table that this receiver plays.
pub fn table_at(receiver: &Receiver) -> DeliveryTable {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(receiver.url(""))
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .retry_config(RetryConfig::standard().with_initial_backoff(std::time::Duration::from_millis(1)))
        .build();
    DeliveryTable::new(aws_sdk_dynamodb::Client::from_conf(config), "deliveries".to_owned())
}

#[tokio::test]
async fn wh_o_28_a_repeated_create_is_our_own_also_when_a_cancel_has_marked_it_since() {
    let ours = claimed(&message("e"), START);
    let marked = Record { cancel_requested: true, rev: ours.rev + 1, ..ours.clone() };
    for there in [&ours, &marked] {
        let (table, receiver) = table(there).await;
        assert_eq!(table.create(&ours).await, Ok(Created::New));
        assert_eq!(receiver.seen("").len(), 2, "the SDK repeated it");
    }
    let theirs = Record { lease: Some(lease("other", 2, START.plus(60_000))), ..ours.clone() };
    let (table, _receiver) = table(&theirs).await;
    assert_eq!(table.create(&ours).await, Ok(Created::Exists(Box::new(theirs))));
}

#[tokio::test]
async fn wh_o_28_a_repeated_claim_is_our_own() {
    let mine = lease("w", 3, START.plus(60_000));
    let held = Record { attempt: 2, lease: Some(mine.clone()), ..claimed(&message("e"), START) };
    let (ours, _receiver) = table(&held).await;
    assert_eq!(ours.claim(&held.key, 1, &mine, START).await, Ok(Claimed::Started(Box::new(held.clone()))));
    let other = lease("v", 4, START.plus(60_000));
    let (theirs, _receiver) = table(&held).await;
    assert_eq!(theirs.claim(&held.key, 1, &other, START).await, Ok(Claimed::Refused(Some(Box::new(held)))));
}

#[tokio::test]
async fn wh_o_28_a_repeated_change_is_our_own() {
    let old = claimed(&message("e"), START);
    let new = transition::cancel(&old, "why", testkit::samples::RETENTION, START).unwrap();
    let (ours, _receiver) = table(&new).await;
    assert_eq!(ours.swap(&old, &new).await, Ok(Swapped::Done));
    let moved = Record { rev: new.rev + 5, ..new.clone() };
    let (theirs, _receiver) = table(&moved).await;
    assert_eq!(theirs.swap(&old, &new).await, Ok(Swapped::Lost(Some(Box::new(moved)))));
}
