//! What `explain` says of a delivery: what happened, by whom, and what happens next.

use domain::delivery::{DeadReason, State};
use domain::outcome::Outcome;
use domain::record::Record;
use serde_json::{Value, json};
use testkit::sender::status;

use crate::redrives::{approve, dead, dead_letters};
use crate::world::{START, World};

async fn explain(world: &World, id: &str) -> Value {
    world.act(json!({"action": "explain", "id": id})).await
}

fn next(explained: &Value) -> &str {
    explained["next"].as_str().unwrap_or_else(|| panic!("{explained}"))
}

async fn pause(world: &World) {
    let pause = json!({"action": "endpoint", "endpoint": "p", "set": "paused", "reason": "moves", "operator": "ada"});
    assert_eq!(world.act(pause).await["ok"], true);
}

#[tokio::test]
async fn a_held_delivery_says_who_holds_it_and_when_its_deadline_ends_that() {
    let world = World::new();
    pause(&world).await;
    let by = START.plus(3_600_000).to_string();
    world.intake.send(&json!({"id": "ends", "endpoint": "p", "json": {}, "deliver_by": by}).to_string(), 0);
    world.send("stays");
    world.settle_now().await;
    let (ends, stays) = (explain(&world, "ends").await, explain(&world, "stays").await);
    assert!(next(&ends).contains(&format!("still held at {by}")), "{ends}");
    assert!(next(&stays).ends_with("setting it active releases it."), "{stays}");
    assert_eq!(stays["delivery"]["held_because"], "operator ada (unverified): moves");
}

#[tokio::test]
async fn a_release_is_told_with_who_approved_it_and_what_an_abort_does_with_it() {
    let world = dead(&["p"], 1).await;
    let proposed = world.act(json!({"action": "propose", "filter": {}})).await;
    world.act(approve(&proposed, "r")).await;
    let released = explain(&world, "p0").await;
    assert!(next(&released).starts_with("Attempt 2 is due"), "{released}");
    let approval = &released["history"][1]["approval"];
    assert_eq!((&approval["by"]["name"], &approval["reason"]), (&json!("bea"), &json!("fixed")));
    world.act(json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "stop", "operator": "cem"})).await;
    let aborted = explain(&world, "p0").await;
    assert!(next(&aborted).contains("taken back at its wake-up"), "{aborted}");
    world.run_for_seconds(5).await;
    let back = explain(&world, "p0").await;
    let abort = &back["history"][2]["abort"];
    assert_eq!((&abort["by"]["name"], &abort["reason"]), (&json!("cem"), &json!("stop")), "{back}");
    assert!(next(&back).contains("Only an approved redrive plan"), "{back}");
}

#[tokio::test]
async fn no_plan_is_promised_for_what_no_plan_can_bring_back() {
    let world = World::new();
    let dead = |reason: DeadReason| move |record: &mut Record| record.state = State::DeadLettered(reason);
    let (lost, expired) = (dead(DeadReason::PayloadLost), dead(DeadReason::Expired));
    dead_letters(&world, &[&lost, &expired, &|_| {}]).await;
    for (id, part) in [("e0", "no plan can bring it back"), ("e1", "only meet it again"), ("e2", "Only an approved")] {
        let explained = explain(&world, id).await;
        assert!(next(&explained).contains(part), "{explained}");
    }
}

#[tokio::test]
async fn wh_o_06_a_redirect_is_explained_by_where_it_leads() {
    let world = World::new();
    let redirect = |location: Option<&str>| {
        let mut outcome = status(308);
        if let (Outcome::Answered(answer), Some(location)) = (&mut outcome, location) {
            answer.headers.push(("location".to_owned(), location.to_owned()));
        }
        outcome
    };
    world.sender.then([redirect(Some("https://new.example.test")), redirect(None), status(400)]);
    for id in ["known", "unknown", "other"] {
        world.send(id);
        world.settle_now().await;
    }
    let known = explain(&world, "known").await;
    assert!(next(&known).contains("redirects to https://new.example.test, "), "{known}");
    assert!(next(&known).contains("update the URL"), "{known}");
    assert!(next(&explain(&world, "unknown").await).contains("redirects elsewhere"));
    assert!(!next(&explain(&world, "other").await).contains("redirect"));
}
