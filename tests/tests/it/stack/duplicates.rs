//! The same message again, and another message under the same id.

use domain::delivery::State;
use serde_json::json;

use super::{Stack, shared};
use crate::receiver::Reply;

#[tokio::test]
async fn the_same_message_again_and_again_is_one_post() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let url = stack.receiver.script("once", [Reply::status(200)]);
    let message = |id: &str| json!({"id": id, "url": url, "body": id}).to_string();
    let (twice, twenty, batch) = (stack.id("twice"), stack.id("twenty"), stack.id("batch"));
    stack.send_batch(&[message(&batch), message(&batch)]).await;
    stack.send_raw(&message(&twice)).await;
    stack.wait_state(&twice, &url, 10, State::Delivered).await;
    stack.send_raw(&message(&twice)).await;
    let raw = message(&twenty);
    futures_util::future::join_all((0..20).map(|_| stack.send_raw(&raw))).await;
    for id in [&twice, &twenty, &batch] {
        stack.wait_state(id, &url, 10, State::Delivered).await;
    }
    // A witness sent after them: when it has come, and the queue has had its visibility timeout, all copies were looked at.
    let witness = stack.id("witness");
    stack.send_raw(&message(&witness)).await;
    stack.wait_state(&witness, &url, 30, State::Delivered).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let seen = stack.receiver.seen("once");
    for id in [&twice, &twenty, &batch, &witness] {
        assert_eq!(seen.iter().filter(|s| s.id() == *id).count(), 1, "{id}");
        assert_eq!(stack.find(id, &url).await.unwrap().attempt, 1, "{id}");
    }
}

#[tokio::test]
async fn another_payload_under_the_same_id_is_rejected_and_the_first_untouched() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("conflict"), stack.receiver.script("conflict", [Reply::status(200)]));
    stack.send_raw(&json!({"id": id, "url": url, "body": "one"}).to_string()).await;
    let before = stack.wait_state(&id, &url, 10, State::Delivered).await;
    let other = json!({"id": id, "url": url, "body": "two"}).to_string();
    stack.send_raw(&other).await;
    let (reason, _) = stack.rejected(&other, 10).await;
    assert_eq!((reason.as_str(), stack.raw(&other).await), ("id_conflict", Some(other)));
    assert_eq!(stack.find(&id, &url).await, Some(before));
    assert_eq!(stack.receiver.seen("conflict").len(), 1);
}
