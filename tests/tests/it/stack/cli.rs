//! The command line against the local stack.

use domain::delivery::{HeldReason, State};
use domain::id::DeliveryKey;
use domain::ports::Deliveries;
use domain::record::Record;
use operator::exit::Exit;
use serde_json::Value;

use super::{Stack, shared};
use crate::receiver::{Reply, Seen};

impl Stack {
    async fn of_endpoint(&self, event: &str, endpoint: &str) -> Option<Record> {
        self.deliveries.get(&DeliveryKey::parse(event, endpoint).unwrap()).await.expect("readable")
    }
}

/// Whether the receiver, who has this secret, accepts a request; the command line is asked.
async fn verifies(stack: &Stack, seen: &Seen, secret: &str) -> bool {
    let body = std::env::temp_dir().join(format!("redeliver-body-{}", seen.id()));
    std::fs::write(&body, &seen.body).unwrap();
    let headers = std::env::temp_dir().join(format!("redeliver-headers-{}", seen.id()));
    let lines: String = seen.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    std::fs::write(&headers, lines).unwrap();
    let line = format!("verify --secret-stdin --headers {} --body-file {}", headers.display(), body.display());
    let ran = stack.cli_with(&line, secret.as_bytes()).await;
    for file in [body, headers] {
        std::fs::remove_file(file).unwrap();
    }
    ran.exit == Exit::Done
}

#[tokio::test]
async fn an_endpoint_lives_its_life_on_the_command_line() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (id, path) = (stack.id("ep"), "life");
    let url = stack.receiver.script(path, [Reply::status(200)]);

    let added = stack.cli(&format!("endpoint add {id} --url {url} --timeout 3 --json")).await;
    assert_eq!(added.exit, Exit::Done, "{added:?}");
    let first = added.json()["secrets"][0]["secret"].as_str().unwrap().to_owned();
    assert_eq!(stack.cli(&format!("endpoint add {id} --url {url}")).await.exit, Exit::Conflict);

    // A first attempt uses what was read within the last 10 s: nothing is delivered before all of this is set.
    let rotated = stack.cli(&format!("endpoint rotate-secret {id} --json")).await;
    let second = rotated.json()["secrets"][0]["secret"].as_str().unwrap().to_owned();
    let paused = stack.cli(&format!("endpoint pause {id} --reason repairs --json")).await;
    assert_eq!((paused.exit, &paused.json()["endpoint"]["state"]), (Exit::Done, &Value::from("paused")), "{paused:?}");
    let event = stack.id("held");
    let held = stack.cli(&format!("send --id {event} --endpoint {id} --body x --wait")).await;
    assert_eq!(held.exit, Exit::No, "{held:?}");
    assert_eq!(stack.of_endpoint(&event, &id).await.map(|r| r.state), Some(State::Held(HeldReason::Paused)));
    let test = stack.cli(&format!("endpoint test {id} --json")).await;
    assert_eq!((test.exit, &test.json()["cancelled"]), (Exit::No, &Value::from("cancelled")), "{test:?}");

    assert_eq!(stack.cli(&format!("endpoint resume {id} --reason repaired --yes")).await.exit, Exit::Done);
    stack.receiver.wait_for(path, 1, std::time::Duration::from_secs(30)).await;
    let tested = stack.cli(&format!("endpoint test {id}")).await;
    assert_eq!(tested.exit, Exit::Done, "{tested:?}");
    let seen = stack.receiver.seen(path);
    assert_eq!((seen.len(), seen[0].id()), (2, event.as_str()), "what was held came, and the second test: {seen:?}");
    for seen in &seen {
        assert!(verifies(&stack, seen, &first).await && verifies(&stack, seen, &second).await, "both secrets sign");
    }

    let removed = stack.cli(&format!("endpoint remove {id} --yes")).await;
    assert!(removed.exit == Exit::Done && removed.out.contains("0 deliveries are held"), "{removed:?}");
    let listed = stack.cli("endpoint list --json").await;
    assert!(listed.exit == Exit::Done && !listed.out.contains(&id), "{listed:?}");
    for ran in [tested, held, test, removed, listed] {
        assert!(!ran.out.contains("whsec_") && !ran.err.contains("whsec_"), "{ran:?}");
    }
}

#[tokio::test]
async fn a_test_that_fails_is_cancelled_and_not_retried() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("ep"), stack.receiver.script("failing", [Reply::status(500)]));
    // Its retry is due long after the cancel, however busy the machine is.
    assert_eq!(stack.cli(&format!("endpoint add {id} --url {url} --schedule 600")).await.exit, Exit::Done);
    let ran = stack.cli(&format!("endpoint test {id} --json")).await;
    assert_eq!(ran.exit, Exit::No, "{ran:?}");
    let answer = ran.json();
    let facts = (&answer["cancelled"], &answer["history"][0]["status"], &answer["delivery"]["state"]);
    assert_eq!(facts, (&Value::from("cancelled"), &Value::from(500), &Value::from("waiting")));
    let record = stack.of_endpoint(answer["id"].as_str().unwrap(), &id).await.expect("it is on record");
    assert_eq!((record.state, record.attempt, stack.receiver.seen("failing").len()), (State::Cancelled, 1, 1));
}

#[tokio::test]
async fn a_file_is_applied_once() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let id = stack.id("ep_file");
    let path = std::env::temp_dir().join(format!("{id}.yaml"));
    let text =
        format!("endpoints:\n  {id}:\n    url: {}\n    retry: {{ max_attempts: 2 }}\n", stack.receiver.url("file"));
    std::fs::write(&path, text).unwrap();
    let apply = format!("endpoint apply {} --yes --json", path.display());
    let first = stack.cli(&apply).await;
    assert_eq!((first.exit, first.json()["steps"].as_array().map(Vec::len)), (Exit::Done, Some(1)), "{first:?}");
    let again = stack.cli(&apply).await;
    assert_eq!((again.exit, &again.json()["steps"]), (Exit::Done, &serde_json::json!([])), "{again:?}");
    let exported = stack.cli(&format!("endpoint export {id} --json")).await;
    assert_eq!(exported.json()["endpoints"][&id]["retry"], serde_json::json!({"max_attempts": 2}));
    assert!(!exported.out.contains("whsec_"));
}

#[tokio::test]
async fn an_inline_url_is_signed_with_the_keys_that_are_shown_for_it() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let url = stack.receiver.script("inline", [Reply::status(200)]);
    let keys = stack.cli(&format!("endpoint keys --url {url} --json")).await.json();
    let event = stack.id("inline");
    let sent = stack.cli(&format!("send --id {event} --url {url} --body x --wait")).await;
    assert_eq!(sent.exit, Exit::Done, "{sent:?}");
    let seen = stack.receiver.seen("inline");
    assert!(verifies(&stack, &seen[0], keys["keys"][0]["secret"].as_str().unwrap()).await, "{seen:?}");
}
