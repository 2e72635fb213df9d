use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fakes::{Fake, NOW};

fn item(id: &str, age_seconds: i64) -> Value {
    json!({"id": id, "endpoint": "ep_a", "state": "waiting", "reason": "retry", "attempt": 3, "generation": 0,
           "due": NOW.0 + 90_000, "age_seconds": age_seconds, "correlation_id": null})
}

/// Two pages, the younger one first, as two lanes of an index give them.
fn paged(fake: &Fake) {
    fake.answers(|action| match action["cursor"].as_str() {
        None => {
            json!({"ok": true, "items": [item("order_2", 60), item("order_1", 7_200)], "cursor": "c1", "unreadable": 1})
        }
        Some("c1") => json!({"ok": true, "items": [item("order_0", 90_000)], "cursor": null, "unreadable": 0}),
        Some(other) => panic!("{other}"),
    });
}

#[test]
fn all_pages_are_one_list_with_the_oldest_first() {
    let fake = Fake::new();
    paged(&fake);
    let ran = fake.run("list waiting --endpoint ep_a --reason retry --all");
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("list", ran.out);
    assert!(ran.err.contains("1 items cannot be read"), "{}", ran.err);
    let asked = fake.state.asked.borrow();
    assert_eq!(
        asked[1],
        json!({"action": "list", "state": "waiting", "limit": 500, "endpoint": "ep_a", "reason": "retry", "cursor": "c1"})
    );
}

#[test]
fn a_limit_ends_the_list_and_says_that_there_is_more() {
    let fake = Fake::new();
    paged(&fake);
    let ran = fake.run("list waiting --limit 2");
    assert!(ran.out.contains("there are more: --limit, or --all"), "{}", ran.out);
    assert_eq!(fake.state.asked.borrow().as_slice(), [json!({"action": "list", "state": "waiting", "limit": 2})]);
    assert_eq!(fake.run("list waiting --limit 2 --json").json()["complete"], false);
    let all = fake.run("list waiting --all --json").json();
    assert_eq!((&all["complete"], all["items"].as_array().unwrap().len()), (&json!(true), 3));
}

#[test]
fn a_list_takes_the_states_that_can_be_listed_and_nothing_else() {
    let fake = Fake::new();
    assert_eq!(fake.run("list held").out, "No delivery is held.\n");
    for line in ["list", "list delivered", "list held --limit 0", "list held --all --limit 5"] {
        assert_eq!(fake.run(line).exit, Exit::Usage, "{line}");
    }
}

fn explained(state: &str, reason: Value) -> Value {
    json!({
        "ok": true,
        "delivery": {
            "id": "order_1", "endpoint": "ep_a", "state_key": "ep_a", "state": state, "reason": reason,
            "since": NOW.0 - 60_000, "attempt": 3, "generation": 1, "attempts_left": 0, "due": null, "lease_until": null,
            "cancel_requested": false, "accepted_late": false, "plan": "plan_2", "payload_bytes": 41,
            "payload_kept_until": NOW.0 + 864_000_000_i64, "correlation_id": "req-9", "accepted_at": NOW.0 - 7_200_000,
            "deliver_by": null, "excerpt": "busy", "cancelled_because": null, "history_dropped": 0,
            "receiver_may_have_it": true,
        },
        "history": [
            {"number": 1, "started": NOW.0 - 7_199_000, "phase": "sent", "class": "unknown", "status": null, "duration_ms": 10_000, "hint": null, "decision": "waiting", "reason": "retry", "detail": "timeout", "receiver_may_have_it": true},
            {"number": 2, "started": NOW.0 - 7_100_000, "phase": "head", "class": "throttled", "status": 429, "duration_ms": 120, "hint": NOW.0 - 7_000_000, "decision": "dead_lettered", "reason": "exhausted", "detail": null, "receiver_may_have_it": false},
            {"released_at": NOW.0 - 120_000, "plan": "plan_1", "generation": 1, "approval": {"by": {"name": "bea", "verified": true}, "reason": "fixed", "at": 0}},
            {"recalled_at": NOW.0 - 110_000, "plan": "plan_1", "abort": {"by": {"name": "cem", "verified": false}, "reason": "wrong partner", "at": 0}},
            {"released_at": NOW.0 - 100_000, "plan": "plan_2", "generation": 1},
            {"number": 3, "started": NOW.0 - 60_000, "phase": "head", "class": "transient", "status": 503, "duration_ms": 1_500, "hint": null, "decision": "dead_lettered", "reason": "exhausted", "detail": null, "receiver_may_have_it": false},
        ],
        "last_answer": {"attempt": 3, "at": NOW.0 - 58_500, "status": 503, "headers": {"retry-after": "30", "x-evil": "\u{1b}[2Jgone"}, "excerpt": "busy\u{7}", "body_bytes": 5, "body_sha256": "00", "body_broken": true},
        "next": "Nothing by itself: all its attempts failed. Only an approved redrive plan brings it back.",
    })
}

fn explaining(state: &'static str, reason: Value) -> Fake {
    let fake = Fake::new();
    fake.answers(move |_| explained(state, reason.clone()));
    fake
}

#[test]
fn a_delivery_is_explained_as_a_story() {
    let fake = explaining("dead_lettered", json!("exhausted"));
    let ran = fake.run("explain order_1 --endpoint ep_a");
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("explain", ran.out);
    assert_eq!(fake.state.asked.borrow()[0], json!({"action": "explain", "id": "order_1", "endpoint": "ep_a"}));
}

#[test]
fn where_a_delivery_stands_is_the_end_of_its_story() {
    let told = |state: &'static str, reason: &'static str, field: &'static str| {
        let fake = Fake::new();
        fake.answers(move |_| {
            let mut answer = explained(state, json!(reason));
            answer["delivery"]["state_key"] = json!("https://hooks.example.test");
            answer["delivery"][field] = json!("operator ada: moves");
            answer
        });
        fake.run("explain order_1").out
    };
    for (state, reason, field, line) in [
        ("held", "paused", "held_because", "held (paused): operator ada: moves"),
        ("cancelled", "", "cancelled_because", "cancelled: operator ada: moves"),
        ("waiting", "deferred", "excerpt", "put off to a later time"),
    ] {
        let out = told(state, reason, field);
        assert!(out.contains(&format!(" ago)  {line}\n")), "{out}");
        assert!(out.contains("state key    https://hooks.example.test\n"), "{out}");
    }
    let out = explaining("dead_lettered", json!("exhausted")).run("explain order_1").out;
    assert!(!out.contains("state key"), "it is the endpoint itself: {out}");
}

#[test]
fn a_long_history_shows_where_entries_are_missing() {
    let fake = Fake::new();
    fake.answers(|_| {
        let mut answer = explained("dead_lettered", json!("exhausted"));
        answer["delivery"]["history_dropped"] = json!(7);
        answer
    });
    let out = fake.run("explain order_1").out;
    let at = |part: &str| out.find(part).unwrap_or_else(|| panic!("{part}: {out}"));
    assert!(at("attempt 2") < at("7 entries are not kept") && at("7 entries") < at("released by plan_1"), "{out}");
}

#[test]
fn what_a_receiver_sent_cannot_steer_the_terminal() {
    let ran = explaining("dead_lettered", json!("exhausted")).run("explain order_1");
    assert!(ran.out.contains("x-evil: ·[2Jgone") && !ran.out.contains(['\u{1b}', '\u{7}']), "{}", ran.out);
}

#[test]
fn what_an_operator_could_do_depends_on_the_state() {
    for (state, reason, commands) in [
        (
            "waiting",
            "retry",
            ["cancel order_1 --endpoint ep_a --reason WHY", "endpoint pause ep_a --reason WHY"].as_slice(),
        ),
        ("in_flight", "", &["cancel order_1 --endpoint ep_a --reason WHY"]),
        ("held", "paused", &["endpoint resume ep_a --reason WHY", "cancel order_1 --endpoint ep_a --reason WHY"]),
        ("held", "removed", &["endpoint add ep_a --restore --url URL", "endpoint resume ep_a --reason WHY"]),
        ("held", "misconfigured", &["endpoint show ep_a", "endpoint resume ep_a --reason WHY"]),
        ("dead_lettered", "permanent", &["endpoint test ep_a", "redrive propose --id order_1 --endpoint ep_a"]),
        ("dead_lettered", "blocked", &["endpoint show ep_a", "redrive propose --id order_1 --endpoint ep_a"]),
        ("dead_lettered", "payload_lost", &["send --id NEW_ID --endpoint ep_a --body-file FILE"]),
        ("delivered", "", &["redrive propose --state delivered --id order_1 --endpoint ep_a"]),
    ] {
        let document = explaining(state, json!(reason)).run("explain order_1 --json").json();
        let expected: Vec<String> = commands.iter().map(|command| format!("redeliver {command}")).collect();
        assert_eq!(document["commands"], json!(expected), "{state} {reason}");
        for command in expected {
            let line = command.replace("URL", "https://h.example.test/");
            clap::Parser::try_parse_from(crate::fakes::words(&line)).map(|_: crate::arguments::Arguments| ()).unwrap();
        }
    }
}

#[test]
fn an_event_with_several_endpoints_is_asked_for_by_one_of_them() {
    let fake = Fake::new();
    fake.answers(
        |_| json!({"ok": false, "error": {"code": "ambiguous", "message": "m", "endpoints": ["ep_a", "ep_b"]}}),
    );
    let ran = fake.run("explain order_1");
    assert!(ran.exit == Exit::Usage && ran.err.contains("redeliver explain order_1 --endpoint ep_b"), "{ran:?}");
    assert_eq!(Fake::new().run("explain order_1").exit, Exit::NotFound);
}

#[test]
fn a_cancel_asks_first_and_says_what_came_of_it() {
    let fake = Fake::new();
    fake.answers(|_| json!({"ok": true, "result": "cancelled", "message": "it will not be sent"}));
    let line = "cancel order_1 --endpoint ep_a --reason withdrawn";
    let refused = fake.run_with(line, b"n\n", true);
    assert!(
        refused.exit == Exit::Conflict && refused.err.contains("Cancel 1 delivery, order_1 to ep_a"),
        "{refused:?}"
    );
    assert_eq!((fake.run(line).exit, fake.state.asked.borrow().len()), (Exit::Conflict, 0));
    let ran = fake.run_with(line, b"y\n", true);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "order_1 to ep_a: cancelled; it will not be sent.\n"));
    assert_eq!(
        fake.state.asked.borrow()[0],
        json!({"action": "cancel", "id": "order_1", "endpoint": "ep_a", "reason": "withdrawn", "operator": "ada"})
    );
    fake.answers(|_| json!({"ok": false, "error": {"code": "conflict", "message": "too late: the delivery is delivered", "state": "delivered"}}));
    assert_eq!(fake.run(&format!("{line} --yes")).exit, Exit::Conflict);
    assert_eq!(fake.run("cancel a.b --endpoint ep_a --reason x --yes").exit, Exit::Usage);
}
