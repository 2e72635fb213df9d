//! `redrive approve` and `redrive abort`: the two decisions about a plan. Both can be repeated when nobody knows whether
//! they went through: the redrive id makes an approval one decision, however often it is sent.

use clap::Args;
use domain::id::hex;
use serde_json::{Value, json};

use super::{ask_status, registered, shown};
use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::Session;

/// `redrive approve`
#[derive(Debug, Args)]
pub struct Approve {
    /// The plan
    plan: String,
    /// Only if the plan has this digest [default: that of the plan, which is shown before it is asked]
    #[arg(long, value_name = "HEX")]
    digest: Option<String>,
    /// Name of this decision; the same again releases nothing twice [default: a new one, which is shown]
    #[arg(long, value_name = "ID")]
    redrive_id: Option<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// `redrive abort`
#[derive(Debug, Args)]
pub struct Abort {
    /// The plan
    plan: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) async fn approve<W: World>(session: &mut Session<'_, W>, approve: &Approve) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let mut plan = ask_status(&outside, &approve.plan).await?["plan"].take();
    let stored = plan["digest"].as_str().unwrap_or_default().to_owned();
    let digest = approve.digest.as_deref().unwrap_or(&stored);
    if digest != stored {
        let message = format!(
            "the digest is not that of this plan: look at it again with `redeliver redrive status {}`",
            approve.plan
        );
        return Err(Failure::new(Exit::Conflict, "digest_mismatch", message));
    }
    let redrive_id = approve.redrive_id.clone().unwrap_or_else(|| {
        let random = session.world.random_key();
        format!("redrive_{}", hex(&random[..8]))
    });
    // Of a plan that is decided the function tells how it was; there is nothing to agree to.
    if plan["state"] == json!("proposed") {
        registered::warn(&outside, &mut plan).await;
        let (text, warnings) = (shown::facts(session, &plan), shown::warnings(session, &plan["warnings"]));
        session.note(&format!("{text}  redrive id   {redrive_id}\n{warnings}"));
        session.confirm(&format!(
            "Release {} deliveries, {} of them first, at up to {} per second",
            plan["count"], plan["canaries"], plan["rate_per_second"]
        ))?;
    }
    let operator = session.operator(&outside).await;
    let question = json!({"action": "approve", "plan_id": approve.plan, "digest": digest, "redrive_id": redrive_id, "reason": approve.reason, "operator": operator});
    let repeat = format!(
        "whether it was approved is not known; `redeliver redrive approve {} --redrive-id {redrive_id} --reason …` again releases nothing twice",
        approve.plan
    );
    let answer = outside.ask(question).await.map_err(|failure| unsure(failure, &repeat))?;
    let mut answer = Failure::of_answer(answer)?;
    let text = shown::plan(session, &answer["plan"]);
    answer["redrive_id"] = json!(redrive_id);
    session.answer(&answer, &text)?;
    Ok(Exit::Done)
}

pub(super) async fn abort<W: World>(session: &mut Session<'_, W>, abort: &Abort) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    // No look and no question first: whoever stops something is in a hurry, and stopping undoes nothing.
    let operator = session.operator(&outside).await;
    let question = json!({"action": "abort", "plan_id": abort.plan, "reason": abort.reason, "operator": operator});
    let repeat = format!(
        "whether it was aborted is not known; `redeliver redrive abort {} --reason …` again does no harm",
        abort.plan
    );
    let answer = outside.ask(question).await.map_err(|failure| unsure(failure, &repeat))?;
    let answer = Failure::of_answer(answer)?;
    let text = told(session, &answer["plan"]);
    session.answer(&answer, &text)?;
    Ok(Exit::Done)
}

fn told<W: World>(session: &Session<'_, W>, plan: &Value) -> String {
    let mut text = shown::plan(session, plan);
    if plan["remaining"].as_u64().is_some_and(|count| count > 0) {
        text.push_str("\nWhat remains is as it was before the plan; a new proposal can select it again.\n");
    }
    text
}

/// No answer: it may have taken effect all the same. A refusal of AWS before that is no such case.
fn unsure(mut failure: Failure, repeat: &str) -> Failure {
    if matches!(failure.exit, Exit::Unreachable | Exit::Own) {
        failure.message = format!("{}; {repeat}", failure.message);
    }
    failure
}
