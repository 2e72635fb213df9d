//! `endpoint test`: one signed test event goes the way of every webhook, and what is left of it afterwards is cancelled, so
//! that a failed test is not retried for a day.

use clap::{ArgGroup, Args};
use domain::id::{EndpointKey, StateKey};
use domain::request::check_url;
use serde_json::{Value, json};
use url::Url;

use super::{existing, id};
use crate::exit::{Exit, Failure};
use crate::follow::{Seen, Until, attempt, follow, told};
use crate::outside::{Intake, Operator, World};
use crate::session::{Paint, Session, plain};
use crate::when;

/// `endpoint test`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("receiver").required(true))]
pub struct Test {
    /// The endpoint
    #[arg(value_parser = id, group = "receiver")]
    id: Option<EndpointKey>,
    /// An inline URL instead
    #[arg(long, value_parser = parse_url, group = "receiver")]
    url: Option<Url>,
    /// How long to wait for the first attempt
    #[arg(long, value_name = "DURATION", value_parser = when::duration, default_value = "60s")]
    timeout: i64,
}

/// A URL as an argument; the problem repeats nothing of it.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    check_url(text)
}

pub(super) async fn test<W: World>(session: &mut Session<'_, W>, test: &Test) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let (key, group, name) = match (&test.id, &test.url) {
        (Some(id), _) => {
            existing(&outside, id).await?;
            (id.clone(), StateKey::registered(id), id.to_string())
        }
        (None, Some(url)) => (EndpointKey::inline(url), StateKey::inline(url), domain::id::origin(url)),
        (None, None) => return Err(Failure::invalid("name an endpoint, or a URL with --url")),
    };
    let now = session.now();
    let random = session.world.random_key();
    let event = format!("test_{}", domain::id::hex(&random[..8]));
    let body = json!({"type": "redeliver.test", "id": event, "timestamp": now.to_string(), "data": {"endpoint": key.as_str()}});
    let mut message = json!({"id": event, "json": body, "correlation_id": "redeliver endpoint test"});
    match &test.url {
        Some(url) => message["url"] = json!(url.as_str()),
        None => message["endpoint"] = json!(key.as_str()),
    }
    outside.send(&message.to_string(), group.as_str()).await?;
    session.note(&format!("Test event {event} is on its way to {name}."));
    let seen = follow(session, &outside, &event, &key, Until::FirstAttempt, test.timeout).await;
    let cancelled = cancel(session, &outside, &event, &key, seen.as_ref().ok()).await;
    let seen = seen?;
    let accepted = matches!(&seen, Seen::Delivery(answer) if attempt(answer).is_some_and(|a| a["class"] == "accepted"));
    let verdict =
        if accepted { session.paint(Paint::Green, "accepted") } else { session.paint(Paint::Red, "not accepted") };
    let mut text = format!("{name}: {verdict}\n");
    let document = match &seen {
        Seen::Delivery(answer) => {
            text.push_str(&told(session, answer));
            answer.clone()
        }
        Seen::Rejected(why) => {
            text.push_str(&format!("  The message was rejected: {}\n", plain(why)));
            json!({"rejected": why})
        }
        Seen::TooLate(last) => {
            text.push_str(&format!(
                "  No attempt was recorded within {}. Is the intake queue being worked on?\n",
                when::rough(test.timeout)
            ));
            text.push_str(&last.as_ref().map(|answer| told(session, answer)).unwrap_or_default());
            last.clone().unwrap_or_else(|| json!({}))
        }
    };
    text.push_str(&match &cancelled {
        Ok(None) => String::new(),
        Ok(Some(result)) => format!("  The test is cancelled ({result}): nothing more is sent.\n"),
        Err(failure) => format!(
            "  {} {}\n",
            session.paint(Paint::Yellow, "The rest of the test could not be cancelled:"),
            failure.message
        ),
    });
    let mut document = document;
    document["ok"] = json!(true);
    document["accepted"] = json!(accepted);
    document["id"] = json!(event);
    document["cancelled"] = json!(cancelled.ok().flatten());
    session.answer(&document, &text)?;
    Ok(if accepted { Exit::Done } else { Exit::No })
}

/// Cancels what is left, if anything is; answers how.
async fn cancel<W: World>(
    session: &Session<'_, W>,
    outside: &W::Outside,
    event: &str,
    key: &EndpointKey,
    seen: Option<&Seen>,
) -> Result<Option<String>, Failure> {
    let over = match seen {
        Some(Seen::Rejected(_)) => true,
        Some(Seen::Delivery(answer)) => {
            matches!(
                answer["delivery"]["state"].as_str(),
                Some("delivered" | "dead_lettered" | "cancelled" | "rejected")
            )
        }
        Some(Seen::TooLate(_)) | None => false,
    };
    if over {
        return Ok(None);
    }
    let operator = session.operator(outside).await;
    let question = json!({"action": "cancel", "id": event, "endpoint": key.as_str(), "reason": "the test is over", "operator": operator});
    match Failure::of_answer(outside.ask(question).await?) {
        Ok(answer) => Ok(answer.get("result").and_then(Value::as_str).map(ToOwned::to_owned)),
        // It ended by itself in the meantime.
        Err(failure) if failure.exit == Exit::Conflict => Ok(None),
        Err(failure) => Err(failure),
    }
}
