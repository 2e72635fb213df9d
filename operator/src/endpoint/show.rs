//! `endpoint show` and `endpoint list`: what is registered, and whether it takes deliveries. Secrets are never shown.

use clap::Args;
use domain::id::EndpointKey;
use domain::registry::Registration;
use domain::review::warnings;
use domain::time::Millis;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use url::Url;

use super::{existing, id, secrets, write};
use crate::exit::{Exit, Failure, lines};
use crate::outside::{Operator, Registry, World};
use crate::session::{Paint, Session, plain};

/// So many states are asked for at once.
const AT_ONCE: usize = 8;

/// `endpoint show`
#[derive(Debug, Args)]
pub struct Show {
    /// The endpoint
    #[arg(value_parser = id)]
    id: EndpointKey,
}

/// `endpoint list`
#[derive(Debug, Args)]
pub struct List {
    /// Do not ask for the states, one question per endpoint
    #[arg(long)]
    no_state: bool,
    /// Show removed ones too
    #[arg(long)]
    removed: bool,
}

/// The state of an endpoint, as the operator function tells it; why not, when it does not.
async fn state_of<O: Operator>(outside: &O, id: &EndpointKey) -> Result<Value, String> {
    let answer = outside.ask(json!({"action": "endpoint", "endpoint": id.as_str()})).await.and_then(Failure::of_answer);
    answer.map(|mut answer| answer["endpoint"].take()).map_err(|failure| failure.message)
}

fn word<'a>(state: &'a Value, name: &str) -> &'a str {
    state.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) async fn show<W: World>(session: &mut Session<'_, W>, show: &Show) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let registration = existing(&outside, &show.id).await?;
    let now = session.now();
    let state = state_of(&outside, &show.id).await;
    let mut warnings = warnings(&registration, now);
    if let Err(why) = &state {
        warnings.push(format!("its state is not known: {}", plain(why)));
    }
    let mut document = registration.to_shown(now);
    hide_headers(&mut document);
    let state = state.unwrap_or(Value::Null);
    document["ok"] = json!(true);
    document["endpoint"] = json!(show.id.as_str());
    document["state"] = state.clone();
    document["warnings"] = json!(warnings);
    let mut rows = vec![("state", state_line(session, &registration, &state))];
    rows.extend(definition_rows(&registration));
    let label = |name: &str| format!("{name:<19}");
    let mut text = format!("{}\n\n", session.paint(Paint::Bold, show.id.as_str()));
    for (name, value) in rows {
        text.push_str(&format!("  {}{value}\n", label(name)));
    }
    let described = secrets::described(session, &registration.secrets);
    for (i, secret) in described.iter().enumerate() {
        text.push_str(&format!("  {}{secret}\n", label(if i == 0 { "secrets" } else { "" })));
    }
    let changed = registration.updated_at.map(|at| format!(", {}", session.time(at))).unwrap_or_default();
    text.push_str(&format!("  {}{}{changed}\n", label("version"), registration.version));
    if !warnings.is_empty() {
        text.push('\n');
        text.push_str(&write::warned(session, &warnings));
    }
    session.answer(&document, &text)?;
    Ok(Exit::Done)
}

/// Header values may be credentials; that there is one is no secret.
fn hide_headers(document: &mut Value) {
    if let Some(headers) = document.get_mut("headers").and_then(Value::as_object_mut) {
        for value in headers.values_mut() {
            *value = json!("(hidden)");
        }
    }
}

fn state_line<W: World>(session: &Session<'_, W>, registration: &Registration, state: &Value) -> String {
    if let Some(at) = registration.removed_at {
        return format!("{} {}", session.paint(Paint::Red, "removed"), session.time(at));
    }
    let name = word(state, "state");
    let painted = match name {
        "" => session.paint(Paint::Yellow, "unknown"),
        "active" => session.paint(Paint::Green, name),
        _ => session.paint(Paint::Red, name),
    };
    let since = state.get("since").and_then(Value::as_i64).filter(|since| *since > 0);
    let since = since.map(|since| format!(" since {}", session.time(Millis(since)))).unwrap_or_default();
    let because = match word(state, "because") {
        "" => String::new(),
        because => format!(", because {}", plain(because)),
    };
    let releasing = if state["releasing"] == json!(true) { "; what was held is being released" } else { "" };
    format!("{painted}{since}{because}{releasing}")
}

/// The fields of the definition, flat, as the comparison knows them.
fn definition_rows(registration: &Registration) -> Vec<(&'static str, String)> {
    const FIELDS: &[&str] = &[
        "url",
        "description",
        "signatures",
        "timeout_seconds",
        "retry",
        "retry_statuses",
        "permanent_statuses",
        "receiver_control",
        "headers",
        "max_per_second",
        "max_in_flight",
    ];
    let mut definition = registration.definition.to_json();
    hide_headers(&mut definition);
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(list) if list.is_empty() => "none".to_owned(),
        Value::Array(list) => list
            .iter()
            .map(|v| v.as_str().map_or_else(|| v.to_string(), ToOwned::to_owned))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Object(map) => map
            .iter()
            .map(|(n, v)| format!("{n} {}", v.as_str().map_or_else(|| v.to_string(), ToOwned::to_owned)))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    FIELDS.iter().filter_map(|name| Some((*name, plain(&text(definition.get(*name)?))))).collect()
}

pub(super) async fn list<W: World>(session: &mut Session<'_, W>, list: &List) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let all = outside.registrations().await?;
    let is_removed = |stored: &crate::outside::Stored| stored.as_ref().is_ok_and(|r| r.removed_at.is_some());
    let wanted: Vec<_> = all.into_iter().filter(|(_, stored)| list.removed || !is_removed(stored)).collect();
    let ids: Vec<EndpointKey> = wanted.iter().map(|(id, _)| id.clone()).collect();
    let states: Vec<Option<Result<Value, String>>> = if list.no_state {
        ids.iter().map(|_| None).collect()
    } else {
        let outside = &outside;
        let ask = |id: EndpointKey| async move { Some(state_of(outside, &id).await) };
        stream::iter(ids).map(ask).buffered(AT_ONCE).collect().await
    };
    let now = session.now();
    let (mut rows, mut items) = (Vec::new(), Vec::new());
    let mut why_unknown = None;
    for ((id, stored), state) in wanted.iter().zip(states) {
        let mut name = match state {
            None => "-".to_owned(),
            Some(Ok(state)) => word(&state, "state").to_owned(),
            Some(Err(why)) => {
                why_unknown = Some(why);
                "unknown".to_owned()
            }
        };
        match stored {
            Ok(r) => {
                if r.removed_at.is_some() {
                    "removed".clone_into(&mut name);
                } else if !r.unsigned_schemes(now).is_empty() {
                    "misconfigured".clone_into(&mut name);
                }
                let signatures: Vec<&str> = r.definition.signatures.iter().map(|s| s.name()).collect();
                let signed = if signatures.is_empty() { "none".to_owned() } else { signatures.join(", ") };
                let description = plain(r.definition.description.as_deref().unwrap_or_default());
                items.push(json!({"endpoint": id.as_str(), "state": name, "host": host(&r.definition.url), "signatures": signatures, "version": r.version, "description": r.definition.description}));
                rows.push(vec![
                    id.to_string(),
                    name,
                    host(&r.definition.url),
                    signed,
                    r.version.to_string(),
                    description,
                ]);
            }
            Err(broken) => {
                let problems = lines("", &broken.problems);
                items.push(json!({"endpoint": id.as_str(), "state": "misconfigured", "problems": problems}));
                rows.push(vec![
                    id.to_string(),
                    "misconfigured".to_owned(),
                    String::new(),
                    String::new(),
                    String::new(),
                    problems.join("; "),
                ]);
            }
        }
    }
    if let Some(why) = why_unknown {
        session.note(&format!("The states are not known: {why}"));
    }
    let text = if rows.is_empty() {
        "There are no endpoints; `redeliver endpoint add` registers one.".to_owned()
    } else {
        session.table(&["ID", "STATE", "HOST", "SIGNED", "VERSION", "DESCRIPTION"], rows)
    };
    session.answer(&json!({"ok": true, "endpoints": items}), &text)?;
    Ok(Exit::Done)
}

/// The host of a URL, with its port where it has one of its own: what may stand in a table.
fn host(url: &str) -> String {
    let Ok(url) = Url::parse(url) else { return String::new() };
    let host = url.host_str().unwrap_or_default();
    let scheme = if url.scheme() == "http" { "http://" } else { "" };
    url.port().map_or_else(|| format!("{scheme}{host}"), |port| format!("{scheme}{host}:{port}"))
}
