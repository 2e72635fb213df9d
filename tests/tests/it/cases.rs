//! Hard cases of other systems, by their ids, as stories of the whole.

use domain::delivery::{DeadReason, State};
use domain::endpoint::{EndpointConfig, Found};
use domain::id::EndpointKey;
use domain::outcome::{Answer, Outcome};
use domain::ports::Clock;
use domain::retry::RetryPolicy;
use serde_json::json;
use testkit::sender::status;

use crate::world::{World, config, policy};

fn p() -> EndpointKey {
    EndpointKey::registered("p").unwrap()
}

#[tokio::test]
async fn wh_o_15_a_wait_that_sqs_cannot_hold_is_in_no_queue_and_an_early_wake_up_costs_nothing() {
    for seconds in [901, 3_600, 7_200] {
        let world = World::new();
        let retry_after = Some(seconds.to_string().into_bytes());
        world.sender.then([Outcome::Answered(Answer { status: 503, retry_after, ..Answer::default() })]);
        world.send("e");
        world.settle_now().await;
        let due = world.record("e").await.due.unwrap();
        assert!(world.retry.is_empty() && due.since(world.clock.now()) >= seconds * 1_000, "{seconds}");
        // Somebody, or an older version, sends one at once.
        world.retry.send(&json!({"id": "e", "endpoint": "p", "attempt": 2, "due": due.0}).to_string(), 0);
        world.settle_now().await;
        let record = world.record("e").await;
        assert_eq!((record.attempt, record.due, world.sender.seen().len()), (1, Some(due), 1), "{seconds}");
        world.run_until(due.plus(-1)).await;
        assert_eq!(world.sender.seen().len(), 1, "{seconds}");
        world.run_until(due.plus(2_000)).await;
        assert_eq!((world.record("e").await.state, world.sender.seen().len()), (State::Delivered, 2), "{seconds}");
    }
}

#[tokio::test]
async fn wh_o_17_attempts_end_where_the_record_says_whatever_messages_and_receive_counts_say() {
    let world = World::new();
    let policy = RetryPolicy { attempts: 3, ..policy() };
    world.endpoints.set(&p(), Found::Config(Box::new(EndpointConfig { policy, ..config() })));
    world.sender.at("hooks", status(500));
    let body = json!({"id": "e", "endpoint": "p", "json": {"id": "e"}}).to_string();
    world.intake.send_received(&body, 7);
    world.run_for_seconds(40).await;
    assert_eq!((world.record("e").await.attempt, world.sender.seen().len()), (2, 2));
    let due = world.record("e").await.due.unwrap();
    for attempt in [0, 1, 2, 4, u32::MAX] {
        world.retry.send(&json!({"id": "e", "endpoint": "p", "attempt": attempt, "due": due.0}).to_string(), 0);
    }
    world.intake.send(&body, 0);
    world.run_for_seconds(200_000).await;
    let record = world.record("e").await;
    assert_eq!((record.state, record.attempt), (State::DeadLettered(DeadReason::Exhausted), 3));
    world.intake.send(&body, 0);
    world.run_for_seconds(200_000).await;
    assert_eq!((world.sender.seen().len(), world.table.all().len()), (3, 1), "one dead letter, and no more requests");
}

const BYTES: &str = r#"{"w":136.0, "n":12345678901234567890123, "f":117.63331139400017, "a":"\u00e9", "a":1E400 }"#;

#[tokio::test]
async fn wh_o_18_the_bytes_are_the_same_at_the_first_attempt_at_the_seventh_and_after_a_redrive() {
    let world = World::new();
    world.sender.then((0..8).map(|_| status(500)));
    world.intake.send(&format!(r#"{{"id":"e","endpoint":"p","json": {BYTES} }}"#), 0);
    world.run_for_seconds(200_000).await;
    assert_eq!(world.record("e").await.state, State::DeadLettered(DeadReason::Exhausted));
    let proposed = world.act(json!({"action": "propose", "filter": {"ids": ["e"]}})).await;
    let approve = json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": "r", "reason": "fixed", "operator": "bea"});
    assert_eq!(world.act(approve).await["ok"], true);
    world.run_for_seconds(5).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
    let seen = world.sender.seen();
    assert_eq!(seen.len(), 9);
    for (i, request) in seen.iter().enumerate() {
        assert_eq!(String::from_utf8_lossy(&request.body), BYTES, "attempt {}", i + 1);
        assert_eq!(request.header("content-type"), Some("application/json"));
    }
}

#[tokio::test]
async fn wh_o_19_what_a_receiver_or_a_producer_writes_is_in_no_message_of_ours() {
    let world = World::new();
    let excerpt = "\u{ffff}\u{fffe}\0\u{7}\u{b}\u{85}".to_owned();
    world.sender.then([Outcome::Answered(Answer { status: 500, excerpt, ..Answer::default() })]);
    world.intake.send(r#"{"id":"e","endpoint":"p","body":"a\uffff\u0000b","correlation_id":"\uffff"}"#, 0);
    world.settle_now().await;
    let wake_ups = world.retry.all();
    let [wake_up] = wake_ups.as_slice() else { panic!("{wake_ups:?}") };
    // A pointer, in characters that SQS takes, whatever it takes.
    assert!(wake_up.body.bytes().all(|c| (b' '..=b'~').contains(&c)), "{:?}", wake_up.body);
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&wake_up.body).unwrap();
    assert_eq!(fields.keys().map(String::as_str).collect::<Vec<_>>(), ["attempt", "due", "endpoint", "id"]);
    world.run_for_seconds(60).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
    let bodies: Vec<Vec<u8>> = world.sender.seen().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, ["a\u{ffff}\0b".as_bytes(), "a\u{ffff}\0b".as_bytes()]);
}

#[tokio::test]
async fn a_blocked_delivery_costs_exactly_one_attempt_and_ends() {
    let world = World::new();
    world.sender.at("hooks", Outcome::Blocked { detail: "the address is not a public one".to_owned() });
    world.send("e");
    world.run_for_seconds(200_000).await;
    let record = world.record("e").await;
    assert_eq!((record.state, record.attempt), (State::DeadLettered(DeadReason::Blocked), 1));
    assert_eq!((world.sender.seen().len(), record.attempts().count()), (1, 1));
}
