//! `endpoint pause`, `resume` and `disable`: the operator function's `endpoint` action, after a look that the endpoint is
//! there, so that a misspelt id is not paused.

use clap::Args;
use domain::endpoint_state::Status;
use domain::id::EndpointKey;
use serde_json::json;

use super::existing;
use super::remove::held;
use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::{Paint, Session};

/// `endpoint pause`, `resume`, `disable`
#[derive(Debug, Args)]
pub struct State {
    /// The endpoint, or `url:…`, the state key of an origin
    #[arg(value_parser = EndpointKey::parse)]
    id: EndpointKey,
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
    let id = &action.id;
    if !id.is_inline() {
        match existing(&outside, id).await {
            // Who may only ask the operator function cannot look; that must not keep anybody from pausing.
            Err(failure) if failure.exit == Exit::Denied || failure.code == "misconfigured" => {}
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
    }
    if status == Status::Active && !session.global.yes {
        let count = in_words(&outside, id).await;
        session.confirm(&format!("Set {id} active, and release {count} held deliveries, slowly at first"))?;
    }
    let operator = session.operator(&outside).await;
    let question = json!({"action": "endpoint", "endpoint": id.as_str(), "set": status.name(), "reason": action.reason, "operator": operator});
    let answer = Failure::of_answer(outside.ask(question).await?)?;
    let text = match status {
        Status::Active => {
            let released = answer["released"].as_u64().unwrap_or_default();
            let more = if answer["endpoint"]["releasing"] == json!(true) { ", and goes on doing so" } else { "" };
            format!("{id} is {}; it released {released} held deliveries{more}.", session.paint(Paint::Green, "active"))
        }
        Status::Paused | Status::Disabled => format!(
            "{id} is {}: its deliveries are held, within 10 seconds everywhere. Undo with `redeliver endpoint resume {id} --reason …`.",
            session.paint(Paint::Yellow, status.name())
        ),
    };
    session.answer(&answer, &text)?;
    Ok(Exit::Done)
}

/// How many deliveries are held for it, in words. Whoever resumes is not kept from it because nobody can count.
async fn in_words<O: Operator>(outside: &O, id: &EndpointKey) -> String {
    // An origin has no list of its own.
    let count = if id.is_inline() { None } else { held(outside, id).await.ok() };
    match count {
        Some((count, false)) => count.to_string(),
        Some((count, true)) => format!("more than {count}"),
        None => "all".to_owned(),
    }
}
