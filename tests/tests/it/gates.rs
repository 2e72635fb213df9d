//! Stories at the edges of an attempt: what is in its way, what is late by a millisecond, what an operator says meanwhile,
//! and what is told about it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use deliver::deliver::Deliver;
use deliver::handler::Handler;
use domain::delivery::{DeadReason, HeldReason, State, WaitingReason};
use domain::endpoint::Found;
use domain::endpoint_state::Status;
use domain::id::{EndpointKey, StateKey};
use domain::outcome::Outcome;
use domain::plan::Stop;
use domain::ports::{Clock, Deliveries, EndpointStates, Endpoints, Plans, Sender, StoreError, Swapped};
use domain::record::Record;
use domain::request::Request;
use domain::signature::Secret;
use domain::time::Millis;
use domain::transition::cancel;
use domain::wakeup::Waiting;
use serde_json::{Value, json};
use testkit::clock::VirtualClock;
use testkit::executor::Executor;
use testkit::hostile::{Call, Fate, Fates, Gate, Hostile};
use testkit::memory::{MemoryEndpoints, MemoryPayloads};
use testkit::samples::RETENTION;
use testkit::sender::status;

use crate::world::{INTAKE_ARN, RETRY_ARN, START, TIMING, Table, World, event};

fn send_with(world: &World, id: &str, name: &str, at: Millis) {
    world.intake.send(&json!({"id": id, "endpoint": "p", "body": "x", name: at.to_string()}).to_string(), 0);
}

/// The handler of a world, with another endpoint to send to, or another way to find endpoints.
fn handler<E: Endpoints, S: Sender>(
    world: &World,
    endpoints: E,
    sender: S,
) -> Handler<Table, MemoryPayloads, E, S, VirtualClock> {
    Handler {
        retry_queue_arn: RETRY_ARN.to_owned(),
        deliver: Deliver {
            deliveries: world.table.clone(),
            payloads: world.payloads.clone(),
            endpoints,
            sender,
            clock: world.clock.clone(),
            settings: world.handler.deliver.settings.clone(),
        },
    }
}

async fn deliver<E: Endpoints, S: Sender>(
    world: &World,
    handler: &Handler<Table, MemoryPayloads, E, S, VirtualClock>,
) -> usize {
    let batch = event(&world.intake.take(), INTAKE_ARN);
    handler.handle(batch, world.clock.now().plus(TIMING.function_ms)).await.unwrap().failures.len()
}

fn sent(world: &World) -> Vec<String> {
    world.sender.seen().iter().map(|s| s.header("webhook-id").unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_message_whose_deadline_has_passed_when_it_comes_is_never_sent() {
    let world = World::new();
    send_with(&world, "late", "deliver_by", START);
    send_with(&world, "soon", "deliver_by", START.plus(1));
    world.settle_now().await;
    let late = world.record("late").await;
    assert_eq!((late.state, late.attempt, world.payloads.len()), (State::DeadLettered(DeadReason::Expired), 0, 1));
    assert_eq!((world.record("soon").await.state, sent(&world)), (State::Delivered, vec!["soon".to_owned()]));
}

#[tokio::test]
async fn two_seconds_are_waited_for_and_more_is_parked() {
    for (ms, state) in [(2_000, State::Delivered), (2_001, State::Waiting(WaitingReason::Scheduled))] {
        let world = World::new();
        send_with(&world, "e", "deliver_at", START.plus(ms));
        world.deliver_from(&world.intake, INTAKE_ARN).await;
        assert_eq!(world.record("e").await.state, state, "{ms} ms");
    }
}

#[tokio::test]
async fn a_payload_is_kept_again_for_a_dead_letter_and_for_a_retry_only_when_it_would_go_too_soon() {
    let world = World::new();
    world.sender.then((0..8).map(|_| status(500)));
    world.send("e");
    world.settle_now().await;
    let first = world.record("e").await;
    assert_eq!(first.payload_kept_until, Some(first.due.unwrap().plus(RETENTION.payload_ms)));
    world.run_for_seconds(10_000).await;
    let waiting = world.record("e").await;
    assert_eq!((waiting.attempt, waiting.payload_kept_until), (5, first.payload_kept_until), "still long enough");
    world.run_for_seconds(90_000).await;
    let dead = world.record("e").await;
    assert_eq!(dead.state, State::DeadLettered(DeadReason::Exhausted));
    assert_eq!(dead.payload_kept_until, Some(dead.since.plus(RETENTION.payload_ms)), "a dead letter, the whole time");
}

#[tokio::test]
async fn a_payload_that_is_lost_costs_no_attempt() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.payloads.clear();
    world.run_for_seconds(60).await;
    let record = world.record("e").await;
    assert_eq!((record.state, record.attempt), (State::DeadLettered(DeadReason::PayloadLost), 1));
}

/// An endpoint that says that it is gone, after an operator has set it active while the request was on its way.
struct SetActive {
    table: Table,
    clock: VirtualClock,
    after_ms: i64,
}

impl Sender for SetActive {
    async fn post(&self, _: &Request<'_>) -> Outcome {
        self.clock.advance(self.after_ms);
        let old = self.table.endpoint_state(&StateKey::stored("p"), true).await.unwrap();
        let new = old.set(Status::Active, "operator", self.clock.now());
        assert_eq!(self.table.save_endpoint_state(&old, &new).await, Ok(true));
        status(410)
    }
}

#[tokio::test]
async fn an_endpoint_that_is_gone_does_not_overrule_an_operator_who_spoke_after_the_attempt_began() {
    for (after_ms, expected) in [(0, Status::Disabled), (1, Status::Active)] {
        let world = World::new();
        world.send("e");
        let sender = SetActive { table: world.table.clone(), clock: world.clock.clone(), after_ms };
        assert_eq!(deliver(&world, &handler(&world, world.endpoints.clone(), sender)).await, 0);
        let state = world.table.endpoint_state(&StateKey::stored("p"), true).await.unwrap();
        assert_eq!(state.status, expected, "{after_ms} ms after the claim");
    }
}

#[tokio::test]
async fn a_pause_stays_a_pause_when_the_endpoint_says_that_it_is_gone() {
    struct Paused(SetActive);
    impl Sender for Paused {
        async fn post(&self, _: &Request<'_>) -> Outcome {
            let old = self.0.table.endpoint_state(&StateKey::stored("p"), true).await.unwrap();
            // By an operator whose clock is behind.
            let new = old.set(Status::Paused, "operator", self.0.clock.now().plus(-1));
            assert_eq!(self.0.table.save_endpoint_state(&old, &new).await, Ok(true));
            status(410)
        }
    }
    let world = World::new();
    world.send("e");
    let sender = Paused(SetActive { table: world.table.clone(), clock: world.clock.clone(), after_ms: 0 });
    deliver(&world, &handler(&world, world.endpoints.clone(), sender)).await;
    let state = world.table.endpoint_state(&StateKey::stored("p"), true).await.unwrap();
    assert_eq!(state.status, Status::Paused);
}

#[tokio::test]
async fn a_request_gets_no_more_time_than_its_claim_has_left() {
    struct Timed(Rc<Cell<i64>>);
    impl Sender for Timed {
        async fn post(&self, request: &Request<'_>) -> Outcome {
            self.0.set(request.timeout_ms);
            status(200)
        }
    }
    // Of 45 seconds, one and a half are for recording what came of it.
    for (claim_ms, timeout_ms) in [(0, 10_000), (33_500, 10_000), (33_501, 9_999), (40_000, 3_500), (44_000, 0)] {
        let world = World::new();
        world.send("e");
        let (clock, seen) = (world.clock.clone(), Rc::new(Cell::new(-1)));
        world.table.watch(Rc::new(move |before: Option<&Record>, _: &Record| {
            if before.is_none() {
                clock.advance(claim_ms);
            }
        }));
        deliver(&world, &handler(&world, world.endpoints.clone(), Timed(seen.clone()))).await;
        assert_eq!(seen.get(), timeout_ms, "{claim_ms}");
    }
}

/// Swaps fail so many times.
struct SwapsFail(Cell<u32>);

impl Fates for SwapsFail {
    fn of(&self, call: &Call<'_>) -> Fate {
        if call.name != "swap" || self.0.get() == 0 {
            return Fate::Pass;
        }
        self.0.set(self.0.get() - 1);
        Fate::FailBefore
    }

    fn delays(&self, _: &Call<'_>) -> Option<(i64, i64)> {
        None
    }
}

#[tokio::test]
async fn an_outcome_is_recorded_once_the_table_takes_it_until_a_second_is_left() {
    for (failures, state, ms) in [(3, State::Delivered, 300), (1_000, State::InFlight, 43_900)] {
        let world = World::new();
        world.send("e");
        let executor = Executor::new(world.clock.clone());
        let gate = Gate { executor, fates: Rc::new(SwapsFail(Cell::new(failures))) };
        let handler = Handler {
            retry_queue_arn: RETRY_ARN.to_owned(),
            deliver: Deliver {
                deliveries: Hostile::new(world.table.clone(), gate),
                payloads: world.payloads.clone(),
                endpoints: world.endpoints.clone(),
                sender: world.sender.clone(),
                clock: world.clock.clone(),
                settings: world.handler.deliver.settings.clone(),
            },
        };
        let batch = event(&world.intake.take(), INTAKE_ARN);
        let answer = handler.handle(batch, START.plus(TIMING.function_ms)).await.unwrap();
        assert_eq!((world.record("e").await.state, answer.failures.is_empty()), (state, failures == 3));
        assert_eq!(world.clock.now(), START.plus(ms), "{failures} failures");
    }
}

/// An endpoint that answers after the delivery was cancelled.
struct Cancelling {
    table: Table,
    clock: VirtualClock,
    answer: u16,
}

impl Sender for Cancelling {
    async fn post(&self, _: &Request<'_>) -> Outcome {
        let record = self.table.all().pop().expect("the attempt is on record");
        let next = cancel(&record, "operator", RETENTION, self.clock.now()).unwrap();
        assert_eq!(self.table.swap(&record, &next).await, Ok(Swapped::Done));
        status(self.answer)
    }
}

#[tokio::test]
async fn a_cancel_during_an_attempt_is_honoured_unless_that_is_accepted() {
    for (answer, expected) in [(500, State::Cancelled), (200, State::Delivered)] {
        let world = World::new();
        world.send("e");
        let sender = Cancelling { table: world.table.clone(), clock: world.clock.clone(), answer };
        assert_eq!(deliver(&world, &handler(&world, world.endpoints.clone(), sender)).await, 0);
        assert_eq!(world.record("e").await.state, expected, "{answer}");
    }
}

#[tokio::test]
async fn the_reason_of_a_blocked_request_is_kept_and_short() {
    let world = World::new();
    world.sender.then(["x".repeat(5_000), "short".to_owned()].map(|detail| Outcome::Blocked { detail }));
    let mut lengths = Vec::new();
    for id in ["long", "short"] {
        world.send(id);
        world.settle_now().await;
        let record = world.record(id).await;
        assert_eq!(record.state, State::DeadLettered(DeadReason::Blocked));
        lengths.push(record.attempts().next().unwrap().detail.as_ref().unwrap().len());
    }
    assert_eq!(lengths, [256, 5]);
}

/// A registry with a cache that is out of date.
#[derive(Clone)]
struct Stale {
    cached: Found,
    real: MemoryEndpoints,
    fresh_reads: Rc<Cell<u32>>,
}

impl Endpoints for Stale {
    async fn find(&self, endpoint: &EndpointKey, fresh: bool) -> Result<Found, StoreError> {
        if !fresh {
            return Ok(self.cached.clone());
        }
        self.fresh_reads.set(self.fresh_reads.get() + 1);
        self.real.find(endpoint, true).await
    }

    async fn inline_keys(&self) -> Result<Vec<Secret>, StoreError> {
        self.real.inline_keys().await
    }
}

#[tokio::test]
async fn a_verdict_against_an_endpoint_is_never_taken_from_a_cache() {
    let world = World::new();
    let p = EndpointKey::registered("p").unwrap();
    let known = world.endpoints.find(&p, true).await.unwrap();
    for (cached, reads) in [(Found::Unknown, 1), (Found::Removed, 1), (known, 0)] {
        let stale = Stale { cached, real: world.endpoints.clone(), fresh_reads: Rc::default() };
        let id = format!("e{}", sent(&world).len());
        world.send(&id);
        assert_eq!(deliver(&world, &handler(&world, stale.clone(), world.sender.clone())).await, 0);
        assert_eq!((world.record(&id).await.state, stale.fresh_reads.get()), (State::Delivered, reads), "{id}");
    }
}

#[tokio::test]
async fn a_pause_may_be_seen_seconds_late_and_its_end_at_once() {
    let world = World::new();
    world.table.let_indexes_lag(world.clock.clone(), Rc::new(|| 0));
    let set = async |status: &str| {
        let action = json!({"action": "endpoint", "endpoint": "p", "set": status, "reason": "x", "operator": "ada"});
        assert_eq!(world.act(action).await["ok"], true);
    };
    set("paused").await;
    world.send("cached");
    world.settle_now().await;
    assert_eq!(world.record("cached").await.state, State::Delivered, "nobody had looked again yet");
    world.clock.advance(10_000);
    set("active").await;
    world.send("after");
    world.deliver_from(&world.intake, INTAKE_ARN).await;
    assert_eq!(world.record("after").await.state, State::Delivered);
    set("paused").await;
    world.clock.advance(10_000);
    world.send("held");
    world.settle_now().await;
    assert_eq!(world.record("held").await.state, State::Held(HeldReason::Paused));
}

#[tokio::test]
async fn what_an_aborted_plan_took_out_of_a_pause_goes_back_only_while_that_lasts() {
    for (ends, expected) in [(true, State::Delivered), (false, State::Held(HeldReason::Paused))] {
        let mut world = World::new();
        let set = |status: &str| json!({"action": "endpoint", "endpoint": "p", "set": status, "reason": "x"});
        world.act(set("paused")).await;
        world.send("e");
        world.settle_now().await;
        let proposed = world.act(json!({"action": "propose", "filter": {"state": "held"}})).await;
        world.relay_stalled = true;
        let approve = json!({
            "action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": "r", "reason": "x",
        });
        assert_eq!(world.act(approve).await["plan"]["released"], 1);
        if ends {
            world.act(set("active")).await;
        }
        world.act(json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "stop"})).await;
        world.relay_stalled = false;
        world.run_for_seconds(5).await;
        assert_eq!(world.record("e").await.state, expected);
    }
}

#[tokio::test]
async fn a_booked_slot_is_good_for_five_seconds() {
    for (late_ms, sent) in [(0, 2), (5_000, 2), (5_001, 1)] {
        let world = World::new();
        world.sender.then([status(400)]);
        world.send("e");
        world.settle_now().await;
        let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 1})).await;
        let plan = proposed["plan_id"].as_str().unwrap();
        let approve = json!({
            "action": "approve", "plan_id": plan, "digest": proposed["digest"], "redrive_id": "r", "reason": "x",
        });
        world.act(approve).await;
        // Others have booked the next slots, so it is put off; and then others book many more.
        for _ in 0..10 {
            world.table.book(plan, 1, world.clock.now()).await.unwrap();
        }
        world.settle_now().await;
        let put_off = world.record("e").await;
        assert_eq!((put_off.state, put_off.booked), (State::Waiting(WaitingReason::Deferred), true));
        for _ in 0..100 {
            world.table.book(plan, 1, world.clock.now()).await.unwrap();
        }
        world.retry.clear();
        world.clock.advance(put_off.due.unwrap().plus(late_ms).since(world.clock.now()));
        world.retry.send(&serde_json::to_string(&Waiting::of(&put_off).unwrap().wake_up).unwrap(), 0);
        world.deliver_from(&world.retry, RETRY_ARN).await;
        assert_eq!(world.sender.seen().len(), sent, "{late_ms} ms after its slot");
    }
}

#[tokio::test]
async fn a_stop_of_an_origin_takes_back_its_inline_deliveries_and_no_others() {
    let mut world = World::new();
    world.sender.then([status(400), status(400)]);
    world.send("registered");
    let url = "https://callbacks.example.test/1";
    world.intake.send(&json!({"id": "inline", "url": url, "body": "x"}).to_string(), 0);
    world.settle_now().await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.relay_stalled = true;
    let approve = json!({
        "action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": "r", "reason": "x",
    });
    assert_eq!(world.act(approve).await["plan"]["released"], 2);
    let plan = world.table.plan(proposed["plan_id"].as_str().unwrap(), true).await.unwrap().unwrap();
    let group = StateKey::inline(&url::Url::parse(url).unwrap()).to_string();
    let stopped = plan.changed(|p| p.stopped = [(group, Stop::Failed)].into());
    assert_eq!(world.table.save_plan(&plan, &stopped, None).await, Ok(true));
    world.relay_stalled = false;
    world.run_for_seconds(5).await;
    let states: Vec<(String, State)> = world.table.all().iter().map(|r| (r.key.event.to_string(), r.state)).collect();
    let state = |id: &str| states.iter().find(|(event, _)| event == id).map(|(_, state)| *state);
    assert_eq!(state("registered"), Some(State::Delivered));
    assert_eq!(state("inline"), Some(State::DeadLettered(DeadReason::Permanent)));
}

#[tokio::test]
async fn what_came_back_often_or_was_abandoned_runs_after_its_neighbours() {
    for (receives, order) in [(2, ["e", "f"]), (3, ["f", "e"])] {
        let world = World::new();
        world.send("e");
        world.intake.set_receives(receives);
        world.send("f");
        world.settle_now().await;
        assert_eq!(sent(&world), order, "received {receives} times before");
    }
    let world = World::new();
    world.sender.then([status(500), status(500)]);
    for id in ["e", "f"] {
        world.send(id);
    }
    world.settle_now().await;
    world.retry.clear();
    world.clock.advance(60_000);
    for (id, abandoned) in [("e", true), ("f", false)] {
        let due = world.record(id).await.due.unwrap().0;
        let wake_up = json!({"id": id, "endpoint": "p", "attempt": 2, "due": due, "abandoned": abandoned});
        world.retry.send(&wake_up.to_string(), 0);
    }
    world.settle_now().await;
    assert_eq!(sent(&world)[2..], ["f", "e"]);
}

/// The lines that are logged, as JSON.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// The fields of all lines with that message.
    fn of(&self, message: &str) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let fields = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].clone());
        fields.filter(|fields| fields["message"] == message).collect()
    }
}

#[tokio::test]
async fn every_attempt_and_every_move_without_one_is_one_line() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    send_with(&world, "later", "deliver_at", START.plus(100_000));
    world.settle_now().await;
    world.run_for_seconds(60).await;
    let attempts = lines.of("attempt");
    let told: Vec<_> =
        attempts.iter().map(|a| (&a["attempt.number"], &a["outcome.status"], &a["delivery.state"])).collect();
    assert_eq!(told, [(&json!(1), &json!(500), &json!("waiting")), (&json!(2), &json!(200), &json!("delivered"))]);
    let moves = lines.of("delivery moved without an attempt");
    let told: Vec<_> = moves.iter().map(|m| (&m["delivery.id"], &m["delivery.reason"])).collect();
    assert_eq!(told, [(&json!("later"), &json!("scheduled"))]);
    assert_eq!(moves[0]["delivery.due"], json!(START.plus(100_000).to_string()));
}
