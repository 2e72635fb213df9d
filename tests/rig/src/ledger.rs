//! What the receivers of a run know: each request that came in whole, and what was said to it. This is the truth that the
//! records are held against, so it learns nothing from them.

use std::collections::HashMap;
use std::sync::Mutex;

use domain::id::sha256_hex;
use serde_json::{Value, json};

use crate::receiver::Seen;

/// One request that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `redeliver-attempt`.
    pub attempt: u32,
    /// Milliseconds since the epoch, when its last byte had come.
    pub at: i64,
    pub body_hash: String,
    /// `idempotency-key` is the event id too.
    pub same_key: bool,
    /// The status of the answer; `None` when there was none.
    pub answer: Option<u16>,
}

impl Request {
    /// The receiver may have acted on it: it said yes, or it read everything and said nothing.
    pub fn took(&self) -> bool {
        self.answer.is_none_or(|status| (200..300).contains(&status))
    }

    pub fn accepted(&self) -> bool {
        self.answer.is_some() && self.took()
    }
}

/// All requests of a run, by event.
#[derive(Default)]
pub struct Ledger {
    requests: Mutex<HashMap<String, Vec<Request>>>,
}

impl Ledger {
    /// Notes a request and what is going to be said to it: whoever reads an answer may look here at once.
    pub fn note(&self, seen: &Seen, answer: Option<u16>) {
        let request = Request {
            attempt: seen.header("redeliver-attempt").and_then(|n| n.parse().ok()).unwrap_or_default(),
            at: seen.at,
            body_hash: sha256_hex(&seen.body),
            same_key: seen.header("idempotency-key") == Some(seen.id()),
            answer,
        };
        self.requests.lock().unwrap().entry(seen.id().to_owned()).or_default().push(request);
    }

    /// The requests of an event, in the order in which they came.
    pub fn of(&self, event: &str) -> Vec<Request> {
        self.requests.lock().unwrap().get(event).cloned().unwrap_or_default()
    }

    /// Events that came, and requests altogether.
    pub fn counts(&self) -> (usize, usize) {
        let requests = self.requests.lock().unwrap();
        (requests.len(), requests.values().map(Vec::len).sum())
    }

    /// Events of which nobody has sent anything.
    pub fn strangers(&self, known: impl Fn(&str) -> bool) -> Vec<String> {
        self.requests.lock().unwrap().keys().filter(|event| !known(event)).cloned().collect()
    }
}

/// For the evidence.
pub fn as_json(request: &Request) -> Value {
    json!({"attempt": request.attempt, "at": request.at, "body": request.body_hash, "answer": request.answer})
}
