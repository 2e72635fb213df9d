//! Whole stories in virtual time: what the design promises, with real waits of hours and days.

use deliver::deliver::Deliver;
use deliver::handler::Handler;
use domain::delivery::{DeadReason, HeldReason, State, WaitingReason};
use domain::endpoint::{EndpointConfig, Found};
use domain::id::{EndpointKey, sha256_hex};
use domain::message::{Intake, parse};
use domain::outcome::{Answer, Class, Outcome, Phase};
use domain::ports::{Clock, Created, Deliveries, Sender, Swapped};
use domain::record::{ABANDONED, Record};
use domain::request::Request;
use domain::settings::INTAKE_MAX_RECEIVES;
use domain::time::Millis;
use domain::transition::{Arrival, Heir, take_over};
use serde_json::json;
use testkit::clock::VirtualClock;
use testkit::samples::{LIMITS, RETENTION, lease};
use testkit::sender::status;

use crate::world::{INTAKE_ARN, RETRY_ARN, START, TIMING, Table, World, config, event};

fn timeout() -> Outcome {
    Outcome::Failed { phase: Phase::Sent, detail: "timeout".to_owned() }
}

#[tokio::test]
async fn a_first_try_success_costs_two_writes_and_keeps_nothing() {
    let world = World::new();
    world.send("e");
    world.settle_now().await;
    let record = world.record("e").await;
    assert_eq!((record.state, record.attempt), (State::Delivered, 1));
    assert_eq!((world.table.writes(), world.payloads.len(), world.sender.seen().len()), (2, 0, 1));
    assert_eq!((record.lane(), record.endpoint_lane()), (None, None));
    assert!(world.intake.is_empty() && world.retry.is_empty());
}

#[tokio::test]
async fn a_retry_costs_four_writes_one_payload_and_one_wake_up() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    assert_eq!((world.table.writes(), world.payloads.len(), world.retry.len()), (2, 1, 1));
    world.run_for_seconds(60).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
    assert_eq!((world.table.writes(), world.payloads.len(), world.retry.len()), (4, 1, 0));
}

#[tokio::test]
async fn eight_attempts_follow_the_schedule_over_a_day_and_then_it_is_dead() {
    let world = World::new();
    world.sender.then((0..20).map(|_| status(500)));
    world.send("e");
    world.run_for_seconds(100_000).await;
    let record = world.record("e").await;
    assert_eq!(
        (record.state, record.attempt, world.sender.seen().len()),
        (State::DeadLettered(DeadReason::Exhausted), 8, 8)
    );
    let starts: Vec<Millis> = record.attempts().map(|a| a.started).collect();
    for (wait, pair) in [30, 120, 600, 1800, 7200, 21600, 43200].into_iter().zip(starts.windows(2)) {
        let waited = pair[1].since(pair[0]);
        let longest = wait * 1_150 + 1_000;
        assert!((wait * 1_000..=longest).contains(&waited), "{wait} s: waited {waited} ms");
    }
    assert_eq!(world.payloads.len(), 1);
}

#[tokio::test]
async fn an_outcome_without_an_answer_is_unknown_and_repeated_with_the_same_id() {
    let world = World::new();
    world.sender.then([timeout()]);
    world.send("e");
    world.run_for_seconds(60).await;
    let record = world.record("e").await;
    assert_eq!((record.state, record.attempts().next().unwrap().class), (State::Delivered, Class::Unknown));
    let ids: Vec<_> = world.sender.seen().iter().map(|s| s.header("webhook-id").map(ToOwned::to_owned)).collect();
    assert_eq!(ids, [Some("e".to_owned()), Some("e".to_owned())]);
}

#[tokio::test]
async fn a_hint_moves_a_retry_later_but_never_adds_attempts() {
    let world = World::new();
    let throttled = Outcome::Answered(Answer { status: 429, retry_after: Some(b"3600".to_vec()), ..Answer::default() });
    world.sender.then((0..8).map(|_| throttled.clone()));
    world.send("e");
    world.run_for_seconds(3_599).await;
    assert_eq!(world.sender.seen().len(), 1);
    world.run_for_seconds(2).await;
    assert_eq!(world.sender.seen().len(), 2);
    world.run_for_seconds(200_000).await;
    assert_eq!(
        (world.record("e").await.state, world.sender.seen().len()),
        (State::DeadLettered(DeadReason::Exhausted), 8)
    );
}

#[tokio::test]
async fn a_wait_of_days_is_in_no_queue_until_it_is_armed_and_then_once() {
    let world = World::new();
    let at = START.plus(3 * 86_400_000);
    world.intake.send(&json!({"id": "e", "endpoint": "p", "body": "x", "deliver_at": at.to_string()}).to_string(), 0);
    world.run_until(at.plus(-800_000)).await;
    assert_eq!((world.record("e").await.state, world.retry.len()), (State::Waiting(WaitingReason::Scheduled), 0));
    world.run_until(at.plus(-700_000)).await;
    assert_eq!(world.retry.len(), 1);
    world.run_until(at.plus(-1)).await;
    assert_eq!((world.retry.len(), world.sender.seen().len()), (1, 0));
    world.run_until(at.plus(1_000)).await;
    assert_eq!((world.record("e").await.state, world.retry.len(), world.sender.seen().len()), (State::Delivered, 0, 1));
}

#[tokio::test]
async fn an_ordinary_retry_is_never_touched_by_the_arm_run() {
    let world = World::new();
    world.sender.then([status(500), status(500), status(500)]);
    world.send("e");
    world.settle_now().await;
    for _ in 0..12 {
        world.run_for_seconds(60).await;
        assert_eq!(world.record("e").await.armed_at, None);
    }
}

#[tokio::test]
async fn a_lost_wake_up_is_rearmed_counted_and_delivered() {
    let world = World::new();
    world.sender.then([status(500)]);
    let message = world.send("e");
    world.settle_now().await;
    assert!(!world.retry.is_empty());
    for lost in world.table.all() {
        assert_eq!(lost.state, State::Waiting(WaitingReason::Retry));
    }
    // The wake-up is the second message of its queue's own count.
    world.retry.remove("m0001");
    assert!(world.retry.is_empty() && !message.is_empty());
    world.clock.advance(600_000);
    let observed = world.sweep.handle(&json!({"mode": "observe"}), world.clock.now().plus(60_000), "t").await.unwrap();
    assert_eq!((observed.rearmed, world.record("e").await.rearms), (1, 0));
    let evidence = world.sweep_run("reconcile").await;
    assert_eq!((evidence.rearmed, world.record("e").await.rearms), (1, 1));
    world.settle_now().await;
    assert_eq!(world.record("e").await.state, State::Delivered);
}

#[tokio::test]
async fn a_sweep_that_runs_twice_changes_nothing_more() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.retry.remove("m0001");
    world.clock.advance(600_000);
    world.sweep_run("reconcile").await;
    let once = world.record("e").await;
    let again = world.sweep_run("reconcile").await;
    assert_eq!((again.rearmed, world.record("e").await), (0, once));
}

#[tokio::test]
async fn a_message_that_crashed_out_is_drained_into_a_record() {
    let world = World::new();
    world.intake_dlq.send(&json!({"id": "e", "endpoint": "p", "body": "x"}).to_string(), 0);
    world.intake_dlq.send("poison", 0);
    let evidence = world.sweep_run("reconcile").await;
    assert_eq!((evidence.drained, evidence.rejected), (1, 1));
    assert!(world.intake_dlq.is_empty());
    assert_eq!(world.record("e").await.state, State::Waiting(WaitingReason::Recovered));
    world.settle_now().await;
    assert_eq!(world.record("e").await.state, State::Delivered);
}

#[tokio::test]
async fn a_cancel_stops_a_wait_and_a_cancel_that_comes_first_suppresses() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.intake.send(&json!({"cancel": {"id": "e", "endpoint": "p"}, "reason": "no"}).to_string(), 0);
    world.run_for_seconds(3_600).await;
    assert_eq!((world.record("e").await.state, world.sender.seen().len()), (State::Cancelled, 1));
    world.intake.send(&json!({"cancel": {"id": "f", "endpoint": "p"}}).to_string(), 0);
    world.settle_now().await;
    world.send("f");
    world.run_for_seconds(60).await;
    assert_eq!((world.record("f").await.state, world.sender.seen().len()), (State::Cancelled, 1));
}

#[tokio::test]
async fn a_removed_endpoint_holds_and_loses_nothing() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Removed);
    world.run_for_seconds(120).await;
    let record = world.record("e").await;
    assert_eq!((record.state, record.attempt), (State::Held(HeldReason::Removed), 1));
    assert_eq!(world.payloads.len(), 1);
}

#[tokio::test]
async fn a_changed_url_takes_effect_at_the_next_attempt() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    let moved = EndpointConfig { url: "https://new.example.test/p".to_owned(), ..config() };
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Config(Box::new(moved)));
    world.run_for_seconds(60).await;
    assert_eq!(world.sender.seen()[1].url, "https://new.example.test/p");
}

#[tokio::test]
async fn a_lost_payload_is_a_dead_letter_that_says_so() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.payloads.clear();
    world.run_for_seconds(60).await;
    assert_eq!(world.record("e").await.state, State::DeadLettered(DeadReason::PayloadLost));
    assert_eq!(world.sender.seen().len(), 1);
}

#[tokio::test]
async fn a_deadline_ends_a_wait_and_is_not_overstepped() {
    let world = World::new();
    world.sender.then((0..8).map(|_| status(500)));
    let by = START.plus(200_000);
    world.intake.send(&json!({"id": "e", "endpoint": "p", "body": "x", "deliver_by": by.to_string()}).to_string(), 0);
    world.run_for_seconds(10_000).await;
    let record = world.record("e").await;
    assert_eq!(record.state, State::DeadLettered(DeadReason::Expired));
    assert!(record.attempts().all(|a| a.started < by));
}

#[tokio::test]
async fn the_same_message_many_times_is_one_post() {
    let world = World::new();
    for _ in 0..25 {
        world.send("e");
    }
    world.settle_now().await;
    assert_eq!((world.sender.seen().len(), world.table.writes()), (1, 2));
    assert!(world.intake.is_empty());
}

#[tokio::test]
async fn another_payload_under_the_same_id_is_a_conflict_in_every_state() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    let before = world.record("e").await;
    world.intake.send(&json!({"id": "e", "endpoint": "p", "body": "other"}).to_string(), 0);
    world.settle_now().await;
    assert_eq!(world.record("e").await, before);
    let listed = world.act(json!({"action": "list", "state": "rejected"})).await;
    assert_eq!(listed["items"][0]["reason"], "id_conflict");
    let sha = listed["items"][0]["sha256"].as_str().unwrap();
    assert!(world.payloads.raw(sha).unwrap().contains("other"));
}

#[tokio::test]
async fn an_unknown_endpoint_is_rejected_until_it_exists() {
    let world = World::new();
    let raw = json!({"id": "e", "endpoint": "later", "body": "x"}).to_string();
    world.intake.send(&raw, 0);
    world.settle_now().await;
    assert!(world.table.all().is_empty());
    world.endpoints.set(&EndpointKey::registered("later").unwrap(), Found::Config(Box::new(config())));
    world.intake.send(&raw, 0);
    world.settle_now().await;
    assert_eq!(world.table.all()[0].state, State::Delivered);
}

#[tokio::test]
async fn a_relay_that_stalls_for_an_hour_delays_and_loses_nothing() {
    let mut world = World::new();
    world.relay_stalled = true;
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.clock.advance(3_600_000);
    world.relay_stalled = false;
    world.run_for_seconds(1).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
}

#[tokio::test]
async fn a_list_is_paged_and_filtered() {
    let world = World::new();
    let blocked = || Outcome::Blocked { detail: "the address is not a public one".to_owned() };
    world.sender.then((0..30).map(|i| if i % 3 == 0 { blocked() } else { status(400) }));
    for i in 0..30 {
        world.send(&format!("e{i}"));
        world.settle_now().await;
        world.clock.advance(1_000);
    }
    for endpoint in [json!(null), json!("p")] {
        let mut ids = Vec::new();
        let mut cursor = json!(null);
        loop {
            let page = world.act(json!({"action": "list", "state": "dead_lettered", "endpoint": endpoint, "limit": 7, "cursor": cursor})).await;
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 7);
            ids.extend(items.iter().map(|i| i["id"].as_str().unwrap().to_owned()));
            cursor = page["cursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        let expected: Vec<String> = (0..30).map(|i| format!("e{i}")).collect();
        assert_eq!(ids, expected, "oldest first, each once");
        let blocked = world
            .act(json!({"action": "list", "state": "dead_lettered", "endpoint": endpoint, "reason": "blocked"}))
            .await;
        assert_eq!(blocked["items"].as_array().unwrap().len(), 10);
    }
}

#[tokio::test]
async fn an_action_that_is_wrong_says_what_is_wrong() {
    let world = World::new();
    for (action, code) in [
        (json!({"action": "explain", "id": "none"}), "not_found"),
        (json!({"action": "explain", "id": "a.b"}), "invalid"),
        (json!({"action": "list", "state": "delivered"}), "invalid"),
        (json!({"action": "list", "state": "waiting", "cursor": "x"}), "invalid"),
        (json!({"action": "status", "plan_id": "none"}), "not_found"),
        (json!({"action": "propose", "filter": {}}), "not_found"),
        (json!({"action": "propose", "filter": {"endpont": "p"}}), "invalid"),
        (json!({"action": "cancel", "id": "e", "endpoint": "p", "reason": " "}), "invalid"),
    ] {
        let answer = world.act(action.clone()).await;
        assert_eq!((&answer["ok"], &answer["error"]["code"]), (&json!(false), &json!(code)), "{action}: {answer}");
    }
}

#[tokio::test]
async fn a_duplicate_with_other_times_does_not_take_the_payload_from_its_original() {
    let world = World::new();
    let at = START.plus(60 * 86_400_000);
    let message =
        |at: Millis| json!({"id": "e", "endpoint": "p", "body": "x", "deliver_at": at.to_string()}).to_string();
    world.intake.send(&message(at), 0);
    world.settle_now().await;
    let record = world.record("e").await;
    let kept = || world.payloads.kept_until(&record.key, &record.payload.as_ref().unwrap().hash);
    let before = kept();
    world.intake.send(&message(START.plus(86_400_000)), 0);
    world.settle_now().await;
    assert_eq!((kept(), world.record("e").await), (before, record.clone()));
}

#[tokio::test]
async fn an_early_wake_up_does_not_hide_a_long_wait_from_the_arm_run() {
    let world = World::new();
    let at = START.plus(7_200_000);
    world.intake.send(&json!({"id": "e", "endpoint": "p", "body": "x", "deliver_at": at.to_string()}).to_string(), 0);
    world.settle_now().await;
    world.retry.send(&json!({"id": "e", "endpoint": "p", "attempt": 1, "due": at.0}).to_string(), 0);
    world.settle_now().await;
    assert!(world.record("e").await.armed_at.is_some() && world.retry.is_empty());
    world.run_until(at.plus(1_000)).await;
    assert_eq!((world.record("e").await.state, world.sender.seen().len()), (State::Delivered, 1));
}

#[tokio::test]
async fn a_wake_up_in_its_transport_dlq_is_touched_and_poison_there_is_rejected() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    let due = world.record("e").await.due.unwrap();
    world.retry.remove("m0001");
    world.retry_dlq.send(&json!({"id": "e", "endpoint": "p", "attempt": 2, "due": due.0}).to_string(), 0);
    world.retry_dlq.send("poison", 0);
    let evidence = world.sweep_run("reconcile").await;
    assert_eq!((evidence.drained, evidence.rejected, world.retry_dlq.len()), (1, 1, 0));
    world.run_until(due.plus(1_000)).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
}

/// Puts a delivery into the state in which a killed process leaves it: claimed, and nothing more.
async fn claimed_by_a_dead_process(world: &World, message_id: &str) {
    let raw = json!({"id": "e", "endpoint": "p", "json": {"id": "e"}}).to_string();
    let Ok(Intake::Webhook(message)) = parse(&raw, &LIMITS) else { panic!("a good message") };
    let arrival = Arrival { message: &message, accepted_at: world.clock.now(), sender: None, budget: 8 };
    let record =
        arrival.claimed(lease(message_id, 9, world.clock.now().plus(TIMING.lease_ms)), world.clock.now()).unwrap();
    assert_eq!(world.table.create(&record).await, Ok(Created::New));
}

#[tokio::test]
async fn a_message_whose_process_died_comes_back_and_its_attempt_is_abandoned() {
    let world = World::new();
    let message = world.send("e");
    claimed_by_a_dead_process(&world, &message).await;
    world.settle_now().await;
    assert_eq!(
        (world.sender.seen().len(), world.intake.len()),
        (0, 1),
        "its own message comes back, and waits for the lease"
    );
    world.run_for_seconds(300).await;
    let record = world.record("e").await;
    let first = record.attempts().next().unwrap().clone();
    assert_eq!(
        (record.state, record.attempt, first.class, first.detail.as_deref()),
        (State::Delivered, 2, Class::Unknown, Some(ABANDONED))
    );
}

#[tokio::test]
async fn another_message_during_the_lease_is_a_duplicate_and_after_it_takes_over() {
    let world = World::new();
    claimed_by_a_dead_process(&world, "gone").await;
    world.send("e");
    world.settle_now().await;
    assert_eq!((world.sender.seen().len(), world.intake.len()), (0, 0));
    world.clock.advance(TIMING.lease_ms);
    world.send("e");
    world.settle_now().await;
    assert_eq!((world.record("e").await.state, world.sender.seen().len()), (State::Delivered, 1));
}

#[tokio::test]
async fn a_cancel_during_an_attempt_that_dies_is_honoured_at_the_takeover() {
    let world = World::new();
    let message = world.send("e");
    claimed_by_a_dead_process(&world, &message).await;
    world.intake.send(&json!({"cancel": {"id": "e", "endpoint": "p"}}).to_string(), 0);
    world.run_for_seconds(300).await;
    assert_eq!((world.record("e").await.state, world.sender.seen().len()), (State::Cancelled, 0));
}

#[tokio::test]
async fn an_attempt_that_died_is_not_stuck_when_its_endpoint_is_deleted() {
    let world = World::new();
    let message = world.send("e");
    claimed_by_a_dead_process(&world, &message).await;
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Unknown);
    world.run_for_seconds(400).await;
    let record = world.record("e").await;
    assert_eq!((record.state, world.payloads.len()), (State::Held(HeldReason::Removed), 1));
    assert!(world.intake.is_empty());
}

#[tokio::test]
async fn an_attempt_that_died_is_not_stuck_when_its_message_is_not_accepted_any_more() {
    let mut world = World::new();
    let message = world.send("e");
    claimed_by_a_dead_process(&world, &message).await;
    world.handler.deliver.settings.limits.max_body_bytes = 1;
    world.settle_now().await;
    assert_eq!((world.record("e").await.state, world.intake.len()), (State::InFlight, 1));
    // The moment in which the lease ends.
    world.clock.advance(TIMING.lease_ms);
    world.intake.show_at(&message, world.clock.now());
    world.settle_now().await;
    let record = world.record("e").await;
    assert_eq!(record.state, State::DeadLettered(DeadReason::PayloadLost));
    assert_eq!(record.attempts().next().unwrap().detail.as_deref(), Some(ABANDONED));
    let listed = world.act(json!({"action": "list", "state": "rejected"})).await;
    assert_eq!(listed["items"][0]["reason"], "too_large");
}

#[tokio::test]
async fn a_misconfigured_endpoint_holds_and_says_why_in_its_state() {
    let world = World::new();
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Misconfigured("`url` is missing".to_owned()));
    world.send("e");
    world.run_for_seconds(60).await;
    let record = world.record("e").await;
    assert_eq!((record.state, record.attempt), (State::Held(HeldReason::Misconfigured), 0));
    assert_eq!((world.payloads.len(), world.sender.seen().len()), (1, 0));
}

#[tokio::test]
async fn a_message_in_a_dlq_is_rejected_unparsed_only_after_it_has_been_received_there_too_often() {
    let world = World::new();
    let good = json!({"id": "e", "endpoint": "p", "body": "x"}).to_string();
    world.intake_dlq.send(&good, 0);
    world.intake_dlq.set_receives(INTAKE_MAX_RECEIVES + 1 + 11);
    world.sweep_run("reconcile").await;
    assert_eq!(world.record("e").await.state, State::Waiting(WaitingReason::Recovered));
    let poison = json!({"id": "f", "endpoint": "p", "body": "x"}).to_string();
    world.intake_dlq.send(&poison, 0);
    world.intake_dlq.set_receives(INTAKE_MAX_RECEIVES + 1 + 12);
    assert_eq!(world.sweep_run("reconcile").await.rejected, 1);
    assert_eq!(world.payloads.raw(&sha256_hex(poison.as_bytes())), Some(poison));
}

/// An endpoint that accepts only after the lease of its attempt has run out and somebody has taken over.
struct LateSender {
    table: Table,
    clock: VirtualClock,
    heir: fn(Millis) -> Heir,
    answer: u16,
}

impl Sender for LateSender {
    async fn post(&self, _: &Request<'_>) -> Outcome {
        self.clock.advance(TIMING.lease_ms);
        let now = self.clock.now();
        let record = self.table.all().pop().expect("the attempt is on record");
        let next = take_over(&record, (self.heir)(now), Some(now.plus(1)), RETENTION, now).unwrap();
        assert_eq!(self.table.swap(&record, &next).await, Ok(Swapped::Done));
        status(self.answer)
    }
}

async fn answered_late(heir: fn(Millis) -> Heir, answer: u16) -> Record {
    let world = World::new();
    world.send("e");
    let inner = &world.handler.deliver;
    let handler = Handler {
        retry_queue_arn: String::new(),
        deliver: Deliver {
            deliveries: world.table.clone(),
            payloads: world.payloads.clone(),
            endpoints: world.endpoints.clone(),
            sender: LateSender { table: world.table.clone(), clock: world.clock.clone(), heir, answer },
            clock: world.clock.clone(),
            settings: inner.settings.clone(),
        },
    };
    let batch = event(&world.intake.take(), "arn");
    let deadline = world.clock.now().plus(1_000_000);
    assert!(handler.handle(batch, deadline).await.unwrap().failures.is_empty());
    world.record("e").await
}

#[tokio::test]
async fn a_late_acceptance_voids_the_pending_retry() {
    let record = answered_late(Heir::Queue, 200).await;
    assert_eq!((record.state, record.attempt, record.lane()), (State::Delivered, 1, None));
}

#[tokio::test]
async fn a_late_acceptance_marks_the_attempt_that_has_taken_over() {
    let heir = |now: Millis| Heir::Message(lease("other", 3, now.plus(60_000)));
    let record = answered_late(heir, 200).await;
    assert_eq!((record.state, record.attempt, record.accepted_late), (State::InFlight, 2, true));
}

#[tokio::test]
async fn a_late_failure_changes_nothing() {
    let record = answered_late(Heir::Queue, 500).await;
    assert_eq!((record.state, record.attempts().count()), (State::Waiting(WaitingReason::Recovered), 1));
}

#[tokio::test]
async fn a_delivery_that_may_kill_its_process_runs_after_its_neighbours() {
    let world = World::new();
    let message = world.send("e");
    claimed_by_a_dead_process(&world, &message).await;
    world.clock.advance(TIMING.lease_ms);
    world.send("f");
    world.send("g");
    world.settle_now().await;
    let ids: Vec<String> = world.sender.seen().iter().map(|s| s.header("webhook-id").unwrap().to_owned()).collect();
    assert_eq!(ids, ["f", "g", "e"]);
}

#[tokio::test]
async fn an_arm_run_reads_only_what_earlier_runs_have_not_handled() {
    let world = World::new();
    for i in 0..10 {
        let at = START.plus(1_000_000 + i).to_string();
        let message = json!({"id": format!("e{i}"), "endpoint": "p", "body": "x", "deliver_at": at});
        world.intake.send(&message.to_string(), 0);
    }
    world.settle_now().await;
    world.clock.advance(300_000);
    let first = world.sweep_run("arm").await;
    assert_eq!((first.examined, first.armed), (10, 10));
    let second = world.sweep_run("arm").await;
    assert_eq!((second.examined, second.armed), (0, 0));
}

#[tokio::test]
async fn what_does_not_fit_into_the_invocation_is_not_started_and_costs_no_attempt() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("waits");
    world.settle_now().await;
    world.clock.advance(60_000);
    let before = world.record("waits").await;
    world.send("fresh");
    for (batch, arn) in [(world.intake.take(), INTAKE_ARN), (world.retry.take(), RETRY_ARN)] {
        assert_eq!(batch.len(), 1);
        // The longest request takes 10 s, and its outcome has to be recorded: a millisecond is missing.
        let deadline = world.clock.now().plus(11_500);
        let answer = world.handler.handle(event(&batch, arn), deadline).await.unwrap();
        assert_eq!(answer.failures[0].id, batch[0].message_id);
    }
    assert_eq!((world.record("waits").await, world.sender.seen().len(), world.table.all().len()), (before, 1, 1));
}

#[tokio::test]
async fn a_panic_over_one_message_fails_that_message_only() {
    struct Panicking;
    impl Sender for Panicking {
        async fn post(&self, request: &Request<'_>) -> Outcome {
            assert!(!request.headers.iter().any(|(n, v)| n == "webhook-id" && v == "bad"), "on purpose");
            status(200)
        }
    }
    let world = World::new();
    for id in ["a", "bad", "z"] {
        world.send(id);
    }
    let inner = &world.handler.deliver;
    let handler = Handler {
        retry_queue_arn: RETRY_ARN.to_owned(),
        deliver: Deliver {
            deliveries: world.table.clone(),
            payloads: world.payloads.clone(),
            endpoints: world.endpoints.clone(),
            sender: Panicking,
            clock: world.clock.clone(),
            settings: inner.settings.clone(),
        },
    };
    let batch = world.intake.take();
    let answer = handler.handle(event(&batch, INTAKE_ARN), world.clock.now().plus(TIMING.function_ms)).await.unwrap();
    assert_eq!(answer.failures.iter().map(|f| f.id.as_str()).collect::<Vec<_>>(), [batch[1].message_id.as_str()]);
    for id in ["a", "z"] {
        assert_eq!(world.record(id).await.state, State::Delivered);
    }
}

#[tokio::test]
async fn a_time_filter_means_the_entry_into_the_state_for_held_deliveries_too() {
    let world = World::new();
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Removed);
    for id in ["early", "late"] {
        world.send(id);
        world.settle_now().await;
        world.clock.advance(60_000);
    }
    let middle = START.plus(30_000).to_string();
    for endpoint in [json!(null), json!("p")] {
        for bound in ["before", "after"] {
            let filter = json!({"state": "held", "endpoint": endpoint, bound: middle});
            let proposed = world.act(json!({"action": "propose", "filter": filter})).await;
            assert_eq!(proposed["count"], 1, "{bound} {endpoint}: {proposed}");
        }
    }
}
