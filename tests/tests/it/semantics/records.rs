//! Brings a delivery into the state that a row of a table names, and gives it what the table is about.

use domain::ports::Clock;
use domain::record::{ABANDONED, Record};
use domain::time::Millis;
use futures_util::FutureExt;
use serde_json::json;
use testkit::sender::status;

use super::player::{MESSAGE, Meanwhile, Never, Player};
use crate::world::{INTAKE_ARN, RETRY_ARN, START, TIMING};

/// Sends the cancel to a delivery that is in such a state; returns the record that it met.
pub async fn cancelled_while(player: &mut Player, state: &str, message: &str) -> Option<Record> {
    player.name(MESSAGE);
    match state {
        "not there yet" => {
            player.send(message).await;
            return None;
        }
        "in flight, and accepted" | "in flight, and not accepted" => {
            player.world.intake.send(MESSAGE, 0);
            let answer = status(if state.ends_with("not accepted") { 500 } else { 200 });
            player.deliver(&player.world.intake, INTAKE_ARN, Meanwhile { world: &player.world, message, answer }).await;
            return None;
        }
        "in flight, and its process dies" => {
            player.world.intake.send(MESSAGE, 0);
            assert!(player.deliver(&player.world.intake, INTAKE_ARN, Never).now_or_never().is_none());
            player.world.intake.send(message, 0);
            player.world.run_for_seconds(300).await;
            return None;
        }
        "waiting" | "cancelled" => player.world.sender.then([status(500)]),
        "dead" => player.world.sender.then([status(400)]),
        "held" => player.set("paused").await,
        "delivered" => {}
        other => panic!("a state that is not played: {other}"),
    }
    player.send(MESSAGE).await;
    if state == "cancelled" {
        player.send(message).await;
    }
    let before = player.record().await;
    player.send(message).await;
    Some(before)
}

/// The wake-ups that a row is about: for which attempt each is, and by how much the time that it names is off.
pub fn knocks(record: &str) -> Vec<(u32, i64)> {
    match record {
        "waiting for another attempt" | "in flight, lease over, whatever the attempt" => vec![(1, 0), (3, 0), (99, 0)],
        "waiting for this attempt, due, whatever time the wake-up names" => vec![(2, -1), (2, 0), (2, 3_600_000)],
        "waiting for a later time than the wake-up names, not due" => vec![(2, -1)],
        _ => vec![(2, 0)],
    }
}

/// Brings the delivery into such a state, and puts a wake-up on the retry queue.
pub async fn woken_while(player: &mut Player, record: &str, (attempt, off_ms): (u32, i64)) {
    let mut due = player.record().await.due.unwrap();
    let wake_up = |player: &Player, attempt: u32, due: Millis| {
        let body = json!({"id": "order_1", "endpoint": "ep_a", "attempt": attempt, "due": due.0});
        player.world.retry.send(&body.to_string(), 0)
    };
    let passes = |player: &Player, until: Millis| player.world.clock.advance(until.since(player.world.clock.now()));
    let dies =
        |player: &Player| assert!(player.deliver(&player.world.retry, RETRY_ARN, Never).now_or_never().is_none());
    let mut again = None;
    match record {
        "waiting for this attempt, due, whatever time the wake-up names" | "waiting for another attempt" => {
            passes(player, due);
        }
        "waiting for this attempt, due within 2 s" => passes(player, due.plus(-2_000)),
        "waiting for this attempt, due later" => passes(player, due.plus(-2_001)),
        "waiting for a later time than the wake-up names, not due" => passes(player, due.plus(-1)),
        "waiting, deliver_by passed" => {
            let by = START.plus(40_000);
            *player = Player::new();
            player.world.sender.then([status(500)]);
            let message = json!({"id": "order_1", "endpoint": "ep_a", "json": 1, "deliver_by": by.to_string()});
            player.send(&message.to_string()).await;
            player.world.retry.clear();
            due = player.record().await.due.unwrap();
            passes(player, by);
        }
        "waiting, payload gone" => {
            player.world.payloads.clear();
            passes(player, due);
        }
        "in flight by the same SQS message, lease running" => {
            passes(player, due);
            again = Some(wake_up(player, 2, due));
            dies(player);
        }
        "in flight by another SQS message, lease running" => {
            passes(player, due);
            wake_up(player, 2, due);
            dies(player);
        }
        "in flight, lease over, whatever the attempt" => {
            passes(player, due);
            wake_up(player, 2, due);
            dies(player);
            player.world.clock.advance(TIMING.lease_ms);
        }
        "held" | "delivered" | "dead" | "cancelled" => {
            passes(player, due);
            match record {
                "held" => player.set("paused").await,
                "dead" => player.world.sender.then([status(400)]),
                _ => {}
            }
            if record == "cancelled" {
                player.send(r#"{"cancel":{"id":"order_1","endpoint":"ep_a"}}"#).await;
            } else {
                wake_up(player, 2, due);
                player.world.settle_now().await;
            }
        }
        other => panic!("a record that is not played: {other}"),
    }
    match again {
        Some(same) => player.world.retry.show_at(&same, player.world.clock.now()),
        None => drop(wake_up(player, attempt, due.plus(off_ms))),
    }
}

/// Gives the wake-up to `deliver`, and says what came of it.
pub async fn woken(player: &Player) -> String {
    let world = &player.world;
    let (before, posts) = (player.record().await, world.sender.seen().len());
    let message = world.retry.all().pop().expect("a wake-up");
    assert_eq!(world.deliver_from(&world.retry, RETRY_ARN).await, 1);
    let (after, posted) = (player.record().await, world.sender.seen().len() - posts);
    let kept = world.retry.all().iter().any(|there| there.message_id == message.message_id);
    assert!(posted <= 1);
    if posted == 1 {
        assert!(!kept && world.clock.now() >= before.due.unwrap(), "no attempt before its time");
        assert_eq!(after.attempt, before.attempt + 1);
        let abandoned = after.attempts().any(|a| a.number == before.attempt && a.detail.as_deref() == Some(ABANDONED));
        return if abandoned { "taken over" } else { "claimed" }.to_owned();
    }
    if after.armed_at != before.armed_at {
        let next = world.retry.next_visible().expect("a new wake-up").since(before.due.unwrap());
        assert!(!kept && (0..1_000).contains(&next), "off by {next} ms");
        return "touched".to_owned();
    }
    if after != before {
        assert!(!kept);
        return after.state.to_string();
    }
    if kept { "handed back" } else { "dropped" }.to_owned()
}
