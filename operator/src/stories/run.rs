use std::path::PathBuf;

use serde_json::json;

use super::with_one;
use crate::exit::Exit;
use crate::fakes::Fake;
use crate::stack::Source;

#[test]
fn help_is_an_answer_and_shows_the_exit_codes() {
    let ran = Fake::new().run("--help");
    assert_eq!(ran.exit, Exit::Done);
    insta::assert_snapshot!("help", ran.out);
    assert_eq!(Fake::new().run("--version").exit, Exit::Done);
}

#[test]
fn every_failure_is_one_json_document_where_json_is_wanted() {
    let fake = Fake::new();
    for (line, exit, code) in [
        ("endpoint --json", Exit::Usage, "usage"),
        ("endpoint show --json", Exit::Usage, "usage"),
        ("endpoint show ep_x --json", Exit::NotFound, "not_found"),
        ("endpoint add ep_a --url nonsense --json", Exit::Usage, "invalid"),
    ] {
        let ran = fake.run(line);
        assert_eq!((ran.exit, ran.json()["error"]["code"].as_str()), (exit, Some(code)), "{line}");
        assert_eq!((&ran.json()["ok"], ran.err.as_str()), (&json!(false), ""), "{line}");
    }
}

#[test]
fn trouble_with_aws_has_its_own_exit_codes_and_hides_the_dump() {
    for (text, exit) in [
        ("AccessDeniedException (ServiceError { raw })", Exit::Denied),
        ("dispatch failure (DispatchFailure { raw })", Exit::Unreachable),
        ("InternalServerError (ServiceError { raw })", Exit::Own),
    ] {
        let fake = with_one();
        *fake.state.down.borrow_mut() = Some(text.to_owned());
        let ran = fake.run("endpoint list");
        assert!(ran.exit == exit && ran.out.is_empty() && !ran.err.contains("raw"), "{ran:?}");
        assert!(fake.run("endpoint list --verbose").err.contains("raw"));
    }
}

#[test]
fn the_parser_repeats_no_url_and_no_secret() {
    for line in [
        "endpoint test --url ftp://h.example.test/t0ken",
        "endpoint rotate-secret ep_a whsec_t0ken",
        "endpoint show https://h.example.test/t0ken",
        "endpoint keys --url https://h.example.test:t0ken/ --json",
    ] {
        let ran = Fake::new().run(line);
        assert!(ran.exit == Exit::Usage && !ran.err.contains("t0ken") && !ran.out.contains("t0ken"), "{line}: {ran:?}");
        assert!(ran.err.len() + ran.out.len() > 20, "{ran:?}");
    }
}

#[test]
fn the_parser_repeats_no_secret_that_lacks_its_prefix() {
    let bare = &super::SECRET["whsec_".len()..];
    for line in [
        format!("endpoint rotate-secret ep_a {bare}"),
        format!("endpoint rotate-secret {bare}"),
        format!("endpoint add ep_a --url https://h.example.test/ --secret={bare}"),
        format!("verify --endpoint ep_a {bare} --json"),
        format!("endpoint rotate-secret ep_a --overlap {bare}"),
    ] {
        let ran = Fake::new().run(&line);
        assert!(ran.exit == Exit::Usage && !ran.err.contains(&bare[..16]) && !ran.out.contains(&bare[..16]), "{ran:?}");
        assert!(ran.err.len() + ran.out.len() > 20, "{ran:?}");
    }
}

#[test]
fn nothing_that_others_wrote_reaches_a_terminal_as_it_is() {
    const EVIL: &str = "x\u{1b}[2K\u{202e}\u{200b}\u{7}y";
    let mut obeyed = Vec::new();
    let mut clean = |what: &str, text: &str| {
        let bad = |c: char| c != '\n' && domain::definition::is_deceptive(c);
        if text.contains(bad) || !text.contains('\u{b7}') {
            obeyed.push(format!("{what}: {text:?}"));
        }
    };
    let fake = with_one();
    fake.answers(|action| match action["action"].as_str() {
        Some("endpoint") => {
            json!({"ok": true, "endpoint": {"state": "paused", "since": 0, "because": EVIL, "releasing": false}})
        }
        Some("list") => json!({"ok": true, "items": [{"id": "e", "detail": EVIL}], "cursor": null}),
        _ => json!({"ok": true, "delivery": {"state": "waiting", "reason": "retry"}, "next": EVIL,
                    "last_answer": {"attempt": 1, "headers": {"server": EVIL}, "excerpt": EVIL},
                    "history": [{"number": 1, "started": 0, "phase": "head", "class": "transient", "status": 503, "detail": EVIL}]}),
    });
    clean("show", &fake.run("endpoint show ep_a").out);
    clean("test", &fake.run("endpoint test ep_a").out);
    clean("send", &fake.run("send --id e --endpoint ep_a --body x --wait").out);
    fake.answers(|action| match action["action"].as_str() {
        Some("explain") => json!({"ok": false, "error": {"code": "not_found", "message": "there is none"}}),
        Some("list") => json!({"ok": true, "items": [{"id": "e", "detail": EVIL}], "cursor": null}),
        _ => json!({"ok": false, "error": {"code": "invalid", "message": EVIL}}),
    });
    clean("rejected", &fake.run("send --id e --endpoint ep_a --body x --wait").out);
    clean("a failure", &fake.run("endpoint pause ep_a --reason x").err);
    let raw = super::file(
        "evil.json",
        format!("{{\"id\":\"e\",\"endpoint\":\"p\",\"body\":\"\",\"{}\":1}}", "x\u{202e}\u{200b}").as_bytes(),
    );
    clean("send --raw", &fake.run(&format!("send --raw {raw}")).err);
    assert!(obeyed.is_empty(), "{obeyed:#?}");
}

#[test]
fn the_stack_that_is_asked_for_is_the_one_that_is_used() {
    let fake = with_one();
    fake.run("endpoint list --stack hooks --region eu-west-1 --profile prod");
    let target = fake.state.connected.borrow().clone().unwrap();
    assert_eq!(
        (target.source, target.region.as_deref(), target.profile.as_deref(), target.own_credentials),
        (Source::Named("hooks".to_owned()), Some("eu-west-1"), Some("prod"), true)
    );
    fake.run("endpoint list --stack ./x.json");
    let target = fake.state.connected.borrow().clone().unwrap();
    assert_eq!((target.source, target.own_credentials), (Source::File(PathBuf::from("./x.json")), false));
}

#[test]
fn colours_come_when_they_are_asked_for() {
    let fake = with_one();
    assert!(!fake.run("endpoint show ep_a").out.contains('\u{1b}'));
    assert!(fake.run("endpoint show ep_a --color always").out.contains("\u{1b}[32mactive"));
}

#[test]
fn completions_and_the_manual_know_every_command() {
    let fake = Fake::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(fake.run(&format!("completions {shell}")).out.contains("rotate-secret"), "{shell}");
    }
    let page = fake.run("man").out;
    for part in ["rotate\\-secret", "\\-\\-body\\-json", "\\-\\-no\\-tolerance", "Exit codes"] {
        assert!(page.contains(part), "{part}");
    }
}
