//! What attempts are made, when, and what they lead to.

use std::time::Duration;

use domain::delivery::{DeadReason, State};
use domain::outcome::{Class, Phase};
use domain::time::Millis;
use platform::dynamodb::item;
use serde_json::json;

use super::{LATE_MS, Stack, alone, shared};
use crate::receiver::Reply;

/// Waits of the local retry schedule in milliseconds.
const WAITS: [i64; 7] = [1_000, 2_000, 2_000, 3_000, 3_000, 4_000, 4_000];

#[tokio::test]
async fn success_on_the_first_attempt_is_one_post_two_writes_and_nothing_left() {
    let _alone = alone().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("first"), stack.receiver.script("ok", [Reply::status(200)]));
    let json = r#"{"w":136.0, "n":12345678901234567890123, "f":117.63331139400017, "a":"\u00e9", "s":"\ud800"}"#;
    let before = stack.depth("retry_queue_url").await;
    stack.send_raw(&format!(r#"{{"id":"{id}","url":"{url}","json": {json} ,"headers":{{"X-Tenant":"7"}}}}"#)).await;
    let record = stack.wait_state(&id, &url, 10, State::Delivered).await;
    stack.wait_empty("intake_queue_url", 5).await;
    assert_eq!(stack.depth("retry_queue_url").await, before, "nothing was scheduled");
    let seen = stack.receiver.seen("ok");
    assert_eq!(seen.len(), 1);
    assert_eq!((String::from_utf8_lossy(&seen[0].body).as_ref(), seen[0].id()), (json, id.as_str()));
    for (name, value) in [
        ("idempotency-key", id.as_str()),
        ("redeliver-attempt", "1"),
        ("content-type", "application/json"),
        ("x-tenant", "7"),
        ("user-agent", concat!("redeliver/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(seen[0].header(name), Some(value), "{name}");
    }
    let timestamp: i64 = seen[0].header("webhook-timestamp").unwrap().parse().unwrap();
    assert!((seen[0].at / 1_000 - timestamp).abs() <= 1);
    // Every write of a record raises its revision: claim and finish.
    assert_eq!((record.rev, record.attempt, record.attempts().count()), (2, 1, 1));
    assert_eq!((record.lane(), record.endpoint_lane(), stack.payloads(&id, &url).await), (None, None, 0));
    let bytes = item::billed_bytes(&item::encode(&record));
    assert!(bytes < 1_024, "a delivered record has {bytes} bytes: every write would cost two units");
}

#[tokio::test]
async fn a_timeout_after_the_receiver_accepted_is_unknown_and_repeated_with_the_same_id() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("unknown"), stack.receiver.script("slow", [Reply::silence(), Reply::status(200)]));
    stack.send(&id, &url).await;
    let record = stack.wait_state(&id, &url, 30, State::Delivered).await;
    let first = record.attempts().next().unwrap();
    assert_eq!((first.class, first.phase, first.detail.as_deref()), (Class::Unknown, Phase::Sent, Some("timeout")));
    assert!((4_900..6_500).contains(&first.duration_ms), "{} ms", first.duration_ms);
    let seen = stack.receiver.seen("slow");
    assert_eq!(seen.iter().map(|s| s.id()).collect::<Vec<_>>(), [&id, &id]);
    assert_eq!(seen[0].body, seen[1].body);
    let explained = stack.operator(json!({"action": "explain", "id": id})).await;
    assert_eq!(explained["history"][0]["receiver_may_have_it"], true);
    assert_eq!(explained["delivery"]["state"], "delivered");
}

#[tokio::test]
async fn a_hint_is_kept_and_no_retry_is_late() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let later = Reply::with(429, "Retry-After: 3\r\n", "");
    let (id, url) =
        (stack.id("hint"), stack.receiver.script("busy", [later.clone(), later.clone(), later, Reply::status(200)]));
    stack.send(&id, &url).await;
    let record = stack.wait_state(&id, &url, 40, State::Delivered).await;
    let seen = stack.receiver.seen("busy");
    assert_eq!(seen.iter().map(|s| s.header("redeliver-attempt").unwrap()).collect::<Vec<_>>(), ["1", "2", "3", "4"]);
    for (attempt, next) in record.attempts().zip(&seen[1..]) {
        assert_eq!(attempt.class, Class::Throttled);
        let due = attempt.hint.expect("a hint is on record");
        let answered = attempt.started.plus(attempt.duration_ms);
        assert!(due.since(answered) >= 3_000 && due >= Millis(seen[attempt.number as usize - 1].at + 3_000 - 50));
        let late = next.at - due.0;
        assert!((0..=2_000).contains(&late), "attempt {} was {late} ms after its due time", attempt.number + 1);
    }
}

#[tokio::test]
async fn a_permanent_refusal_is_one_post_and_a_dead_letter_that_can_be_listed_and_explained() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("permanent"), stack.receiver.script("no", [Reply::with(400, "", "bad \u{e9}vent")]));
    stack.send(&id, &url).await;
    let dead = State::DeadLettered(DeadReason::Permanent);
    let record = stack.wait_state(&id, &url, 10, dead).await;
    assert_eq!((record.attempt, stack.receiver.seen("no").len(), stack.payloads(&id, &url).await), (1, 1, 1));
    let endpoint = Stack::endpoint(&url);
    let listed = stack
        .operator(json!({"action": "list", "state": "dead_lettered", "endpoint": endpoint.as_str(), "limit": 500}))
        .await;
    let item = listed["items"].as_array().unwrap().iter().find(|i| i["id"] == id.as_str()).expect("listed");
    assert_eq!((&item["reason"], &item["attempt"], &item["generation"]), (&json!("permanent"), &json!(1), &json!(0)));
    let explained = stack.operator(json!({"action": "explain", "id": id, "endpoint": endpoint.as_str()})).await;
    assert_eq!(
        (&explained["delivery"]["reason"], &explained["history"][0]["status"]),
        (&json!("permanent"), &json!(400))
    );
    assert_eq!(explained["delivery"]["excerpt"], "bad \\xc3\\xa9vent");
    assert!(explained["next"].as_str().unwrap().contains("approved redrive"));
}

#[tokio::test]
async fn always_failing_is_eight_attempts_on_schedule_and_then_exhausted() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("exhausted"), stack.receiver.script("down", [Reply::status(500)]));
    stack.send(&id, &url).await;
    let record = stack.wait_state(&id, &url, 60, State::DeadLettered(DeadReason::Exhausted)).await;
    let attempts: Vec<_> = record.attempts().collect();
    assert_eq!((record.attempt, attempts.len(), stack.receiver.seen("down").len()), (8, 8, 8));
    for (i, (wait, pair)) in WAITS.iter().zip(attempts.windows(2)).enumerate() {
        let waited = pair[1].started.since(pair[0].started.plus(pair[0].duration_ms));
        let longest = wait * 115 / 100 + LATE_MS;
        assert!((*wait..=longest).contains(&waited), "wait {}: {waited} ms, wanted {wait} to {longest}", i + 1);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stack.receiver.seen("down").len(), 8, "no attempt after the last");
}

#[tokio::test]
async fn what_is_not_ours_is_rejected_between_good_neighbours() {
    let _alone = alone().await;
    let stack = Stack::connect().await;
    let url = stack.receiver.script("good", [Reply::status(200)]);
    let good = |id: &str| json!({"id": id, "url": url, "body": "x"}).to_string();
    let mark = stack.id("poison");
    let bad = [
        (format!("not JSON {mark}"), "unreadable", "not JSON"),
        (json!({"url": url, "body": mark}).to_string(), "invalid", "`id` is missing"),
        (json!({"id": "x", "url": url, "body": mark, "colour": 1}).to_string(), "invalid", "colour"),
        (
            json!({"Type": "Notification", "MessageId": mark, "TopicArn": "t", "Message": "{}"}).to_string(),
            "invalid",
            "SNS",
        ),
        (json!({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": mark}).to_string(), "invalid", "S3"),
    ];
    let (first, last) = (stack.id("a"), stack.id("z"));
    let mut batch = vec![good(&first)];
    batch.extend(bad.iter().map(|(raw, _, _)| raw.clone()));
    batch.push(good(&last));
    stack.send_batch(&batch).await;
    for id in [&first, &last] {
        stack.wait_state(id, &url, 10, State::Delivered).await;
    }
    for (raw, reason, part) in &bad {
        let (got, detail) = stack.rejected(raw, 10).await;
        assert!(got == *reason && detail.contains(part), "{raw}: {got}: {detail}");
        assert_eq!(stack.raw(raw).await.as_ref(), Some(raw));
    }
    stack.wait_empty("intake_queue_url", 5).await;
    assert_eq!(stack.depth("intake_dlq_url").await, [0, 0, 0]);
    assert_eq!(stack.receiver.seen("good").len(), 2);
}
