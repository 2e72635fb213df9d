//! Registered endpoints on the real tables: what the registry says takes effect at the next attempt, and nothing is lost.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::definition::{Definition, Retry};
use domain::delivery::{DeadReason, HeldReason, State};
use domain::endpoint::Defaults;
use domain::id::{DeliveryKey, EndpointKey};
use domain::ports::{Deliveries, Endpoints};
use domain::record::Record;
use domain::registry::{Registration, SecretEntry};
use domain::retry::{RetryPolicy, Waits};
use domain::signature::{Scheme, Secret};
use domain::time::Millis;
use platform::dynamodb::EndpointTable;
use serde_json::{Value, json};

use super::{Stack, shared};
use crate::receiver::{Reply, Seen};

impl Stack {
    fn endpoints(&self) -> EndpointTable {
        let policy = RetryPolicy {
            attempts: 8,
            waits: Waits::List(vec![1]),
            jitter_percent: 0,
            hint_cap_seconds: 600,
            window_seconds: None,
        };
        let defaults = Defaults { policy, timeout_ms: 5_000 };
        EndpointTable::new(self.dynamodb.clone(), self.name("endpoints_table"), defaults)
    }

    async fn register(&self, id: &str, version: u64, url: &str, secrets: &[&Secret]) {
        let mut signatures: Vec<Scheme> = secrets.iter().map(|s| s.scheme()).collect();
        signatures.dedup();
        let secrets =
            secrets.iter().map(|s| SecretEntry { secret: (*s).clone(), created_at: Millis(0), retired_at: None });
        let registration = Registration {
            definition: Definition {
                url: url.to_owned(),
                description: None,
                timeout_seconds: None,
                retry: Retry::default(),
                retry_statuses: Vec::new(),
                permanent_statuses: Vec::new(),
                receiver_control: false,
                headers: BTreeMap::from([("authorization".to_owned(), "Bearer t".to_owned())]),
                signatures,
                max_per_second: None,
                max_in_flight: None,
            },
            secrets: secrets.collect(),
            version: version + 1,
            updated_at: None,
            removed_at: None,
        };
        let key = EndpointKey::registered(id).unwrap();
        assert!(self.endpoints().replace(&key, version, &registration).await.unwrap());
    }

    async fn send_to(&self, id: &str, endpoint: &str) {
        self.send_raw(&json!({"id": id, "endpoint": endpoint, "json": {"event": id}}).to_string()).await;
    }

    async fn set(&self, endpoint: &str, status: &str) -> Value {
        let action =
            json!({"action": "endpoint", "endpoint": endpoint, "set": status, "reason": "test", "operator": "t"});
        let answer = self.operator(action).await;
        assert_eq!(answer["ok"], true, "{answer}");
        answer
    }

    async fn record_at(&self, id: &str, endpoint: &str, within_seconds: u64, state: State) -> Record {
        let key = DeliveryKey::parse(id, endpoint).unwrap();
        let end = Instant::now() + Duration::from_secs(within_seconds);
        loop {
            let record = self.deliveries.get(&key).await.unwrap();
            if let Some(record) = record.as_ref().filter(|r| r.state == state) {
                return record.clone();
            }
            assert!(Instant::now() < end, "{id} is not {state} after {within_seconds} s: {record:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn key(byte: u8, scheme: Scheme) -> Secret {
    Secret::new(scheme, &[byte; 32].into())
}

/// True when the request is signed by exactly these keys, in this order.
fn is_signed_by(seen: &Seen, keys: &[&Secret]) -> bool {
    let timestamp: i64 = seen.header("webhook-timestamp").unwrap().parse().unwrap();
    let expected: Vec<String> = keys.iter().map(|k| k.sign(seen.id(), timestamp, &seen.body)).collect();
    seen.header("webhook-signature") == Some(expected.join(" ").as_str())
}

#[tokio::test]
async fn a_registered_endpoint_is_signed_for_and_the_answer_of_a_failure_is_kept() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let endpoint = stack.id("ep");
    let failure = Reply::with(500, "x-request-id: r1\r\n", &"x".repeat(2_000));
    let url = stack.receiver.script("reg", [failure, Reply::status(200)]);
    let (v1, v1a) = (key(1, Scheme::V1), key(2, Scheme::V1a));
    stack.register(&endpoint, 0, &url, &[&v1, &v1a]).await;
    let id = stack.id("signed");
    stack.send_to(&id, &endpoint).await;
    stack.record_at(&id, &endpoint, 20, State::Delivered).await;
    let seen = stack.receiver.seen("reg");
    assert_eq!(seen.len(), 2);
    for request in &seen {
        assert!(is_signed_by(request, &[&v1, &v1a]), "{request:?}");
        assert_eq!(request.header("authorization"), Some("Bearer t"));
    }
    let told = stack.operator(json!({"action": "explain", "id": id})).await;
    let kept = &told["last_answer"];
    assert_eq!(
        (&kept["attempt"], &kept["body_bytes"], &kept["headers"]["x-request-id"]),
        (&json!(1), &json!(2_000), &json!("r1")),
        "{told}"
    );
    assert_eq!(kept["excerpt"].as_str().map(str::len), Some(1_024));
    assert_eq!(kept["body_sha256"], domain::id::sha256_hex("x".repeat(2_000).as_bytes()));
}

#[tokio::test]
async fn wh_o_35_a_new_url_and_a_new_secret_take_effect_at_the_next_attempt() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let endpoint = stack.id("ep");
    let (old, new) = (key(1, Scheme::V1), key(2, Scheme::V1));
    let later = Reply::with(503, "retry-after: 4\r\n", "");
    let first = stack.receiver.script("old", [later]);
    stack.register(&endpoint, 0, &first, &[&old]).await;
    let id = stack.id("moved");
    stack.send_to(&id, &endpoint).await;
    stack.receiver.wait_for("old", 1, Duration::from_secs(10)).await;
    let second = stack.receiver.script("new", [Reply::status(200)]);
    stack.register(&endpoint, 1, &second, &[&new, &old]).await;
    stack.record_at(&id, &endpoint, 20, State::Delivered).await;
    let (before, after) = (stack.receiver.seen("old"), stack.receiver.seen("new"));
    assert_eq!((before.len(), after.len()), (1, 1));
    assert!(is_signed_by(&before[0], &[&old]) && is_signed_by(&after[0], &[&new, &old]));
    assert_eq!(before[0].body, after[0].body);
}

#[tokio::test]
async fn a_paused_endpoint_holds_and_a_resumed_one_gets_everything() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let endpoint = stack.id("ep");
    let url = stack.receiver.script("paused", [Reply::status(200)]);
    stack.register(&endpoint, 0, &url, &[&key(1, Scheme::V1)]).await;
    // Before the first message, so that no function has seen it active.
    stack.set(&endpoint, "paused").await;
    let ids: Vec<String> = (0..5).map(|i| stack.id(&format!("held{i}"))).collect();
    for id in &ids {
        stack.send_to(id, &endpoint).await;
    }
    for id in &ids {
        stack.record_at(id, &endpoint, 10, State::Held(HeldReason::Paused)).await;
    }
    assert!(stack.receiver.seen("paused").is_empty());
    let listed = stack.operator(json!({"action": "list", "state": "held", "endpoint": endpoint})).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 5);
    assert_eq!(stack.set(&endpoint, "active").await["released"], 5);
    for id in &ids {
        stack.record_at(id, &endpoint, 20, State::Delivered).await;
    }
    assert_eq!(stack.receiver.seen("paused").len(), 5);
}

#[tokio::test]
async fn wh_o_35_gone_disables_the_endpoint_within_the_time_that_a_state_is_cached() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let endpoint = stack.id("ep");
    let url = stack.receiver.script("gone", [Reply::status(410)]);
    stack.register(&endpoint, 0, &url, &[&key(1, Scheme::V1)]).await;
    let id = stack.id("gone");
    stack.send_to(&id, &endpoint).await;
    stack.record_at(&id, &endpoint, 10, State::DeadLettered(DeadReason::Gone)).await;
    let end = Instant::now() + Duration::from_secs(20);
    let held = State::Held(HeldReason::Disabled);
    for i in 0.. {
        let id = stack.id(&format!("after{i}"));
        stack.send_to(&id, &endpoint).await;
        let key = DeliveryKey::parse(&id, &endpoint).unwrap();
        let settled = loop {
            match stack.deliveries.get(&key).await.unwrap() {
                Some(record) if record.state != State::InFlight => break record.state,
                Some(_) | None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            assert!(Instant::now() < end, "no message was held");
        };
        if settled == held {
            break;
        }
        assert_eq!(settled, State::DeadLettered(DeadReason::Gone));
    }
    let look = stack.operator(json!({"action": "endpoint", "endpoint": endpoint})).await;
    assert_eq!(look["endpoint"]["state"], "disabled", "{look}");
}

#[tokio::test]
async fn a_misconfigured_or_removed_endpoint_holds_and_says_why() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    for (field, value, reason) in [
        ("timeout_seconds", json!("soon"), HeldReason::Misconfigured),
        ("secrets", json!([]), HeldReason::Misconfigured),
        ("removed_at", json!("2026-12-01T00:00:00Z"), HeldReason::Removed),
    ] {
        let endpoint = stack.id(&format!("ep-{field}"));
        let put = stack.dynamodb.put_item().table_name(stack.name("endpoints_table"));
        let text = |t: &str| aws_sdk_dynamodb::types::AttributeValue::S(t.to_owned());
        let value = value.as_str().map_or(aws_sdk_dynamodb::types::AttributeValue::L(vec![]), text);
        let put = put.item("endpoint", text(&endpoint)).item("url", text(&stack.receiver.url("never")));
        put.item("signatures", aws_sdk_dynamodb::types::AttributeValue::L(vec![text("v1")]))
            .item(field, value)
            .send()
            .await
            .unwrap();
        let id = stack.id("held");
        stack.send_to(&id, &endpoint).await;
        stack.record_at(&id, &endpoint, 10, State::Held(reason)).await;
    }
    assert!(stack.receiver.seen("never").is_empty());
    let why = stack.log("an endpoint's configuration cannot be used");
    assert!(
        why.iter().any(|l| l["why"].as_str().unwrap().contains("`timeout_seconds` must be a whole number")),
        "{why:?}"
    );
}

#[tokio::test]
async fn an_inline_url_is_signed_with_keys_that_the_first_one_made() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (id, url) = (stack.id("inline"), stack.receiver.script("inline", [Reply::status(200)]));
    stack.send(&id, &url).await;
    stack.wait_state(&id, &url, 10, State::Delivered).await;
    let roots = stack.endpoints().inline_keys().await.unwrap();
    let origin = url::Url::parse(&url).unwrap().origin().ascii_serialization();
    let keys: Vec<Secret> = Scheme::ALL.iter().map(|s| roots[0].for_origin(*s, &origin)).collect();
    let seen = stack.receiver.seen("inline");
    assert!(is_signed_by(&seen[0], &keys.iter().collect::<Vec<_>>()), "{seen:?}");
}
