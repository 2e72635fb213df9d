//! A plan, for people.

use domain::time::Millis;
use serde_json::{Value, json};

use crate::outside::World;
use crate::session::{Paint, Session, plain};
use crate::when;

fn word(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(plain)
}

/// How long ago a written time was.
pub(super) fn age<W: World>(session: &Session<'_, W>, value: &Value) -> String {
    let at = value.as_str().and_then(Millis::parse_rfc3339);
    at.map_or_else(|| "-".to_owned(), |at| when::rough(session.now().since(at)))
}

pub(super) fn written<W: World>(session: &Session<'_, W>, value: &Value) -> Option<String> {
    value.as_str().and_then(Millis::parse_rfc3339).map(|at| session.time(at))
}

/// Somebody, and whether AWS vouches for that.
fn who(value: &Value) -> Option<String> {
    let verified = if value["verified"] == json!(true) { "" } else { " (unverified)" };
    word(&value["name"]).map(|name| format!("{name}{verified}"))
}

/// One line on the state of a plan.
pub(super) fn state<W: World>(session: &Session<'_, W>, state: &str) -> String {
    let (paint, means) = match state {
        "proposed" => (Paint::Yellow, "waiting for a decision"),
        "canary" => (Paint::Yellow, "some of each endpoint are tried first"),
        "ramping" => (Paint::Yellow, "the rest follows at its rate"),
        "completed" => (Paint::Green, "everything was tried once, or skipped"),
        "aborted" => (Paint::Red, "stopped"),
        "expired" => (Paint::Red, "nobody approved it in time"),
        _ => return state.to_owned(),
    };
    format!("{}: {means}", session.paint(paint, state))
}

/// How far it is; the figures add up to the count.
pub(super) fn progress(plan: &Value) -> Option<String> {
    let number = |name: &str| plan[name].as_u64();
    let released = number("released")?;
    let [delivered, failed, skipped, remaining, untried] =
        ["delivered", "failed", "skipped", "remaining", "untried"].map(|name| number(name).unwrap_or_default());
    let more: String = ["retrying", "cancelled"]
        .into_iter()
        .filter_map(|name| number(name).filter(|count| *count > 0).map(|count| format!(", {count} {name}")))
        .collect();
    Some(format!(
        "{released} released ({delivered} delivered, {failed} failed{more}, {untried} not tried yet), {skipped} skipped, {remaining} remaining, of {}",
        plan["count"]
    ))
}

/// The endpoints that a plan gave up, by why.
pub(super) fn stopped(plan: &Value) -> Vec<(&'static str, String)> {
    [("failed at", "endpoints_failed"), ("no verdict", "endpoints_no_verdict")]
        .into_iter()
        .filter_map(|(name, field)| {
            let names: Vec<String> = plan[field].as_array()?.iter().filter_map(word).collect();
            (!names.is_empty()).then(|| (name, names.join(", ")))
        })
        .collect()
}

/// All of it, and what could be done with it.
pub(super) fn plan<W: World>(session: &Session<'_, W>, plan: &Value) -> String {
    facts(session, plan)
        + &warnings(session, &plan["warnings"])
        + &advice(plan, &word(&plan["plan_id"]).unwrap_or_default())
}

/// All of it.
pub(super) fn facts<W: World>(session: &Session<'_, W>, plan: &Value) -> String {
    let mut rows = vec![("state", state(session, plan["state"].as_str().unwrap_or_default()))];
    let mut row = |name: &'static str, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    row("deliveries", Some(plan["count"].to_string()));
    row("chosen by", Some(filter(&plan["filter"])));
    for (name, field) in [("by endpoint", "by_endpoint"), ("by reason", "by_reason"), ("by class", "by_class")] {
        let counts = counts(&plan[field]);
        // An older plan does not know.
        row(name, (!counts.is_empty()).then_some(counts));
    }
    let of = plan["endpoint_count"].as_u64().unwrap_or_default();
    let kept = plan["by_endpoint"].as_object().map_or(0, serde_json::Map::len) as u64;
    row("endpoints", (of > kept).then(|| format!("{of}, the largest are named")));
    row("oldest", written(session, &plan["oldest"]).map(|at| format!("since {at}")));
    row("note", word(&plan["note"]));
    let limits = format!(
        "{} of each endpoint first ({} in all), then up to {} per second; an endpoint stops above {} failed",
        plan["canary"],
        plan["canaries"],
        plan["rate_per_second"],
        percent(&plan["abort_failure_ratio"])
    );
    row("how", Some(limits));
    let by = |by: &Value, at: Option<String>| Some(format!("{}, {}", who(by)?, at?));
    row("proposed by", by(&plan["proposed_by"], written(session, &plan["created_at"])));
    let decided = |decision: &Value| {
        let at = decision["at"].as_i64().map(|at| session.time(Millis(at)));
        by(&decision["by"], at).map(|by| format!("{by}: {}", word(&decision["reason"]).unwrap_or_default()))
    };
    row("approved by", decided(&plan["approval"]));
    row("redrive id", word(&plan["approval"]["redrive_id"]));
    row("aborted by", decided(&plan["abort"]));
    if plan["state"] == json!("proposed") {
        row("expires", written(session, &plan["expires_at"]));
    }
    row("progress", progress(plan).filter(|_| !plan["approval"].is_null()));
    for (name, endpoints) in stopped(plan) {
        row(name, Some(session.paint(Paint::Red, &endpoints)));
    }
    row("digest", word(&plan["digest"]));
    let lines = rows.into_iter().map(|(name, value)| format!("  {name:<13}{value}\n"));
    let id = word(&plan["plan_id"]).unwrap_or_default();
    let mut text = format!("{}\n", session.paint(Paint::Bold, &id));
    text.extend(lines);
    text
}

/// What to think of first, a line each.
pub(super) fn warnings<W: World>(session: &Session<'_, W>, warnings: &Value) -> String {
    let warnings = warnings.as_array().into_iter().flatten().filter_map(word);
    warnings.map(|warning| format!("{}: {warning}\n", session.paint(Paint::Yellow, "warning"))).collect()
}

/// Names with their counts, the largest first.
pub(super) fn counts(of: &Value) -> String {
    const SHOWN: usize = 8;
    let mut all: Vec<(&String, u64)> =
        of.as_object().into_iter().flatten().map(|(name, count)| (name, count.as_u64().unwrap_or_default())).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut parts: Vec<String> =
        all.iter().take(SHOWN).map(|(name, count)| format!("{} {count}", plain(name))).collect();
    if all.len() > SHOWN {
        parts.push(format!("and {} more", all.len() - SHOWN));
    }
    parts.join(", ")
}

/// What an operator could do with it now.
fn advice(plan: &Value, id: &str) -> String {
    let stopped = !stopped(plan).is_empty();
    match plan["state"].as_str().unwrap_or_default() {
        "proposed" => format!("\nRelease it:  redeliver redrive approve {id} --reason WHY\n"),
        "canary" | "ramping" => {
            format!(
                "\nFollow it:  redeliver redrive watch {id}\nStop it:    redeliver redrive abort {id} --reason WHY\n"
            )
        }
        "completed" | "aborted" if stopped => {
            "\nPut the endpoints right that it stopped at, then propose again what remains.\n".to_owned()
        }
        _ => String::new(),
    }
}

fn percent(ratio: &Value) -> String {
    ratio.as_f64().map_or_else(|| "-".to_owned(), |ratio| format!("{} %", (ratio * 1_000.0).round() / 10.0))
}

/// A selection, as it was asked for.
fn filter(filter: &Value) -> String {
    let parts: Vec<String> = filter
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name} {}", plain(text)),
            Value::Array(ids) => format!("{} {name}", ids.len()),
            Value::Number(count) if name == "ids" => format!("{count} ids"),
            Value::Number(_) | Value::Bool(_) | Value::Object(_) | Value::Null => format!("{name} {value}"),
        })
        .collect();
    if parts.is_empty() { "every dead letter".to_owned() } else { parts.join(", ") }
}
