use serde_json::json;

use super::{file, one, with_one};
use crate::exit::Exit;
use crate::fakes::Fake;

const FILE: &str = r#"
[endpoints.ep_a]
url = "https://hooks.example.test/in?k=t0ken"
description = "a partner"
timeout_seconds = 5
headers = { authorization = { env = "TOKEN" } }

[endpoints.ep_b]
url = "https://b.example.test/in"
signatures = ["v1", "v1a"]
"#;

#[test]
fn the_first_time_it_writes_and_the_second_time_there_is_nothing_to_do() {
    let fake = with_one();
    let path = file("first.toml", FILE.as_bytes());
    let ran = fake.run(&format!("endpoint apply {path} --yes"));
    assert_eq!((ran.exit, fake.state.writes.get()), (Exit::Done, 2), "{ran:?}");
    insta::assert_snapshot!("apply", ran.out);
    assert_eq!((&fake.stored("ep_a")["timeout_seconds"], &fake.stored("ep_b")["version"]), (&json!(5), &json!(1)));
    let again = fake.run(&format!("endpoint apply {path}"));
    assert_eq!((again.exit, fake.state.writes.get()), (Exit::Done, 2), "{again:?}");
    assert!(again.out.contains("Nothing to do"), "{}", again.out);
}

#[test]
fn nothing_is_written_before_somebody_who_saw_it_agreed() {
    let fake = with_one();
    let path = file("agree.toml", FILE.as_bytes());
    let dry = fake.run(&format!("endpoint apply {path} --dry-run"));
    assert_eq!(dry.exit, Exit::Done);
    insta::assert_snapshot!("apply_dry_run", dry.out);
    let ran = fake.run(&format!("endpoint apply {path} --json"));
    assert_eq!((ran.exit, &ran.json()["error"]["code"]), (Exit::Conflict, &json!("not_confirmed")));
    let piped = fake.run_with(&format!("endpoint apply {path}"), b"y\n", false);
    assert!(
        piped.exit == Exit::Conflict && piped.err.contains("--yes"),
        "what comes from a pipe is no agreement: {piped:?}"
    );
    let ran = fake.run_with(&format!("endpoint apply {path}"), b"\n", true);
    assert_eq!((ran.exit, fake.state.writes.get()), (Exit::Conflict, 0), "{ran:?}");
    assert!(
        ran.err.contains("timeout_seconds: 5") && ran.err.contains("1 to add, 1 to change: apply? [y/N]"),
        "{}",
        ran.err
    );
    assert_eq!(fake.run_with(&format!("endpoint apply {path}"), b"yes\n", true).exit, Exit::Done);
    for text in [dry.out, ran.err] {
        assert!(!text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn one_bad_endpoint_stops_everything_before_the_first_write() {
    let fake = Fake::new();
    let path = file("bad.yaml", b"endpoints:\n  ep_a:\n    url: https://a.example.test/\n  ep_b:\n    url: https://b.example.test/\n    timeout: 5\n    retries: 3\n");
    let ran = fake.run(&format!("endpoint apply {path} --yes --json"));
    assert_eq!((ran.exit, fake.state.writes.get()), (Exit::Usage, 0));
    assert_eq!(
        ran.json()["error"]["problems"],
        json!([
            "line 7: ep_b: `retries` is no field here; is `retry` meant?",
            "line 6: ep_b: `timeout` is no field here; is `timeout_seconds` meant?"
        ])
    );
    assert_eq!(fake.run("endpoint apply endpoints.json").exit, Exit::Usage);
    assert_eq!(fake.run("endpoint apply there-is-none.toml").exit, Exit::Usage);
}

#[test]
fn what_is_not_in_the_file_stays_unless_it_is_pruned() {
    let fake = with_one();
    let path = file("prune.toml", b"[endpoints.ep_b]\nurl = \"https://b.example.test/\"\n");
    fake.run(&format!("endpoint apply {path} --yes"));
    assert!(fake.stored("ep_a").get("removed_at").is_none());
    let ran = fake.run(&format!("endpoint apply {path} --yes --prune"));
    assert!(ran.exit == Exit::Done && ran.out.contains("remove ep_a"), "{ran:?}");
    let stored = fake.stored("ep_a");
    assert_eq!((&stored["removed_at"], &stored["version"]), (&json!("2026-12-01T12:00:00.000Z"), &json!(4)));
    assert!(fake.run(&format!("endpoint apply {path} --yes --prune")).out.contains("Nothing to do"));
    let back = file("back.toml", b"[endpoints.ep_a]\nurl = \"https://a.example.test/\"\n");
    let ran = fake.run(&format!("endpoint apply {back} --yes"));
    assert!(ran.out.contains("restore ep_a") && fake.stored("ep_a").get("removed_at").is_none(), "{ran:?}");
}

#[test]
fn a_lost_race_is_tried_again_when_the_change_is_still_the_one_that_was_agreed_to() {
    let path = file("race.toml", b"[endpoints.ep_a]\nurl = \"https://new.example.test/\"\n");
    let fake = with_one();
    fake.meanwhile(|all| {
        for stored in all.values_mut() {
            stored["version"] = json!(4);
            stored["updated_at"] = json!("2026-12-01T11:59:59.000Z");
        }
    });
    let ran = fake.run(&format!("endpoint apply {path} --yes"));
    assert_eq!((ran.exit, &fake.stored("ep_a")["version"]), (Exit::Done, &json!(5)), "{ran:?}");
    let fake = with_one();
    fake.meanwhile(|all| {
        for stored in all.values_mut() {
            stored["version"] = json!(4);
            stored["timeout_seconds"] = json!(9);
        }
    });
    let ran = fake.run(&format!("endpoint apply {path} --yes --json"));
    assert_eq!(
        (ran.exit, &ran.json()["error"]["code"], &ran.json()["conflicts"]),
        (Exit::Conflict, &json!("conflict"), &json!(["ep_a"]))
    );
    assert_eq!((&fake.stored("ep_a")["url"], fake.state.writes.get()), (&one()["url"], 0), "the other change stays");
}

#[test]
fn what_is_exported_is_what_is_there_and_holds_no_secret() {
    let fake = with_one();
    fake.has("ep_b", json!({"url": "https://b.example.test/", "signatures": [], "retry": {"max_attempts": 3, "schedule_seconds": [1, 2]}, "version": 1}));
    let ran = fake.run("endpoint export");
    insta::assert_snapshot!("export", ran.out);
    assert!(ran.err.contains("EP_A__AUTHORIZATION"), "{}", ran.err);
    for format in ["toml", "yaml"] {
        let ran = fake.run(&format!("endpoint export --header-values --format {format}"));
        let path = file(&format!("export.{format}"), ran.out.as_bytes());
        let again = fake.run(&format!("endpoint apply {path} --prune"));
        assert!(again.out.contains("Nothing to do"), "{format}: {again:?}\n{}", ran.out);
    }
    assert_eq!(fake.run("endpoint export ep_a --json").json()["endpoints"].as_object().unwrap().len(), 1);
    assert_eq!(fake.run("endpoint export ep_x").exit, Exit::NotFound);
}
