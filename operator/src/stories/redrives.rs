use std::cell::Cell;

use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fakes::{Fake, NOW};

const DIGEST: &str = "8c1f0a7be2";

fn proposed() -> Value {
    json!({
        "ok": true, "plan_id": "plan_1", "digest": DIGEST, "count": 120, "canaries": 20,
        "by_endpoint": {"ep_a": 100, "ep_b": 20}, "by_reason": {"exhausted": 120}, "by_class": {"transient": 118, "unknown": 2},
        "by_age": {"under_1h": 30, "under_1d": 90}, "oldest_age_seconds": 7_300,
        "warnings": ["2 may have been received already: an attempt ended without an answer"],
        "expires_at": "2026-12-02T12:00:00.000Z", "forecast_seconds": 12,
    })
}

/// A plan with these figures: released, delivered, failed, skipped, remaining, not tried.
fn plan(state: &str, figures: [u32; 6]) -> Value {
    let mut plan = json!({
        "plan_id": "plan_1", "digest": DIGEST, "state": state, "count": 120, "rate_per_second": 10, "canary": 10,
        "canaries": 20, "abort_failure_ratio": 0.2, "filter": {"reason": "exhausted"}, "note": "INC-512",
        "proposed_by": {"name": "ada", "verified": false}, "created_at": "2026-12-01T11:50:00.000Z",
        "expires_at": "2026-12-02T11:50:00.000Z", "approval": null, "abort": null, "endpoints_failed": [],
        "endpoints_no_verdict": [], "by_endpoint": {"ep_a": 100, "ep_b": 20}, "endpoint_count": 2, "by_reason": {"exhausted": 120},
        "by_class": {"transient": 118, "unknown": 2}, "oldest": "2026-12-01T09:58:20.000Z",
    });
    if state == "proposed" {
        plan["warnings"] = json!(["2 may have been received already: an attempt ended without an answer"]);
    }
    if state != "proposed" {
        plan["approval"] = json!({"redrive_id": "INC-512-1", "reason": "partner fixed TLS", "by": {"name": "bea", "verified": true}, "at": NOW.0 - 60_000});
    }
    for (name, figure) in
        ["released", "delivered", "failed", "skipped", "remaining", "untried"].into_iter().zip(figures)
    {
        plan[name] = json!(figure);
    }
    plan
}

fn answer(plan: Value) -> Value {
    json!({"ok": true, "plan": plan})
}

/// A world in which both endpoints are registered.
fn registered() -> Fake {
    let fake = Fake::new();
    for id in ["ep_a", "ep_b"] {
        fake.has(id, super::one());
    }
    fake
}

fn untouched() -> Value {
    answer(plan("proposed", [0, 0, 0, 0, 120, 0]))
}

fn approvals(fake: &Fake) -> Vec<Value> {
    fake.state.asked.borrow().iter().filter(|action| action["action"] == "approve").cloned().collect()
}

/// A plan that waits for a decision, and begins when it comes.
fn waiting_for_a_decision() -> Fake {
    let fake = registered();
    fake.answers(|action| match action["action"].as_str() {
        Some("approve") => answer(plan("canary", [20, 0, 0, 0, 100, 20])),
        _ => untouched(),
    });
    fake
}

#[test]
fn a_proposal_shows_what_it_would_release_and_the_command_that_does() {
    let fake = registered();
    fake.answers(|_| proposed());
    let ran = fake.run("redrive propose --reason exhausted --note INC-512");
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("redrive_propose", ran.out);
    let command = format!("redeliver redrive approve plan_1 --digest {DIGEST} --reason WHY");
    assert_eq!(fake.run("redrive propose --json").json()["command"], json!(command));
}

#[test]
fn every_option_of_a_proposal_reaches_the_operator_function() {
    let fake = Fake::new();
    fake.answers(|_| proposed());
    fake.run("redrive propose --state held --endpoint ep_a --reason paused --class transient --status 503 --after 6h --before 2026-12-01T11:00:00Z --id order_1 --id order_2 --rate 5 --canary 3 --abort-ratio 0.5 --note INC-512 --operator bea");
    assert_eq!(
        fake.state.asked.borrow()[0],
        json!({"action": "propose", "operator": "bea", "rate_per_second": 5, "canary": 3, "abort_failure_ratio": 0.5, "note": "INC-512",
               "filter": {"state": "held", "endpoint": "ep_a", "reason": "paused", "class": "transient", "status": 503,
                          "after": "2026-12-01T06:00:00.000Z", "before": "2026-12-01T11:00:00.000Z", "ids": ["order_1", "order_2"]}})
    );
    fake.run("redrive propose");
    assert_eq!(fake.state.asked.borrow()[1], json!({"action": "propose", "operator": "ada", "filter": {}}));
}

#[test]
fn events_are_named_in_a_file_too() {
    let fake = Fake::new();
    fake.answers(|_| proposed());
    let path = super::file("ids", b"order_2\n\n  order_1 \norder_2\r\n");
    assert_eq!(fake.run(&format!("redrive propose --ids-file {path} --id order_3")).exit, Exit::Done);
    assert_eq!(fake.run_with("redrive propose --state delivered --ids-file -", b"order_9", false).exit, Exit::Done);
    let ids: Vec<Value> = fake.state.asked.borrow().iter().map(|question| question["filter"]["ids"].clone()).collect();
    assert_eq!(ids, [json!(["order_1", "order_2", "order_3"]), json!(["order_9"])]);
    let many: String = (0..=10_000).map(|i| format!("e{i}\n")).collect();
    for (input, part) in [(many.as_str(), "10001 ids are too many"), ("\n", "no id in it"), ("a.b", "a.b")] {
        let ran = fake.run_with("redrive propose --ids-file -", input.as_bytes(), false);
        assert!(ran.exit == Exit::Usage && ran.err.contains(part), "{ran:?}");
    }
    assert_eq!(fake.run("redrive propose --ids-file /nowhere/ids").exit, Exit::Usage);
    assert_eq!(fake.state.asked.borrow().len(), 2);
}

#[test]
fn a_proposal_that_cannot_be_is_refused_before_anybody_is_asked() {
    let fake = Fake::new();
    for (line, part) in [
        ("redrive propose --class broken", "transient"),
        ("redrive propose --state waiting", "--state"),
        ("redrive propose --state delivered", "--id"),
        ("redrive propose --abort-ratio 20", "between 0 and 1"),
        ("redrive propose --abort-ratio NaN", "between 0 and 1"),
        ("redrive propose --rate 0", "--rate"),
        ("redrive propose --after yesterday", "how long ago"),
        ("redrive approve plan_1", "--reason"),
        ("redrive watch plan_1 --interval 0", "a second at least"),
        ("plans --state running", "ramping"),
    ] {
        let ran = fake.run(line);
        assert!(ran.exit == Exit::Usage && ran.err.contains(part), "{line}: {ran:?}");
    }
    assert!(fake.state.asked.borrow().is_empty());
}

#[test]
fn an_approval_shows_the_plan_and_asks_with_the_count() {
    let fake = waiting_for_a_decision();
    let line = "redrive approve plan_1 --reason 'partner fixed TLS'";
    let no = fake.run_with(line, b"\n", true);
    assert_eq!((no.exit, approvals(&fake).len()), (Exit::Conflict, 0));
    insta::assert_snapshot!("redrive_approve_asks", no.err);
    let silent = fake.run(line);
    assert!(silent.exit == Exit::Conflict && silent.err.contains("add --yes"), "{silent:?}");
    let ran = fake.run_with(line, b"y\n", true);
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("redrive_approve", ran.out);
    let [approval] = approvals(&fake).try_into().unwrap();
    let id = format!("redrive_{}", "03".repeat(8));
    assert_eq!(
        approval,
        json!({"action": "approve", "plan_id": "plan_1", "digest": DIGEST, "redrive_id": id, "reason": "partner fixed TLS", "operator": "ada"})
    );
    assert!(ran.err.contains(&id), "the id is shown before the question: {}", ran.err);
}

#[test]
fn whoever_approves_is_told_of_endpoints_that_would_hold_it_again() {
    let fake = waiting_for_a_decision();
    let mut removed = super::one();
    removed["removed_at"] = json!("2026-11-30T13:00:00.000Z");
    fake.has("ep_a", removed);
    fake.has("ep_b", json!({"url": "no url", "version": 1}));
    let line = "redrive approve plan_1 --reason x";
    let asked = fake.run_with(line, b"\n", true).err;
    for part in ["ep_a is removed: 100 deliveries", "ep_b has a definition that cannot be used: 20"] {
        assert!(asked.contains(part), "{asked}");
    }
    fake.state.registry.borrow_mut().clear();
    assert!(fake.run_with(line, b"\n", true).err.contains("endpoint ep_a is not registered"));
    let proposal = Fake::new();
    proposal.answers(|_| proposed());
    let answer = proposal.run("redrive propose --json").json();
    assert_eq!(answer["warnings"].as_array().unwrap().len(), 3, "{answer}");
}

#[test]
fn an_approval_of_another_digest_is_not_sent() {
    let fake = waiting_for_a_decision();
    let ran = fake.run("redrive approve plan_1 --digest 00 --reason x --yes --json");
    assert_eq!((ran.exit, &ran.json()["error"]["code"]), (Exit::Conflict, &json!("digest_mismatch")));
    assert!(approvals(&fake).is_empty());
    let same =
        fake.run(&format!("redrive approve plan_1 --digest {DIGEST} --redrive-id INC-512-1 --reason x --yes --json"));
    assert_eq!((same.exit, &same.json()["redrive_id"]), (Exit::Done, &json!("INC-512-1")));
}

#[test]
fn an_approval_that_went_through_is_repeated_without_a_question() {
    let fake = Fake::new();
    fake.answers(|_| answer(plan("ramping", [60, 40, 0, 0, 60, 20])));
    let ran = fake.run("redrive approve plan_1 --redrive-id INC-512-1 --reason 'partner fixed TLS'");
    assert_eq!((ran.exit, approvals(&fake).len()), (Exit::Done, 1));
    let other = Fake::new();
    other.answers(|action| match action["action"].as_str() {
        Some("approve") => json!({"ok": false, "error": {"code": "conflict", "message": "already approved by bea"}}),
        _ => answer(plan("ramping", [60, 40, 0, 0, 60, 20])),
    });
    let ran = other.run("redrive approve plan_1 --reason x");
    assert!(ran.exit == Exit::Conflict && ran.err.contains("already approved by bea"), "{ran:?}");
}

#[test]
fn an_approval_without_an_answer_says_how_to_repeat_it() {
    let fake = Fake::new();
    let state = std::rc::Rc::downgrade(&fake.state);
    fake.answers(move |_| {
        // The next call finds nobody there.
        *state.upgrade().unwrap().down.borrow_mut() = Some("dispatch failure".to_owned());
        untouched()
    });
    let ran = fake.run("redrive approve plan_1 --redrive-id INC-512-1 --reason x --yes");
    assert_eq!(ran.exit, Exit::Unreachable);
    assert!(ran.err.contains("--redrive-id INC-512-1") && ran.err.contains("releases nothing twice"), "{}", ran.err);
}

#[test]
fn two_people_and_missing_plans_have_their_exit_codes() {
    let fake = Fake::new();
    fake.answers(|action| match action["action"].as_str() {
        Some("approve") => json!({"ok": false, "error": {"code": "forbidden", "message": "whoever proposed a plan may not approve it here: ask somebody else"}}),
        _ => untouched(),
    });
    assert_eq!(fake.run("redrive approve plan_1 --reason x --yes").exit, Exit::Denied);
    let none = Fake::new();
    for line in ["redrive status plan_x", "redrive watch plan_x", "redrive approve plan_x --reason x --yes"] {
        let ran = none.run(line);
        assert!(ran.exit == Exit::NotFound && ran.err.contains("redeliver plans"), "{line}: {ran:?}");
    }
}

#[test]
fn a_plan_is_shown_with_its_figures_and_the_endpoints_that_it_gave_up() {
    let fake = Fake::new();
    fake.answers(|_| {
        let mut stopped = plan("completed", [103, 90, 5, 17, 0, 0]);
        stopped["endpoints_failed"] = json!(["ep_b"]);
        (stopped["retrying"], stopped["cancelled"]) = (json!(7), json!(1));
        answer(stopped)
    });
    let ran = fake.run("redrive status plan_1");
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("redrive_status", ran.out);
}

#[test]
fn an_abort_is_not_asked_about_and_says_what_is_left() {
    let fake = Fake::new();
    fake.answers(|_| {
        let mut aborted = plan("aborted", [20, 18, 0, 0, 100, 0]);
        aborted["abort"] = json!({"reason": "wrong partner", "by": {"name": "bea", "verified": false}, "at": NOW.0});
        answer(aborted)
    });
    let ran = fake.run("redrive abort plan_1 --reason 'wrong partner'");
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("redrive_abort", ran.out);
    assert_eq!(
        fake.state.asked.borrow().as_slice(),
        [json!({"action": "abort", "plan_id": "plan_1", "reason": "wrong partner", "operator": "ada"})]
    );
}

/// A fake whose plan takes these steps, one for each look.
fn steps(steps: Vec<Value>) -> Fake {
    let fake = Fake::new();
    let at = Cell::new(0);
    fake.answers(move |_| {
        let step = steps[at.get().min(steps.len() - 1)].clone();
        at.set(at.get() + 1);
        answer(step)
    });
    fake
}

#[test]
fn a_watch_tells_each_change_once_and_ends_with_the_plan() {
    let fake = steps(vec![
        plan("proposed", [0, 0, 0, 0, 120, 0]),
        plan("canary", [20, 0, 0, 0, 100, 20]),
        plan("canary", [20, 0, 0, 0, 100, 20]),
        plan("ramping", [70, 20, 0, 0, 50, 50]),
        plan("completed", [120, 120, 0, 0, 0, 0]),
    ]);
    let ran = fake.run("redrive watch plan_1 --interval 10s");
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("redrive_watch", ran.out);
    assert_eq!(domain::ports::Clock::now(&fake.clock).0 - NOW.0, 40_000, "four waits of the interval");
    let json = steps(vec![plan("canary", [20, 0, 0, 0, 100, 20]), plan("completed", [120, 120, 0, 0, 0, 0])]);
    assert_eq!(json.run("redrive watch plan_1 --json").json()["plan"]["state"], "completed");
}

#[test]
fn a_watch_of_a_plan_that_was_stopped_is_no_success() {
    for state in ["aborted", "expired"] {
        assert_eq!(
            steps(vec![plan(state, [20, 2, 18, 0, 100, 0])]).run("redrive watch plan_1").exit,
            Exit::No,
            "{state}"
        );
    }
}

#[test]
fn a_watch_of_a_plan_that_gave_up_an_endpoint_or_delivered_nothing_is_no_success() {
    let exit = |plan: Value| steps(vec![plan]).run("redrive watch plan_1").exit;
    for field in ["endpoints_failed", "endpoints_no_verdict"] {
        let mut stopped = plan("completed", [103, 98, 5, 17, 0, 0]);
        stopped[field] = json!(["ep_b"]);
        assert_eq!(exit(stopped), Exit::No, "{field}");
    }
    assert_eq!(exit(plan("completed", [120, 0, 120, 0, 0, 0])), Exit::No, "all failed");
    assert_eq!(exit(plan("completed", [120, 1, 119, 0, 0, 0])), Exit::Done);
    assert_eq!(exit(plan("completed", [0, 0, 0, 120, 0, 0])), Exit::Done, "there was nothing to do");
    let mut cancelled = plan("completed", [120, 0, 0, 0, 0, 0]);
    cancelled["cancelled"] = json!(120);
    assert_eq!(exit(cancelled), Exit::Done, "somebody did not want them any more");
}

#[test]
fn a_watch_outlives_a_short_outage_and_not_a_long_one() {
    let fake = steps(vec![plan("canary", [20, 0, 0, 0, 100, 20])]);
    *fake.state.down.borrow_mut() = Some("dispatch failure".to_owned());
    let ran = fake.run("redrive watch plan_1");
    assert_eq!((ran.exit, ran.err.matches("trying again").count()), (Exit::Unreachable, 5));
    *fake.state.down.borrow_mut() = Some("operator_function".to_owned());
    let failing = fake.run("redrive watch plan_1");
    assert_eq!((failing.exit, failing.err.matches("trying again").count()), (Exit::Own, 5));
    *fake.state.down.borrow_mut() = Some("AccessDenied".to_owned());
    let denied = fake.run("redrive watch plan_1");
    assert_eq!((denied.exit, denied.err.contains("trying again")), (Exit::Denied, false));
}

#[test]
fn plans_are_listed_with_who_decided() {
    let fake = Fake::new();
    fake.answers(|_| {
        let plans = [plan("proposed", [0; 6]), plan("completed", [0; 6])];
        json!({"ok": true, "plans": plans})
    });
    insta::assert_snapshot!("plans", fake.run("plans --state proposed").out);
    assert_eq!(fake.state.asked.borrow()[0], json!({"action": "plans", "limit": 20, "state": "proposed"}));
    let none = Fake::new();
    none.answers(|_| json!({"ok": true, "plans": []}));
    assert_eq!(none.run("plans").out, "There is no such plan.\n");
}
