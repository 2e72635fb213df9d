//! Watching one delivery through `explain`, until there is something to say. It looks; it changes nothing.

use domain::id::EndpointKey;
use domain::ports::Clock;
use domain::time::{Millis, SECOND_MS};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::outside::{Operator, World};
use crate::session::{Paint, Session, plain};
use crate::when;

/// Between two looks, in milliseconds.
const PAUSE_MS: i64 = SECOND_MS / 2;
/// A delivery that is not on record after so many looks may have been rejected.
const LOOKS_BEFORE_REJECTED: u32 = 6;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The first attempt is recorded, or there will be none.
    FirstAttempt,
    /// No attempt is in flight any more.
    Parked,
}

/// What was seen.
#[derive(Debug)]
pub enum Seen {
    /// The answer of `explain`.
    Delivery(Value),
    /// The message was not accepted, for this reason.
    Rejected(String),
    /// Nothing of that in time; the last answer, if there was one.
    TooLate(Option<Value>),
}

/// Watches a delivery.
pub async fn follow<W: World>(
    session: &Session<'_, W>,
    outside: &W::Outside,
    id: &str,
    endpoint: &EndpointKey,
    until: Until,
    timeout_ms: i64,
) -> Result<Seen, Failure> {
    let clock = session.world.clock();
    let end = clock.now().plus(timeout_ms);
    let (mut last, mut looks) = (None, 0_u32);
    loop {
        looks += 1;
        let explain = json!({"action": "explain", "id": id, "endpoint": endpoint.as_str()});
        match Failure::of_answer(outside.ask(explain).await?) {
            Ok(answer) if reached(&answer, until) => return Ok(Seen::Delivery(answer)),
            Ok(answer) => last = Some(answer),
            Err(failure) if failure.code == "not_found" => {
                if looks.is_multiple_of(LOOKS_BEFORE_REJECTED)
                    && let Some(why) = rejected(outside, id).await?
                {
                    return Ok(Seen::Rejected(why));
                }
            }
            Err(failure) => return Err(failure),
        }
        if clock.now() >= end {
            return Ok(Seen::TooLate(last));
        }
        clock.sleep_until(clock.now().plus(PAUSE_MS)).await;
    }
}

fn reached(answer: &Value, until: Until) -> bool {
    let state = answer["delivery"]["state"].as_str().unwrap_or_default();
    match until {
        Until::Parked => state != "in_flight",
        Until::FirstAttempt => attempt(answer).is_some() || !matches!(state, "in_flight" | "waiting"),
    }
}

/// The last attempt on record.
pub fn attempt(answer: &Value) -> Option<&Value> {
    answer["history"].as_array()?.iter().rev().find(|entry| entry.get("number").is_some())
}

async fn rejected<O: Operator>(outside: &O, id: &str) -> Result<Option<String>, Failure> {
    let list = Failure::of_answer(outside.ask(json!({"action": "list", "state": "rejected", "limit": 500})).await?)?;
    let found = list["items"].as_array().and_then(|items| items.iter().rev().find(|item| item["id"] == id));
    Ok(found.map(|item| item["detail"].as_str().or(item["reason"].as_str()).unwrap_or_default().to_owned()))
}

/// What became of a delivery, in lines.
pub fn told<W: World>(session: &Session<'_, W>, answer: &Value) -> String {
    let (delivery, last) = (&answer["delivery"], &answer["last_answer"]);
    // Most of it is what somebody else sent.
    let word = |value: &Value| value.as_str().map(plain);
    let state = word(&delivery["state"]).unwrap_or_default();
    let paint = match state.as_str() {
        "delivered" => Paint::Green,
        "waiting" | "held" | "in_flight" => Paint::Yellow,
        _ => Paint::Red,
    };
    let reason = word(&delivery["reason"]).map(|reason| format!(" ({reason})")).unwrap_or_default();
    let mut rows = vec![("state", format!("{}{reason}", session.paint(paint, &state)))];
    if let Some(attempt) = attempt(answer) {
        let number = attempt["number"].as_u64().unwrap_or_default();
        let started = attempt["started"].as_i64().map(|at| session.time(Millis(at))).unwrap_or_default();
        rows.push(("attempt", format!("{number}, {started}")));
        rows.push(("phase", word(&attempt["phase"]).unwrap_or_default()));
        rows.push(("status", attempt["status"].as_u64().map_or_else(|| "none".to_owned(), |s| s.to_string())));
        rows.push(("class", word(&attempt["class"]).unwrap_or_default()));
        let duration =
            attempt["duration_ms"].as_i64().map(|ms| if ms < SECOND_MS { format!("{ms} ms") } else { when::rough(ms) });
        rows.extend(duration.map(|duration| ("duration", duration)));
        rows.extend(word(&attempt["detail"]).filter(|d| !d.is_empty()).map(|detail| ("detail", detail)));
        let headers = Some(last).filter(|last| last["attempt"] == attempt["number"]);
        for (name, value) in headers.and_then(|last| last["headers"].as_object()).into_iter().flatten() {
            rows.push(("header", format!("{}: {}", plain(name), word(value).unwrap_or_default())));
        }
    }
    let excerpt = [&last["excerpt"], &delivery["excerpt"]].into_iter().filter_map(word).find(|e| !e.is_empty());
    rows.extend(excerpt.map(|excerpt| ("answer", excerpt)));
    rows.extend(word(&answer["next"]).map(|next| ("next", next)));
    rows.into_iter().map(|(name, value)| format!("  {name:<10}{value}\n")).collect()
}
