//! What a case of the table of answers looks like on the wire, and what came of it.

use std::collections::BTreeSet;

use domain::endpoint::{EndpointConfig, Found};
use domain::endpoint_state::Status;
use domain::id::{EndpointKey, StateKey};
use domain::outcome::{Answer, NOT_PROCESSED, Outcome, Phase};
use domain::ports::EndpointStates;
use testkit::sender::status;

use super::player::answer;
use crate::world::{World, config};

pub fn single_statuses(case: &str) -> Vec<u16> {
    case.split(", ").filter_map(|status| status.parse().ok()).collect()
}

/// What a case of the table looks like on the wire, and the endpoint's URL.
pub fn outcomes(case: &str, named: &BTreeSet<u16>) -> Vec<(Outcome, &'static str)> {
    let failed = |phase, detail: &str| Outcome::Failed { phase, detail: detail.to_owned() };
    let others = |first: u16, last: u16| (first..=last).filter(|s| !named.contains(s)).map(status).collect();
    let class_of = |class: u16| others(class * 100, class * 100 + 99);
    let found: Vec<Outcome> = match case {
        "2xx" => {
            let broken = Answer { status: 200, body_broken: true, ..Answer::default() };
            let whole: Vec<Outcome> = class_of(2);
            [whole, vec![Outcome::Answered(broken)]].concat()
        }
        "3xx" => class_of(3),
        "every other 4xx" => class_of(4),
        "every other 5xx" => class_of(5),
        "600 and above" => others(600, 999),
        "503 with a valid Retry-After" => vec![answer("503; Retry-After: 1")],
        "name not resolved" => vec![failed(Phase::Dns, "dns"), failed(Phase::Dns, "dns_timeout")],
        "connection refused" => vec![failed(Phase::Connect, "refused")],
        "TLS failed or slow" => vec![failed(Phase::Tls, "tls"), failed(Phase::Tls, "timeout")],
        "HTTP/2 REFUSED_STREAM" => vec![failed(Phase::Sent, NOT_PROCESSED)],
        "timeout or reset after the request began to be written" => {
            vec![failed(Phase::Sent, "timeout"), failed(Phase::Sent, "reset"), failed(Phase::Head, "timeout")]
        }
        "address, scheme or port not allowed" => vec![Outcome::Blocked { detail: "on purpose".to_owned() }],
        "request cannot be built" => return vec![(answer("timeout"), "no URL")],
        statuses => single_statuses(statuses).into_iter().map(status).collect(),
    };
    assert!(!found.is_empty(), "a case that is not played: {case}");
    found.into_iter().map(|outcome| (outcome, "https://hooks.example.test/p")).collect()
}

pub async fn answered(outcome: Outcome, url: &str, class: &str, follows: &str) {
    let world = World::new();
    world.sender.then([outcome.clone()]);
    let found = Found::Config(Box::new(EndpointConfig { url: url.to_owned(), ..config() }));
    world.endpoints.set(&EndpointKey::registered("p").unwrap(), found);
    world.send("e");
    world.settle_now().await;
    let record = world.record("e").await;
    let state = match follows.split(';').next().unwrap() {
        "delivered" => "delivered".to_owned(),
        "retry" => "waiting (retry)".to_owned(),
        "dead letter" => format!("dead_lettered ({class})"),
        other => panic!("what is {other}?"),
    };
    let attempt = record.attempts().next().unwrap();
    assert_eq!((attempt.class.name(), record.state.to_string()), (class, state), "{outcome:?}");
    assert_eq!(record.may_have_been_received(), follows.contains("the receiver may have it"), "{outcome:?}");
    let endpoint = world.table.endpoint_state(&StateKey::stored("p"), true).await.unwrap();
    assert_eq!(endpoint.status == Status::Disabled, follows.contains("becomes `disabled`"), "{outcome:?}");
}
