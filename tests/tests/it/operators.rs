//! What operators are told: the status of every refusal, limits, filters, warnings, and what happens next.

use std::rc::Rc;

use domain::delivery::{DeadReason, State};
use domain::endpoint::Found;
use domain::id::{DeliveryKey, EndpointKey};
use domain::outcome::{Outcome, Phase};
use domain::plan::{PlanState, Stop};
use domain::ports::{Clock, Deliveries, Plans};
use domain::release::Release;
use domain::time::DAY_MS;
use domain::transition;
use serde_json::{Value, json};
use testkit::samples::{RETENTION, claimed, message};
use testkit::sender::status;

use crate::world::{START, TIMING, World};

/// A world with so many dead letters of `p`.
async fn dead(count: usize) -> World {
    let world = World::new();
    world.sender.then((0..count).map(|_| status(400)));
    for i in 0..count {
        world.send(&format!("e{i}"));
    }
    world.settle_now().await;
    world
}

async fn code(world: &World, action: Value) -> Value {
    world.act(action).await["error"]["code"].clone()
}

fn approve(proposed: &Value) -> Value {
    json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": "r", "reason": "fixed"})
}

#[tokio::test]
async fn every_refusal_has_its_status() {
    let mut world = dead(1).await;
    let status = async |world: &World, action: &Value| {
        let event = json!({
            "version": "2.0", "body": action.to_string(), "isBase64Encoded": false,
            "requestContext": {"http": {"method": "POST"}, "authorizer": {"iam": {"userArn": "arn:aws:iam::111122223333:user/ada"}}},
        });
        world.act_on(event, "arn:f:live").await["statusCode"].clone()
    };
    let propose = json!({"action": "propose", "filter": {}});
    let proposed = world.act(propose.clone()).await;
    let wrong =
        json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": "0", "redrive_id": "r", "reason": "x"});
    let ids: Vec<String> = (0..=10_000).map(|i| format!("e{i}")).collect();
    for (action, expected) in [
        (propose.clone(), 200),
        (json!({"action": "list", "state": "x"}), 400),
        (json!({"action": "explain", "id": "none"}), 404),
        (wrong, 409),
        (json!({"action": "propose", "filter": {"ids": ids}}), 413),
    ] {
        assert_eq!(status(&world, &action).await, expected, "{}", action["action"]);
    }
    world.operator.two_people = true;
    assert_eq!(status(&world, &approve(&proposed)).await, 403);
    world.clock.advance(DAY_MS);
    assert_eq!(status(&world, &approve(&proposed)).await, 410);
}

#[tokio::test]
async fn every_limit_is_the_last_value_that_passes() {
    let world = dead(1).await;
    for (action, most) in [("plans", 100), ("audit", 500), ("list", 500)] {
        for (limit, expected) in
            [(0, json!("invalid")), (1, json!(null)), (most, json!(null)), (most + 1, json!("invalid"))]
        {
            let mut request = json!({"action": action, "limit": limit});
            if action == "list" {
                request["state"] = json!("waiting");
            }
            assert_eq!(code(&world, request).await, expected, "{action} {limit}");
        }
    }
    for (chars, expected) in [(256, json!(null)), (257, json!("invalid"))] {
        let propose = json!({"action": "propose", "filter": {}, "note": "x".repeat(chars)});
        assert_eq!(code(&world, propose).await, expected, "{chars}");
    }
    let ids: Vec<String> = (0..10_000).map(|i| format!("e{i}")).collect();
    let proposed = world.act(json!({"action": "propose", "filter": {"ids": ids}})).await;
    assert_eq!((&proposed["count"], &proposed["canaries"]), (&json!(1), &json!(1)));
    let plan = world.act(json!({"action": "status", "plan_id": proposed["plan_id"]})).await["plan"].clone();
    assert_eq!(plan["filter"], json!({"ids": 10_000}), "a list of ids is kept as its length");
}

#[tokio::test]
async fn a_proposal_is_good_for_a_day_and_an_approved_plan_until_it_is_done() {
    let world = dead(12).await;
    let propose = json!({"action": "propose", "filter": {}});
    let [left, taken] = [world.act(propose.clone()).await, world.act(propose).await];
    let state = async |proposed: &Value| {
        world.act(json!({"action": "status", "plan_id": proposed["plan_id"]})).await["plan"]["state"].clone()
    };
    world.clock.advance(DAY_MS - 1);
    assert_eq!(state(&left).await, "proposed");
    assert_eq!(world.act(approve(&taken)).await["plan"]["state"], "canary");
    world.clock.advance(1);
    assert_eq!(code(&world, approve(&left)).await, "expired");
    assert_eq!([state(&left).await, state(&taken).await], ["expired", "canary"]);
}

#[tokio::test]
async fn a_release_stops_where_its_time_ends() {
    let world = dead(3).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    let id = proposed["plan_id"].as_str().unwrap();
    // As many milliseconds as are left for counting and answering.
    let approved = world.act_within(approve(&proposed), 15_000).await;
    assert_eq!((&approved["plan"]["state"], &approved["plan"]["released"]), (&json!("canary"), &json!(0)));
    let release = Release { store: &world.table, payloads: &world.payloads, clock: &world.clock, retention: RETENTION };
    let now = world.clock.now();
    assert_eq!([release.pending(id, now).await, release.pending(id, now.plus(1)).await], [Ok(0), Ok(3)]);
    assert_eq!(release.advance(id, now.plus(1)).await.unwrap().unwrap().released, 3);
}

#[tokio::test]
async fn what_takes_the_place_of_skipped_canaries_is_released_in_time_and_counted() {
    let world = dead(30).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    let canaries: Vec<String> = [0, 1].into_iter().chain(10..18).map(|i| format!("e{i}")).collect();
    let first = world.act(json!({"action": "propose", "filter": {"ids": canaries}})).await;
    world.act(approve(&first)).await;
    world.run_for_seconds(60).await;
    let mut second = approve(&proposed);
    second["redrive_id"] = json!("r2");
    world.act_within(second, 15_000).await;
    let id = proposed["plan_id"].as_str().unwrap();
    let plan = world.table.plan(id, true).await.unwrap().unwrap();
    let now = world.clock.now();
    let out = plan.changed(|p| (p.next, p.canaries_out_at) = (10, Some(now.0)));
    assert_eq!(world.table.save_plan(&plan, &out, None).await, Ok(true));
    let release = Release { store: &world.table, payloads: &world.payloads, clock: &world.clock, retention: RETENTION };
    assert_eq!(release.advance(id, now).await.unwrap().unwrap().released, 0);
    assert_eq!(release.advance(id, now.plus(1)).await.unwrap().unwrap().released, 10);
}

#[tokio::test]
async fn a_canary_larger_than_a_batch_is_released_and_nothing_beyond_it() {
    let world = dead(60).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "canary": 30})).await;
    let plan = world.act(approve(&proposed)).await["plan"].clone();
    assert_eq!((&plan["released"], &plan["remaining"]), (&json!(30), &json!(30)));
}

#[tokio::test]
async fn a_plan_that_is_stored_in_pieces_is_counted_and_spread_as_one() {
    let world = dead(600).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 100})).await;
    world.act_within(approve(&proposed), 15_000).await;
    let id = proposed["plan_id"].as_str().unwrap();
    let release = Release { store: &world.table, payloads: &world.payloads, clock: &world.clock, retention: RETENTION };
    let now = world.clock.now();
    for (next, pending) in [(240, 360), (250, 350), (510, 90)] {
        let plan = world.table.plan(id, true).await.unwrap().unwrap();
        let ramping = plan.changed(|p| (p.state, p.ramp_from, p.next) = (PlanState::Ramping, Some(now.0), next));
        assert_eq!(world.table.save_plan(&plan, &ramping, None).await, Ok(true));
        assert_eq!(release.pending(id, now.plus(1)).await, Ok(pending), "{next} are handled");
        let progress = release.progress(&ramping, now).await.unwrap();
        assert_eq!((progress.skipped, progress.remaining), (next, pending));
        let stopped = ramping.changed(|p| p.stopped = [("p".to_owned(), Stop::Failed)].into());
        assert_eq!(world.table.save_plan(&ramping, &stopped, None).await, Ok(true));
        assert_eq!(release.pending(id, now.plus(1)).await, Ok(0), "its endpoint is stopped");
        assert_eq!(world.table.save_plan(&stopped, &stopped.changed(|p| p.stopped.clear()), None).await, Ok(true));
    }
    // After ten canaries, number 510 is the 500th of the ramp, at 100 per second.
    assert_eq!(release.advance(id, now.plus(1)).await.unwrap().unwrap().released, 90);
    let dues = world.table.all().into_iter().filter(|r| matches!(r.state, State::Waiting(_))).filter_map(|r| r.due);
    assert_eq!(dues.min(), Some(now.plus(5_000)));
}

#[tokio::test]
async fn a_plan_that_aborts_itself_is_in_the_chain_of_decisions() {
    let world = dead(15).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.sender.at("hooks", status(400));
    world.act(approve(&proposed)).await;
    world.run_for_seconds(120).await;
    let audit = world.act(json!({"action": "audit"})).await;
    let last = audit["entries"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (&last["action"], &last["by"]["name"], &last["subject"]),
        (&json!("abort"), &json!("redeliver"), &proposed["plan_id"]),
        "{last}"
    );
}

#[tokio::test]
async fn a_proposal_needs_time_to_be_stored() {
    let world = dead(1).await;
    let propose = json!({"action": "propose", "filter": {}});
    assert_eq!(world.act_within(propose.clone(), 10_000).await["error"]["code"], "invalid");
    assert_eq!(world.act_within(propose, 10_001).await["count"], 1);
}

#[tokio::test]
async fn a_resume_leaves_time_to_answer() {
    let world = World::new();
    let set = |status: &str| json!({"action": "endpoint", "endpoint": "p", "set": status, "reason": "test"});
    world.act(set("paused")).await;
    world.send("e");
    world.settle_now().await;
    assert_eq!(world.act_within(set("active"), 2_000).await["released"], 0);
    assert_eq!(world.act_within(set("active"), 2_001).await["released"], 1);
}

#[tokio::test]
async fn a_filter_takes_what_matches_in_every_part() {
    let world = World::new();
    world.register("q");
    world.sender.then([status(400), status(404), status(410)]);
    for (id, endpoint) in [("bad", "p"), ("missing", "p"), ("gone", "q")] {
        world.send_to(id, endpoint);
        world.settle_now().await;
        world.clock.advance(60_000);
    }
    let counted = async |filter: &Value| {
        let proposed = world.act(json!({"action": "propose", "filter": filter})).await;
        proposed["count"].as_u64().unwrap_or_else(|| u64::from(proposed["error"]["code"] != "not_found") * 99)
    };
    let at = |minutes: i64| START.plus(minutes * 60_000).to_string();
    for (filter, count) in [
        (json!({}), 3),
        (json!({"endpoint": "p"}), 2),
        (json!({"endpoint": "q", "reason": "permanent"}), 0),
        (json!({"endpoint": "q", "reason": "gone"}), 1),
        (json!({"reason": "permanent", "status": 404}), 1),
        (json!({"reason": "gone", "status": 404}), 0),
        (json!({"class": "permanent"}), 2),
        (json!({"class": "permanent", "status": 410}), 0),
        (json!({"ids": ["bad", "gone"], "endpoint": "q"}), 1),
        (json!({"ids": ["bad", "gone"], "reason": "permanent"}), 1),
        (json!({"after": at(1)}), 2),
        (json!({"before": at(1)}), 1),
        (json!({"after": at(1), "before": at(2)}), 1),
        (json!({"after": at(1), "before": at(1)}), 0),
        (json!({"after": at(1), "before": START.plus(60_001).to_string()}), 1),
        (json!({"endpoint": "p", "before": at(1)}), 1),
        (json!({"ids": ["bad", "missing", "gone"], "before": at(1)}), 1),
        (json!({"ids": ["bad", "missing", "gone"], "after": at(1)}), 2),
    ] {
        assert_eq!(counted(&filter).await, count, "{filter}");
    }
    let listed = async |more: Value| {
        let mut action = json!({"action": "list", "state": "dead_lettered"});
        action.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let items = world.act(action).await["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(json!({"endpoint": "p"})).await, ["bad", "missing"]);
    assert_eq!(listed(json!({"reason": "gone"})).await, ["gone"]);
    assert_eq!(listed(json!({"endpoint": "p", "reason": "gone"})).await, [""; 0]);
    assert_eq!(listed(json!({"limit": 1})).await, ["bad"]);
}

#[tokio::test]
async fn a_page_is_filled_from_further_on_when_most_of_what_is_found_does_not_match() {
    let world = World::new();
    world.sender.then([400, 410, 410, 410].map(status));
    for i in 0..4 {
        world.register(&format!("p{i}"));
        world.send_to(&format!("e{i}"), &format!("p{i}"));
        world.settle_now().await;
        world.clock.advance(1_000);
    }
    let mut list = json!({"action": "list", "state": "dead_lettered", "reason": "gone", "limit": 2});
    let ids = |page: &Value| {
        page["items"].as_array().unwrap().iter().map(|i| i["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = world.act(list.clone()).await;
    list["cursor"] = first["cursor"].clone();
    assert_eq!((ids(&first), ids(&world.act(list).await)), (vec!["e1".into(), "e2".into()], vec!["e3".into()]));
}

#[tokio::test]
async fn a_list_shows_what_is_so_and_not_what_an_index_still_says() {
    let world = dead(1).await;
    world.table.let_indexes_lag(world.clock.clone(), Rc::new(|| 100_000));
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&proposed)).await;
    world.run_for_seconds(5).await;
    assert_eq!(world.record("e0").await.state, State::Delivered);
    for endpoint in [json!(null), json!("p")] {
        let list = json!({"action": "list", "state": "dead_lettered", "endpoint": endpoint});
        assert_eq!(world.act(list).await["items"], json!([]), "{endpoint}");
    }
}

#[tokio::test]
async fn a_plan_watches_over_a_thousand_endpoints_and_a_proposal_looks_at_a_hundred() {
    let world = World::new();
    world.sender.then((0..2_002).map(|_| status(400)));
    for i in 0..1_001 {
        world.register(&format!("p{i}"));
        for half in ["a", "b"] {
            world.send_to(&format!("{half}{i}"), &format!("p{i}"));
        }
    }
    world.settle_now().await;
    let propose = async |endpoints: usize, canary: u32| {
        let ids: Vec<String> = (0..endpoints).flat_map(|i| [format!("a{i}"), format!("b{i}")]).collect();
        world.act(json!({"action": "propose", "filter": {"ids": ids}, "canary": canary})).await
    };
    let refused = propose(1_001, 1).await;
    assert_eq!((&refused["error"]["code"], &refused["error"]["count"]), (&json!("too_many"), &json!(1_001)));
    assert_eq!(propose(1_001, 2).await["count"], 2_002, "no endpoint has more than a canary");
    assert_eq!(propose(1_000, 1).await["count"], 2_000);
    assert_eq!(propose(100, 1).await["warnings"], json!([]));
    assert_eq!(propose(101, 1).await["warnings"], json!(["only 100 of 101 endpoints were looked at"]));
}

#[tokio::test]
async fn a_proposal_tells_what_would_not_go_well_and_nothing_else() {
    let world = World::new();
    world.sender.then([Outcome::Failed { phase: Phase::Sent, detail: "timeout".to_owned() }, status(400), status(400)]);
    world.send("unknown");
    world.run_for_seconds(60).await;
    world.send("plain");
    let late = json!({"id": "late", "endpoint": "p", "body": "x", "deliver_by": START.to_string()});
    world.intake.send(&late.to_string(), 0);
    world.settle_now().await;
    // An attempt that died before any payload was kept, and whose message is not accepted any more.
    let webhook = message("lost");
    let died = claimed(&webhook, world.clock.now());
    world.table.create(&died).await.unwrap();
    world.clock.advance(TIMING.lease_ms);
    let given_up = transition::give_up(&died, RETENTION, world.clock.now()).unwrap();
    world.table.swap(&died, &given_up).await.unwrap();
    let warnings = async |ids: &[&str]| {
        let proposed = world.act(json!({"action": "propose", "filter": {"ids": ids}})).await;
        assert_eq!(proposed["count"], ids.len(), "{proposed}");
        proposed["warnings"].as_array().unwrap().iter().map(|w| w.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(warnings(&["plain"]).await, [""; 0]);
    assert_eq!(
        warnings(&["plain", "unknown", "late", "lost"]).await,
        [
            "2 may have been received already: an attempt ended without an answer",
            "1 have passed their deliver_by and would be dead-lettered again",
            "1 have no payload and will be skipped",
        ]
    );
    let kept_until = world.record("plain").await.payload_kept_until.unwrap();
    world.clock.advance(kept_until.plus(-DAY_MS).since(world.clock.now()));
    assert_eq!(warnings(&["plain"]).await, [""; 0], "a day is left");
    world.clock.advance(1);
    assert_eq!(warnings(&["plain"]).await, ["1 have a payload that is kept for less than 24 hours"]);
    let set = json!({"action": "endpoint", "endpoint": "p", "set": "paused", "reason": "test"});
    world.act(set).await;
    let told = warnings(&["plain", "unknown"]).await;
    assert!(told.iter().any(|w| w.contains("endpoint p is still paused: 2 deliveries would be held")), "{told:?}");
}

#[tokio::test]
async fn a_proposal_counts_by_endpoint_reason_and_class() {
    let world = dead(3).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 2})).await;
    assert_eq!(proposed["by_endpoint"], json!({"p": 3}));
    assert_eq!(proposed["by_reason"], json!({"permanent": 3}));
    assert_eq!(proposed["by_class"], json!({"permanent": 3}));
    assert_eq!((&proposed["forecast_seconds"], &proposed["warnings"]), (&json!(2), &json!([])));
}

#[tokio::test]
async fn what_happens_next_is_one_sentence() {
    let world = dead(1).await;
    let next = async |id: &str| world.act(json!({"action": "explain", "id": id})).await["next"].clone();
    let dead = "Nothing by itself: the endpoint refused it for good. Only an approved redrive plan brings it back.";
    assert_eq!(next("e0").await, dead);
    let webhook = message("flies");
    world.table.create(&claimed(&webhook, world.clock.now())).await.unwrap();
    let until = world.clock.now().plus(TIMING.lease_ms);
    world.clock.advance(TIMING.lease_ms - 1);
    let flies = format!("Attempt 1 is in flight; if its process died, it is taken over after {until}.");
    assert_eq!(next("flies").await, flies);
    world.clock.advance(1);
    assert_eq!(next("flies").await, "Attempt 1 was abandoned; the next message or sweep takes it over.");
    world.sender.then([status(500)]);
    world.send("waits");
    world.settle_now().await;
    let due = world.record("waits").await.due.unwrap();
    assert_eq!(next("waits").await, format!("Attempt 2 is due at {due}."));
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Removed);
    world.send("held");
    world.settle_now().await;
    assert!(next("held").await.as_str().unwrap().contains("its endpoint was removed"));
    let key = DeliveryKey::parse("e0", "p").unwrap();
    assert_eq!(world.table.look(&key, |r| r.state), Some(State::DeadLettered(DeadReason::Permanent)));
}

#[tokio::test]
async fn a_cancel_that_is_asked_for_twice_is_asked_for_once() {
    let world = World::new();
    world.table.create(&claimed(&message("e"), world.clock.now())).await.unwrap();
    let cancel = json!({"action": "cancel", "id": "e", "endpoint": "p", "reason": "withdrawn"});
    for _ in 0..2 {
        assert_eq!(world.act(cancel.clone()).await["result"], "requested");
    }
    assert_eq!(world.record("e").await.rev, 2);
}
