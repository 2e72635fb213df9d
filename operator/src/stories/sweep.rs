use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fakes::Fake;

fn evidence(errors: &[&str]) -> Value {
    json!({
        "run": "reconcile", "mode": "act", "run_id": "1f0c", "duration_ms": 812, "examined": 14, "armed": 0, "rearmed": 2,
        "taken_over": 1, "skipped_owned": 3, "skipped_queued": 0, "skipped_moved": 1, "unreadable": 0, "dlq_visible": 1,
        "drained": 1, "left_in_dlq": 0, "rejected": 0, "released": 0, "expired": 0, "extended": 0,
        "backlog": {"waiting": {"count": 40, "oldest_seconds": 0}, "held": {"count": 0, "oldest_seconds": 0},
                    "dead_lettered": {"count": 120, "oldest_seconds": 7_300}, "rejected": {"count": 1, "oldest_seconds": 90}},
        "backlog_capped": false, "oldest_overdue_seconds": 75, "retry_queue_visible": 0, "cursor_min": null,
        "cursor_max": null, "pages_left": 0, "errors": errors,
    })
}

#[test]
fn a_run_shows_its_evidence() {
    let fake = Fake::new();
    fake.answers(|_| evidence(&[]));
    let ran = fake.run("sweep run --yes");
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("sweep_run", ran.out);
    assert_eq!(fake.run("sweep run --arm --observe --json").json()["evidence"]["examined"], 14);
    let asked = fake.state.asked.borrow();
    assert_eq!(
        asked.as_slice(),
        [json!({"run": "reconcile", "mode": "act"}), json!({"run": "arm", "mode": "observe"})]
    );
}

#[test]
fn a_run_with_failed_steps_names_them_and_is_no_success() {
    let fake = Fake::new();
    fake.answers(|_| evidence(&["draining: reading the intake DLQ: timed out"]));
    let ran = fake.run("sweep run --observe");
    assert!(ran.exit == Exit::No && ran.out.contains("failed: draining: reading the intake DLQ"), "{ran:?}");
    fake.answers(|_| json!({"what": "is this"}));
    assert_eq!(fake.run("sweep run -y").exit, Exit::Own);
}

#[test]
fn a_run_that_acts_is_asked_about_and_one_that_looks_is_not() {
    let fake = Fake::new();
    fake.answers(|_| evidence(&[]));
    for (line, part) in [("sweep run", "drain the transport DLQs"), ("sweep run --arm", "take approved plans further")]
    {
        let ran = fake.run_with(line, b"n\n", true);
        assert!(ran.exit == Exit::Conflict && ran.err.contains(part), "{ran:?}");
        assert!(fake.run(line).err.contains("add --yes"), "{line}");
    }
    assert!(fake.state.asked.borrow().is_empty());
    assert_eq!(fake.run_with("sweep run", b"y\n", true).exit, Exit::Done);
    assert_eq!(fake.run("sweep run --observe").exit, Exit::Done);
}
