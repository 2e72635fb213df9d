//! Records as items, and back. Attributes have the names of the design; those of a history entry are one or two letters,
//! because a record is billed by its size.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use domain::delivery::State;
use domain::id::{DeliveryKey, StateKey};
use domain::kept_answer::KeptAnswer;
use domain::outcome::{Class, Phase};
use domain::payload::PayloadRef;
use domain::ports::{ItemKey, StoreError, Stored};
use domain::record::{AttemptEntry, ClaimId, Entry, Lease, Record};
use domain::reject::Rejected;
use domain::time::{Millis, SECOND_MS};

/// An item of DynamoDB.
pub type Item = HashMap<String, AttributeValue>;

/// The key attributes of an item.
pub fn text_key(pk: &str, sk: &str) -> Item {
    HashMap::from([("pk".to_owned(), s(pk)), ("sk".to_owned(), s(sk))])
}

pub(super) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(super) fn n(number: impl std::fmt::Display) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// The key attributes of a delivery.
pub(super) fn key(key: &DeliveryKey) -> Item {
    let ItemKey { pk, sk } = ItemKey::of(key);
    text_key(&pk, &sk)
}

/// A record as an item.
pub fn encode(record: &Record) -> Item {
    let mut item = key(&record.key);
    let mut set = |name: &str, value: Option<AttributeValue>| {
        if let Some(value) = value {
            item.insert(name.to_owned(), value);
        }
    };
    let positive = |number: u32| (number > 0).then(|| n(number));
    let flag = |set: bool| set.then_some(AttributeValue::Bool(true));
    let millis = |time: Option<Millis>| time.map(|t| n(t.0));
    set("state", Some(s(record.state.name())));
    set("reason", record.state.reason().map(s));
    set("since", Some(n(record.since.0)));
    set("rev", Some(n(record.rev)));
    set("attempt", Some(n(record.attempt)));
    set("generation", positive(record.generation));
    set("budget_from", positive(record.budget_from));
    set("budget", Some(n(record.budget)));
    set("lease_until", record.lease.as_ref().map(|l| n(l.until.0)));
    set("claim_id", record.lease.as_ref().map(|l| s(l.claim_id.as_str())));
    set("due", millis(record.due));
    set("lane", record.lane().as_deref().map(s));
    set("ep_lane", record.endpoint_lane().as_deref().map(s));
    set("armed_at", millis(record.armed_at));
    set("rearms", positive(record.rearms));
    set("cancel_requested", flag(record.cancel_requested));
    set("accepted_late", flag(record.accepted_late));
    set("plan", record.plan.as_deref().map(s));
    set("released_from", record.released_from.map(|from| s(&state_text(from))));
    set("booked", flag(record.booked));
    set("state_key", (record.state_key.as_str() != record.key.endpoint.as_str()).then(|| s(record.state_key.as_str())));
    set("payload_hash", record.payload.as_ref().map(|p| s(&p.hash)));
    set("payload_bytes", record.payload.as_ref().map(|p| n(p.bytes)));
    set("payload_kept_until", millis(record.payload_kept_until));
    set("correlation_id", record.correlation_id.as_deref().map(s));
    set("accepted_at", Some(n(record.accepted_at.0)));
    set("sender", record.sender.as_deref().map(s));
    set("deliver_by", millis(record.deliver_by));
    set("completed_at", millis(record.completed_at));
    set("expires_at", record.expires_at.map(|t| n(t.seconds_up())));
    set(
        "history",
        (!record.history.is_empty()).then(|| AttributeValue::L(record.history.iter().map(encode_entry).collect())),
    );
    set("history_dropped", positive(record.history_dropped));
    set("excerpt", record.excerpt.as_deref().filter(|e| !e.is_empty()).map(s));
    set("cancelled_because", record.cancelled_because.as_deref().map(s));
    item
}

fn state_text(state: State) -> String {
    state.reason().map_or_else(|| state.name().to_owned(), |reason| format!("{}:{reason}", state.name()))
}

fn state_of_text(text: &str) -> Option<State> {
    let (name, reason) = text.split_once(':').map_or((text, None), |(name, reason)| (name, Some(reason)));
    State::from_names(name, reason)
}

fn encode_entry(entry: &Entry) -> AttributeValue {
    let mut map = Item::new();
    let mut set = |name: &str, value: Option<AttributeValue>| {
        if let Some(value) = value {
            map.insert(name.to_owned(), value);
        }
    };
    match entry {
        Entry::Attempt(attempt) => {
            set("n", Some(n(attempt.number)));
            set("at", Some(n(attempt.started.0)));
            set("ph", Some(s(attempt.phase.name())));
            set("c", Some(s(attempt.class.name())));
            set("s", attempt.status.map(n));
            set("ms", Some(n(attempt.duration_ms)));
            set("h", attempt.hint.map(|h| n(h.0)));
            set("d", Some(s(&state_text(attempt.decision))));
            set("e", attempt.detail.as_deref().map(s));
            set("k", Some(s(attempt.claim_id.as_str())));
        }
        Entry::Released { at, plan, generation } => {
            set("at", Some(n(at.0)));
            set("plan", Some(s(plan)));
            set("g", Some(n(generation)));
        }
        Entry::Recalled { at, plan } => {
            set("at", Some(n(at.0)));
            set("plan", Some(s(plan)));
        }
    }
    AttributeValue::M(map)
}

/// A kept answer as an item, without its key.
pub(super) fn encode_answer(answer: &KeptAnswer) -> Item {
    let headers = answer.headers.iter().map(|(name, value)| (name.clone(), s(value))).collect();
    let mut item = Item::from([
        ("attempt".to_owned(), n(answer.attempt)),
        ("at".to_owned(), n(answer.at.0)),
        ("status".to_owned(), n(answer.status)),
        ("headers".to_owned(), AttributeValue::M(headers)),
        ("excerpt".to_owned(), s(&answer.excerpt)),
        ("body_bytes".to_owned(), n(answer.body_bytes)),
        ("body_broken".to_owned(), AttributeValue::Bool(answer.body_broken)),
    ]);
    if let Some(sha256) = &answer.body_sha256 {
        item.insert("body_sha256".to_owned(), s(sha256));
    }
    item
}

/// The kept answer of an item.
pub(super) fn decode_answer(item: &Item) -> Result<KeptAnswer, StoreError> {
    let a = Attributes(item);
    let headers = item.get("headers").and_then(|v| v.as_m().ok()).ok_or_else(|| a.corrupt("headers"))?;
    let mut headers: Vec<(String, String)> =
        headers.iter().filter_map(|(name, value)| Some((name.clone(), value.as_s().ok()?.clone()))).collect();
    headers.sort();
    Ok(KeptAnswer {
        attempt: a.required("attempt", a.number("attempt"))?,
        at: a.required("at", a.millis("at"))?,
        status: a.required("status", a.number("status"))?,
        headers,
        excerpt: a.text("excerpt").unwrap_or_default().to_owned(),
        body_bytes: a.number("body_bytes").unwrap_or(0),
        body_sha256: a.text("body_sha256").map(ToOwned::to_owned),
        body_broken: a.flag("body_broken"),
    })
}

/// Reads attributes of one item, and says which one is at fault.
struct Attributes<'a>(&'a Item);

impl Attributes<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|v| v.as_s().ok()).map(String::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.0.get(name).and_then(|v| v.as_n().ok()).and_then(|v| v.parse().ok())
    }

    fn millis(&self, name: &str) -> Option<Millis> {
        self.number(name).map(Millis)
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(|v| v.as_bool().ok()).copied().unwrap_or(false)
    }

    fn corrupt(&self, name: &str) -> StoreError {
        let at = |key| self.text(key).unwrap_or("?");
        StoreError::Corrupt(format!("item {} / {}: attribute `{name}` is missing or unreadable", at("pk"), at("sk")))
    }

    fn required<T>(&self, name: &str, value: Option<T>) -> Result<T, StoreError> {
        value.ok_or_else(|| self.corrupt(name))
    }
}

/// The record of an item.
pub fn decode(item: &Item) -> Result<Record, StoreError> {
    let a = Attributes(item);
    let part =
        |name: &str, prefix: &str| a.text(name).and_then(|v| v.strip_prefix(prefix)).unwrap_or_default().to_owned();
    let key = DeliveryKey::parse(&part("pk", "E#"), &part("sk", "D#")).map_err(|_| a.corrupt("pk"))?;
    let state = a.text("state").and_then(|state| State::from_names(state, a.text("reason")));
    let lease = match (a.millis("lease_until"), a.text("claim_id")) {
        (Some(until), Some(claim_id)) => Some(Lease { until, claim_id: ClaimId::stored(claim_id) }),
        _ => None,
    };
    let history = match item.get("history").map(|h| h.as_l()) {
        Some(Ok(list)) => {
            list.iter().map(decode_entry).collect::<Option<Vec<_>>>().ok_or_else(|| a.corrupt("history"))?
        }
        Some(Err(_)) => return Err(a.corrupt("history")),
        None => Vec::new(),
    };
    Ok(Record {
        state_key: StateKey::stored(a.text("state_key").unwrap_or_else(|| key.endpoint.as_str())),
        state: a.required("state", state)?,
        since: a.required("since", a.millis("since"))?,
        rev: a.required("rev", a.number("rev"))?,
        attempt: a.required("attempt", a.number("attempt"))?,
        generation: a.number("generation").unwrap_or(0),
        budget_from: a.number("budget_from").unwrap_or(0),
        budget: a.number("budget").unwrap_or(0),
        lease,
        due: a.millis("due"),
        armed_at: a.millis("armed_at"),
        rearms: a.number("rearms").unwrap_or(0),
        cancel_requested: a.flag("cancel_requested"),
        accepted_late: a.flag("accepted_late"),
        plan: a.text("plan").map(ToOwned::to_owned),
        released_from: a.text("released_from").and_then(state_of_text),
        booked: a.flag("booked"),
        payload: match (a.text("payload_hash"), a.number("payload_bytes")) {
            (Some(hash), Some(bytes)) => Some(PayloadRef { hash: hash.to_owned(), bytes }),
            _ => None,
        },
        payload_kept_until: a.millis("payload_kept_until"),
        correlation_id: a.text("correlation_id").map(ToOwned::to_owned),
        accepted_at: a.required("accepted_at", a.millis("accepted_at"))?,
        sender: a.text("sender").map(ToOwned::to_owned),
        deliver_by: a.millis("deliver_by"),
        completed_at: a.millis("completed_at"),
        expires_at: a.number::<i64>("expires_at").map(|seconds| Millis(seconds.saturating_mul(SECOND_MS))),
        history,
        history_dropped: a.number("history_dropped").unwrap_or(0),
        excerpt: a.text("excerpt").map(ToOwned::to_owned),
        cancelled_because: a.text("cancelled_because").map(ToOwned::to_owned),
        key,
    })
}

fn decode_entry(value: &AttributeValue) -> Option<Entry> {
    let a = Attributes(value.as_m().ok()?);
    if let Some(plan) = a.text("plan") {
        let (at, plan) = (a.millis("at")?, plan.to_owned());
        return Some(match a.number("g") {
            Some(generation) => Entry::Released { at, plan, generation },
            None => Entry::Recalled { at, plan },
        });
    }
    Some(Entry::Attempt(Box::new(AttemptEntry {
        number: a.number("n")?,
        started: a.millis("at")?,
        phase: Phase::from_name(a.text("ph")?)?,
        class: Class::from_name(a.text("c")?)?,
        status: a.number("s"),
        duration_ms: a.number("ms")?,
        hint: a.millis("h"),
        decision: state_of_text(a.text("d")?)?,
        detail: a.text("e").map(ToOwned::to_owned),
        claim_id: ClaimId::stored(a.text("k")?),
    })))
}

/// A rejected message as an item.
pub(super) fn encode_rejected(rejected: &Rejected) -> Item {
    let mut item = text_key(&format!("R#{}", rejected.sha256), "R");
    let mut set = |name: &str, value: Option<AttributeValue>| {
        if let Some(value) = value {
            item.insert(name.to_owned(), value);
        }
    };
    set("state", Some(s("rejected")));
    set("reason", Some(s(rejected.reason.name())));
    set("detail", Some(s(&rejected.detail)));
    set("event_id", rejected.event.as_deref().map(s));
    set("endpoint", rejected.endpoint.as_deref().map(s));
    set("bytes", Some(n(rejected.bytes)));
    set("sender", rejected.sender.as_deref().map(s));
    set("since", Some(n(rejected.since.0)));
    set("due", Some(n(rejected.since.0)));
    set("lane", Some(s(&rejected.lane())));
    set("seen", Some(n(rejected.seen)));
    set("expires_at", Some(n(rejected.expires_at.seconds_up())));
    item
}

fn decode_rejected(item: &Item) -> Result<Rejected, StoreError> {
    let a = Attributes(item);
    let State::Rejected(reason) = a.required("reason", State::from_names("rejected", a.text("reason")))? else {
        return Err(a.corrupt("reason"));
    };
    Ok(Rejected {
        sha256: a.text("pk").and_then(|pk| pk.strip_prefix("R#")).unwrap_or_default().to_owned(),
        reason,
        detail: a.text("detail").unwrap_or_default().to_owned(),
        event: a.text("event_id").map(ToOwned::to_owned),
        endpoint: a.text("endpoint").map(ToOwned::to_owned),
        bytes: a.number("bytes").unwrap_or(0),
        sender: a.text("sender").map(ToOwned::to_owned),
        since: a.required("since", a.millis("since"))?,
        seen: a.number("seen").unwrap_or(1),
        expires_at: Millis(a.number::<i64>("expires_at").unwrap_or(0).saturating_mul(SECOND_MS)),
    })
}

/// Whatever an item of an index's row is.
pub(super) fn decode_stored(item: &Item) -> Stored {
    let a = Attributes(item);
    let text = |name: &str| a.text(name).unwrap_or_default().to_owned();
    let read = if text("pk").starts_with("R#") {
        decode_rejected(item).map(|r| Stored::Rejected(Box::new(r)))
    } else {
        decode(item).map(|r| Stored::Delivery(Box::new(r)))
    };
    read.unwrap_or_else(|e| Stored::Unreadable(ItemKey { pk: text("pk"), sk: text("sk") }, e.to_string()))
}

/// Size of an item as DynamoDB bills it, in bytes: names and values, numbers by their significant digits.
pub fn billed_bytes(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_bytes(value)).sum()
}

fn value_bytes(value: &AttributeValue) -> usize {
    match value {
        AttributeValue::S(text) => text.len(),
        AttributeValue::N(number) => number.len().div_ceil(2) + 1,
        AttributeValue::B(bytes) => bytes.as_ref().len(),
        AttributeValue::L(list) => 3 + list.iter().map(|v| 1 + value_bytes(v)).sum::<usize>(),
        AttributeValue::M(map) => 3 + map.iter().map(|(k, v)| 1 + k.len() + value_bytes(v)).sum::<usize>(),
        _ => 1,
    }
}
