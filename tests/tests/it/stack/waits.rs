//! Waits: long ones, lost ones, cancelled ones, and what the sweep has to do with them.

use std::time::Duration;

use domain::delivery::{State, WaitingReason};
use domain::time::Millis;
use serde_json::json;

use super::{Stack, alone, shared};
use crate::receiver::{Reply, epoch_ms};

/// Sends a webhook that is not due before a time.
async fn send_later(stack: &Stack, id: &str, url: &str, at: Millis) {
    stack.send_raw(&json!({"id": id, "url": url, "body": "x", "deliver_at": at.to_string()}).to_string()).await;
}

#[tokio::test]
async fn a_long_wait_is_in_no_queue_until_the_arm_run_brings_it_in_with_the_right_delay() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let url = stack.receiver.url("later");
    let (far, near) = (stack.id("far"), stack.id("near"));
    let now = Millis(epoch_ms());
    // One is twenty minutes away, for which nothing may happen here; one is just beyond what SQS can wait.
    send_later(&stack, &far, &url, now.plus(1_200_000)).await;
    let due = now.plus(905_000);
    send_later(&stack, &near, &url, due).await;
    let scheduled = State::Waiting(WaitingReason::Scheduled);
    let first = stack.wait_state(&near, &url, 10, scheduled).await;
    stack.wait_state(&far, &url, 10, scheduled).await;
    assert_eq!((first.due, first.armed_at, stack.payloads(&near, &url).await), (Some(due), None, 1));
    stack.sweep("arm", "act").await;
    stack.sweep("reconcile", "act").await;
    assert_eq!(stack.find(&near, &url).await, Some(first), "neither run touches it while it is far away");
    // 780 seconds before its time it comes into the window.
    tokio::time::sleep(Duration::from_millis(u64::try_from(due.0 - 779_000 - epoch_ms()).unwrap())).await;
    stack.sweep("arm", "act").await;
    let armed = stack.wait(&near, &url, 5, |r| r.armed_at.is_some()).await;
    stack.sweep("arm", "act").await;
    assert_eq!(stack.find(&near, &url).await, Some(armed.clone()), "it is armed once");
    assert_eq!(stack.find(&far, &url).await.unwrap().armed_at, None);
    let delays = stack.delays_sent(&near);
    let wanted = (due.0 - armed.armed_at.unwrap().0 + 999) / 1_000;
    assert!(delays.len() == 1 && (delays[0] - wanted).abs() <= 1, "sent with {delays:?}, wanted {wanted}");
    assert_eq!(stack.delays_sent(&far), [0i64; 0]);
    for id in [&far, &near] {
        stack.send_raw(&json!({"cancel": {"id": id, "url": url}, "reason": "end of the test"}).to_string()).await;
        stack.wait_state(id, &url, 10, State::Cancelled).await;
    }
}

#[tokio::test]
async fn with_both_sweeps_switched_off_short_waits_are_unaffected() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let rules = ["arm", "reconcile"].map(|rule| stack.description["rules"][rule].as_str().unwrap().to_owned());
    for rule in &rules {
        stack.events.disable_rule().name(rule).send().await.unwrap();
    }
    let url = stack.receiver.script("flaky", [Reply::status(503), Reply::status(503), Reply::status(200)]);
    let id = stack.id("flaky");
    stack.send(&id, &url).await;
    let record = stack.wait_state(&id, &url, 20, State::Delivered).await;
    assert_eq!((record.attempt, record.rearms, record.rev), (3, 0, 6));
    for rule in &rules {
        stack.events.enable_rule().name(rule).send().await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_wake_up_is_rearmed_counted_and_delivered() {
    let _alone = alone().await;
    let stack = Stack::connect().await;
    let later = Reply::with(503, "retry-after: 4\r\n", "");
    let (id, url) = (stack.id("lost"), stack.receiver.script("lost", [later, Reply::status(200)]));
    stack.send(&id, &url).await;
    let waiting = stack.wait_state(&id, &url, 10, State::Waiting(WaitingReason::Retry)).await;
    while stack.delays_sent(&id).is_empty() {
        assert!(epoch_ms() < waiting.due.unwrap().0, "the wake-up was sent before it was due");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stack.sqs.purge_queue().queue_url(stack.name("retry_queue_url")).send().await.unwrap();
    // Overdue by the grace of 10 seconds, and not a moment earlier.
    let grace_ends = waiting.due.unwrap().plus(10_000);
    tokio::time::sleep(Duration::from_millis(u64::try_from(grace_ends.0 - 1_000 - epoch_ms()).unwrap())).await;
    stack.sweep("reconcile", "act").await;
    assert_eq!(stack.find(&id, &url).await.unwrap().rearms, 0);
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let observed = stack.sweep("reconcile", "observe").await;
    assert_eq!((&observed["rearmed"], stack.find(&id, &url).await.unwrap().rearms), (&json!(1), 0));
    let evidence = stack.sweep("reconcile", "act").await;
    assert_eq!(evidence["rearmed"], 1);
    let record = stack.wait_state(&id, &url, 10, State::Delivered).await;
    assert_eq!((record.attempt, stack.receiver.seen("lost").len()), (2, 2));
}

#[tokio::test]
async fn a_cancel_stops_a_wait_and_one_that_comes_first_suppresses_the_message() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let url = stack.receiver.script("cancel", [Reply::with(503, "retry-after: 3\r\n", "")]);
    let (waits, comes_late) = (stack.id("waits"), stack.id("comes_late"));
    let cancel = |id: &str| json!({"cancel": {"id": id, "url": url}, "reason": "hold released"}).to_string();
    stack.send(&waits, &url).await;
    stack.wait_state(&waits, &url, 10, State::Waiting(WaitingReason::Retry)).await;
    stack.send_raw(&cancel(&waits)).await;
    let cancelled = stack.wait_state(&waits, &url, 3, State::Cancelled).await;
    assert!(cancelled.cancelled_because.unwrap().contains("hold released"));
    stack.send_raw(&cancel(&comes_late)).await;
    let tombstone = stack.wait_state(&comes_late, &url, 10, State::Cancelled).await;
    stack.send(&comes_late, &url).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stack.receiver.seen("cancel").len(), 1);
    assert_eq!(stack.find(&comes_late, &url).await, Some(tombstone));
}
