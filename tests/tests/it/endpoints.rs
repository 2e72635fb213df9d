//! Stories of endpoints that change while deliveries wait: nothing is lost, and nothing goes where it should not.

use domain::delivery::{DeadReason, HeldReason, State, WaitingReason};
use domain::endpoint::{EndpointConfig, Found};
use domain::endpoint_state::Status;
use domain::id::{EndpointKey, StateKey};
use domain::outcome::{Answer, AnswerRules, Directive, Outcome};
use domain::ports::{Clock, EndpointStates};
use domain::resume::Resume;
use domain::signature::{Scheme, Secret};
use domain::time::Millis;
use serde_json::json;
use testkit::samples::RETENTION;
use testkit::sender::status;

use crate::world::{START, World, config};

fn p() -> EndpointKey {
    EndpointKey::registered("p").unwrap()
}

async fn set(world: &World, endpoint: &str, status: &str) -> serde_json::Value {
    let action = json!({"action": "endpoint", "endpoint": endpoint, "set": status, "reason": "maintenance", "operator": "oncall"});
    let answer = world.act(action).await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer
}

#[tokio::test]
async fn a_pause_holds_new_and_waiting_deliveries_and_a_resume_sends_them_all() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("waiting");
    world.settle_now().await;
    let paused = set(&world, "p", "paused").await;
    assert_eq!(
        (&paused["endpoint"]["state"], &paused["endpoint"]["because"]),
        (&json!("paused"), &json!("operator oncall (unverified): maintenance"))
    );
    world.send("new");
    world.run_for_seconds(120).await;
    for (id, attempt) in [("waiting", 1), ("new", 0)] {
        let record = world.record(id).await;
        assert_eq!((record.state, record.attempt), (State::Held(HeldReason::Paused), attempt), "{id}");
    }
    assert_eq!(world.sender.seen().len(), 1);
    let resumed = set(&world, "p", "active").await;
    assert_eq!(resumed["released"], 2);
    world.run_for_seconds(5).await;
    for id in ["waiting", "new"] {
        assert_eq!(world.record(id).await.state, State::Delivered, "{id}");
    }
    assert_eq!((world.sender.seen().len(), world.record("waiting").await.generation), (3, 0));
}

#[tokio::test]
async fn a_resume_sends_nothing_before_its_time() {
    let world = World::new();
    set(&world, "p", "paused").await;
    let at = START.plus(3_600_000);
    world.intake.send(&json!({"id": "e", "endpoint": "p", "body": "x", "deliver_at": at.to_string()}).to_string(), 0);
    world.settle_now().await;
    set(&world, "p", "active").await;
    world.run_for_seconds(3_590).await;
    assert_eq!(
        (world.record("e").await.state, world.sender.seen().len()),
        (State::Waiting(WaitingReason::Scheduled), 0)
    );
    world.run_for_seconds(60).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
}

#[tokio::test]
async fn a_resume_releases_slowly_at_first_and_the_sweep_goes_on_with_it() {
    let world = World::new();
    set(&world, "p", "paused").await;
    for i in 0..30 {
        world.send(&format!("e{i}"));
    }
    world.settle_now().await;
    // The operator's call dies right after its first write.
    let paused = world.table.endpoint_state(&StateKey::stored("p"), true).await.unwrap();
    let resumed = paused.set(Status::Active, "operator", world.clock.now());
    assert!(world.table.save_endpoint_state(&paused, &resumed).await.unwrap());
    assert_eq!(world.sweep_run("reconcile").await.released, 30);
    let mut dues: Vec<i64> = world.table.all().iter().map(|r| r.due.unwrap().since(resumed.since)).collect();
    dues.sort_unstable();
    assert!(world.table.all().iter().all(|r| r.state == State::Waiting(WaitingReason::Released)));
    assert_eq!((dues[0], dues[29]), (0, 2_900), "ten per second");
    world.run_for_seconds(1_800).await;
    assert!(world.table.all().iter().all(|r| r.state == State::Delivered));
    assert_eq!(world.sender.seen().len(), 30);
    assert_eq!(world.table.resumed_endpoints().await, Ok(vec![]), "the release is over");
}

#[tokio::test]
async fn a_resume_stops_where_its_time_ends_and_leaves_what_is_not_its_business() {
    let world = World::new();
    set(&world, "p", "paused").await;
    let by = START.plus(60_000);
    for (id, by) in [("ends", by), ("later", by.plus(1))] {
        let message = json!({"id": id, "endpoint": "p", "body": "x", "deliver_by": by.to_string()});
        world.intake.send(&message.to_string(), 0);
    }
    world.send("never");
    world.settle_now().await;
    world.clock.advance(60_000);
    let key = StateKey::stored("p");
    let paused = world.table.endpoint_state(&key, true).await.unwrap();
    let resumed = paused.set(Status::Active, "operator", world.clock.now());
    assert!(world.table.save_endpoint_state(&paused, &resumed).await.unwrap());
    let resume = Resume { store: &world.table, payloads: &world.payloads, clock: &world.clock, retention: RETENTION };
    let now = world.clock.now();
    assert_eq!((resume.pending(&key, now).await, resume.advance(&key, now).await), (Ok(0), Ok(0)));
    assert_eq!((resume.pending(&key, now.plus(1)).await, resume.advance(&key, now.plus(1)).await), (Ok(2), Ok(2)));
    let before = world.table.endpoint_state(&key, true).await;
    assert_eq!(resume.advance(&key, now.plus(1)).await, Ok(0));
    assert_eq!(world.table.endpoint_state(&key, true).await, before, "nothing was released, so nothing is written");
    assert_eq!(world.record("ends").await.state, State::Held(HeldReason::Paused), "the sweep ends it");
}

#[tokio::test]
async fn wh_o_35_paused_again_during_its_release_an_endpoint_holds_the_rest() {
    let world = World::new();
    set(&world, "p", "paused").await;
    for i in 0..30 {
        world.send(&format!("e{i}"));
    }
    world.settle_now().await;
    set(&world, "p", "active").await;
    world.run_for_seconds(1).await;
    let sent = world.sender.seen().len();
    assert!((1..30).contains(&sent), "{sent}");
    set(&world, "p", "paused").await;
    world.run_for_seconds(600).await;
    assert_eq!(world.sender.seen().len(), sent);
    let held = world.table.all().iter().filter(|r| r.state == State::Held(HeldReason::Paused)).count();
    assert_eq!(held, 30 - sent);
}

#[tokio::test]
async fn wh_o_35_gone_disables_a_registered_endpoint_and_what_comes_next_is_held() {
    let world = World::new();
    world.sender.then([status(500), status(410)]);
    for id in ["waits", "gone"] {
        world.send(id);
        world.settle_now().await;
    }
    assert_eq!(world.record("gone").await.state, State::DeadLettered(DeadReason::Gone));
    world.send("next");
    world.run_for_seconds(60).await;
    for id in ["waits", "next"] {
        assert_eq!(world.record(id).await.state, State::Held(HeldReason::Disabled), "{id}");
    }
    let look = world.act(json!({"action": "endpoint", "endpoint": "p"})).await;
    assert_eq!(look["endpoint"]["state"], "disabled");
    assert!(look["endpoint"]["because"].as_str().unwrap().contains("gone"), "{look}");
    set(&world, "p", "active").await;
    world.run_for_seconds(5).await;
    assert_eq!(
        (world.record("waits").await.state, world.record("next").await.state),
        (State::Delivered, State::Delivered)
    );
    assert_eq!(world.record("gone").await.state, State::DeadLettered(DeadReason::Gone), "a dead letter needs a plan");
}

#[tokio::test]
async fn a_receiver_steers_with_a_header_only_where_that_is_agreed() {
    let asks =
        |status, directive| Outcome::Answered(Answer { status, directive: Some(directive), ..Answer::default() });
    for (outcome, honoured, state, endpoint) in [
        (asks(500, Directive::AbortMessage), true, State::DeadLettered(DeadReason::Permanent), "active"),
        (asks(500, Directive::Disable), true, State::DeadLettered(DeadReason::Gone), "disabled"),
        (asks(200, Directive::Disable), true, State::Delivered, "disabled"),
        (asks(200, Directive::AbortMessage), true, State::Delivered, "active"),
        (asks(500, Directive::AbortMessage), false, State::Waiting(WaitingReason::Retry), "active"),
        (asks(500, Directive::Disable), false, State::Waiting(WaitingReason::Retry), "active"),
        (asks(200, Directive::Disable), false, State::Delivered, "active"),
    ] {
        let world = World::new();
        let rules = AnswerRules { directives: honoured, ..AnswerRules::default() };
        world.endpoints.set(&p(), Found::Config(Box::new(EndpointConfig { rules, ..config() })));
        world.sender.then([outcome.clone()]);
        world.send("e");
        world.settle_now().await;
        let look = world.act(json!({"action": "endpoint", "endpoint": "p"})).await;
        assert_eq!(
            (world.record("e").await.state, &look["endpoint"]["state"]),
            (state, &json!(endpoint)),
            "{outcome:?}"
        );
        if honoured {
            let told = world.act(json!({"action": "explain", "id": "e"})).await;
            assert!(told["history"][0]["detail"].as_str().unwrap().starts_with("webhook-delivery: "), "{told}");
        }
    }
}

#[tokio::test]
async fn the_answer_of_the_last_failure_is_kept_for_the_operator() {
    let world = World::new();
    let answer = |excerpt: &str| {
        Outcome::Answered(Answer {
            status: 500,
            excerpt: excerpt.to_owned(),
            body_bytes: 2_000,
            body_sha256: Some("ab".to_owned()),
            headers: vec![("x-request-id".to_owned(), "r1".to_owned())],
            ..Answer::default()
        })
    };
    world.sender.then([answer("first"), answer(&"x".repeat(1_000)), status(200)]);
    world.send("e");
    world.settle_now().await;
    world.run_for_seconds(60).await;
    let told = world.act(json!({"action": "explain", "id": "e"})).await;
    let kept = &told["last_answer"];
    assert_eq!(
        (&kept["attempt"], kept["excerpt"].as_str().map(str::len), &kept["headers"]["x-request-id"]),
        (&json!(2), Some(1_000), &json!("r1"))
    );
    assert_eq!((&kept["body_bytes"], &kept["body_sha256"]), (&json!(2_000), &json!("ab")));
    assert_eq!(told["delivery"]["excerpt"].as_str().map(str::len), Some(128), "the record holds its start only");
    world.run_for_seconds(600).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
}

#[tokio::test]
async fn gone_ends_an_inline_delivery_only() {
    let world = World::new();
    world.sender.then([status(410)]);
    for (id, path) in [("a", "x"), ("b", "y")] {
        let message = json!({"id": id, "url": format!("https://inline.example.test/{path}"), "body": "x"});
        world.intake.send(&message.to_string(), 0);
        world.settle_now().await;
    }
    let states: Vec<State> = world.table.all().iter().map(|r| r.state).collect();
    assert_eq!(states, [State::DeadLettered(DeadReason::Gone), State::Delivered]);
}

#[tokio::test]
async fn a_paused_origin_holds_every_inline_url_of_it_and_no_other() {
    let world = World::new();
    let send = |id: &str, url: &str| {
        world.intake.send(&json!({"id": id, "url": url, "body": "x"}).to_string(), 0);
    };
    let origin = StateKey::inline(&url::Url::parse("https://inline.example.test/").unwrap());
    let pause = |of: serde_json::Value| {
        let mut action = json!({"action": "endpoint", "set": "paused", "reason": "maintenance", "operator": "oncall"});
        action.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
        action
    };
    // A key of a URL, as `list` shows it, is none of an origin, and neither is one that was never set.
    for key in
        [EndpointKey::inline(&url::Url::parse("https://inline.example.test/x").unwrap()).as_str(), origin.as_str()]
    {
        let answer = world.act(pause(json!({"endpoint": key}))).await;
        assert_eq!(answer["error"]["code"], "not_found", "{key}: {answer}");
    }
    let answer = world.act(pause(json!({"url": "https://inline.example.test/any?k=t0ken"}))).await;
    assert_eq!((&answer["ok"], &answer["endpoint"]["endpoint"]), (&json!(true), &json!(origin.as_str())), "{answer}");
    send("dotted", "https://inline.example.test./x");
    send("a", "https://inline.example.test/x");
    send("b", "https://inline.example.test:8443/x");
    world.settle_now().await;
    let states: Vec<State> = world.table.all().iter().map(|r| r.state).collect();
    assert_eq!(states, [State::Held(HeldReason::Paused), State::Delivered, State::Held(HeldReason::Paused)]);
    set(&world, origin.as_str(), "active").await;
    world.run_for_seconds(2).await;
    assert!(world.table.all().iter().all(|r| r.state == State::Delivered));
}

#[tokio::test]
async fn wh_o_35_removed_or_misconfigured_is_held_until_repaired_and_set_active() {
    let world = World::new();
    for (id, broken, reason) in [
        ("removed", Found::Removed, HeldReason::Removed),
        ("broken", Found::Misconfigured("`url` must be a text".to_owned()), HeldReason::Misconfigured),
    ] {
        world.endpoints.set(&p(), broken);
        world.send(id);
        world.settle_now().await;
        assert_eq!(world.record(id).await.state, State::Held(reason));
    }
    world.endpoints.set(&p(), Found::Config(Box::new(config())));
    world.run_for_seconds(600).await;
    assert_eq!(world.sender.seen().len(), 0, "nobody said that it may go on");
    assert_eq!(set(&world, "p", "active").await["released"], 2);
    world.run_for_seconds(2).await;
    assert!(world.table.all().iter().all(|r| r.state == State::Delivered));
}

#[tokio::test]
async fn a_held_delivery_whose_payload_is_gone_says_so_when_it_is_released() {
    let world = World::new();
    set(&world, "p", "paused").await;
    world.send("e");
    world.settle_now().await;
    world.payloads.clear();
    set(&world, "p", "active").await;
    assert_eq!(world.record("e").await.state, State::DeadLettered(DeadReason::PayloadLost));
}

#[tokio::test]
async fn wh_o_20_a_retry_is_signed_afresh_with_the_secrets_of_its_time() {
    let world = World::new();
    let (old, new) = (Secret::new(Scheme::V1, &[1; 32].into()), Secret::new(Scheme::V1, &[2; 32].into()));
    let with = |secrets: &[&Secret]| {
        let secrets = secrets.iter().map(|s| (*s).clone()).collect();
        world.endpoints.set(&p(), Found::Config(Box::new(EndpointConfig { secrets, ..config() })));
    };
    world.sender.then([status(500), status(500)]);
    with(&[&old]);
    world.send("e");
    world.settle_now().await;
    with(&[&new, &old]);
    world.run_for_seconds(60).await;
    with(&[&new]);
    world.run_for_seconds(600).await;
    let seen = world.sender.seen();
    assert_eq!(seen.len(), 3);
    for (request, secrets) in seen.iter().zip([&[&old] as &[&Secret], &[&new, &old], &[&new]]) {
        let timestamp: i64 = request.header("webhook-timestamp").unwrap().parse().unwrap();
        let expected: Vec<String> = secrets.iter().map(|s| s.sign("e", timestamp, &request.body)).collect();
        assert_eq!(request.header("webhook-signature"), Some(expected.join(" ").as_str()));
        assert_eq!(request.header("webhook-id"), Some("e"));
    }
    let times: Vec<&str> = seen.iter().filter_map(|s| s.header("webhook-timestamp")).collect();
    assert!(times[0] < times[1] && times[1] < times[2], "{times:?}");
    assert!(times[0].parse::<i64>().unwrap() >= START.seconds());
}

#[tokio::test]
async fn an_inline_url_is_signed_with_a_secret_of_its_origin_and_with_the_public_key() {
    let world = World::new();
    for (id, url) in
        [("a", "https://one.example.test/x"), ("b", "https://one.example.test/y"), ("c", "https://two.example.test/x")]
    {
        world.intake.send(&json!({"id": id, "url": url, "body": "x"}).to_string(), 0);
    }
    world.settle_now().await;
    let root = Secret::new(Scheme::V1, &[7; 32].into());
    let public = root.for_origin(Scheme::V1a, "").public_key().unwrap();
    for request in world.sender.seen() {
        let origin = url::Url::parse(&request.url).unwrap().origin().ascii_serialization();
        let (id, timestamp) = (request.header("webhook-id").unwrap(), request.header("webhook-timestamp").unwrap());
        let timestamp: i64 = timestamp.parse().unwrap();
        let (v1, v1a) = request.header("webhook-signature").unwrap().split_once(' ').unwrap();
        assert_eq!(v1, root.for_origin(Scheme::V1, &origin).sign(id, timestamp, b"x"), "{origin}");
        assert!(public.verifies(v1a, id, timestamp, b"x"), "{v1a}");
    }
}

#[tokio::test]
async fn a_window_ends_a_delivery_before_its_attempts_are_used_up() {
    let world = World::new();
    let mut policy = config().policy;
    policy.window_seconds = Some(3_600);
    world.endpoints.set(&p(), Found::Config(Box::new(EndpointConfig { policy, ..config() })));
    world.sender.then((0..8).map(|_| status(500)));
    world.send("e");
    world.run_for_seconds(86_400).await;
    let record = world.record("e").await;
    assert_eq!(record.state, State::DeadLettered(DeadReason::Exhausted));
    assert!(record.attempt < 8 && record.attempts().all(|a| a.started <= START.plus(3_600_000)), "{}", record.attempt);
    assert!(record.since < Millis(START.0 + 3_600_000));
}

#[tokio::test]
async fn a_wrong_endpoint_action_is_named() {
    let world = World::new();
    for (action, part) in [
        (json!({"action": "endpoint", "endpoint": "no such"}), "1 to 64 characters"),
        (json!({"action": "endpoint", "endpoint": "p", "set": "off", "reason": "x"}), "paused, active or disabled"),
        (json!({"action": "endpoint", "endpoint": "p", "set": "paused"}), "`reason`"),
        (json!({"action": "endpoint", "set": "paused", "reason": "x"}), "one of them"),
        (json!({"action": "endpoint", "url": "ftp://h.example", "set": "paused", "reason": "x"}), "`url` must be"),
        (json!({"action": "endpoint", "endpoint": "p", "pause": true}), "pause"),
    ] {
        let answer = world.act(action.clone()).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(answer["error"]["code"] == "invalid" && message.contains(part), "{action}: {answer}");
    }
}
