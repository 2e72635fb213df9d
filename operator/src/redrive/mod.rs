//! `redeliver redrive …` and `plans`: from a selection to its end. A plan is frozen when it is proposed and released when
//! somebody approves it; this module asks and shows, the operator function decides.

mod approve;
mod propose;
mod registered;
mod shown;
mod watch;

use clap::{Args, Subcommand};
use domain::plan::PlanState;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::{Session, plain};

/// What to do with plans.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Select deliveries; nothing is released yet
    Propose(Box<propose::Propose>),
    /// Release a plan: a canary of each endpoint first, then the rest
    Approve(approve::Approve),
    /// How far a plan is
    Status(Status),
    /// Stop a plan: what was not tried goes back
    Abort(approve::Abort),
    /// Follow a plan until it is over
    Watch(watch::Watch),
}

/// `redrive status`
#[derive(Debug, Args)]
pub struct Status {
    /// The plan
    plan: String,
}

/// `plans`
#[derive(Debug, Args)]
pub struct Plans {
    /// Only this state: proposed, canary, ramping, completed, aborted or expired
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<PlanState>,
    /// At most so many of each state
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
}

/// Runs a command.
pub async fn run<W: World>(session: &mut Session<'_, W>, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Propose(propose) => propose::propose(session, &propose).await,
        Command::Approve(approve) => approve::approve(session, &approve).await,
        Command::Status(status) => {
            let outside = session.connect().await?;
            let answer = ask_status(&outside, &status.plan).await?;
            let text = shown::plan(session, &answer["plan"]);
            session.answer(&answer, &text)?;
            Ok(Exit::Done)
        }
        Command::Abort(abort) => approve::abort(session, &abort).await,
        Command::Watch(watch) => watch::watch(session, &watch).await,
    }
}

/// Lists the plans.
pub async fn plans<W: World>(session: &mut Session<'_, W>, plans: &Plans) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let mut question = json!({"action": "plans", "limit": plans.limit});
    if let Some(state) = plans.state {
        question["state"] = json!(state.name());
    }
    let answer = Failure::of_answer(outside.ask(question).await?)?;
    let found = answer["plans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let word = |value: &Value| value.as_str().map(plain).unwrap_or_default();
    let rows = found.iter().map(|plan| {
        vec![
            word(&plan["plan_id"]),
            word(&plan["state"]),
            plan["count"].to_string(),
            shown::age(session, &plan["created_at"]),
            word(&plan["proposed_by"]["name"]),
            plan["approval"]["by"]["name"].as_str().map_or_else(|| "-".to_owned(), plain),
            word(&plan["note"]),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let text = if rows.is_empty() {
        "There is no such plan.".to_owned()
    } else {
        session.table(&["PLAN", "STATE", "COUNT", "AGE", "PROPOSED BY", "APPROVED BY", "NOTE"], rows)
    };
    session.answer(&answer, &text)?;
    Ok(Exit::Done)
}

/// A plan as it stands. Asking takes it a step further, when it is running.
async fn ask_status<O: Operator>(outside: &O, plan: &str) -> Result<Value, Failure> {
    let answer = Failure::of_answer(outside.ask(json!({"action": "status", "plan_id": plan})).await?);
    answer.map_err(|mut failure| {
        if failure.code == "not_found" {
            failure.message.push_str("; `redeliver plans` shows those there are");
        }
        failure
    })
}

fn state(text: &str) -> Result<PlanState, String> {
    let found = PlanState::ALL.iter().copied().find(|state| state.name() == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = PlanState::ALL.iter().map(|state| state.name()).collect();
        format!("must be one of {}", names.join(", "))
    })
}
