//! The sweep under pressure: piles that do not fit into one run, a busy queue, and what it says without doing it.

use std::rc::Rc;

use dlq_sweep::handler::{Queues, Sweep};
use domain::delivery::{DeadReason, State, WaitingReason};
use domain::id::DeliveryKey;
use domain::outcome::Class;
use domain::ports::{Clock, Cursor, Deliveries};
use domain::record::Record;
use domain::sweep::BUSY_QUEUE;
use domain::time::{DAY_MS, Millis};
use domain::transition::{Arrival, give_up};
use serde_json::json;
use testkit::executor::Executor;
use testkit::hostile::{Call, Fate, Fates, Gate, Hostile};
use testkit::samples::{LIMITS, RETENTION, claimed, lease, message};
use testkit::sender::status;

use crate::world::{QueueDepth, START, TIMING, World};

/// Deliveries that failed once and whose wake-ups all got lost.
async fn lost(count: usize) -> World {
    let world = World::new();
    world.sender.then((0..count).map(|_| status(500)));
    for i in 0..count {
        world.send(&format!("e{i}"));
    }
    world.settle_now().await;
    world.retry.clear();
    world.clock.advance(600_000);
    world
}

async fn run(world: &World, mode: &str, ms: i64) -> dlq_sweep::evidence::Evidence {
    world.sweep.handle(&json!({"mode": mode}), world.clock.now().plus(ms), "t").await.unwrap()
}

#[tokio::test]
async fn one_run_brings_back_no_more_than_a_minute_of_work_and_the_next_ones_the_rest() {
    let count = usize::try_from(BUSY_QUEUE).unwrap() + 500;
    let world = lost(count).await;
    let first = run(&world, "act", 60_000).await;
    assert_eq!((first.rearmed, first.skipped_queued), (BUSY_QUEUE, 500));
    world.relay();
    let second = run(&world, "act", 60_000).await;
    assert_eq!((second.rearmed, second.skipped_queued), (0, 500), "the queue is busy with the first ones");
    world.settle_now().await;
    assert_eq!(run(&world, "act", 60_000).await.rearmed, 500);
    world.settle_now().await;
    assert!(world.table.all().iter().all(|r| r.state == State::Delivered));
    assert_eq!(world.sender.seen().len(), 2 * count);
}

#[tokio::test]
async fn a_run_that_is_cut_off_is_continued_where_it_stopped() {
    let world = lost(50).await;
    // No time at all: nothing is looked at, and the next run begins at the same place.
    let none = run(&world, "act", 2_000).await;
    assert_eq!((none.examined, none.rearmed), (0, 0));
    assert!(none.pages_left > 0);
    // As if an earlier run had been cut off behind all of them, in every shard.
    let newest = world.table.all().iter().filter_map(|r| r.due).max().unwrap();
    for shard in 0..16 {
        world.table.set_cursor(Cursor::Overdue(shard), newest.plus(1)).await.unwrap();
    }
    run(&world, "observe", 60_000).await;
    assert_eq!(world.table.cursor(Cursor::Overdue(0)).await, Ok(Some(newest.plus(1))), "observing moves nothing");
    assert_eq!(run(&world, "act", 60_000).await.rearmed, 0);
    for shard in 0..16 {
        assert_eq!(world.table.cursor(Cursor::Overdue(shard)).await, Ok(Some(Millis(0))), "it came to the end");
    }
    assert_eq!(run(&world, "act", 60_000).await.rearmed, 50, "and begins anew");
}

#[tokio::test]
async fn observing_says_what_acting_does_and_writes_nothing() {
    let world = World::new();
    // Lost wake-ups, a plan and a resume that died before their first release, and held ones whose time is over.
    let set = |status: &str| json!({"action": "endpoint", "endpoint": "p", "set": status, "reason": "test"});
    world.sender.then((0..5).map(|_| status(500)).chain((0..3).map(|_| status(400))));
    for i in 0..8 {
        world.send(&format!("e{i}"));
        world.settle_now().await;
    }
    world.retry.clear();
    let proposed = world.act(json!({"action": "propose", "filter": {"state": "dead_lettered"}})).await;
    let approve = json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": "r", "reason": "x"});
    world.act_within(approve, 2_000).await;
    assert_eq!(world.act(set("paused")).await["ok"], true);
    for i in 0..4 {
        let by = world.clock.now().plus(if i == 0 { 60_000 } else { 86_400_000 });
        let message = json!({"id": format!("h{i}"), "endpoint": "p", "body": "x", "deliver_by": by.to_string()});
        world.intake.send(&message.to_string(), 0);
    }
    world.settle_now().await;
    world.intake_dlq.send(&json!({"id": "dead", "endpoint": "p", "body": "x"}).to_string(), 0);
    world.clock.advance(600_000);
    world.act_within(set("active"), 2_000).await;
    let writes = world.table.writes();
    let (observed, observed_again) = (run(&world, "observe", 60_000).await, run(&world, "observe", 60_000).await);
    assert_eq!(world.table.writes(), writes, "observing writes nothing");
    let acted = run(&world, "act", 60_000).await;
    let told = |e: &dlq_sweep::evidence::Evidence| {
        (e.rearmed, e.taken_over, e.released, e.expired, e.extended, e.skipped_owned, e.skipped_moved, e.dlq_visible)
    };
    assert_eq!(told(&observed), told(&observed_again));
    assert_eq!(told(&observed), told(&acted));
    assert_eq!((acted.rearmed, acted.dlq_visible, acted.drained), (5, 1, 1), "{acted:?}");
    assert!(acted.released >= 3, "{acted:?}");
}

#[tokio::test]
async fn what_is_held_keeps_its_payload_until_its_deadline_ends_it() {
    let world = World::new();
    let pause = json!({"action": "endpoint", "endpoint": "p", "set": "paused", "reason": "test"});
    assert_eq!(world.act(pause).await["ok"], true);
    let by = START.plus(28 * DAY_MS);
    world.send("kept");
    world
        .intake
        .send(&json!({"id": "ends", "endpoint": "p", "body": "x", "deliver_by": by.to_string()}).to_string(), 0);
    world.settle_now().await;
    world.clock.advance(25 * DAY_MS - 1);
    assert_eq!(run(&world, "act", 60_000).await.extended, 0, "five days are left");
    world.clock.advance(1);
    let writes = world.table.writes();
    assert_eq!((run(&world, "observe", 60_000).await.extended, world.table.writes()), (1, writes));
    let acted = run(&world, "act", 60_000).await;
    assert_eq!((acted.extended, acted.expired, acted.skipped_moved), (1, 0, 0));
    let kept = world.record("kept").await;
    assert_eq!((kept.payload_kept_until, kept.due), (Some(START.plus(60 * DAY_MS)), Some(START.plus(55 * DAY_MS))));
    let hash = kept.payload.as_ref().unwrap().hash.clone();
    assert_eq!(world.payloads.kept_until(&kept.key, &hash), kept.payload_kept_until);
    world.clock.advance(3 * DAY_MS - 1);
    assert_eq!(run(&world, "act", 60_000).await.expired, 0);
    world.clock.advance(1);
    assert_eq!((run(&world, "observe", 60_000).await.expired, run(&world, "act", 60_000).await.expired), (1, 1));
    assert_eq!(world.record("ends").await.state, State::DeadLettered(DeadReason::Expired));
    world.payloads.clear();
    world.clock.advance(27 * DAY_MS);
    run(&world, "act", 60_000).await;
    assert_eq!(world.record("kept").await.state, State::DeadLettered(DeadReason::PayloadLost));
}

/// A delivery whose second attempt was claimed by a process that is gone.
async fn claimed_again() -> (World, DeliveryKey) {
    let world = lost(1).await;
    let key = DeliveryKey::parse("e0", "p").unwrap();
    let now = world.clock.now();
    world.table.claim(&key, 1, &lease("gone", 9, now.plus(TIMING.lease_ms)), now).await.unwrap();
    (world, key)
}

#[tokio::test]
async fn an_attempt_is_taken_over_when_its_message_could_have_come_back_and_not_before() {
    let (world, key) = claimed_again().await;
    // The message could come back for 270 s, and a minute is given to it.
    world.clock.advance(330_000);
    let early = run(&world, "act", 60_000).await;
    assert_eq!((early.taken_over, early.skipped_owned, early.skipped_moved), (0, 1, 0));
    world.clock.advance(1);
    let writes = world.table.writes();
    assert_eq!((run(&world, "observe", 60_000).await.taken_over, world.table.writes()), (1, writes));
    assert_eq!(run(&world, "act", 60_000).await.taken_over, 1);
    let record = world.table.get(&key).await.unwrap().unwrap();
    assert_eq!(record.state, State::Waiting(WaitingReason::Recovered));
    assert_eq!(record.attempts().last().unwrap().class, Class::Unknown);
}

#[tokio::test]
async fn a_wake_up_in_the_dlq_settles_the_attempt_it_started_and_stays_while_that_runs() {
    let (world, _) = claimed_again().await;
    let wake_up = json!({"id": "e0", "endpoint": "p", "attempt": 2, "due": world.clock.now().0}).to_string();
    let sent = world.retry_dlq.send(&wake_up, 0);
    let busy = run(&world, "act", 60_000).await;
    // Another message than the one that claimed: nothing of it is needed any more.
    assert_eq!((busy.drained, busy.left_in_dlq, world.retry_dlq.len()), (1, 0, 0), "{sent}");
    world.clock.advance(TIMING.lease_ms);
    world.retry_dlq.send(&wake_up, 0);
    let over = run(&world, "act", 60_000).await;
    assert_eq!((over.taken_over, over.drained, world.retry_dlq.len()), (1, 1, 0));
    assert_eq!(world.record("e0").await.state, State::Waiting(WaitingReason::Recovered));
}

#[tokio::test]
async fn a_first_attempt_without_a_payload_is_left_to_its_own_message() {
    let world = World::new();
    let raw = json!({"id": "e0", "endpoint": "p", "json": {"id": "e0"}}).to_string();
    let Ok(domain::message::Intake::Webhook(message)) = domain::message::parse(&raw, &LIMITS) else {
        panic!("a good message")
    };
    world.table.create(&claimed(&message, world.clock.now())).await.unwrap();
    world.clock.advance(TIMING.lease_ms);
    world.retry_dlq.send(&json!({"id": "e0", "endpoint": "p", "attempt": 1, "due": 0}).to_string(), 0);
    let left = run(&world, "act", 60_000).await;
    assert_eq!((left.left_in_dlq, left.drained, left.taken_over, world.retry_dlq.len()), (1, 0, 0, 1));
    assert_eq!(world.record("e0").await.state, State::InFlight);
}

#[tokio::test]
async fn what_comes_out_of_the_intake_dlq_is_what_is_still_owed() {
    let world = World::new();
    world.clock.advance(60_000);
    let now = world.clock.now();
    for (id, by) in [("late", now), ("soon", now.plus(1))] {
        let body = json!({"id": id, "endpoint": "p", "body": "x", "deliver_by": by.to_string()}).to_string();
        world.intake_dlq.send(&body, 0);
    }
    world.send("done");
    world.settle_now().await;
    world.intake_dlq.send(&json!({"id": "done", "endpoint": "p", "json": {"id": "done"}}).to_string(), 0);
    let evidence = run(&world, "act", 60_000).await;
    assert_eq!((evidence.dlq_visible, evidence.drained, evidence.left_in_dlq), (3, 3, 0));
    assert_eq!(evidence.pages_left, 0, "it came to the end");
    assert_eq!(world.record("late").await.state, State::DeadLettered(DeadReason::Expired));
    assert_eq!(world.record("soon").await.state, State::Waiting(WaitingReason::Recovered));
    assert_eq!((world.record("done").await.state, world.intake_dlq.len()), (State::Delivered, 0));
}

#[tokio::test]
async fn the_copy_of_an_attempt_in_flight_stays_in_the_dlq_until_the_attempt_is_over() {
    let world = World::new();
    let raw = json!({"id": "e0", "endpoint": "p", "json": {"id": "e0"}}).to_string();
    let Ok(domain::message::Intake::Webhook(message)) = domain::message::parse(&raw, &LIMITS) else {
        panic!("a good message")
    };
    world.table.create(&claimed(&message, world.clock.now())).await.unwrap();
    world.intake_dlq.send(&raw, 0);
    let evidence = run(&world, "act", 60_000).await;
    assert_eq!((evidence.left_in_dlq, evidence.drained, world.intake_dlq.len()), (1, 0, 1));
    world.clock.advance(TIMING.visibility_ms);
    let evidence = run(&world, "act", 60_000).await;
    assert_eq!((evidence.taken_over, evidence.drained, world.intake_dlq.len()), (1, 1, 0));
    world.relay();
    world.settle_now().await;
    assert_eq!(world.record("e0").await.state, State::Delivered);
}

#[tokio::test]
async fn a_wake_up_is_rejected_unparsed_only_after_it_has_been_received_there_too_often() {
    let world = World::new();
    let wake_up = json!({"id": "e", "endpoint": "p", "attempt": 2, "due": 0}).to_string();
    for (receives, rejected) in [(17, 0), (18, 1)] {
        world.retry_dlq.send(&wake_up, 0);
        world.retry_dlq.set_receives(receives);
        let evidence = run(&world, "act", 60_000).await;
        assert_eq!((evidence.rejected, evidence.drained), (rejected, 1 - rejected), "received {receives} times before");
    }
}

#[tokio::test]
async fn a_run_tells_how_much_there_is_and_how_old_it_is() {
    let world = lost(2).await;
    world.sender.then((0..3).map(|_| status(400)));
    for i in 0..3 {
        world.send(&format!("dead{i}"));
    }
    world.intake.send("poison", 0);
    world.settle_now().await;
    let pause = json!({"action": "endpoint", "endpoint": "p", "set": "paused", "reason": "test"});
    assert_eq!(world.act(pause).await["ok"], true);
    for i in 0..4 {
        world.send(&format!("held{i}"));
    }
    world.settle_now().await;
    world.clock.advance(100_000);
    let late =
        world.clock.now().since(world.record("e0").await.due.unwrap().min(world.record("e1").await.due.unwrap()));
    let evidence = run(&world, "observe", 60_000).await;
    let pile = |pile: &dlq_sweep::evidence::Pile| (pile.count, pile.oldest_seconds);
    let backlog = &evidence.backlog;
    assert_eq!(pile(&backlog.waiting), (2, late / 1_000));
    assert_eq!(pile(&backlog.dead_lettered), (3, 100));
    assert_eq!(pile(&backlog.rejected), (1, 100));
    // What is held has its place where its payload needs something, weeks from now.
    assert_eq!(pile(&backlog.held), (4, 0));
    assert_eq!((evidence.oldest_overdue_seconds, evidence.backlog_capped), (late / 1_000, false));
}

#[tokio::test]
async fn an_overdue_wait_is_looked_at_after_its_grace() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.retry.clear();
    let due = world.record("e").await.due.unwrap();
    for (ms, told) in [(59_999, (0, 0)), (60_000, (1, 0)), (60_001, (1, 1))] {
        let at = due.plus(ms);
        world.clock.advance(at.since(world.clock.now()));
        let evidence = run(&world, "observe", 60_000).await;
        assert_eq!((evidence.examined, evidence.rearmed), told, "{ms} ms after its due time");
    }
}

#[tokio::test]
async fn an_index_that_is_behind_is_counted_and_does_no_harm() {
    let world = World::new();
    world.table.let_indexes_lag(world.clock.clone(), Rc::new(|| 300_000));
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.clock.advance(290_000);
    world.settle_now().await;
    assert_eq!(world.record("e").await.state, State::Delivered);
    world.clock.advance(20_000);
    let evidence = run(&world, "act", 60_000).await;
    assert_eq!((evidence.examined, evidence.skipped_moved, evidence.rearmed), (1, 1, 0), "{evidence:?}");
}

#[tokio::test]
async fn a_run_without_time_says_how_many_parts_it_left() {
    let world = lost(1).await;
    let arm = world.sweep.handle(&json!({"run": "arm"}), world.clock.now().plus(2_000), "t").await.unwrap();
    assert_eq!((arm.pages_left, arm.examined), (16, 0), "every shard");
    // Overdue and held ones in every shard, and both transport DLQs.
    assert_eq!(run(&world, "act", 2_000).await.pages_left, 34);
    world.sender.then([status(400)]);
    world.send("dead");
    world.settle_now().await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    let approve = json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": "r", "reason": "x"});
    world.act_within(approve, 15_000).await;
    world.act_within(json!({"action": "endpoint", "endpoint": "p", "set": "active", "reason": "test"}), 2_000).await;
    assert_eq!(run(&world, "act", 2_000).await.pages_left, 36, "a plan and a resume, too");
}

#[tokio::test]
async fn a_pile_is_counted_up_to_a_limit_and_the_evidence_says_so() {
    let world = World::new();
    let in_one_shard = (0..).map(|i| message(&format!("e{i}"))).filter(|m| m.key.shards().0 == 0);
    for (i, webhook) in in_one_shard.take(1_001).enumerate() {
        if i == 1_000 {
            assert!(!run(&world, "observe", 60_000).await.backlog_capped);
        }
        let dead = give_up(&claimed(&webhook, START), RETENTION, START.plus(TIMING.lease_ms)).unwrap();
        world.table.create(&dead).await.unwrap();
    }
    let evidence = run(&world, "observe", 60_000).await;
    assert_eq!((evidence.backlog.dead_lettered.count, evidence.backlog_capped), (1_000, true));
}

#[tokio::test]
async fn an_arm_run_that_is_cut_off_within_a_shard_is_continued_there() {
    let world = World::new();
    // A minute whose run begins with the first shard.
    while world.clock.now().0 / 60_000 % 16 != 0 {
        world.clock.advance(60_000);
    }
    let now = world.clock.now();
    let in_one_shard = (0..).map(|i| message(&format!("e{i}"))).filter(|m| m.key.shards().0 == 0);
    for (i, webhook) in (0..).zip(in_one_shard.take(150)) {
        let arrival = Arrival { message: &webhook, accepted_at: START, sender: None, budget: 8 };
        let (due, then) = (now.plus(700_000 + i), now.plus(-300_000));
        let waiting = arrival.waiting(WaitingReason::Scheduled, due, due.plus(RETENTION.payload_ms), then).unwrap();
        world.table.create(&waiting).await.unwrap();
    }
    let clock = world.clock.clone();
    world.table.watch(Rc::new(move |_: Option<&Record>, _: &Record| clock.advance(1_000)));
    let arm = async |ms| world.sweep.handle(&json!({"run": "arm"}), world.clock.now().plus(ms), "t").await.unwrap();
    let first = arm(52_000).await;
    assert_eq!((first.armed, first.pages_left), (100, 16), "a page of it, and no other shard");
    assert_eq!(arm(500_000).await.armed, 50);
    assert!(world.table.all().iter().all(|record| record.armed_at.is_some()));
}

/// No record can be created.
struct NothingIsCreated;

impl Fates for NothingIsCreated {
    fn of(&self, call: &Call<'_>) -> Fate {
        if call.name == "create" { Fate::FailBefore } else { Fate::Pass }
    }

    fn delays(&self, _: &Call<'_>) -> Option<(i64, i64)> {
        None
    }
}

#[tokio::test]
async fn no_more_is_received_from_a_dlq_when_the_table_fails() {
    let world = World::new();
    for i in 0..15 {
        world.intake_dlq.send(&json!({"id": format!("e{i}"), "endpoint": "p", "body": "x"}).to_string(), 0);
    }
    let gate = Gate { executor: Executor::new(world.clock.clone()), fates: Rc::new(NothingIsCreated) };
    let sweep = Sweep {
        deliveries: Hostile::new(world.table.clone(), gate),
        payloads: world.payloads.clone(),
        queues: Queues {
            intake_dlq: world.intake_dlq.clone(),
            retry_dlq: world.retry_dlq.clone(),
            retry: QueueDepth(world.retry.clone()),
        },
        clock: world.clock.clone(),
        settings: world.sweep.settings.clone(),
    };
    let evidence = sweep.handle(&json!({}), world.clock.now().plus(60_000), "t").await.unwrap();
    assert_eq!((evidence.errors.len(), evidence.drained), (10, 0), "one batch: receiving counts");
    assert_eq!(world.intake_dlq.take().len(), 5);
}
