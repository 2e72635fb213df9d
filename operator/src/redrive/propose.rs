//! `redrive propose`: freezes a selection, and shows what it would be, with the command that releases it.

use clap::Args;
use domain::id::EventId;
use domain::outcome::Class;
use domain::plan::MAX_DELIVERIES;
use serde_json::{Map, Value, json};

use super::{registered, shown};
use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::{Paint, Session, plain};
use crate::when::{self, Point};

/// `redrive propose`
#[derive(Debug, Args)]
pub struct Propose {
    /// dead_lettered or held; with --id or --ids-file also delivered, to send them again
    #[arg(long, value_name = "STATE", value_parser = ["dead_lettered", "held", "delivered"], hide_possible_values = true)]
    state: Option<String>,
    /// Only this endpoint, or `url:…`, as `list` shows it
    #[arg(long, value_name = "ID")]
    endpoint: Option<String>,
    /// Only this reason, such as exhausted, permanent or paused
    #[arg(long, value_name = "WORD")]
    reason: Option<String>,
    /// Only when the last attempt counted as this, such as transient or unknown
    #[arg(long, value_name = "WORD", value_parser = class)]
    class: Option<Class>,
    /// Only when the last attempt was answered with this status
    #[arg(long, value_name = "CODE", value_parser = clap::value_parser!(u16).range(100..=999))]
    status: Option<u16>,
    /// In that state since this time or later: 2026-12-01T10:00:00Z, or 6h for six hours ago
    #[arg(long, value_name = "TIME", value_parser = when::point)]
    after: Option<Point>,
    /// In that state since before this time
    #[arg(long, value_name = "TIME", value_parser = when::point)]
    before: Option<Point>,
    /// Only this event; may be given several times
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,
    /// Only the events in this file, one id a line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    ids_file: Option<String>,
    /// Releases per second, 1 to 1000 [default: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rate: Option<u16>,
    /// Deliveries of each endpoint that are tried first, 1 to 1000 [default: 10]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    canary: Option<u16>,
    /// Stop an endpoint when more of its first attempts fail, 0 to 1 [default: 0.2]
    #[arg(long, value_name = "RATIO", value_parser = ratio)]
    abort_ratio: Option<f64>,
    /// What for, for the record
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

fn class(text: &str) -> Result<Class, String> {
    Class::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Class::ALL.iter().map(|class| class.name()).collect();
        format!("must be one of {}", names.join(", "))
    })
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "must be between 0 and 1, such as 0.2".to_owned())
}

impl Propose {
    fn filter<W: World>(&self, session: &Session<'_, W>, ids: &[String]) -> Value {
        let mut filter = Map::new();
        for (name, value) in [("state", &self.state), ("endpoint", &self.endpoint), ("reason", &self.reason)] {
            filter.extend(value.as_ref().map(|value| (name.to_owned(), json!(value))));
        }
        filter.extend(self.class.map(|class| ("class".to_owned(), json!(class.name()))));
        filter.extend(self.status.map(|status| ("status".to_owned(), json!(status))));
        for (name, point) in [("after", self.after), ("before", self.before)] {
            let at = point.map(|point| point.seen_from(session.now()).to_string());
            filter.extend(at.map(|at| (name.to_owned(), json!(at))));
        }
        if !ids.is_empty() {
            filter.insert("ids".to_owned(), json!(ids));
        }
        Value::Object(filter)
    }

    /// The events that were named, by option and by file.
    fn named<W: World>(&self, session: &mut Session<'_, W>) -> Result<Vec<String>, Failure> {
        let mut ids = self.ids.clone();
        if let Some(path) = &self.ids_file {
            let text = session.text_of("--ids-file", path)?;
            let named = text.lines().map(str::trim).filter(|line| !line.is_empty());
            ids.extend(named.map(ToOwned::to_owned));
            if ids.is_empty() {
                return Err(Failure::invalid(format!("--ids-file {path}: there is no id in it")));
            }
        }
        for id in &ids {
            EventId::parse(id).map_err(|what| Failure::invalid(format!("{:?}: {what}", plain(id))))?;
        }
        ids.sort();
        ids.dedup();
        if ids.len() > MAX_DELIVERIES {
            return Err(Failure::invalid(format!("{} ids are too many: a plan holds {MAX_DELIVERIES}", ids.len())));
        }
        Ok(ids)
    }
}

pub(super) async fn propose<W: World>(session: &mut Session<'_, W>, propose: &Propose) -> Result<Exit, Failure> {
    let ids = propose.named(session)?;
    if propose.state.as_deref() == Some("delivered") && ids.is_empty() {
        let message = "--state delivered sends again what was delivered: name the events with --id or --ids-file";
        return Err(Failure::invalid(message));
    }
    let outside = session.connect().await?;
    let operator = session.operator(&outside).await;
    let mut question = json!({"action": "propose", "filter": propose.filter(session, &ids), "operator": operator});
    for (name, value) in [
        ("rate_per_second", propose.rate.map(|n| json!(n))),
        ("canary", propose.canary.map(|n| json!(n))),
        ("abort_failure_ratio", propose.abort_ratio.map(|n| json!(n))),
        ("note", propose.note.as_ref().map(|n| json!(n))),
    ] {
        if let Some(value) = value {
            question[name] = value;
        }
    }
    let mut answer = Failure::of_answer(outside.ask(question).await?)?;
    registered::warn(&outside, &mut answer).await;
    let word = |value: &Value| value.as_str().map(plain).unwrap_or_default();
    let command = format!(
        "redeliver redrive approve {} --digest {} --reason WHY",
        word(&answer["plan_id"]),
        word(&answer["digest"])
    );
    let text = told(session, &answer, &command);
    answer["command"] = json!(command);
    session.answer(&answer, &text)?;
    Ok(Exit::Done)
}

fn told<W: World>(session: &Session<'_, W>, answer: &Value, command: &str) -> String {
    let word = |value: &Value| value.as_str().map(plain).unwrap_or_default();
    let seconds = |value: &Value| when::rough(value.as_i64().unwrap_or_default().saturating_mul(1_000));
    let id = word(&answer["plan_id"]);
    let mut text = format!(
        "{}: {} deliveries, frozen; nothing is released yet\n",
        session.paint(Paint::Bold, &id),
        answer["count"]
    );
    let mut row = |name: &str, value: String| text.push_str(&format!("  {name:<13}{value}\n"));
    for (name, field) in [("by endpoint", "by_endpoint"), ("by reason", "by_reason"), ("by class", "by_class")] {
        row(name, shown::counts(&answer[field]));
    }
    row("by age", ages(&answer["by_age"]));
    row("oldest", seconds(&answer["oldest_age_seconds"]));
    row("canary", format!("{} are tried first", answer["canaries"]));
    row("forecast", format!("{} for all of them, when none fails", seconds(&answer["forecast_seconds"])));
    row("expires", shown::written(session, &answer["expires_at"]).unwrap_or_default());
    row("digest", word(&answer["digest"]));
    text.push_str(&shown::warnings(session, &answer["warnings"]));
    text.push_str(&format!("\nRelease it:\n  {command}\n"));
    text
}

fn ages(of: &Value) -> String {
    let names = [("under_1h", "under 1 h"), ("under_1d", "under 1 d"), ("under_7d", "under 7 d"), ("older", "older")];
    let parts: Vec<String> =
        names.into_iter().filter_map(|(name, shown)| Some(format!("{shown} {}", of[name].as_u64()?))).collect();
    parts.join(", ")
}
