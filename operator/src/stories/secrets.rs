use serde_json::{Value, json};

use super::{SECRET, with_one};
use crate::exit::Exit;
use crate::fakes::Fake;

fn secrets(fake: &Fake) -> Vec<(String, Option<String>)> {
    let stored = fake.stored("ep_a");
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    stored["secrets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (text(&s["secret"]).unwrap(), text(&s["retired_at"])))
        .collect()
}

#[test]
fn a_rotation_shows_the_new_secret_and_lets_the_old_one_go_on_for_a_day() {
    let fake = with_one();
    let ran = fake.run("endpoint rotate-secret ep_a");
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    insta::assert_snapshot!("rotate_secret", ran.out);
    let all = secrets(&fake);
    let [(new, None), (old, Some(until))] = all.as_slice() else { panic!("{all:?}") };
    assert!(ran.out.contains(new) && !ran.out.contains(old) && old == SECRET, "{}", ran.out);
    assert_eq!((until.as_str(), &fake.stored("ep_a")["version"]), ("2026-12-02T12:00:00.000Z", &json!(4)));
}

#[test]
fn overlap_0_retires_at_once() {
    let fake = with_one();
    let ran = fake.run("endpoint rotate-secret ep_a --overlap 0 --json");
    assert_eq!((ran.exit, &ran.json()["older_retire_at"]), (Exit::Done, &json!([])));
    assert_eq!(secrets(&fake)[1].1.as_deref(), Some("2026-12-01T12:00:00.000Z"));
}

#[test]
fn an_overlap_that_no_calendar_can_hold_is_refused_before_anything_is_asked() {
    let fake = with_one();
    for line in ["endpoint rotate-secret ep_a --overlap 9999999d", "endpoint keys rotate --yes --overlap 91d"] {
        let ran = fake.run(line);
        assert!(ran.exit == Exit::Usage && ran.err.contains("90d at most"), "{ran:?}");
    }
    assert!(fake.state.connected.borrow().is_none());
}

#[test]
fn one_root_key_that_cannot_be_read_stops_no_other_and_goes_with_the_next_rotation() {
    let fake = Fake::new();
    let far = json!({"secret": SECRET, "retired_at": "866000000000000"});
    *fake.state.roots.borrow_mut() = json!({"version": 4, "secrets": [SECRET, far]});
    let shown = fake.run("endpoint keys --url https://h.example.test/ --json");
    assert_eq!((shown.exit, shown.json()["keys"].as_array().map(Vec::len)), (Exit::Done, Some(1)), "{shown:?}");
    assert!(shown.err.contains("secrets.1.retired_at") && !shown.err.contains("whsec_"), "{shown:?}");
    *fake.state.roots.borrow_mut() = json!({"version": 4, "secrets": [far]});
    let ran = fake.run("endpoint keys --url https://h.example.test/");
    assert!(ran.exit == Exit::Usage && ran.err.contains("keys rotate"), "no key is made where there was one: {ran:?}");
    assert_eq!(fake.run("endpoint keys rotate --yes").exit, Exit::Done);
    let stored = fake.state.roots.borrow().clone();
    assert_eq!((&stored["version"], stored["secrets"].as_array().map(Vec::len)), (&json!(5), Some(1)));
}

#[test]
fn a_repair_says_that_what_was_held_needs_a_resume() {
    let unsigned = |fake: &Fake| {
        let mut stored = super::one();
        stored["secrets"] = json!([]);
        fake.has("ep_a", stored);
    };
    let fake = Fake::new();
    let path = super::file("repair.toml", b"[endpoints.ep_a]\nurl = \"https://hooks.example.test/in\"\n");
    for line in
        ["endpoint rotate-secret ep_a", "endpoint set ep_a --timeout 3", &format!("endpoint apply {path} --yes")]
    {
        unsigned(&fake);
        let ran = fake.run(line);
        assert!(ran.exit == Exit::Done && ran.out.contains("endpoint resume ep_a"), "{line}: {ran:?}");
        let again = fake.run("endpoint rotate-secret ep_a");
        assert!(!again.out.contains("endpoint resume"), "nothing was held: {again:?}");
    }
}

#[test]
fn more_than_any_secret_is_not_read() {
    let long = [b"\n".repeat(16 * 1024), SECRET.as_bytes().to_vec()].concat();
    let ran = with_one().run_with("endpoint rotate-secret ep_a --secret-stdin", &long, false);
    assert!(ran.exit == Exit::Usage && ran.err.contains("no secrets"), "{ran:?}");
}

#[test]
fn which_secret_must_be_said_where_there_are_two() {
    let fake = with_one();
    fake.run("endpoint set ep_a --signature v1,v1a");
    assert_eq!(fake.run("endpoint rotate-secret ep_a").exit, Exit::Usage);
    let ran = fake.run("endpoint rotate-secret ep_a --scheme v1a");
    assert!(ran.exit == Exit::Done && ran.out.contains("whpk_") && !ran.out.contains("whsk_"), "{ran:?}");
    let ran = fake.run_with("endpoint rotate-secret ep_a --scheme v1a --secret-stdin", SECRET.as_bytes(), false);
    assert!(ran.exit == Exit::Usage && ran.err.contains("one of v1, not of v1a"), "{ran:?}");
}

#[test]
fn a_rotation_that_lost_a_race_is_made_again_on_what_is_there_now_once() {
    let fake = with_one();
    let somebody = |all: &mut std::collections::BTreeMap<_, Value>| {
        for stored in all.values_mut() {
            stored["version"] = json!(stored["version"].as_u64().unwrap() + 1);
            stored["timeout_seconds"] = json!(9);
        }
    };
    fake.meanwhile(somebody);
    let ran = fake.run("endpoint rotate-secret ep_a");
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert_eq!(
        (&fake.stored("ep_a")["timeout_seconds"], secrets(&fake).len()),
        (&json!(9), 2),
        "both changes are there"
    );
    fake.meanwhile(somebody);
    fake.meanwhile(somebody);
    let ran = fake.run("endpoint rotate-secret ep_a");
    assert_eq!((ran.exit, secrets(&fake).len()), (Exit::Conflict, 2), "{ran:?}");
    assert!(!ran.out.contains("whsec_"), "a secret that was not written is not shown");
}

#[test]
fn the_keys_of_an_inline_url_are_those_that_deliver_derives() {
    let fake = Fake::new();
    let keys = |path: &str| {
        fake.run(&format!("endpoint keys --url https://h.example.test{path} --json")).json()["keys"].clone()
    };
    let first = keys("/a?k=t0ken");
    assert_eq!(first, keys("/b"), "one origin, one secret; the root key is made once");
    let root = domain::signature::Secret::new(domain::signature::Scheme::V1, &zeroize::Zeroizing::new([1; 32]));
    let expected = root.for_origin(domain::signature::Scheme::V1, "https://h.example.test");
    assert_eq!(first[0]["secret"].as_str(), Some(expected.expose().as_str()));
    assert!(first[0]["public_key"].as_str().unwrap().starts_with("whpk_"));
    assert_eq!(fake.run("endpoint keys rotate --json").json()["error"]["code"], "not_confirmed");
    assert_eq!(fake.run("endpoint keys rotate --yes").exit, Exit::Done);
    let both = keys("/a");
    assert_eq!((both.as_array().unwrap().len(), &both[1]["secret"]), (2, &first[0]["secret"]));
    assert_eq!(both[1]["retires_at"], "2026-12-02T12:00:00.000Z");
}
