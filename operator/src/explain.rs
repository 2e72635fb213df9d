//! `redeliver explain`: the story of one delivery for a person: what happened, what came back, what happens next, and what
//! an operator could do. It looks; it changes nothing.

use clap::Args;
use domain::record::HISTORY_FIRST;
use domain::time::{Millis, SECOND_MS};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::{Paint, Session, plain};
use crate::when;

/// `explain`
#[derive(Debug, Args)]
pub struct Arguments {
    /// The event
    id: String,
    /// Its endpoint, or `url:…`; needed when the event goes to several
    #[arg(long, value_name = "ID")]
    endpoint: Option<String>,
}

/// Explains.
pub async fn run<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let mut question = json!({"action": "explain", "id": arguments.id});
    if let Some(endpoint) = &arguments.endpoint {
        question["endpoint"] = json!(endpoint);
    }
    let mut answer =
        Failure::of_answer(outside.ask(question).await?).map_err(|failure| with_endpoints(failure, &arguments.id))?;
    let commands = commands(&answer["delivery"]);
    let text = told(session, &answer, &commands);
    answer["commands"] = json!(commands);
    session.answer(&answer, &text)?;
    Ok(Exit::Done)
}

/// An event with several endpoints: the command lines that are meant.
fn with_endpoints(mut failure: Failure, id: &str) -> Failure {
    if failure.code == "ambiguous" {
        let endpoints = failure.more.get("endpoints").and_then(Value::as_array).into_iter().flatten();
        let lines: String = endpoints
            .filter_map(Value::as_str)
            .map(|endpoint| format!("\n  redeliver explain {} --endpoint {}", plain(id), plain(endpoint)))
            .collect();
        failure.message = format!("event {} goes to several endpoints; one of:{lines}", plain(id));
    }
    failure
}

fn word(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(plain)
}

fn told<W: World>(session: &Session<'_, W>, answer: &Value, commands: &[String]) -> String {
    let delivery = &answer["delivery"];
    let time = |value: &Value| value.as_i64().map(|at| session.time(Millis(at)));
    let mut text = headline(session, delivery);
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("  {name:<13}{value}\n"));
        }
    };
    let number = |name: &str| delivery[name].as_u64().unwrap_or_default();
    row("since", time(&delivery["since"]));
    row("accepted", time(&delivery["accepted_at"]));
    let attempts =
        format!("{} made, {} left in generation {}", number("attempt"), number("attempts_left"), number("generation"));
    row("attempts", Some(attempts));
    row("due", time(&delivery["due"]));
    row("deliver by", time(&delivery["deliver_by"]));
    row("lease until", time(&delivery["lease_until"]));
    row("plan", word(&delivery["plan"]));
    // Inline URLs of one origin share it; it is what `endpoint pause` takes for them.
    row("state key", word(&delivery["state_key"]).filter(|key| Some(key) != word(&delivery["endpoint"]).as_ref()));
    let payload = delivery["payload_bytes"].as_u64().map(|bytes| {
        let kept = time(&delivery["payload_kept_until"])
            .map_or_else(|| ", not kept any more".to_owned(), |t| format!(", kept until {t}"));
        format!("{bytes} bytes{kept}")
    });
    row("payload", payload);
    row("correlation", word(&delivery["correlation_id"]));
    row("cancelled", word(&delivery["cancelled_because"]));
    row(
        "cancel",
        (delivery["cancel_requested"] == json!(true))
            .then(|| "asked for, unless the attempt in flight is accepted".to_owned()),
    );
    row("receiver", may_have_it(delivery).map(|text| session.paint(Paint::Yellow, text)));
    text.push_str(&timeline(session, answer));
    text.push_str(&last_answer(session, answer));
    if let Some(next) = word(&answer["next"]) {
        text.push_str(&format!("\nNext: {next}\n"));
    }
    if !commands.is_empty() {
        text.push_str("\nYou could:\n");
        text.extend(commands.iter().map(|command| format!("  {command}\n")));
    }
    text
}

fn headline<W: World>(session: &Session<'_, W>, delivery: &Value) -> String {
    let state = word(&delivery["state"]).unwrap_or_default();
    let paint = match state.as_str() {
        "delivered" => Paint::Green,
        "waiting" | "held" | "in_flight" => Paint::Yellow,
        _ => Paint::Red,
    };
    let reason = word(&delivery["reason"]).map(|reason| format!(" ({reason})")).unwrap_or_default();
    let [id, endpoint] = ["id", "endpoint"].map(|name| word(&delivery[name]).unwrap_or_default());
    format!("{} to {}: {}{reason}\n", session.paint(Paint::Bold, &id), endpoint, session.paint(paint, &state))
}

fn may_have_it(delivery: &Value) -> Option<&'static str> {
    if delivery["accepted_late"] == json!(true) {
        Some("has it: an attempt was accepted after it had been given up here")
    } else if delivery["receiver_may_have_it"] == json!(true) {
        Some("may have it already: an attempt ended without an answer. Another one carries the same id")
    } else {
        None
    }
}

fn timeline<W: World>(session: &Session<'_, W>, answer: &Value) -> String {
    let history = answer["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stands = stands(session, &answer["delivery"]);
    if history.is_empty() && stands.is_none() {
        return "\nNothing was tried yet.\n".to_owned();
    }
    let mut text = "\nWhat happened:\n".to_owned();
    let dropped = answer["delivery"]["history_dropped"].as_u64().unwrap_or_default();
    for (at, entry) in history.iter().enumerate() {
        if at == HISTORY_FIRST && dropped > 0 {
            text.push_str(&format!("  … {dropped} entries are not kept …\n"));
        }
        text.push_str(&format!("  {}\n", event(session, entry)));
    }
    text.extend(stands.map(|stands| format!("  {stands}\n")));
    text
}

/// How it came to where it stands, when that was no attempt.
fn stands<W: World>(session: &Session<'_, W>, delivery: &Value) -> Option<String> {
    let since = delivery["since"].as_i64().map(|at| session.time(Millis(at)))?;
    let reason = word(&delivery["reason"]).unwrap_or_default();
    let because = |field: &str| word(&delivery[field]).map(|why| format!(": {why}")).unwrap_or_default();
    Some(match (delivery["state"].as_str()?, reason.as_str()) {
        ("held", _) => format!("{since}  held ({reason}){}", because("held_because")),
        ("waiting", "deferred") => format!("{since}  put off to a later time"),
        ("cancelled", _) => format!("{since}  cancelled{}", because("cancelled_because")),
        _ => return None,
    })
}

/// Who decided something about a plan, and why.
fn decided(decision: &Value) -> String {
    let by = word(&decision["by"]["name"]).map(|name| {
        let verified = if decision["by"]["verified"] == json!(true) { "" } else { " (unverified)" };
        format!(", by {name}{verified}: {}", word(&decision["reason"]).unwrap_or_default())
    });
    by.unwrap_or_default()
}

fn event<W: World>(session: &Session<'_, W>, entry: &Value) -> String {
    let time = |name: &str| entry[name].as_i64().map(|at| session.time(Millis(at))).unwrap_or_default();
    let plan = word(&entry["plan"]).unwrap_or_default();
    if entry.get("released_at").is_some() {
        let by = decided(&entry["approval"]);
        return format!("{}  released by {plan}, into generation {}{by}", time("released_at"), entry["generation"]);
    }
    if entry.get("recalled_at").is_some() {
        let abort = &entry["abort"];
        let why = if abort.is_null() { "gave it up".to_owned() } else { format!("was aborted{}", decided(abort)) };
        return format!("{}  taken back, not tried: {plan} {why}", time("recalled_at"));
    }
    let class = word(&entry["class"]).unwrap_or_default();
    let paint = if class == "accepted" { Paint::Green } else { Paint::Red };
    let mut parts = vec![format!("attempt {}: {}", entry["number"], session.paint(paint, &class))];
    parts.extend(entry["status"].as_u64().map(|status| format!("status {status}")));
    parts.extend(word(&entry["phase"]).map(|phase| format!("phase {phase}")));
    parts.extend(
        entry["duration_ms"].as_i64().map(|ms| if ms < SECOND_MS { format!("{ms} ms") } else { when::rough(ms) }),
    );
    parts.extend(entry["hint"].as_i64().map(|at| format!("asked to wait until {}", session.time(Millis(at)))));
    parts.extend(word(&entry["detail"]));
    let decision = word(&entry["decision"]).unwrap_or_default();
    let reason = word(&entry["reason"]).map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{}  {} -> {decision}{reason}", time("started"), parts.join(", "))
}

fn last_answer<W: World>(session: &Session<'_, W>, answer: &Value) -> String {
    let last = &answer["last_answer"];
    if last.is_null() {
        let excerpt = word(&answer["delivery"]["excerpt"]);
        return excerpt.map(|excerpt| format!("\nLast answer:\n  {excerpt}\n")).unwrap_or_default();
    }
    let at = last["at"].as_i64().map(|at| session.time(Millis(at))).unwrap_or_default();
    let mut text = format!("\nLast answer, to attempt {}, {at}:\n  status {}\n", last["attempt"], last["status"]);
    for (name, value) in last["headers"].as_object().into_iter().flatten() {
        text.push_str(&format!("  {}: {}\n", plain(name), word(value).unwrap_or_default()));
    }
    let broken = if last["body_broken"] == json!(true) { ", which broke off" } else { "" };
    if let Some(bytes) = last["body_bytes"].as_u64() {
        text.push_str(&format!("  body of {bytes} bytes{broken}\n"));
    }
    if let Some(excerpt) = word(&last["excerpt"]) {
        text.push_str(&format!("  {excerpt}\n"));
    }
    text
}

/// What an operator could do, as command lines. What is in capitals has to be filled in.
fn commands(delivery: &Value) -> Vec<String> {
    let of = |name: &str| word(&delivery[name]).unwrap_or_default();
    let (id, endpoint, state, reason) = (of("id"), of("endpoint"), of("state"), of("reason"));
    let registered = !endpoint.starts_with("url:");
    let cancel = format!("redeliver cancel {id} --endpoint {endpoint} --reason WHY");
    let propose = format!("redeliver redrive propose --id {id} --endpoint {endpoint}");
    let test = registered.then(|| format!("redeliver endpoint test {endpoint}"));
    let anew = if registered {
        format!("redeliver send --id NEW_ID --endpoint {endpoint} --body-file FILE")
    } else {
        "redeliver send --id NEW_ID --url URL --body-file FILE".to_owned()
    };
    let resume = format!("redeliver endpoint resume {} --reason WHY", of("state_key"));
    match (state.as_str(), reason.as_str()) {
        ("waiting", _) if registered => vec![cancel, format!("redeliver endpoint pause {endpoint} --reason WHY")],
        ("waiting" | "in_flight", _) => vec![cancel],
        ("held", "removed") if registered => {
            vec![format!("redeliver endpoint add {endpoint} --restore --url URL"), resume]
        }
        ("held", "misconfigured") if registered => vec![format!("redeliver endpoint show {endpoint}"), resume],
        ("held", "breaker") => vec![cancel],
        ("held", _) => vec![resume, cancel],
        ("dead_lettered", "payload_lost" | "expired") => vec![anew],
        ("dead_lettered", "blocked") if registered => vec![format!("redeliver endpoint show {endpoint}"), propose],
        ("dead_lettered", _) => test.into_iter().chain([propose]).collect(),
        ("delivered", _) => {
            vec![format!("redeliver redrive propose --state delivered --id {id} --endpoint {endpoint}")]
        }
        ("cancelled" | "rejected", _) => vec![anew],
        _ => Vec::new(),
    }
}
