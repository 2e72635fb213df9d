//! `redeliver cancel`: do not deliver it. The domain decides whether it is too late.

use clap::Args;
use domain::id::DeliveryKey;
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::Session;

/// `cancel`
#[derive(Debug, Args)]
pub struct Arguments {
    /// The event
    id: String,
    /// Its endpoint, or `url:…`, as `list` shows it
    #[arg(long, value_name = "ID")]
    endpoint: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Cancels, when somebody agrees.
pub async fn run<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<Exit, Failure> {
    let key = DeliveryKey::parse(&arguments.id, &arguments.endpoint).map_err(Failure::invalid)?;
    let outside = session.connect().await?;
    session.confirm(&format!("Cancel 1 delivery, {} to {}, for good", key.event, key.endpoint))?;
    let operator = session.operator(&outside).await;
    let question = json!({"action": "cancel", "id": key.event.as_str(), "endpoint": key.endpoint.as_str(), "reason": arguments.reason, "operator": operator});
    let answer = Failure::of_answer(outside.ask(question).await?)?;
    let word = |name: &str| answer[name].as_str().unwrap_or_default();
    let text = format!("{} to {}: {}; {}.", key.event, key.endpoint, word("result"), word("message"));
    session.answer(&answer, &text)?;
    Ok(Exit::Done)
}
