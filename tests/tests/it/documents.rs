//! Every example of a message in the documentation is a message, and every example of the contract is played.

use std::collections::{BTreeMap, BTreeSet};

use domain::message::parse;
use serde_json::Value;
use testkit::samples::LIMITS;

use crate::semantics::page;

/// A file of the repository.
pub fn root(path: &str) -> String {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn the_examples_of_the_schema_are_accepted_and_the_counterexamples_refused_for_their_reason() {
    let schema: Value = serde_json::from_str(&root("docs/message.schema.json")).unwrap();
    let good = schema["examples"].as_array().unwrap();
    let bad = schema["x-invalid-examples"].as_array().unwrap();
    assert!(good.len() >= 8 && bad.len() >= 8);
    for example in good {
        parse(&example.to_string(), &LIMITS).unwrap_or_else(|r| panic!("{example}: {}", r.detail));
    }
    for example in bad {
        let text = |name: &str| example[name].as_str().unwrap_or_else(|| panic!("{example} lacks {name}"));
        let refusal = parse(text("message"), &LIMITS).expect_err(text("message"));
        assert_eq!(refusal.reason.name(), text("reason"), "{}: {}", text("message"), refusal.detail);
        assert!(refusal.detail.contains(text("because")), "{}: {}", text("message"), refusal.detail);
    }
}

#[test]
fn every_message_shown_in_the_guides_is_accepted() {
    let mut shown = 0;
    for guide in ["README.md", "docs/SEMANTICS.md", "docs/sending/README.md"] {
        let text = root(guide);
        for block in text.split("```json").skip(1) {
            let block = block.split("```").next().unwrap();
            let Ok(value) = serde_json::from_str::<Value>(block) else { panic!("{guide}: no JSON: {block}") };
            // Answers and operator actions are shown as JSON too.
            let is_message = value.get("cancel").is_some()
                || value.get("id").is_some() && value.get("ok").is_none() && value.get("action").is_none();
            if is_message {
                parse(&value.to_string(), &LIMITS).unwrap_or_else(|r| panic!("{guide}: {block}: {}", r.detail));
                shown += 1;
            }
        }
    }
    assert!(shown > 0, "the guides show messages");
}

#[test]
fn every_section_of_the_contract_has_an_example_and_every_example_a_test_that_plays_it() {
    let source = root("tests/tests/it/semantics.rs");
    // The tests, and what stands in each.
    let mut tests: BTreeMap<&str, &str> = BTreeMap::new();
    for test in source.split("::test]\nasync fn ").chain(source.split("#[test]\nfn ")).filter(|t| !t.starts_with("//!"))
    {
        tests.insert(test.split('(').next().unwrap(), test.split("\n}\n").next().unwrap());
    }
    let mut examples = BTreeSet::new();
    for section in page::sections() {
        assert!(!section.examples.is_empty(), "docs/SEMANTICS.md: {} has no example", section.heading);
        for example in section.examples {
            let body = tests.get(example.as_str()).unwrap_or_else(|| panic!("semantics.rs has no test `{example}`"));
            assert!(body.contains(&format!("\"{example}\"")), "`{example}` does not read the example of its name");
            assert!(examples.insert(example.clone()), "docs/SEMANTICS.md has two examples `{example}`");
        }
    }
    let without: Vec<_> = tests.keys().filter(|test| !examples.contains(**test)).collect();
    assert!(without.is_empty(), "docs/SEMANTICS.md has no example of {without:?}");
}
