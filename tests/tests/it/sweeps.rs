//! The sweep under pressure: piles that do not fit into one run, a busy queue, and what it says without doing it.

use domain::delivery::State;
use domain::ports::{Clock, Cursor, Deliveries};
use domain::sweep::BUSY_QUEUE;
use domain::time::Millis;
use serde_json::json;
use testkit::sender::status;

use crate::world::World;

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
