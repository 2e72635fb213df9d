//! `redeliver list`: what is in a state, the oldest first. It follows the pages of the operator function; it changes nothing.

use clap::Args;
use domain::time::{Millis, SECOND_MS};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::{Session, plain};
use crate::when;

/// The most items that the operator function gives at once.
const PAGE: usize = 500;

/// `list`
#[derive(Debug, Args)]
pub struct Arguments {
    /// waiting, held, dead_lettered or rejected
    #[arg(value_name = "STATE", value_parser = ["waiting", "held", "dead_lettered", "rejected"], hide_possible_values = true)]
    state: String,
    /// Only this endpoint
    #[arg(long, value_name = "ID")]
    endpoint: Option<String>,
    /// Only this reason, such as exhausted or paused
    #[arg(long, value_name = "WORD")]
    reason: Option<String>,
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,
    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Lists.
pub async fn run<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let most = if arguments.all { usize::MAX } else { arguments.limit };
    let (mut items, mut cursor, mut unreadable) = (Vec::<Value>::new(), Value::Null, 0);
    loop {
        let mut question =
            json!({"action": "list", "state": arguments.state, "limit": PAGE.min(most.saturating_sub(items.len()))});
        for (name, value) in [("endpoint", &arguments.endpoint), ("reason", &arguments.reason)] {
            if let Some(value) = value {
                question[name] = json!(value);
            }
        }
        if !cursor.is_null() {
            question["cursor"] = cursor;
        }
        let mut page = Failure::of_answer(outside.ask(question).await?)?;
        unreadable += page["unreadable"].as_u64().unwrap_or_default();
        cursor = page["cursor"].take();
        if let Value::Array(found) = page["items"].take() {
            items.extend(found);
        }
        if cursor.is_null() || items.len() >= most {
            break;
        }
    }
    // Pages come by lanes of the index: only together do they have an order.
    items.sort_by_key(|item| std::cmp::Reverse(item["age_seconds"].as_i64()));
    let text = shown(session, arguments, &items, !cursor.is_null());
    if unreadable > 0 {
        session.note(&format!(
            "{unreadable} items cannot be read by this version; the log of the operator function names them"
        ));
    }
    let document = json!({"ok": true, "items": items, "complete": cursor.is_null(), "unreadable": unreadable});
    session.answer(&document, &text)?;
    Ok(Exit::Done)
}

fn shown<W: World>(session: &Session<'_, W>, arguments: &Arguments, items: &[Value], more: bool) -> String {
    if items.is_empty() {
        return format!("No delivery is {}{}.", arguments.state, if more { " as far as was looked" } else { "" });
    }
    let now = session.now();
    let word = |value: &Value| value.as_str().map_or_else(|| "-".to_owned(), plain);
    let number = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string());
    let due = |item: &Value| match item["due"].as_i64() {
        Some(at) if arguments.state == "waiting" => {
            let distance = when::rough(Millis(at).since(now));
            if Millis(at) > now { format!("in {distance}") } else { format!("{distance} ago") }
        }
        Some(_) | None => "-".to_owned(),
    };
    let rows = items.iter().map(|item| {
        let age = item["age_seconds"].as_i64().unwrap_or_default();
        vec![
            word(&item["id"]),
            word(&item["endpoint"]),
            word(&item["reason"]),
            number(&item["attempt"]),
            number(&item["generation"]),
            when::rough(age.saturating_mul(SECOND_MS)),
            due(item),
        ]
    });
    let header = ["ID", "ENDPOINT", "REASON", "ATTEMPT", "GENERATION", "AGE", "DUE"];
    let mut text = session.table(&header, rows.collect());
    text.push_str(&format!("\n\n{} {}", items.len(), arguments.state));
    text.push_str(if more { "; there are more: --limit, or --all" } else { "" });
    text.push_str(". One of them in full: `redeliver explain ID`\n");
    text
}
