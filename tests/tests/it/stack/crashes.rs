//! Killed processes, and messages that our own functions could not settle.

use std::time::Duration;

use domain::delivery::{State, WaitingReason};
use domain::outcome::Class;
use domain::record::ABANDONED;
use serde_json::json;

use super::{Stack, alone, kill_sender, shared};
use crate::receiver::Reply;

#[tokio::test]
async fn a_first_attempt_whose_process_is_killed_is_abandoned_and_a_later_one_delivers() {
    let _alone = alone().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("killed"), stack.receiver.script("killed", [Reply::silence(), Reply::status(200)]));
    stack.send(&id, &url).await;
    let seen = stack.receiver.wait_for("killed", 1, Duration::from_secs(10)).await;
    kill_sender(seen[0].port);
    let record = stack.wait_state(&id, &url, 60, State::Delivered).await;
    let first = record.attempts().next().unwrap();
    assert_eq!((first.class, first.detail.as_deref(), record.attempt), (Class::Unknown, Some(ABANDONED), 2));
    let seen = stack.receiver.seen("killed");
    assert_eq!(seen.iter().map(|s| s.id()).collect::<Vec<_>>(), [&id, &id]);
    stack.wait_empty("intake_queue_url", 5).await;
}

#[tokio::test]
async fn a_retry_whose_process_is_killed_twice_in_a_row_is_still_delivered() {
    let _alone = alone().await;
    let stack = Stack::connect().await;
    let script = [Reply::status(500), Reply::silence(), Reply::silence(), Reply::status(200)];
    let (id, url) = (stack.id("twice_killed"), stack.receiver.script("twice", script));
    stack.send(&id, &url).await;
    for kill in 2..=3 {
        let seen = stack.receiver.wait_for("twice", kill, Duration::from_secs(60)).await;
        kill_sender(seen[kill - 1].port);
    }
    let record = stack.wait_state(&id, &url, 90, State::Delivered).await;
    let classes: Vec<_> = record.attempts().map(|a| (a.class, a.detail.as_deref())).collect();
    let abandoned = (Class::Unknown, Some(ABANDONED));
    assert_eq!(classes, [(Class::Transient, None), abandoned, abandoned, (Class::Accepted, None)]);
    assert!(stack.receiver.seen("twice").iter().all(|s| s.id() == id));
    assert_eq!(stack.depth("retry_queue_url").await[..2], [0, 0]);
}

#[tokio::test]
async fn a_message_in_the_transport_dlq_becomes_a_record_and_the_queue_is_emptied() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("crashed_out"), stack.receiver.script("dlq", [Reply::status(500), Reply::status(200)]));
    let dlq = stack.name("intake_dlq_url");
    let body = json!({"id": id, "url": url, "body": "kept"}).to_string();
    stack.sqs.send_message().queue_url(&dlq).message_body(&body).send().await.unwrap();
    let poison = format!("no message at all {id}");
    stack.sqs.send_message().queue_url(&dlq).message_body(&poison).send().await.unwrap();
    stack.sweep("reconcile", "act").await;
    stack.wait_empty("intake_dlq_url", 5).await;
    assert_eq!(stack.rejected(&poison, 5).await.0, "unreadable");
    let record = stack.wait_state(&id, &url, 20, State::Delivered).await;
    assert_eq!((record.attempt, stack.payloads(&id, &url).await), (2, 1));
    assert!(stack.receiver.seen("dlq").iter().all(|s| s.body == b"kept"));
}

#[tokio::test]
async fn a_wake_up_in_the_transport_dlq_is_sent_again() {
    let _alone = alone().await;
    let stack = Stack::connect().await;
    let later = Reply::with(503, "retry-after: 3\r\n", "");
    let (id, url) = (stack.id("wake_dlq"), stack.receiver.script("wake", [later, Reply::status(200)]));
    stack.send(&id, &url).await;
    let waiting = stack.wait_state(&id, &url, 10, State::Waiting(WaitingReason::Retry)).await;
    let due = waiting.due.unwrap();
    let wake_up = json!({"id": id, "endpoint": Stack::endpoint(&url).as_str(), "attempt": 2, "due": due.0}).to_string();
    stack.sqs.send_message().queue_url(stack.name("retry_dlq_url")).message_body(wake_up).send().await.unwrap();
    let evidence = stack.sweep("reconcile", "act").await;
    assert_eq!(evidence["drained"], 1);
    stack.wait_empty("retry_dlq_url", 5).await;
    stack.wait_state(&id, &url, 15, State::Delivered).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stack.receiver.seen("wake").len(), 2, "two wake-ups are one attempt");
}
