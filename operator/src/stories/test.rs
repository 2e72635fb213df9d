use serde_json::{Value, json};

use super::with_one;
use crate::exit::Exit;
use crate::fakes::{Fake, NOW};

fn explained(state: &str, class: Option<&str>) -> Value {
    let attempt = class.map(|class| {
        json!({"number": 1, "started": NOW.0, "phase": "head", "class": class, "status": 503, "duration_ms": 120, "detail": null})
    });
    json!({"ok": true, "delivery": {"state": state, "reason": (state == "waiting").then_some("retry"), "excerpt": "bu"},
           "last_answer": {"attempt": 1, "headers": {"x-request-id": "r1"}, "excerpt": "busy"},
           "history": attempt.into_iter().collect::<Vec<_>>(), "next": "Attempt 2 is due."})
}

/// Answers `explain` in this order, the last one again and again, and says that a cancel worked.
fn script(fake: &Fake, answers: Vec<Value>) {
    let at = std::cell::Cell::new(0);
    fake.answers(move |action| match action["action"].as_str() {
        Some("explain") => {
            let answer = answers[at.get().min(answers.len() - 1)].clone();
            at.set(at.get() + 1);
            answer
        }
        Some("cancel") => json!({"ok": true, "result": "cancelled"}),
        _ => json!({"ok": true, "items": [], "cursor": null}),
    });
}

fn absent() -> Value {
    json!({"ok": false, "error": {"code": "not_found", "message": "there is none"}})
}

fn cancels(fake: &Fake) -> usize {
    fake.state.asked.borrow().iter().filter(|action| action["action"] == "cancel").count()
}

#[test]
fn an_accepted_test_is_a_success_and_nothing_is_left_to_cancel() {
    let fake = with_one();
    script(&fake, vec![absent(), explained("in_flight", None), explained("delivered", Some("accepted"))]);
    let ran = fake.run("endpoint test ep_a");
    assert_eq!((ran.exit, cancels(&fake)), (Exit::Done, 0), "{ran:?}");
    let sent = fake.state.sent.borrow();
    let [(body, group)] = sent.as_slice() else { panic!("{sent:?}") };
    let message: Value = serde_json::from_str(body).unwrap();
    assert_eq!(
        (group.as_str(), &message["endpoint"], &message["json"]["type"]),
        ("ep_a", &json!("ep_a"), &json!("redeliver.test"))
    );
    assert!(message["id"].as_str().unwrap().starts_with("test_"));
    domain::message::parse(body, &testkit::samples::LIMITS).unwrap();
}

#[test]
fn a_failed_test_shows_what_came_back_and_is_not_retried() {
    let fake = with_one();
    script(&fake, vec![explained("waiting", Some("transient"))]);
    let ran = fake.run("endpoint test ep_a");
    assert_eq!((ran.exit, cancels(&fake)), (Exit::No, 1));
    insta::assert_snapshot!("endpoint_test", ran.out);
    let document = fake.run("endpoint test ep_a --json").json();
    assert_eq!(
        (&document["accepted"], &document["cancelled"], &document["delivery"]["state"]),
        (&json!(false), &json!("cancelled"), &json!("waiting"))
    );
    let ended = with_one();
    script(&ended, vec![explained("dead_lettered", Some("permanent"))]);
    assert_eq!((ended.run("endpoint test ep_a").exit, cancels(&ended)), (Exit::No, 0));
}

#[test]
fn a_held_test_is_cancelled_and_one_that_nobody_works_on_too() {
    let fake = with_one();
    script(&fake, vec![explained("held", None)]);
    assert_eq!((fake.run("endpoint test ep_a").exit, cancels(&fake)), (Exit::No, 1));
    let fake = with_one();
    script(&fake, vec![absent()]);
    let ran = fake.run("endpoint test ep_a --timeout 5s");
    assert_eq!((ran.exit, cancels(&fake)), (Exit::No, 1));
    assert!(ran.out.contains("No attempt was recorded within 5 s"), "{}", ran.out);
}

#[test]
fn a_rejected_test_says_why() {
    let fake = Fake::new();
    fake.answers(|action| match action["action"].as_str() {
        Some("list") => json!({"ok": true, "items": [{"id": format!("test_{}", "01".repeat(8)), "detail": "`url` is not allowed here"}], "cursor": null}),
        _ => absent(),
    });
    let ran = fake.run("endpoint test --url https://h.example.test/t0ken");
    assert_eq!((ran.exit, cancels(&fake)), (Exit::No, 0), "{ran:?}");
    assert!(ran.out.contains("rejected: `url` is not allowed here") && !ran.out.contains("t0ken"), "{}", ran.out);
}

#[test]
fn a_test_needs_an_endpoint_that_is_there() {
    let fake = with_one();
    assert_eq!(fake.run("endpoint test ep_x").exit, Exit::NotFound);
    assert_eq!(fake.run("endpoint test").exit, Exit::Usage);
    assert!(fake.state.sent.borrow().is_empty());
}
