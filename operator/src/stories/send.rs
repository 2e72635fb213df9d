use serde_json::json;

use super::file;
use crate::exit::Exit;
use crate::fakes::Fake;

fn sent(fake: &Fake) -> (String, String) {
    fake.state.sent.borrow().last().cloned().expect("something was sent")
}

#[test]
fn the_very_bytes_of_the_json_are_in_the_message() {
    let fake = Fake::new();
    let ran = fake.run("send --id order_1 --endpoint ep_a --body-json '{\"a\" : 1.10,  \"b\":[] }' --header 'X-Tenant: 7' --correlation-id r9 --deliver-by 2026-12-02T00:00:00Z");
    assert!(ran.exit == Exit::Done && ran.out.contains("sqs-1"), "{ran:?}");
    let (body, group) = sent(&fake);
    assert_eq!(
        body,
        r#"{"id":"order_1","endpoint":"ep_a","correlation_id":"r9","deliver_by":"2026-12-02T00:00:00Z","json":{"a" : 1.10,  "b":[] },"headers":{"X-Tenant":"7"}}"#
    );
    assert_eq!(group, "ep_a", "the group is the state key");
    let path = file("body.json", b" {\"x\": 1}\n");
    fake.run(&format!("send --id e --endpoint ep_a --body-json @{path}"));
    assert!(sent(&fake).0.contains(r#""json":{"x": 1}"#), "{:?}", sent(&fake));
}

#[test]
fn text_goes_as_text_and_bytes_as_base64() {
    let fake = Fake::new();
    fake.run("send --id e --endpoint ep_a --body 'Zoë\"' --content-type text/plain");
    assert_eq!(sent(&fake).0, r#"{"id":"e","endpoint":"ep_a","body":"Zoë\"","content_type":"text/plain"}"#);
    let path = file("bytes", &[0xff, 0x00]);
    fake.run(&format!("send --id e --endpoint ep_a --body-file {path}"));
    assert!(sent(&fake).0.contains(r#""body_base64":"/wA=""#));
    fake.run_with("send --id e --endpoint ep_a --body-file -", b"from a pipe", false);
    assert!(sent(&fake).0.contains("from a pipe"));
}

#[test]
fn an_inline_url_shares_the_group_of_its_origin() {
    let fake = Fake::new();
    let ran = fake.run("send --id e --url https://h.example.test/a?k=t0ken --body x --json");
    assert_eq!(ran.exit, Exit::Done);
    let origin = domain::id::StateKey::inline(&url::Url::parse("https://h.example.test/").unwrap());
    assert_eq!(sent(&fake).1, origin.as_str());
    assert!(!ran.out.contains("t0ken"), "{}", ran.out);
}

#[test]
fn what_would_be_rejected_is_not_sent() {
    let fake = Fake::new();
    for (line, part) in [
        ("send --id a.b --endpoint ep_a --body x", "no dot"),
        ("send --id e --endpoint ep_a", "nothing to send"),
        ("send --id e --endpoint ep_a --body x --deliver-at tomorrow", "RFC 3339"),
        ("send --id e --endpoint ep_a --body x --header 'Host: x'", "host is reserved"),
        ("send --id e --endpoint ep_a --body x --header nothing", "Name: value"),
        ("send --id e --endpoint ep_a --body-json '{'", "no JSON"),
        ("send --id e --endpoint ep_a --body x --body-json 1", "cannot be used with"),
        ("send --id e --endpoint ep_a --url https://h.example.test/ --body x", "cannot be used with"),
        ("send --endpoint ep_a --body x", "--id"),
        ("send --id e --url ftp://h.example.test/t0ken --body x", "https URL"),
    ] {
        let ran = fake.run(line);
        assert!(ran.exit == Exit::Usage && ran.err.contains(part) && !ran.err.contains("t0ken"), "{line}: {ran:?}");
    }
    assert!(fake.state.sent.borrow().is_empty() && fake.state.connected.borrow().is_none());
}

#[test]
fn a_whole_message_goes_as_it_is_and_is_judged_too() {
    let fake = Fake::new();
    let raw = "{\"cancel\": {\"id\": \"e\", \"endpoint\": \"ep_a\"}, \"reason\": \"withdrawn\"}";
    let ran = fake.run(&format!("send --raw {}", file("raw.json", raw.as_bytes())));
    assert_eq!((ran.exit, sent(&fake)), (Exit::Done, (raw.to_owned(), "ep_a".to_owned())));
    assert_eq!(fake.run(&format!("send --raw {}", file("raw2.json", b"{}"))).exit, Exit::Usage);
    assert_eq!(fake.run("send --raw x --id e").exit, Exit::Usage);
    let dry = fake.run("send --id e --endpoint ep_a --body x --dry-run");
    assert!(dry.out.starts_with(r#"{"id":"e""#) && fake.state.sent.borrow().len() == 1, "{dry:?}");
}

#[test]
fn waiting_ends_when_it_is_delivered_or_parked() {
    for (state, exit) in
        [("delivered", Exit::Done), ("waiting", Exit::No), ("held", Exit::No), ("dead_lettered", Exit::No)]
    {
        let fake = Fake::new();
        let seen = std::cell::Cell::new(0);
        fake.answers(move |action| {
            assert_eq!(action, &json!({"action": "explain", "id": "e", "endpoint": "ep_a"}), "{state}");
            seen.set(seen.get() + 1);
            let state = if seen.get() < 3 { "in_flight" } else { state };
            json!({"ok": true, "delivery": {"state": state}, "history": [], "next": "…"})
        });
        let ran = fake.run("send --id e --endpoint ep_a --body x --wait --json");
        assert_eq!(
            (ran.exit, &ran.json()["delivery"]["state"], &ran.json()["message_id"]),
            (exit, &json!(state), &json!("sqs-1"))
        );
    }
}
