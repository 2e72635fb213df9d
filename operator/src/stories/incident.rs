//! The walk-through of an incident, `docs/INCIDENT.md`: every command in it is run on a scripted stack, and what it answers
//! is what stands there.

use std::cell::Cell;

use domain::audit::{Entry, Head, decision};
use domain::plan::Who;
use domain::time::Millis;
use serde_json::{Value, json};

use crate::fakes::{Fake, NOW};

const PLAN: &str = "plan_1796126400_5f0c91aa42d7e308";
const DIGEST: &str = "8c1f0a7be2d94c6f5b3e21a07d9c8e4411f2b6c3d5a7980e6f1c2b3a4d5e6f70";

/// Somebody as AWS names them to the operator function.
fn principal(name: &str) -> String {
    format!("arn:aws:sts::111122223333:assumed-role/Oncall/{name}")
}

/// The incident: 120 dead letters of a receiver whose certificate had run out.
fn incident() -> Fake {
    let fake = Fake::new();
    fake.has("ep_partner_a", super::one());
    let looks = Cell::new(0);
    fake.answers(move |action| match action["action"].as_str() {
        None => evidence(),
        Some("list") => listed(),
        Some("explain") if action["id"] == "order_4711_paid" => explained(),
        Some("explain") => accepted(&action["id"]),
        Some("propose") => proposed(),
        Some("status") => {
            looks.set(looks.get() + 1);
            json!({"ok": true, "plan": match looks.get() {
                1 => plan("proposed", [0, 0, 0, 0, 120, 0]),
                2 => plan("canary", [10, 6, 0, 0, 110, 4]),
                3 => plan("ramping", [70, 10, 0, 0, 50, 60]),
                4 => plan("ramping", [120, 64, 0, 0, 0, 56]),
                _ => plan("completed", [120, 120, 0, 0, 0, 0]),
            }})
        }
        Some("approve") => json!({"ok": true, "plan": plan("canary", [10, 0, 0, 0, 110, 10])}),
        Some("abort") => {
            let mut aborted = plan("aborted", [10, 2, 0, 0, 110, 0]);
            aborted["abort"] = json!({"reason": "the certificate is wrong again", "by": {"name": principal("bea"), "verified": true}, "at": NOW.0});
            json!({"ok": true, "plan": aborted})
        }
        Some("audit") => audit(),
        Some(other) => panic!("{other}"),
    });
    fake
}

fn evidence() -> Value {
    json!({
        "run": "reconcile", "mode": "observe", "run_id": "5be1c7", "duration_ms": 640, "examined": 6, "armed": 0, "rearmed": 0,
        "taken_over": 0, "skipped_owned": 2, "skipped_queued": 0, "skipped_moved": 0, "unreadable": 0, "dlq_visible": 0,
        "drained": 0, "left_in_dlq": 0, "rejected": 0, "released": 0, "expired": 0, "extended": 0,
        "backlog": {"waiting": {"count": 37, "oldest_seconds": 0}, "held": {"count": 0, "oldest_seconds": 0},
                    "dead_lettered": {"count": 120, "oldest_seconds": 7_300}, "rejected": {"count": 0, "oldest_seconds": 0}},
        "backlog_capped": false, "oldest_overdue_seconds": 0, "retry_queue_visible": 0, "cursor_min": null,
        "cursor_max": null, "pages_left": 0, "errors": [],
    })
}

fn listed() -> Value {
    let item = |id: &str, age: i64| {
        json!({"id": id, "endpoint": "ep_partner_a", "state": "dead_lettered", "reason": "exhausted", "attempt": 3, "generation": 0,
               "due": null, "age_seconds": age, "correlation_id": null})
    };
    json!({"ok": true, "cursor": "c", "unreadable": 0,
           "items": [item("order_4711_paid", 7_300), item("order_4712_paid", 7_210), item("order_4715_paid", 6_900)]})
}

fn explained() -> Value {
    let attempt = |number: i64, ago: i64, class: &str, phase: &str, detail: &str, state: &str| {
        json!({"number": number, "started": NOW.0 - ago * 1_000, "phase": phase, "class": class, "status": null, "duration_ms": 35, "hint": null,
               "decision": state, "reason": if state == "waiting" { "retry" } else { "exhausted" }, "detail": detail, "receiver_may_have_it": class == "unknown"})
    };
    json!({
        "ok": true,
        "delivery": {
            "id": "order_4711_paid", "endpoint": "ep_partner_a", "state_key": "ep_partner_a", "state": "dead_lettered",
            "reason": "exhausted", "since": NOW.0 - 7_300_000, "attempt": 3, "generation": 0, "attempts_left": 0, "due": null,
            "lease_until": null, "cancel_requested": false, "accepted_late": false, "plan": null, "payload_bytes": 412,
            "payload_kept_until": NOW.0 + 2_160_000_000_i64, "correlation_id": "req-9", "accepted_at": NOW.0 - 11_000_000,
            "deliver_by": null, "excerpt": null, "cancelled_because": null, "history_dropped": 0, "receiver_may_have_it": false,
        },
        "history": [
            attempt(1, 10_999, "transient", "tls", "tls", "waiting"),
            attempt(2, 10_390, "transient", "tls", "tls", "waiting"),
            attempt(3, 7_300, "transient", "tls", "tls", "dead_lettered"),
        ],
        "last_answer": null,
        "next": "Nothing by itself: all its attempts failed. Only an approved redrive plan brings it back.",
    })
}

fn accepted(id: &Value) -> Value {
    json!({
        "ok": true, "delivery": {"id": id, "endpoint": "ep_partner_a", "state": "delivered", "reason": null, "excerpt": null},
        "history": [{"number": 1, "started": NOW.0, "phase": "body", "class": "accepted", "status": 204, "duration_ms": 88, "hint": null, "decision": "delivered", "reason": null, "detail": null}],
        "last_answer": null, "next": "Nothing: the endpoint accepted it.",
    })
}

fn proposed() -> Value {
    json!({
        "ok": true, "plan_id": PLAN, "digest": DIGEST, "count": 120, "canaries": 10, "by_endpoint": {"ep_partner_a": 120},
        "by_reason": {"exhausted": 120}, "by_class": {"transient": 118, "unknown": 2}, "by_age": {"under_1h": 30, "under_1d": 90},
        "oldest_age_seconds": 7_300, "warnings": ["2 may have been received already: an attempt ended without an answer"],
        "expires_at": NOW.plus(86_400_000).to_string(), "forecast_seconds": 12,
    })
}

fn plan(state: &str, figures: [u32; 6]) -> Value {
    let mut plan = json!({
        "plan_id": PLAN, "digest": DIGEST, "state": state, "count": 120, "rate_per_second": 10, "canary": 10, "canaries": 10,
        "abort_failure_ratio": 0.2, "filter": {"endpoint": "ep_partner_a", "reason": "exhausted"}, "note": "INC-512",
        "proposed_by": {"name": principal("ada"), "verified": true}, "created_at": NOW.to_string(),
        "expires_at": NOW.plus(86_400_000).to_string(), "approval": null, "abort": null, "endpoints_failed": [],
        "endpoints_no_verdict": [], "by_endpoint": {"ep_partner_a": 120}, "endpoint_count": 1, "by_reason": {"exhausted": 120},
        "by_class": {"transient": 118, "unknown": 2}, "oldest": NOW.plus(-7_300_000).to_string(),
    });
    if state == "proposed" {
        plan["warnings"] = json!(["2 may have been received already: an attempt ended without an answer"]);
    }
    if state != "proposed" {
        plan["approval"] = json!({"redrive_id": "INC-512-1", "reason": "partner renewed its certificate", "by": {"name": principal("bea"), "verified": true}, "at": NOW.0});
    }
    for (name, figure) in
        ["released", "delivered", "failed", "skipped", "remaining", "untried"].into_iter().zip(figures)
    {
        plan[name] = json!(figure);
    }
    plan
}

fn audit() -> Value {
    let mut head = Head::default();
    let decisions = [("ada", "propose", "INC-512"), ("bea", "approve", "partner renewed its certificate")];
    let entries = decisions.map(|(name, action, reason)| {
        let by = Who { name: principal(name), verified: true };
        let at = Millis(NOW.0 + i64::try_from(head.seq).unwrap());
        let entry: Entry =
            decision(at, &by, action, PLAN, reason, json!({"digest": DIGEST, "count": 120})).after(&head);
        head = entry.head();
        entry
    });
    json!({"ok": true, "entries": entries, "cursor": null, "head": {"seq": head.seq, "hash": head.hash}})
}

/// The guide as it would be, if every answer in it were what the commands say.
fn replayed(guide: &str) -> (String, usize) {
    let (fake, mut text, mut commands) = (incident(), String::new(), 0);
    let (mut in_console, mut in_answer) = (false, false);
    for line in guide.lines() {
        if line.starts_with("```") {
            in_console = line == "```console";
            in_answer = false;
        }
        if let Some(command) = line.strip_prefix("$ redeliver ").filter(|_| in_console) {
            let ran = fake.run_with(command, b"y\n", true);
            // On a terminal the question and its answer stand on one line.
            let shown = format!("{}{}", ran.err, ran.out).replace("[y/N] ", "[y/N] y\n");
            text.push_str(&format!("{line}\n"));
            text.extend(shown.trim_end().lines().map(|line| format!("{}\n", line.trim_end())));
            commands += 1;
            in_answer = true;
        } else if !in_answer {
            text.push_str(&format!("{line}\n"));
        }
    }
    (text, commands)
}

#[test]
fn the_incident_goes_as_the_guide_says() {
    let guide = std::fs::read_to_string(format!("{}/../docs/INCIDENT.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (replayed, commands) = replayed(&guide);
    assert!(commands >= 9, "{commands}");
    let differs = guide.lines().zip(replayed.lines()).find(|(stands, said)| stands != said);
    assert_eq!(differs, None, "what stands there, and what the command says");
    assert_eq!(guide, replayed);
}
