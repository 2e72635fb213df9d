//! Stories of redrives: a decision about a frozen selection, carried out slowly, and stopped when it does harm.

use std::collections::BTreeMap;

use domain::decide::Decision;
use domain::delivery::{DeadReason, HeldReason, State, WaitingReason};
use domain::endpoint::{EndpointConfig, Found};
use domain::id::EndpointKey;
use domain::outcome::{Class, Phase};
use domain::plan::{Approval, MAX_DELIVERIES, PlanState, Who};
use domain::ports::{Audit, Clock, Created, Deliveries, Payloads, Plans};
use domain::record::{Entry, Record};
use domain::signature::{Scheme, Secret};
use domain::time::DAY_MS;
use domain::transition::{Finished, finish};
use domain::wakeup::Waiting;
use serde_json::{Value, json};
use testkit::samples::{RETENTION, claimed, message};
use testkit::sender::status;

use crate::world::{START, World, config};

pub fn approve(proposed: &Value, redrive_id: &str) -> Value {
    json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": redrive_id, "reason": "fixed", "operator": "bea"})
}

/// A world with so many dead letters of each endpoint.
pub async fn dead(endpoints: &[&str], each: usize) -> World {
    let world = World::new();
    for endpoint in endpoints {
        world.register(endpoint);
        world.sender.then((0..each).map(|_| status(400)));
        for i in 0..each {
            world.send_to(&format!("{endpoint}{i}"), endpoint);
        }
        world.settle_now().await;
    }
    world
}

/// An attempt that was answered 400.
fn refused() -> Finished {
    Finished {
        class: Class::Permanent,
        phase: Phase::Head,
        status: Some(400),
        detail: None,
        hint: None,
        excerpt: None,
        budget: 8,
    }
}

async fn plan_of(world: &World, proposed: &Value) -> Value {
    world.act(json!({"action": "status", "plan_id": proposed["plan_id"]})).await["plan"].clone()
}

/// The figures of a plan, which must add up.
fn figures(plan: &Value) -> [i64; 5] {
    let figures = ["released", "delivered", "failed", "skipped", "remaining"].map(|n| plan[n].as_i64().unwrap());
    assert_eq!(figures[0] + figures[3] + figures[4], plan["count"].as_i64().unwrap(), "{plan}");
    figures
}

#[tokio::test]
async fn a_redrive_is_proposed_approved_once_and_delivered_with_the_same_id() {
    let world = World::new();
    world.sender.then((0..25).map(|_| status(400)));
    for i in 0..25 {
        world.send(&format!("e{i}"));
    }
    world.settle_now().await;
    let proposed = world.act(json!({"action": "propose", "filter": {"endpoint": "p"}, "operator": "ada"})).await;
    assert_eq!((&proposed["count"], &proposed["by_reason"]["permanent"]), (&json!(25), &json!(25)));
    let approve = |digest: &str, redrive: &str| json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": digest, "redrive_id": redrive, "reason": "fixed", "operator": "ada"});
    let digest = proposed["digest"].as_str().unwrap();
    assert_eq!(world.act(approve("0000", "r1")).await["error"]["code"], "digest_mismatch");
    let approved = world.act(approve(digest, "r1")).await;
    assert_eq!((&approved["plan"]["state"], &approved["plan"]["released"]), (&json!("canary"), &json!(10)));
    assert_eq!(world.act(approve(digest, "r1")).await["plan"]["released"], 10);
    assert_eq!(world.act(approve(digest, "r2")).await["error"]["code"], "conflict");
    world.run_for_seconds(5).await;
    assert_eq!(world.sender.seen().len(), 35, "the canary, and nothing else");
    let ramping = world.act(approve(digest, "r1")).await;
    assert_eq!((&ramping["plan"]["state"], &ramping["plan"]["released"]), (&json!("ramping"), &json!(25)));
    world.run_for_seconds(10).await;
    let done = world.act(json!({"action": "status", "plan_id": proposed["plan_id"]})).await;
    assert_eq!(
        (&done["plan"]["state"], &done["plan"]["delivered"], &done["plan"]["remaining"]),
        (&json!("completed"), &json!(25), &json!(0))
    );
    assert_eq!(world.sender.seen().len(), 50);
    let record = world.record("e7").await;
    assert_eq!((record.state, record.generation, record.attempt), (State::Delivered, 1, 2));
}

#[tokio::test]
async fn a_redrive_is_spread_by_its_rate() {
    let world = World::new();
    world.sender.then((0..50).map(|_| status(400)));
    for i in 0..50 {
        world.send(&format!("e{i}"));
    }
    world.settle_now().await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 5})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(5).await;
    world.act(approve(&proposed, "r")).await;
    let (began, before) = (world.clock.now(), world.sender.seen().len() as i64);
    for second in 1..8 {
        world.run_until(began.plus(second * 1_000)).await;
        let sent = world.sender.seen().len() as i64 - before;
        assert!((second * 5..=second * 5 + 6).contains(&sent), "{sent} after {second} s");
    }
    world.run_for_seconds(5).await;
    assert_eq!(world.sender.seen().len(), 100);
}

#[tokio::test]
async fn a_redrive_after_a_rotation_is_signed_with_the_secrets_of_its_time() {
    let world = World::new();
    let (old, new) = (Secret::new(Scheme::V1, &[1; 32].into()), Secret::new(Scheme::V1, &[2; 32].into()));
    let sign_with = |secret: &Secret| {
        let secrets = vec![secret.clone()];
        let p = EndpointKey::registered("p").unwrap();
        world.endpoints.set(&p, Found::Config(Box::new(EndpointConfig { secrets, ..config() })));
    };
    sign_with(&old);
    world.sender.then([status(400)]);
    world.send("e");
    world.settle_now().await;
    world.run_for_seconds(60).await;
    sign_with(&new);
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(5).await;
    let seen = world.sender.seen();
    assert_eq!((seen.len(), world.record("e").await.state), (2, State::Delivered));
    for (request, secret) in seen.iter().zip([&old, &new]) {
        let timestamp: i64 = request.header("webhook-timestamp").unwrap().parse().unwrap();
        let expected = secret.sign("e", timestamp, &request.body);
        assert_eq!(request.header("webhook-signature"), Some(expected.as_str()));
    }
    assert_ne!(seen[0].header("webhook-timestamp"), seen[1].header("webhook-timestamp"));
}

#[tokio::test]
async fn a_redrive_without_a_payload_is_skipped_and_counted() {
    let world = World::new();
    world.sender.then([status(400)]);
    world.send("e");
    world.settle_now().await;
    world.payloads.clear();
    let proposed = world.act(json!({"action": "propose", "filter": {"ids": ["e"]}})).await;
    let approved = world.act(approve(&proposed, "r")).await;
    assert_eq!((&approved["plan"]["skipped"], &approved["plan"]["state"]), (&json!(1), &json!("completed")));
    assert_eq!(world.record("e").await.state, State::DeadLettered(DeadReason::Permanent));
}

#[tokio::test]
async fn a_held_delivery_is_released_by_a_plan_and_goes_on_in_its_generation() {
    let world = World::new();
    let p = EndpointKey::registered("p").unwrap();
    world.sender.then([status(500)]);
    world.send("e");
    world.settle_now().await;
    world.endpoints.set(&p, Found::Removed);
    world.run_for_seconds(120).await;
    world.endpoints.set(&p, Found::Config(Box::new(config())));
    let proposed = world.act(json!({"action": "propose", "filter": {"state": "held", "endpoint": "p"}})).await;
    assert_eq!((&proposed["count"], &proposed["by_reason"]["removed"]), (&json!(1), &json!(1)));
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(5).await;
    let record = world.record("e").await;
    assert_eq!((record.state, record.generation, record.attempt), (State::Delivered, 0, 2));
    let done = world.act(json!({"action": "status", "plan_id": proposed["plan_id"]})).await;
    assert_eq!((&done["plan"]["state"], &done["plan"]["delivered"]), (&json!("completed"), &json!(1)));
}

#[tokio::test]
async fn a_redriven_delivery_that_is_held_again_counts_as_skipped() {
    let world = World::new();
    world.sender.then([status(400)]);
    world.send("e");
    world.settle_now().await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Removed);
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(5).await;
    assert_eq!(world.record("e").await.state, State::Held(HeldReason::Removed));
    let done = world.act(json!({"action": "status", "plan_id": proposed["plan_id"]})).await;
    let plan = &done["plan"];
    assert_eq!((&plan["state"], &plan["skipped"], &plan["released"]), (&json!("completed"), &json!(1), &json!(0)));
}

#[tokio::test]
async fn an_approval_that_dies_before_its_first_release_is_continued_by_the_sweep() {
    let world = World::new();
    world.sender.then([status(400)]);
    world.send("e");
    world.settle_now().await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    let plan = world.table.plan(proposed["plan_id"].as_str().unwrap(), true).await.unwrap().unwrap();
    let by = Who { name: "ada".to_owned(), verified: false };
    let approval = Approval { redrive_id: "r".to_owned(), reason: "fixed".to_owned(), by, at: world.clock.now().0 };
    let approved = plan.changed(|p| (p.state, p.approval) = (PlanState::Canary, Some(approval)));
    assert_eq!(world.table.save_plan(&plan, &approved, None).await, Ok(true));
    let evidence = world.sweep_run("reconcile").await;
    assert_eq!(evidence.released, 1);
    world.run_for_seconds(5).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
}

#[tokio::test]
async fn a_plan_skips_what_another_plan_has_brought_back_meanwhile() {
    let world = World::new();
    world.sender.then([status(400), status(400)]);
    world.send("e");
    world.settle_now().await;
    let [first, second] = [(); 2].map(|()| json!({"action": "propose", "filter": {"ids": ["e"]}}));
    let (first, second) = (world.act(first).await, world.act(second).await);
    world.act(approve(&first, "r1")).await;
    world.run_for_seconds(5).await;
    let dead_again = world.record("e").await;
    assert_eq!((dead_again.state, dead_again.generation), (State::DeadLettered(DeadReason::Permanent), 1));
    let answer = world.act(approve(&second, "r2")).await;
    assert_eq!((&answer["plan"]["skipped"], &answer["plan"]["released"]), (&json!(1), &json!(0)));
    assert_eq!(world.record("e").await, dead_again);
    let failed = world.act(json!({"action": "status", "plan_id": first["plan_id"]})).await;
    assert_eq!((&failed["plan"]["failed"], &failed["plan"]["state"]), (&json!(1), &json!("completed")));
}

#[tokio::test]
async fn a_plan_of_ten_thousand_is_released_completely_and_once_and_one_more_is_too_many() {
    let world = World::new();
    let failed = refused();
    for i in 0..=MAX_DELIVERIES {
        let webhook = message(&format!("e{i}"));
        // The last one comes later than all others.
        let at = START.plus(i64::from(i == MAX_DELIVERIES) * 1_000);
        let dead = Decision::Dead(DeadReason::Permanent);
        let record = finish(&claimed(&webhook, at), &failed, dead, Some(at), RETENTION, at).unwrap();
        assert_eq!(world.table.create(&record).await, Ok(Created::New));
        world.payloads.keep(&webhook.key, &webhook.payload, at).await.unwrap();
    }
    world.clock.advance(10_000);
    let refused = world.act(json!({"action": "propose", "filter": {}})).await;
    assert_eq!((&refused["error"]["code"], &refused["error"]["count"]), (&json!("too_many"), &json!(10_001)));
    let before = START.plus(500).to_string();
    let proposed = world.act(json!({"action": "propose", "filter": {"before": before}, "rate_per_second": 20})).await;
    assert_eq!(proposed["count"], 10_000);
    for _ in 0..2 {
        let plan = &world.act(approve(&proposed, "r")).await["plan"];
        assert_eq!((&plan["released"], &plan["skipped"], &plan["remaining"]), (&json!(10), &json!(0), &json!(9_990)));
    }
    world.run_for_seconds(2).await;
    let ramp = world.clock.now();
    let plan = &world.act(approve(&proposed, "r")).await["plan"];
    assert_eq!((&plan["state"], &plan["delivered"]), (&json!("ramping"), &json!(10)));
    // Ninety seconds ahead, and no further.
    assert_eq!(plan["released"], 10 + 91 * 20);
    let mut most = 0;
    let mut last = 0;
    while world.sender.seen().len() < 10_000 {
        assert!(world.clock.now().since(ramp) < 700_000, "{} sent", world.sender.seen().len());
        world.run_for_seconds(10).await;
        most = most.max(world.sender.seen().len() - last);
        last = world.sender.seen().len();
    }
    assert!(most <= 240, "{most} in ten seconds, at 20 per second");
    let records = world.table.all();
    assert_eq!(records.iter().filter(|r| r.generation == 1 && r.state == State::Delivered).count(), 10_000);
    let done = world.act(json!({"action": "status", "plan_id": proposed["plan_id"]})).await;
    assert_eq!((&done["plan"]["state"], &done["plan"]["delivered"]), (&json!("completed"), &json!(10_000)));
}

#[tokio::test]
async fn a_canary_that_fails_aborts_the_plan_and_leaves_the_rest_untouched() {
    let world = dead(&["p"], 30).await;
    let before = world.table.all();
    let proposed = world.act(json!({"action": "propose", "filter": {"endpoint": "p"}, "operator": "ada"})).await;
    world.sender.then((0..10).map(|_| status(400)));
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(90).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((&plan["state"], &plan["abort"]["by"]["name"]), (&json!("aborted"), &json!("redeliver")));
    assert_eq!((figures(&plan), &plan["endpoints_failed"]), ([10, 0, 10, 0, 20], &json!(["p"])));
    assert_eq!(world.sender.seen().len(), 40);
    let untouched = world.table.all().iter().filter(|record| before.contains(record)).count();
    assert_eq!(untouched, 20);
    world.run_for_seconds(600).await;
    assert_eq!(world.sender.seen().len(), 40);
}

#[tokio::test]
async fn each_endpoint_is_judged_by_its_own_canary() {
    let world = dead(&["p", "q"], 15).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 100})).await;
    assert_eq!(proposed["canaries"], 20);
    world.sender.at("q", status(400));
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(200).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((&plan["state"], &plan["endpoints_failed"]), (&json!("completed"), &json!(["q"])));
    assert_eq!(figures(&plan), [25, 15, 10, 5, 0]);
}

#[tokio::test]
async fn without_a_verdict_in_half_an_hour_an_endpoint_is_left_out() {
    let mut world = dead(&["p", "q"], 12).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    // Nothing is heard of q: its wake-ups get lost, and those that the sweep sends again too.
    world.loses_wake_ups_of = Some("q");
    world.act(approve(&proposed, "r")).await;
    for minute in 0..29 {
        world.run_for_seconds(60).await;
        assert_eq!(plan_of(&world, &proposed).await["state"], "canary", "after {minute} minutes");
    }
    world.run_for_seconds(120).await;
    world.loses_wake_ups_of = None;
    world.run_for_seconds(120).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!(plan["endpoints_no_verdict"], json!(["q"]), "{plan}");
    assert_eq!(plan["delivered"], 12, "{plan}");
}

#[tokio::test]
async fn an_abort_bites_at_once_and_takes_back_what_was_not_tried() {
    let world = dead(&["p"], 200).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 10})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(3).await;
    let ramping = plan_of(&world, &proposed).await;
    assert_eq!((&ramping["state"], &ramping["released"]), (&json!("ramping"), &json!(200)));
    world.run_for_seconds(5).await;
    let sent = world.sender.seen().len();
    let abort =
        json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "wrong partner", "operator": "cem"});
    let aborted = world.act(abort.clone()).await;
    assert_eq!(
        (&aborted["plan"]["state"], &aborted["plan"]["abort"]["reason"]),
        (&json!("aborted"), &json!("wrong partner"))
    );
    world.run_for_seconds(300).await;
    assert_eq!(world.sender.seen().len(), sent, "nothing more is sent");
    let plan = plan_of(&world, &proposed).await;
    let tried = i64::try_from(sent).unwrap() - 200;
    assert_eq!(figures(&plan), [tried, tried, 0, 0, 200 - tried]);
    let back = world.table.all().iter().filter(|r| r.state == State::DeadLettered(DeadReason::Permanent)).count();
    assert_eq!(i64::try_from(back).unwrap(), 200 - tried);
    assert_eq!(world.act(abort).await["ok"], true, "an abort may be repeated");
    let again = world.act(json!({"action": "propose", "filter": {}})).await;
    assert_eq!(again["count"].as_i64(), Some(200 - tried), "they can be proposed again");
}

#[tokio::test]
async fn a_plan_that_stood_still_does_not_burst() {
    let mut world = dead(&["p"], 200).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 5})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(4).await;
    plan_of(&world, &proposed).await;
    // The relay stalls; all slots pass meanwhile.
    world.relay_stalled = true;
    world.run_for_seconds(120).await;
    world.relay_stalled = false;
    world.run_for_seconds(300).await;
    assert_eq!(figures(&plan_of(&world, &proposed).await), [200, 200, 0, 0, 0]);
    let mut per_second: BTreeMap<String, u32> = BTreeMap::new();
    for request in &world.sender.seen()[200..] {
        *per_second.entry(request.header("webhook-timestamp").unwrap().to_owned()).or_default() += 1;
    }
    let most = per_second.values().max().unwrap();
    assert!(per_second.values().sum::<u32>() == 200 && *most <= 6, "{most} in one second, at 5 per second");
}

#[tokio::test]
async fn a_delivered_event_is_sent_again_only_by_name() {
    let world = World::new();
    world.sender.then([status(500)]);
    world.send("e");
    world.run_for_seconds(60).await;
    assert_eq!(world.record("e").await.state, State::Delivered);
    let all = world.act(json!({"action": "propose", "filter": {"state": "delivered"}})).await;
    assert_eq!(all["error"]["code"], "invalid");
    let proposed = world.act(json!({"action": "propose", "filter": {"state": "delivered", "ids": ["e"]}})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(5).await;
    assert_eq!(figures(&plan_of(&world, &proposed).await), [1, 1, 0, 0, 0]);
    let ids: Vec<_> = world.sender.seen().iter().map(|s| s.header("webhook-id").unwrap().to_owned()).collect();
    assert_eq!(ids, ["e", "e", "e"]);
}

#[tokio::test]
async fn a_proposal_warns_of_an_endpoint_that_takes_nothing_and_tells_classes_and_ages() {
    let world = dead(&["p"], 3).await;
    world.clock.advance(2 * 3_600_000);
    let set = json!({"action": "endpoint", "endpoint": "p", "set": "disabled", "reason": "gone", "operator": "ada"});
    world.act(set).await;
    let proposed = world.act(json!({"action": "propose", "filter": {"class": "permanent", "status": 400}})).await;
    assert_eq!(
        (&proposed["count"], &proposed["by_class"]["permanent"], &proposed["by_age"]["under_1d"]),
        (&json!(3), &json!(3), &json!(3))
    );
    assert!(proposed["warnings"][0].as_str().unwrap().contains("endpoint p is still disabled"), "{proposed}");
    for (filter, code) in [
        (json!({"status": 500}), "not_found"),
        (json!({"class": "transient"}), "not_found"),
        (json!({"class": "x"}), "invalid"),
    ] {
        assert_eq!(world.act(json!({"action": "propose", "filter": filter})).await["error"]["code"], code);
    }
}

/// Dead letters of endpoint `p` that differ from the first one in this.
pub async fn dead_letters(world: &World, changes: &[&dyn Fn(&mut Record)]) {
    let failed = refused();
    let dead = Decision::Dead(DeadReason::Permanent);
    for (i, change) in changes.iter().enumerate() {
        let mut record =
            finish(&claimed(&message(&format!("e{i}")), START), &failed, dead, Some(START), RETENTION, START).unwrap();
        record.payload_kept_until = Some(START.plus(30 * DAY_MS));
        change(&mut record);
        assert_eq!(world.table.create(&record).await, Ok(Created::New));
    }
    world.clock.advance(1_000);
}

#[tokio::test]
async fn each_warning_counts_what_it_is_about() {
    let world = World::new();
    let unknown: &dyn Fn(&mut Record) = &|r| {
        if let Some(Entry::Attempt(attempt)) = r.history.last_mut() {
            attempt.class = Class::Unknown;
        }
    };
    let in_hours = |hours: i64| Some(START.plus(hours * 3_600_000));
    dead_letters(
        &world,
        &[
            &|_| {},
            unknown,
            unknown,
            &|r| r.deliver_by = Some(START),
            &|r| r.deliver_by = in_hours(20),
            &|r| r.deliver_by = in_hours(30),
            &|r| r.payload_kept_until = Some(START),
            &|r| r.payload_kept_until = in_hours(20),
            &|r| r.payload_kept_until = in_hours(30),
            &|r| r.payload_kept_until = None,
        ],
    )
    .await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    let warnings = json!([
        "2 may have been received already: an attempt ended without an answer",
        "1 have passed their deliver_by and would be dead-lettered again",
        "1 have a deliver_by within the next 24 hours",
        "1 have a payload whose time is over: it may be gone, then they are skipped",
        "1 have a payload that is kept for less than 24 hours",
        "1 have no payload and will be skipped",
    ]);
    assert_eq!(proposed["warnings"], warnings);
    assert_eq!(plan_of(&world, &proposed).await["warnings"], warnings);
}

#[tokio::test]
async fn whoever_approves_sees_what_was_found_and_how_the_endpoints_are_now() {
    let world = dead(&["p", "q"], 3).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    let seen = plan_of(&world, &proposed).await;
    for name in ["by_endpoint", "by_reason", "by_class"] {
        assert_eq!((seen[name].is_object(), &seen[name]), (true, &proposed[name]), "{name}");
    }
    assert_eq!((&seen["endpoint_count"], &seen["oldest"]), (&json!(2), &json!(START.to_string())));
    assert_eq!(seen["warnings"], json!([]));
    let set = json!({"action": "endpoint", "endpoint": "q", "set": "paused", "reason": "moves", "operator": "ada"});
    world.act(set).await;
    let seen = plan_of(&world, &proposed).await;
    let warning = seen["warnings"][0].as_str().unwrap();
    assert!(warning.contains("endpoint q is still paused: 3 deliveries"), "{warning}");
    let running = world.act(approve(&proposed, "r")).await;
    assert_eq!((&running["plan"]["by_endpoint"]["p"], &running["plan"]["warnings"]), (&json!(3), &json!(null)));
}

#[tokio::test]
async fn deliveries_of_a_removed_endpoint_are_proposed_with_a_warning() {
    let world = World::new();
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), Found::Removed);
    world.send("e");
    world.settle_now().await;
    let proposed = world.act(json!({"action": "propose", "filter": {"state": "held"}})).await;
    let warnings = proposed["warnings"].to_string();
    assert!(warnings.contains("1 are held because their endpoint was removed"), "{proposed}");
}

#[tokio::test]
async fn a_proposal_of_yesterday_is_expired_for_everybody() {
    let world = dead(&["p"], 1).await;
    let propose = json!({"action": "propose", "filter": {}});
    let (old, kept) = (world.act(propose.clone()).await, json!({"action": "plans"}));
    world.clock.advance(24 * 3_600_000 - 1);
    let fresh = world.act(propose).await;
    assert_eq!(world.act(kept.clone()).await["plans"][1]["state"], "proposed");
    world.clock.advance(1);
    let in_state = async |state: &str| {
        let plans = world.act(json!({"action": "plans", "state": state, "limit": 1})).await["plans"].clone();
        let ids: Vec<Value> = plans.as_array().unwrap().iter().map(|plan| plan["plan_id"].clone()).collect();
        assert!(plans.as_array().unwrap().iter().all(|plan| plan["state"] == state), "{plans}");
        ids
    };
    // Nobody has written it down yet, and then somebody has.
    for _ in 0..2 {
        assert_eq!(in_state("expired").await, [old["plan_id"].clone()]);
        assert_eq!(in_state("proposed").await, [fresh["plan_id"].clone()]);
        assert_eq!(world.act(approve(&old, "r")).await["error"]["code"], "expired");
        let abort = json!({"action": "abort", "plan_id": old["plan_id"], "reason": "late", "operator": "ada"});
        let refused = world.act(abort).await;
        assert!(refused["error"]["message"].as_str().unwrap().contains("expired"), "{refused}");
        assert_eq!(plan_of(&world, &old).await["state"], "expired");
    }
    assert_eq!(world.act(approve(&fresh, "r")).await["ok"], true);
}

#[tokio::test]
async fn named_events_are_found_with_and_without_their_endpoint_and_those_that_are_not_are_counted() {
    let world = dead(&["p", "q"], 30).await;
    let ids: Vec<String> = (0..30).map(|i| format!("p{i}")).chain(["q0".to_owned(), "nobody".to_owned()]).collect();
    let all = world.act(json!({"action": "propose", "filter": {"ids": ids}})).await;
    let of_p = world.act(json!({"action": "propose", "filter": {"ids": ids, "endpoint": "p"}})).await;
    assert_eq!((&all["by_endpoint"], &of_p["by_endpoint"]), (&json!({"p": 30, "q": 1}), &json!({"p": 30})));
    let left_out = |count: u32| json!([format!("{count} of the ids have no delivery that matches, and are left out")]);
    assert_eq!((&all["warnings"], &of_p["warnings"]), (&left_out(1), &left_out(2)));
    let late = world.act_within(json!({"action": "propose", "filter": {"ids": ids}}), 1).await;
    let message = late["error"]["message"].as_str().unwrap();
    assert!(message.contains("give fewer ids") && !message.contains("or time"), "{message}");
}

#[tokio::test]
async fn a_cancel_that_can_change_nothing_is_no_decision() {
    let world = dead(&["p"], 1).await;
    let cancel = |id: &str| json!({"action": "cancel", "id": id, "endpoint": "p", "reason": "withdrawn"});
    assert_eq!(world.act(cancel("p0")).await["error"]["code"], "conflict", "a dead letter");
    assert_eq!(world.table.head().await.unwrap().seq, 0);
    for _ in 0..2 {
        let answer = world.act(cancel("later")).await;
        assert_eq!(answer["ok"], true, "{answer}");
        assert_eq!(world.table.head().await.unwrap().seq, 1, "the second time it is cancelled already");
    }
}

#[tokio::test]
async fn where_two_people_are_asked_for_one_is_not_enough() {
    let mut world = dead(&["p"], 1).await;
    world.operator.two_people = true;
    let by = |user: &str, action: Value| {
        json!({
            "version": "2.0", "body": action.to_string(), "isBase64Encoded": false,
            "requestContext": {"http": {"method": "POST"}, "authorizer": {"iam": {"userArn": format!("arn:aws:iam::111122223333:user/{user}")}}},
        })
    };
    let propose = json!({"action": "propose", "filter": {}});
    let answer = |event: Value| serde_json::from_str::<Value>(event["body"].as_str().unwrap()).unwrap();
    let proposed = answer(world.act_on(by("ada", propose.clone()), "arn:f:live").await);
    let own = answer(world.act_on(by("ada", approve(&proposed, "r")), "arn:f:live").await);
    assert_eq!(
        (&own["error"]["code"], own["error"]["message"].as_str().unwrap().contains("somebody else")),
        (&json!("forbidden"), true)
    );
    assert_eq!(
        world.act(approve(&proposed, "r")).await["error"]["code"],
        "forbidden",
        "a plain invoke is not verified"
    );
    let imitated = world.act_on(by("bea", approve(&proposed, "r")), "arn:f").await;
    assert_eq!(answer(imitated)["error"]["code"], "forbidden", "nor is one that imitates the URL");
    let other = answer(world.act_on(by("bea", approve(&proposed, "r")), "arn:f:live").await);
    assert_eq!((&other["ok"], &other["plan"]["approval"]["by"]["verified"]), (&json!(true), &json!(true)), "{other}");
    let plain = world.act(propose).await;
    assert_eq!(plain["error"]["code"], "forbidden", "nobody could approve it");
}

#[tokio::test]
async fn every_decision_is_in_the_chain_and_the_chain_holds() {
    let world = dead(&["p"], 12).await;
    let set = |status: &str| json!({"action": "endpoint", "endpoint": "p", "set": status, "reason": "look", "operator": "ada"});
    world.act(set("paused")).await;
    world.act(set("active")).await;
    world
        .act(json!({"action": "cancel", "id": "later", "endpoint": "p", "reason": "withdrawn", "operator": "ada"}))
        .await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "operator": "ada", "note": "INC-1"})).await;
    for _ in 0..2 {
        world.act(approve(&proposed, "r")).await;
    }
    world.act(json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "stop", "operator": "cem"})).await;
    let (mut actions, mut cursor) = (Vec::new(), json!(null));
    loop {
        let page = world.act(json!({"action": "audit", "limit": 2, "cursor": cursor})).await;
        let entries = page["entries"].as_array().unwrap();
        actions.extend(
            entries
                .iter()
                .map(|e| format!("{} by {}", e["action"].as_str().unwrap(), e["by"]["name"].as_str().unwrap())),
        );
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(
        actions,
        ["endpoint by ada", "endpoint by ada", "cancel by ada", "propose by ada", "approve by bea", "abort by cem"]
    );
    let newest = world.act(json!({"action": "audit", "newest": true, "limit": 2})).await;
    let seqs: Vec<&Value> = newest["entries"].as_array().unwrap().iter().map(|entry| &entry["seq"]).collect();
    assert_eq!(seqs, [5, 6]);
    let both = world.act(json!({"action": "audit", "newest": true, "after": "2026-12-01T00:00:00Z"})).await;
    assert_eq!(both["error"]["code"], "invalid");
    let (entries, _) = world.table.entries("", 100).await.unwrap();
    assert_eq!(domain::audit::verify(&Default::default(), &entries, &world.table.head().await.unwrap()), Ok(6));
    let listed = world.act(json!({"action": "plans"})).await;
    assert_eq!(
        (&listed["plans"][0]["plan_id"], &listed["plans"][0]["state"]),
        (&proposed["plan_id"], &json!("aborted"))
    );
    assert_eq!(world.act(json!({"action": "plans", "state": "ramping"})).await["plans"], json!([]));
    assert_eq!(world.act(json!({"action": "plans", "state": "x"})).await["error"]["code"], "invalid");
}

/// Dead letters by anything but their endpoint: of each state so many.
fn in_state(world: &World, state: State) -> usize {
    world.table.all().iter().filter(|record| record.state == state).count()
}

const DEAD: State = State::DeadLettered(DeadReason::Permanent);

#[tokio::test]
async fn a_canary_that_is_held_again_gives_no_verdict_and_the_rest_stays_a_dead_letter() {
    let world = dead(&["p"], 50).await;
    let pause = json!({"action": "endpoint", "endpoint": "p", "set": "disabled", "reason": "gone", "operator": "ada"});
    world.act(pause).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 100})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(300).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((&plan["state"], &plan["endpoints_no_verdict"]), (&json!("aborted"), &json!(["p"])), "{plan}");
    assert_eq!(figures(&plan), [0, 0, 0, 10, 40]);
    assert_eq!((in_state(&world, DEAD), in_state(&world, State::Held(HeldReason::Disabled))), (40, 10));
}

#[tokio::test]
async fn others_take_the_place_of_canaries_that_moved_or_lost_their_payload() {
    let world = dead(&["p"], 50).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 100})).await;
    // The first ten, which are the canaries, are gone when the plan comes to them. All are as old, so the ids decide.
    let ids: Vec<String> = [0, 1].into_iter().chain(10..18).map(|i| format!("p{i}")).collect();
    let first = world.act(json!({"action": "propose", "filter": {"ids": ids}})).await;
    world.act(approve(&first, "r1")).await;
    world.run_for_seconds(60).await;
    assert_eq!(world.sender.seen().len(), 60);
    world.sender.at("p", status(400));
    world.act(approve(&proposed, "r2")).await;
    world.run_for_seconds(300).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((&plan["state"], &plan["endpoints_failed"]), (&json!("aborted"), &json!(["p"])), "{plan}");
    assert_eq!(figures(&plan), [10, 0, 10, 10, 30], "ten others were tried, and no more");
    assert_eq!(world.sender.seen().len(), 70);
}

#[tokio::test]
async fn all_inline_urls_of_an_origin_are_one_endpoint_to_a_plan() {
    let world = World::new();
    world.sender.then((0..30).map(|_| status(400)));
    for i in 0..30 {
        let url = format!("https://callbacks.example.test/{i}");
        world.intake.send(&json!({"id": format!("e{i}"), "url": url, "json": i}).to_string(), 0);
    }
    world.settle_now().await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 100})).await;
    assert_eq!((&proposed["count"], &proposed["canaries"]), (&json!(30), &json!(10)));
    world.sender.at("callbacks", status(400));
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(120).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((&plan["state"], figures(&plan)), (&json!("aborted"), [10, 0, 10, 0, 20]));
    assert_eq!(world.sender.seen().len(), 40);
}

#[tokio::test]
async fn an_abort_takes_back_what_a_pause_would_hold() {
    let world = dead(&["p"], 60).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 2})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(60).await;
    assert_eq!(plan_of(&world, &proposed).await["state"], "ramping");
    let set = json!({"action": "endpoint", "endpoint": "p", "set": "paused", "reason": "look", "operator": "ada"});
    world.act(set).await;
    let abort = json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "look", "operator": "ada"});
    world.act(abort).await;
    let sent = world.sender.seen().len();
    world.run_for_seconds(300).await;
    assert_eq!(world.sender.seen().len(), sent);
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((in_state(&world, DEAD), in_state(&world, State::Held(HeldReason::Paused))), (120 - sent, 0), "{plan}");
    let again = world.act(json!({"action": "propose", "filter": {}})).await;
    assert_eq!(again["count"].as_u64(), Some(120 - sent as u64), "they are found again");
}

#[tokio::test]
async fn what_went_back_is_as_old_as_before() {
    let world = dead(&["p"], 1).await;
    let before = world.record("p0").await;
    world.clock.advance(3_600_000);
    let mut world = world;
    world.loses_wake_ups_of = Some("p");
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&proposed, "r")).await;
    let abort = json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "look", "operator": "ada"});
    world.run_for_seconds(1).await;
    world.act(abort).await;
    world.loses_wake_ups_of = None;
    world.run_for_seconds(600).await;
    let back = world.record("p0").await;
    assert_eq!((back.state, back.since, back.due), (DEAD, before.since, before.due));
}

#[tokio::test]
async fn a_cancel_of_a_released_delivery_is_not_undone_by_an_abort() {
    let mut world = dead(&["p"], 1).await;
    world.loses_wake_ups_of = Some("p");
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&proposed, "r")).await;
    let wake_up = {
        let record = world.record("p0").await;
        Waiting::of(&record).unwrap().wake_up
    };
    let cancel = json!({"action": "cancel", "id": "p0", "endpoint": "p", "reason": "withdrawn", "operator": "ada"});
    world.act(cancel).await;
    let abort = json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "look", "operator": "ada"});
    world.act(abort).await;
    world.retry.send(&serde_json::to_string(&wake_up).unwrap(), 0);
    world.run_for_seconds(10).await;
    assert!(world.retry.is_empty(), "its wake-up is settled");
    assert_eq!((world.record("p0").await.state, world.sender.seen().len()), (State::Cancelled, 1));
}

#[tokio::test]
async fn the_wake_up_of_an_aborted_plan_does_not_go_past_a_newer_one() {
    let mut world = dead(&["p"], 1).await;
    world.loses_wake_ups_of = Some("p");
    let first = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&first, "r1")).await;
    let stale = Waiting::of(&world.record("p0").await).unwrap().wake_up;
    let abort = json!({"action": "abort", "plan_id": first["plan_id"], "reason": "look", "operator": "ada"});
    world.act(abort).await;
    world.retry.send(&serde_json::to_string(&stale).unwrap(), 0);
    world.run_for_seconds(10).await;
    assert_eq!(world.record("p0").await.state, DEAD);
    let second = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&second, "r2")).await;
    let released = world.record("p0").await;
    world.clock.advance(5_000);
    world.retry.send(&serde_json::to_string(&stale).unwrap(), 0);
    world.settle_now().await;
    assert_eq!((world.record("p0").await, world.sender.seen().len()), (released, 1), "it waits for its own wake-up");
}

#[tokio::test]
async fn what_failed_its_first_attempt_is_retrying_and_the_figures_say_so() {
    let world = dead(&["p"], 30).await;
    world.sender.at("p", status(500));
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(120).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((&plan["state"], &plan["endpoints_failed"]), (&json!("aborted"), &json!(["p"])), "{plan}");
    assert_eq!((figures(&plan), &plan["retrying"], &plan["untried"]), ([10, 0, 0, 0, 20], &json!(10), &json!(0)));
    assert_eq!((&plan["endpoints"][0]["endpoint"], &plan["endpoints"][0]["refused"]), (&json!("p"), &json!(10)));
    let cancel = json!({"action": "cancel", "id": "p0", "endpoint": "p", "reason": "withdrawn", "operator": "ada"});
    world.act(cancel).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((&plan["retrying"], &plan["cancelled"]), (&json!(9), &json!(1)));
}

#[tokio::test]
async fn what_another_plan_does_later_changes_no_figure_of_this_one() {
    let world = dead(&["p"], 1).await;
    let first = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&first, "r1")).await;
    world.run_for_seconds(60).await;
    let before = figures(&plan_of(&world, &first).await);
    assert_eq!(before, [1, 1, 0, 0, 0]);
    world.sender.then([status(400)]);
    let second = world.act(json!({"action": "propose", "filter": {"state": "delivered", "ids": ["p0"]}})).await;
    world.act(approve(&second, "r2")).await;
    world.run_for_seconds(60).await;
    assert_eq!(figures(&plan_of(&world, &second).await), [1, 0, 1, 0, 0]);
    assert_eq!(figures(&plan_of(&world, &first).await), before);
}

#[tokio::test]
async fn a_canary_that_is_told_gone_does_not_stop_fresh_deliveries() {
    let world = dead(&["p"], 30).await;
    world.sender.then((0..10).map(|_| status(410)));
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(120).await;
    assert_eq!(plan_of(&world, &proposed).await["state"], "aborted");
    world.send("fresh");
    world.settle_now().await;
    assert_eq!(world.record("fresh").await.state, State::Delivered);
}

#[tokio::test]
async fn a_plan_ends_at_once_when_only_stopped_endpoints_are_left() {
    let world = dead(&["p", "q"], 200).await;
    world.sender.at("q", status(400));
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 10})).await;
    world.act(approve(&proposed, "r")).await;
    world.run_for_seconds(120).await;
    let plan = plan_of(&world, &proposed).await;
    assert_eq!((&plan["state"], figures(&plan)), (&json!("completed"), [210, 200, 10, 190, 0]), "{plan}");
}

#[tokio::test]
async fn an_outdated_wake_up_does_not_slip_past_an_abort() {
    let world = dead(&["p"], 1).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}, "rate_per_second": 1})).await;
    world.act(approve(&proposed, "r")).await;
    let outdated = Waiting::of(&world.record("p0").await).unwrap().wake_up;
    // Others have booked the next slots: it is put off to a later one.
    for _ in 0..10 {
        world.table.book(proposed["plan_id"].as_str().unwrap(), 1, world.clock.now()).await.unwrap();
    }
    world.settle_now().await;
    let put_off = world.record("p0").await;
    assert_eq!((put_off.state, put_off.booked), (State::Waiting(WaitingReason::Deferred), true));
    world.act(json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "stop"})).await;
    // Its slot has come, and before its own wake-up a copy of the first one.
    world.clock.advance(put_off.due.unwrap().since(world.clock.now()));
    world.retry.clear();
    world.retry.send(&serde_json::to_string(&outdated).unwrap(), 0);
    world.settle_now().await;
    assert_eq!((world.record("p0").await, world.sender.seen().len()), (put_off.clone(), 1), "a newer one is out");
    world.retry.send(&serde_json::to_string(&Waiting::of(&put_off).unwrap().wake_up).unwrap(), 0);
    world.settle_now().await;
    let record = world.record("p0").await;
    assert_eq!((record.state, world.sender.seen().len()), (State::DeadLettered(DeadReason::Permanent), 1));
}

#[tokio::test]
async fn what_a_plan_took_out_of_a_pause_goes_on_when_the_pause_is_over() {
    let mut world = World::new();
    let set = |to: &str| json!({"action": "endpoint", "endpoint": "p", "set": to, "reason": "look", "operator": "ada"});
    world.act(set("paused")).await;
    world.send("e");
    world.settle_now().await;
    assert_eq!(world.record("e").await.state, State::Held(HeldReason::Paused));
    // The plan releases it; the endpoint is resumed, and the plan aborted, before its wake-up comes.
    world.loses_wake_ups_of = Some("p");
    let proposed = world.act(json!({"action": "propose", "filter": {"state": "held"}})).await;
    world.act(approve(&proposed, "r")).await;
    let wake_up = Waiting::of(&world.record("e").await).unwrap().wake_up;
    world.act(set("active")).await;
    let abort = json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "look", "operator": "ada"});
    world.act(abort).await;
    // Long after the resume has ended.
    world.run_for_seconds(3_600).await;
    world.retry.send(&serde_json::to_string(&wake_up).unwrap(), 0);
    world.settle_now().await;
    assert_eq!(world.record("e").await.state, State::Delivered);
}
