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
