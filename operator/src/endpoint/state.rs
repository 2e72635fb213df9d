//! `endpoint pause`, `resume` and `disable`: the operator function's `endpoint` action, after a look that the endpoint is
//! there, so that a misspelt id is not paused.

use clap::{ArgGroup, Args};
use domain::endpoint_state::Status;
use domain::id::{EndpointKey, origin};
use serde_json::json;
use url::Url;

use super::existing;
use super::remove::held;
use super::test::parse_url;
use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::{Paint, Session};

/// `endpoint pause`, `resume`, `disable`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whose").required(true))]
pub struct State {
    /// The endpoint
    #[arg(value_parser = EndpointKey::parse, group = "whose")]
    id: Option<EndpointKey>,
    /// Inline URLs instead: every URL of this one's origin
    #[arg(long, value_parser = parse_url, group = "whose")]
    url: Option<Url>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) async fn set<W: World>(
    session: &mut Session<'_, W>,
    action: &State,
    status: Status,
) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    if let Some(id) = action.id.as_ref().filter(|id| !id.is_inline()) {
        match existing(&outside, id).await {
            // Who may only ask the operator function cannot look; that must not keep anybody from pausing.
            Err(failure) if failure.exit == Exit::Denied || failure.code == "misconfigured" => {}
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
    }
    let operator = session.operator(&outside).await;
    let mut question =
        json!({"action": "endpoint", "set": status.name(), "reason": action.reason, "operator": operator});
    let (name, again) = match (&action.id, &action.url) {
        (Some(id), _) => {
            question["endpoint"] = json!(id.as_str());
            (id.to_string(), id.to_string())
        }
        // Only the origin: the rest may hold a token, and does not matter.
        (None, Some(url)) => {
            let origin = origin(url);
            question["url"] = json!(origin);
            (format!("every inline URL of {origin}"), format!("--url {origin}"))
        }
        (None, None) => return Err(Failure::invalid("name an endpoint, or a URL with --url")),
    };
    if status == Status::Active && !session.global.yes {
        let count = in_words(&outside, action.id.as_ref()).await;
        session.confirm(&format!("Set {name} active, and release {count} held deliveries, slowly at first"))?;
    }
    let answer = Failure::of_answer(outside.ask(question).await?)?;
    let text = match status {
        Status::Active => {
            let released = answer["released"].as_u64().unwrap_or_default();
            let more = if answer["endpoint"]["releasing"] == json!(true) { ", and goes on doing so" } else { "" };
            format!(
                "{name} is {}; it released {released} held deliveries{more}.",
                session.paint(Paint::Green, "active")
            )
        }
        Status::Paused | Status::Disabled => format!(
            "{name} is {}: its deliveries are held, within 10 seconds everywhere. Undo with `redeliver endpoint resume {again} --reason …`.",
            session.paint(Paint::Yellow, status.name())
        ),
    };
    session.answer(&answer, &text)?;
    Ok(Exit::Done)
}

/// How many deliveries are held for it, in words. Whoever resumes is not kept from it because nobody can count.
async fn in_words<O: Operator>(outside: &O, id: Option<&EndpointKey>) -> String {
    let count = match id.filter(|id| !id.is_inline()) {
        Some(id) => held(outside, id).await.ok(),
        // An origin has no list of its own.
        None => None,
    };
    match count {
        Some((count, false)) => count.to_string(),
        Some((count, true)) => format!("more than {count}"),
        None => "all".to_owned(),
    }
}
