use serde_json::json;

use super::{SECRET, one, with_one};
use crate::exit::Exit;
use crate::fakes::Fake;

#[test]
fn an_added_endpoint_is_stored_and_its_secret_is_shown_once() {
    let fake = Fake::new();
    let added = fake.run("endpoint add ep_a --url https://hooks.example.test/in --timeout 5s --schedule 1,2 --signature v1,v1a --header-env Authorization=TOKEN");
    assert_eq!(added.exit, Exit::Done, "{added:?}");
    insta::assert_snapshot!("endpoint_add", added.out);
    let stored = fake.stored("ep_a");
    let secrets = stored["secrets"].as_array().unwrap();
    assert_eq!(
        (&stored["version"], secrets.len(), &stored["headers"]["authorization"]),
        (&json!(1), 2, &json!("Bearer s3cr3t"))
    );
    let shown = secrets.iter().map(|s| s["secret"].as_str().unwrap()).find(|s| s.starts_with("whsec_")).unwrap();
    assert!(added.out.contains(shown) && !added.out.contains("whsk_"), "the private half stays: {}", added.out);
    for line in [
        "endpoint show ep_a",
        "endpoint list",
        "endpoint export",
        "endpoint set ep_a --timeout 6",
        "endpoint pause ep_a --reason x",
    ] {
        for json in ["", " --json"] {
            let ran = fake.run(&format!("{line}{json}"));
            assert_eq!(ran.exit, Exit::Done, "{line}: {ran:?}");
            for secret in ["whsec_", "whsk_", "s3cr3t"] {
                assert!(!ran.out.contains(secret) && !ran.err.contains(secret), "{line}: {ran:?}");
            }
        }
    }
}

#[test]
fn an_endpoint_that_is_there_is_not_added_again() {
    let fake = with_one();
    let ran = fake.run("endpoint add ep_a --url https://other.example.test/ --json");
    assert_eq!((ran.exit, &ran.json()["error"]["code"]), (Exit::Conflict, &json!("exists")));
    assert!(ran.out.contains("endpoint set ep_a") && fake.state.writes.get() == 0);
}

#[test]
fn a_removed_endpoint_comes_back_only_when_it_is_asked_for_and_agreed_to() {
    let fake = Fake::new();
    let mut removed = one();
    removed["removed_at"] = json!("2026-12-01T11:00:00.000Z");
    fake.has("ep_a", removed);
    let add = "endpoint add ep_a --url https://other.example.test/";
    assert_eq!(fake.run(&format!("{add} --json")).json()["error"]["code"], "removed");
    assert_eq!(fake.run("endpoint set ep_a --timeout 3 --json").json()["error"]["code"], "removed");
    assert_eq!(fake.run(&format!("{add} --restore --json")).json()["error"]["code"], "not_confirmed");
    assert_eq!(fake.run_with(&format!("{add} --restore"), b"n\n", true).exit, Exit::Conflict);
    assert_eq!(fake.state.writes.get(), 0);
    let ran = fake.run_with(&format!("{add} --restore"), b"y\n", true);
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    let stored = fake.stored("ep_a");
    assert_eq!(
        (stored.get("removed_at"), &stored["version"], stored["secrets"].as_array().map(Vec::len)),
        (None, &json!(4), Some(1))
    );
    assert!(!ran.out.contains("whsec_"), "its secret is the old one");
}

#[test]
fn what_cannot_be_read_is_registered_anew_when_it_is_asked_for_and_agreed_to() {
    let fake = Fake::new();
    let mut broken = one();
    broken["secrets"] = json!([SECRET, {"secret": SECRET, "retired_at": "866000000000000"}]);
    fake.has("ep_a", broken);
    let add = "endpoint add ep_a --url https://other.example.test/";
    let refused = fake.run(add);
    assert!(refused.exit == Exit::Usage && refused.err.contains("--replace-unreadable"), "{refused:?}");
    let unasked = fake.run(&format!("{add} --replace-unreadable --json"));
    assert_eq!(unasked.json()["error"]["code"], "not_confirmed");
    assert!(unasked.err.contains("secrets.1.retired_at"), "{unasked:?}");
    assert_eq!(fake.state.writes.get(), 0);
    let ran = fake.run(&format!("{add} --replace-unreadable --yes"));
    assert!(ran.exit == Exit::Done && ran.out.contains("endpoint resume ep_a"), "{ran:?}");
    let stored = fake.stored("ep_a");
    assert_eq!((&stored["version"], stored["secrets"].as_array().map(Vec::len)), (&json!(4), Some(1)), "{stored}");
    assert!(!ran.out.contains("whsec_"), "the secret that can be read stays: {}", ran.out);
    let again = fake.run(&format!("{add} --replace-unreadable --yes --json"));
    assert_eq!(again.json()["error"]["code"], "exists", "one that can be read is not replaced");
}

#[test]
fn bad_options_are_all_told_before_anything_is_asked_of_aws() {
    let fake = Fake::new();
    let ran =
        fake.run("endpoint add ep_a --url ftp://h.example.test/t0ken --timeout 99 --jitter 200 --retry-status 200");
    assert_eq!(ran.exit, Exit::Usage);
    insta::assert_snapshot!("endpoint_add_bad", ran.err);
    assert!(fake.state.connected.borrow().is_none());
}

#[test]
fn an_imported_secret_is_taken_from_standard_input_and_not_shown() {
    let fake = Fake::new();
    let add = "endpoint add ep_a --url https://h.example.test/ --secret-stdin";
    let ran = fake.run_with(add, format!("{SECRET}\n").as_bytes(), false);
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert!(!ran.out.contains("whsec_") && ran.out.contains("imported"), "{}", ran.out);
    assert_eq!(fake.stored("ep_a")["secrets"][0]["secret"], SECRET);
    for (input, part) in [
        ("", "nothing on standard input"),
        ("whsec_s3cr3t", "line 1"),
        (&format!("\n{SECRET}\n\ns3cr3t"), "line 4"),
        (&format!("{SECRET}\nwhsk_{}", &SECRET[6..]), "not signed by v1a"),
    ] {
        let ran = Fake::new().run_with(add, input.as_bytes(), false);
        assert!(ran.exit == Exit::Usage && ran.err.contains(part) && !ran.err.contains("s3cr3t"), "{input}: {ran:?}");
    }
}

#[test]
fn two_imported_secrets_both_sign_and_a_removed_endpoint_comes_back_with_the_one_it_had() {
    let fake = Fake::new();
    let other = "whsec_BBECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let add = "endpoint add ep_a --url https://h.example.test/ --secret-stdin";
    let ran = fake.run_with(add, format!("{other}\n{SECRET}\n").as_bytes(), false);
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    let secrets = |fake: &Fake| -> Vec<(String, bool)> {
        let stored = fake.stored("ep_a");
        let all = stored["secrets"].as_array().unwrap().iter();
        all.map(|s| (s["secret"].as_str().unwrap().to_owned(), s.get("retired_at").is_none())).collect()
    };
    assert_eq!(secrets(&fake), [(other.to_owned(), true), (SECRET.to_owned(), true)]);
    fake.run("endpoint remove ep_a --yes");
    let ran = fake.run_with(&format!("{add} --restore --yes"), SECRET.as_bytes(), false);
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert_eq!(secrets(&fake), [(SECRET.to_owned(), true), (other.to_owned(), false)]);
}

#[test]
fn an_endpoint_whose_only_secret_retired_long_ago_gets_another_one_by_set() {
    let fake = Fake::new();
    let mut stored = one();
    stored["secrets"][0]["retired_at"] = json!("2026-11-02T12:00:00.000Z");
    fake.has("ep_a", stored);
    let ran = fake.run("endpoint set ep_a --signature v1");
    assert!(ran.exit == Exit::Done && ran.out.contains("whsec_"), "{ran:?}");
    let stored = fake.stored("ep_a");
    assert_eq!((&stored["version"], stored["secrets"][0].get("retired_at")), (&json!(4), None), "{stored}");
}

#[test]
fn a_number_that_is_none_is_told_in_words() {
    for option in
        ["--max-attempts", "--jitter", "--retry-status", "--permanent-status", "--max-per-second", "--max-in-flight"]
    {
        let ran = Fake::new().run(&format!("endpoint add ep_a --url https://h.example.test/ {option} 3x"));
        assert!(ran.exit == Exit::Usage && ran.err.contains("must be a whole number"), "{option}: {ran:?}");
    }
}

#[test]
fn a_change_names_the_version_it_was_made_from() {
    let fake = with_one();
    let ran = fake.run("endpoint set ep_a --timeout 5 --max-attempts 3 --unset description --header 'X-A: 1'");
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    insta::assert_snapshot!("endpoint_set", ran.out);
    assert_eq!(fake.stored("ep_a")["version"], 4);
    let again = fake.run("endpoint set ep_a --timeout 5");
    assert_eq!((again.exit, fake.state.writes.get()), (Exit::Done, 1), "{again:?}");
    fake.meanwhile(|all| {
        for stored in all.values_mut() {
            stored["version"] = json!(9);
            stored["timeout_seconds"] = json!(9);
        }
    });
    let lost = fake.run("endpoint set ep_a --timeout 7 --json");
    assert_eq!((lost.exit, &lost.json()["error"]["code"]), (Exit::Conflict, &json!("conflict")));
    assert_eq!(
        (&fake.stored("ep_a")["timeout_seconds"], fake.state.writes.get()),
        (&json!(9), 1),
        "nothing was overwritten"
    );
}

#[test]
fn a_scheme_that_is_added_gets_its_key_at_once() {
    let fake = with_one();
    let ran = fake.run("endpoint set ep_a --signature v1,v1a");
    assert!(ran.exit == Exit::Done && ran.out.contains("whpk_"), "{ran:?}");
    assert!(!ran.out.contains("whsk_") && !ran.out.contains("whsec_"), "{ran:?}");
    assert_eq!(fake.stored("ep_a")["secrets"].as_array().map(Vec::len), Some(2));
}

#[test]
fn show_says_all_but_secrets() {
    let fake = with_one();
    fake.answers(|action| {
        assert_eq!(action, &json!({"action": "endpoint", "endpoint": "ep_a"}), "a look sets nothing");
        json!({"ok": true, "endpoint": {"state": "paused", "since": 1_796_122_800_000_i64, "because": "operator ada: repairs", "releasing": false}})
    });
    let ran = fake.run("endpoint show ep_a");
    insta::assert_snapshot!("endpoint_show", ran.out);
    let document = fake.run("endpoint show ep_a --json").json();
    assert_eq!(
        (&document["state"]["state"], &document["secrets"][0]["active"], &document["headers"]["authorization"]),
        (&json!("paused"), &json!(true), &json!("(hidden)"))
    );
    assert!(document["secrets"][0].get("secret").is_none());
}

#[test]
fn show_works_without_the_operator_function_and_says_what_is_wrong_with_an_endpoint() {
    let fake = Fake::new();
    fake.has("ep_a", json!({"url": "http://10.0.0.1/in", "signatures": ["v1"]}));
    fake.answers(|_| json!({"ok": false, "error": {"code": "invalid", "message": "no such action"}}));
    let ran = fake.run("endpoint show ep_a");
    assert_eq!(ran.exit, Exit::Done);
    for part in
        ["no active v1 secret", "plain http", "may refuse", "without a version", "state is not known: no such action"]
    {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
    fake.has("ep_b", json!({"url": "https://h.example.test/", "timeout_seconds": "s3cr3t"}));
    let ran = fake.run("endpoint show ep_b --json");
    assert_eq!((ran.exit, &ran.json()["error"]["code"]), (Exit::Usage, &json!("misconfigured")));
    assert!(ran.out.contains("timeout_seconds") && !ran.out.contains("s3cr3t"));
    assert_eq!(fake.run("endpoint show ep_c").exit, Exit::NotFound);
}

#[test]
fn the_list_has_hosts_and_no_paths() {
    let fake = with_one();
    fake.has("ep_b", json!({"url": "http://127.0.0.1:9000/t0ken", "signatures": [], "version": 1}));
    fake.has("ep_c", json!({"url": 7}));
    let mut removed = one();
    removed["removed_at"] = json!("2026-12-01T11:00:00.000Z");
    fake.has("ep_d", removed);
    let ran = fake.run("endpoint list");
    insta::assert_snapshot!("endpoint_list", ran.out);
    let all = fake.run("endpoint list --removed --no-state --json");
    assert_eq!(all.json()["endpoints"].as_array().unwrap().len(), 4);
    for out in [ran.out, all.out] {
        assert!(!out.contains("t0ken") && !out.contains("/in"), "{out}");
    }
    assert!(Fake::new().run("endpoint list").out.contains("There are no endpoints"));
}

#[test]
fn pause_resume_and_disable_are_decisions_with_a_reason_and_a_name() {
    let fake = with_one();
    for (verb, state) in [("pause", "paused"), ("resume", "active"), ("disable", "disabled")] {
        let yes = if verb == "resume" { "--yes" } else { "" };
        let ran = fake.run(&format!("endpoint {verb} ep_a --reason 'partner asked' {yes}"));
        assert_eq!(ran.exit, Exit::Done, "{ran:?}");
        let expected = json!({"action": "endpoint", "endpoint": "ep_a", "set": state, "reason": "partner asked", "operator": "ada"});
        assert_eq!(fake.state.asked.borrow().last(), Some(&expected));
    }
    fake.run("endpoint pause ep_a --reason x --operator bea");
    assert_eq!(fake.state.asked.borrow().last().unwrap()["operator"], "bea");
    let asked = fake.state.asked.borrow().len();
    assert_eq!(fake.run("endpoint pause ep_misspelt --reason x").exit, Exit::NotFound);
    assert_eq!(fake.run("endpoint pause ep_a").exit, Exit::Usage, "a reason is needed");
    assert_eq!(fake.state.asked.borrow().len(), asked);
    let origin = "url:00112233445566778899aabbccddeeff";
    assert_eq!(fake.run(&format!("endpoint pause {origin} --reason x")).exit, Exit::Done);
    assert_eq!(fake.state.asked.borrow().last().unwrap()["endpoint"], origin);
    let ran = fake.run("endpoint pause --url https://h.example.test:8443/in?k=t0ken --reason x");
    assert!(ran.exit == Exit::Done && ran.out.contains("resume --url https://h.example.test:8443 "), "{ran:?}");
    let expected = json!({"action": "endpoint", "url": "https://h.example.test:8443", "set": "paused", "reason": "x", "operator": "ada"});
    assert_eq!(fake.state.asked.borrow().last(), Some(&expected), "the origin, and nothing else of the URL");
    assert_eq!(fake.run("endpoint pause ep_a --url https://h.example.test/ --reason x").exit, Exit::Usage);
    let unasked = fake.run("endpoint resume --url https://h.example.test/in?k=t0ken --reason x --json");
    assert_eq!(unasked.json()["error"]["code"], "not_confirmed");
    assert!(unasked.out.contains("https://h.example.test active") && !unasked.out.contains("t0ken"), "{unasked:?}");
    assert_eq!(fake.run("endpoint pause --reason x").exit, Exit::Usage);
}

#[test]
fn resuming_asks_with_what_is_held() {
    let fake = with_one();
    fake.answers(|action| match (action["action"].as_str(), action["cursor"].as_str()) {
        (Some("list"), None) => json!({"ok": true, "items": [{}, {}], "cursor": "more"}),
        (Some("list"), Some(_)) => json!({"ok": true, "items": [{}], "cursor": null}),
        _ => json!({"ok": true, "endpoint": {"state": "active", "releasing": true}, "released": 3}),
    });
    let line = "endpoint resume ep_a --reason x";
    let no = fake.run_with(line, b"n\n", true);
    assert!(no.exit == Exit::Conflict && no.err.contains("Set ep_a active, and release 3 held"), "{no:?}");
    let sets = || fake.state.asked.borrow().iter().filter(|action| action["action"] == "endpoint").count();
    assert_eq!((fake.run(line).exit, sets()), (Exit::Conflict, 0));
    assert_eq!((fake.run_with(line, b"y\n", true).exit, sets()), (Exit::Done, 1));
    let asked = fake.state.asked.borrow().len();
    assert_eq!(fake.run(&format!("{line} --yes")).exit, Exit::Done);
    assert_eq!(fake.state.asked.borrow().len(), asked + 1, "nobody is asked, and nothing is counted");
    // Nobody who can resume is kept from it because counting fails.
    fake.answers(|action| match action["action"].as_str() {
        Some("list") => json!({"ok": false, "error": {"code": "invalid", "message": "m"}}),
        _ => json!({"ok": true, "endpoint": {"state": "active", "releasing": false}, "released": 0}),
    });
    let many = fake.run_with(line, b"y\n", true);
    assert!(many.exit == Exit::Done && many.err.contains("release all held deliveries"), "{many:?}");
}

#[test]
fn removing_marks_and_counts_what_is_held() {
    let fake = with_one();
    fake.answers(|action| match action["cursor"].as_str() {
        None => json!({"ok": true, "items": [{}, {}], "cursor": "more"}),
        Some(_) => json!({"ok": true, "items": [{}], "cursor": null}),
    });
    assert_eq!(fake.run("endpoint remove ep_a --json").json()["error"]["code"], "not_confirmed");
    let ran = fake.run("endpoint remove ep_a --yes");
    insta::assert_snapshot!("endpoint_remove", ran.out);
    let stored = fake.stored("ep_a");
    assert_eq!(
        (&stored["removed_at"], &stored["version"], &stored["url"]),
        (&json!("2026-12-01T12:00:00.000Z"), &json!(4), &one()["url"])
    );
    let again = fake.run("endpoint remove ep_a --yes --json");
    assert_eq!((again.exit, &again.json()["changed"], fake.state.writes.get()), (Exit::Done, &json!(false), 1));
}
