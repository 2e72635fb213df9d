//! The contract in `docs/SEMANTICS.md`, played: each example of the page by the test of its name. Lines, tables and what is
//! expected are read from the page, so that page and code cannot drift apart.

mod answers;
pub mod page;
mod player;
mod records;

use std::collections::BTreeSet;

use domain::audit;
use domain::endpoint::Found;
use domain::id::EndpointKey;
use domain::outcome::{Answer, Outcome};
use domain::ports::{Audit, Clock};
use domain::registry::Registration;
use domain::signature::{PublicKey, Scheme, Secret};
use domain::sweep::EXTEND_BEFORE_MS;
use serde_json::{Value, json};
use testkit::samples::RETENTION;
use testkit::sender::status;

use crate::template;
use crate::world::{START, World};
use answers::{answered, outcomes, single_statuses};
use page::{cases, duration_ms, lines, outcome, quoted, rows};
use player::{MESSAGE, Player, answer};
use records::{cancelled_while, knocks, woken, woken_while};

/// A player whose delivery `order_1` waits for its second attempt, with no wake-up on its way.
async fn waiting() -> Player {
    let mut player = Player::new();
    player.world.sender.then([status(500)]);
    assert_eq!(player.send(MESSAGE).await, "waiting (retry)");
    player.world.retry.clear();
    player
}

#[tokio::test]
async fn duplicates() {
    let mut player = Player::new();
    player.play("duplicates").await;
    assert_eq!(player.world.sender.seen().len(), 2);
}

#[tokio::test]
async fn one_id_two_contents() {
    let mut player = Player::new();
    player.play("one_id_two_contents").await;
    assert_eq!((player.state().await.as_str(), player.world.sender.seen().len()), ("delivered", 1));
}

#[tokio::test]
async fn the_bytes() {
    let mut player = Player::new();
    for line in lines("the_bytes") {
        let [message, expected] = line.try_into().expect("a message and its bytes");
        let expected = if expected.starts_with('{') {
            expected.into_bytes()
        } else {
            expected.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("two hex digits")).collect()
        };
        assert_eq!(player.send(&message).await, "delivered");
        assert_eq!(player.world.sender.seen().pop().unwrap().body, expected, "{message}");
    }
}

#[tokio::test]
async fn cancel() {
    let message = &lines("cancel")[0][0];
    for [states, expected, _] in rows("cancel") {
        for state in cases(&states) {
            let mut player = Player::new();
            let before = cancelled_while(&mut player, &state, message).await;
            let after = player.state().await;
            if expected == "unchanged" {
                assert_eq!(Some(player.record().await), before, "{state}");
            } else {
                assert_eq!(after, outcome(&expected), "{state}");
            }
            let posts = player.world.sender.seen().len();
            player.send(MESSAGE).await;
            player.world.run_for_seconds(86_400).await;
            assert_eq!(
                (player.state().await, player.world.sender.seen().len()),
                (after, posts),
                "{state}: it stays so"
            );
        }
    }
}

#[tokio::test]
async fn not_before_not_after() {
    let mut player = Player::new();
    player.play("not_before_not_after").await;
    assert_eq!(player.world.sender.seen().len(), 3, "a wait and a deadline use no attempt");
}

#[tokio::test]
async fn what_an_answer_means() {
    let table: Vec<[String; 3]> = rows("what_an_answer_means");
    // A status that is named belongs to the row that names it; "every other" are the rest.
    let named: BTreeSet<u16> = table.iter().flat_map(|row| cases(&row[0])).flat_map(|c| single_statuses(&c)).collect();
    let mut met = BTreeSet::new();
    for [happened, class, follows] in &table {
        for case in cases(happened) {
            for (outcome, url) in outcomes(&case, &named) {
                if let Outcome::Answered(Answer { status, retry_after: None, body_broken: false, .. }) = outcome {
                    assert!(met.insert(status), "{status} stands in the table twice");
                }
                answered(outcome, url, quoted(class)[0], follows).await;
            }
        }
    }
    let all: BTreeSet<u16> = std::iter::once(101).chain(200..=999).collect();
    assert_eq!(met, all, "every status that can be final stands in the table");
}

#[tokio::test]
async fn the_unknown_outcome() {
    let mut player = Player::new();
    player.play("the_unknown_outcome").await;
    let seen = player.world.sender.seen();
    let ids: Vec<_> = seen.iter().map(|request| request.header("webhook-id")).collect();
    assert_eq!(ids, [Some("order_1"), Some("order_1")]);
}

/// Asserts that a wait is as the page says; with jitter, up to 15 % longer.
fn assert_wait(waited_ms: i64, expected: &str, what: &str) {
    let expected = outcome(expected);
    let (wait_ms, most_ms) = match expected.strip_suffix(" + jitter") {
        Some(wait) => {
            let jitter: i64 = template::default_of("RetryJitterPercent").parse().unwrap();
            (duration_ms(wait), duration_ms(wait) * (100 + jitter) / 100)
        }
        None => (duration_ms(&expected), duration_ms(&expected)),
    };
    assert!((wait_ms..=most_ms).contains(&waited_ms), "{what}: {expected}, but waited {waited_ms} ms");
}

#[tokio::test]
async fn the_schedule() {
    let mut line = lines("the_schedule").remove(0);
    let expected = line.pop().unwrap();
    let seconds: Vec<String> = line[1..].iter().map(|wait| (duration_ms(wait) / 1_000).to_string()).collect();
    let defaults = ["RetryScheduleSeconds", "MaxAttempts"].map(template::default_of);
    assert_eq!(defaults, [seconds.join(","), line.len().to_string()]);
    let mut player = Player::new();
    player.world.sender.then((0..20).map(|_| answer(line[0].split(',').next().unwrap())));
    let mut state = player.send(MESSAGE).await;
    for wait in &line[1..] {
        let record = player.record().await;
        assert_eq!(state, "waiting (retry)");
        let due = record.due.unwrap();
        assert_wait(due.since(record.since), &format!("{wait} + jitter"), wait);
        // SQS counts in seconds, rounded up.
        player.world.run_until(due.plus(1_000)).await;
        state = player.state().await;
    }
    assert_eq!((state, player.world.sender.seen().len()), (expected, line.len()));
}

#[tokio::test]
async fn when_the_next_attempt_is_due() {
    for line in lines("when_the_next_attempt_is_due") {
        let mut player = Player::new();
        player.world.sender.then([answer(&line[0])]);
        player.send(MESSAGE).await;
        assert_wait(player.record().await.due.unwrap().since(START), &line[1], &line[0]);
    }
}

#[tokio::test]
async fn messages_that_are_not_accepted() {
    let mut player = Player::new();
    player.world.handler.deliver.settings.limits.max_body_bytes = 5;
    for [reason, example, when] in rows("messages_that_are_not_accepted") {
        for before in quoted(&when).into_iter().filter(|text| text.starts_with('{')) {
            assert_eq!(player.send(before).await, "delivered");
        }
        let message = quoted(&example)[0];
        assert_eq!(player.send(message).await, format!("rejected ({})", quoted(&reason)[0]), "{message}");
        player.send(message).await;
        let rejected = player.world.table.rejected();
        assert!(rejected.iter().any(|r| r.reason.name() == quoted(&reason)[0] && r.seen == 2), "{rejected:?}");
        if reason.contains("unknown_endpoint") {
            player.world.register("ep_new");
            assert_eq!(player.send(message).await, "delivered");
        }
    }
}

/// Registers `ep_a` as the endpoints table would hold it.
fn define(world: &World, definition: Value) {
    let defaults = &world.handler.deliver.settings.defaults;
    let found = match Registration::from_json(definition) {
        Ok(registration) if registration.removed_at.is_some() => Found::Removed,
        Ok(registration) => match registration.resolve(defaults, world.clock.now()) {
            Ok(config) => Found::Config(Box::new(config)),
            Err(problem) => Found::misconfigured(&[problem]),
        },
        Err(problems) => Found::misconfigured(&problems),
    };
    world.endpoints.set(&EndpointKey::registered("ep_a").unwrap(), found);
}

#[tokio::test]
async fn endpoints_that_change() {
    const NEW: &str = r#"{"id":"order_2","endpoint":"ep_a","json":2}"#;
    let whole = json!({"url": "https://a.example.test/", "signatures": []});
    let with = |name: &str, value: Value| {
        let mut definition = whole.clone();
        definition[name] = value;
        definition
    };
    for [endpoint, waits, comes, _] in rows("endpoints_that_change") {
        let mut player = Player::new();
        define(&player.world, whole.clone());
        player.world.sender.then([status(500)]);
        player.send(MESSAGE).await;
        match endpoint.replace('`', "").as_str() {
            "paused by an operator" => player.set("paused").await,
            "disabled by an operator" => player.set("disabled").await,
            "answers another delivery with 410" => {
                player.world.sender.then([status(410)]);
                let another = r#"{"id":"order_0","endpoint":"ep_a","json":0}"#;
                assert_eq!(player.send(another).await, "dead_lettered (gone)");
            }
            "removed_at set" => define(&player.world, with("removed_at", json!(START.to_string()))),
            "definition wrong" => define(&player.world, with("url", json!("ftp://a.example.test/"))),
            "a scheme of signatures without an active secret" => {
                define(&player.world, with("signatures", json!(["v1"])));
            }
            "item deleted" => player.world.endpoints.set(&EndpointKey::registered("ep_a").unwrap(), Found::Unknown),
            other => panic!("a change that is not played: {other}"),
        }
        let posts = player.world.sender.seen().len();
        assert_eq!(player.send(NEW).await, outcome(&comes), "{endpoint}");
        player.world.run_for_seconds(60).await;
        player.name(MESSAGE);
        let record = player.record().await;
        assert_eq!((record.state.to_string(), record.attempt), (outcome(&waits), 1), "{endpoint}");
        assert_eq!(player.world.sender.seen().len(), posts, "{endpoint}");
        define(&player.world, whole.clone());
        player.set("active").await;
        player.world.run_for_seconds(5).await;
        assert_eq!(player.state().await, "delivered", "{endpoint}, repaired and set active");
    }
}

#[tokio::test]
async fn a_pause_and_a_resume() {
    let mut player = Player::new();
    player.play("a_pause_and_a_resume").await;
    assert_eq!((player.record().await.generation, player.world.sender.seen().len()), (0, 1));
}

#[tokio::test]
async fn signatures() {
    let stands = |name: &str| {
        let line = lines("signatures").into_iter().find(|line| line[0] == name);
        line.unwrap_or_else(|| panic!("no {name}"))[1].clone()
    };
    let v1 = stands("the receiver's v1 secret");
    let v1a = Secret::new(Scheme::V1a, &[1; 32].into());
    let mut player = Player::new();
    let entries = json!([{"secret": v1}, {"secret": *v1a.expose()}]);
    let definition = json!({"url": "https://a.example.test/", "signatures": ["v1", "v1a"], "secrets": entries});
    define(&player.world, definition);
    assert_eq!(player.send(&stands("the message")).await, "delivered");
    let request = player.world.sender.seen().pop().unwrap();
    for header in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        assert_eq!(request.header(header), Some(stands(header).as_str()), "{header}");
    }
    // Others come to the same.
    let (id, timestamp) = (stands("webhook-id"), stands("webhook-timestamp").parse::<i64>().unwrap());
    let (of_v1, of_v1a) =
        stands("webhook-signature").split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(standardwebhooks::Webhook::new(&v1).unwrap().sign(&id, timestamp, &request.body).unwrap(), of_v1);
    let public = PublicKey::parse(&stands("the receiver's v1a public key")).unwrap();
    assert!(public.verifies(&of_v1a, &id, timestamp, &request.body));
}

#[tokio::test]
async fn wake_ups() {
    for [records, expected] in rows("wake_ups") {
        for record in cases(&records) {
            for knock in knocks(&record) {
                let mut player = waiting().await;
                woken_while(&mut player, &record, knock).await;
                assert_eq!(woken(&player).await, outcome(&expected), "{record}: {knock:?}");
            }
        }
    }
}

/// A player at noon, with so many dead letters of `ep_a`.
async fn dead_letters(count: usize) -> Player {
    let mut player = Player::new();
    player.world.sender.then((0..count).map(|_| status(400)));
    for n in 0..count {
        player.send(&json!({"id": format!("order_{n}"), "endpoint": "ep_a", "json": n}).to_string()).await;
    }
    player
}

#[tokio::test]
async fn redrive() {
    let mut player = dead_letters(25).await;
    player.play("redrive").await;
    let ids: Vec<String> =
        player.world.sender.seen().iter().filter_map(|s| s.header("webhook-id").map(ToOwned::to_owned)).collect();
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (ids[..25].iter().collect(), ids[25..].iter().collect());
    assert_eq!((before == after, ids.len()), (true, 50), "each once, under its own id");
}

#[tokio::test]
async fn a_canary_that_fails() {
    let mut player = dead_letters(25).await;
    player.world.sender.at("ep_a", status(400));
    player.play("a_canary_that_fails").await;
    let untouched = player.world.table.all().iter().filter(|record| record.generation == 0).count();
    assert_eq!((untouched, player.world.sender.seen().len()), (15, 35));
}

#[tokio::test]
async fn decisions() {
    let mut player = Player::new();
    player.play("decisions").await;
    let (mut entries, _) = player.world.table.entries("", 100).await.unwrap();
    let head = player.world.table.head().await.unwrap();
    assert_eq!(audit::verify(&Default::default(), &entries, &head), Ok(2));
    entries[0].decision.reason = "another".to_owned();
    assert!(audit::verify(&Default::default(), &entries, &head).is_err());
}

/// The days that a cell names, which are the default of the parameter that it names.
fn days_ms(cell: &str) -> i64 {
    let number = cell.split('(').nth(1).and_then(|rest| rest.split(')').next()).expect("days in brackets");
    assert_eq!(template::default_of(quoted(cell)[0]), number);
    duration_ms(&format!("{number} days"))
}

#[tokio::test]
async fn retention() {
    for [what, how_long] in rows("retention") {
        match what.as_str() {
            "a record that is not final" => {
                assert_eq!((how_long.as_str(), waiting().await.record().await.expires_at), ("for ever", None));
            }
            "a final record" => {
                let mut player = Player::new();
                player.world.sender.then([status(200), status(400)]);
                for id in ["order_1", "order_2"] {
                    player.send(&json!({"id": id, "endpoint": "ep_a", "json": 1}).to_string()).await;
                    let record = player.record().await;
                    assert_eq!(record.expires_at, Some(record.since.plus(days_ms(&how_long))));
                }
                assert_eq!(RETENTION.record_ms, days_ms(&how_long), "the world has the defaults");
            }
            "the payload of a first-try success" => {
                let mut player = Player::new();
                assert_eq!(player.send(MESSAGE).await, "delivered");
                assert_eq!((how_long.as_str(), player.world.payloads.len()), ("not kept", 0));
            }
            "any other payload" => {
                assert!(how_long.contains("later of now, `due` and `deliver_by`"));
                let late = START.plus(duration_ms("60 days"));
                for (time, answers, counts_from) in
                    [("", 400, START), ("deliver_at", 200, late), ("deliver_by", 400, late), ("deliver_by", 500, late)]
                {
                    let mut player = Player::new();
                    player.world.sender.then([status(answers)]);
                    let mut message = json!({"id": "order_1", "endpoint": "ep_a", "json": 1});
                    if !time.is_empty() {
                        message[time] = json!(late.to_string());
                    }
                    player.send(&message.to_string()).await;
                    let record = player.record().await;
                    let hash = record.payload.as_ref().unwrap().hash.clone();
                    let kept = player.world.payloads.kept_until(&record.key, &hash).unwrap();
                    assert_eq!(kept, counts_from.plus(days_ms(&how_long)), "{time} {answers}");
                }
                assert!(how_long.contains(&format!("give or take {} days", EXTEND_BEFORE_MS / duration_ms("1 days"))));
            }
            other => panic!("what is {other}?"),
        }
    }
}
