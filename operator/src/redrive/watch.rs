//! `redrive watch`: one line for each change of a plan, until it is over. Looking takes a running plan further, so a plan
//! that is watched does not wait for the sweep.

use clap::Args;
use domain::ports::Clock;
use domain::time::SECOND_MS;
use serde_json::{Value, json};

use super::{ask_status, shown};
use crate::exit::{Exit, Failure};
use crate::outside::World;
use crate::session::Session;
use crate::when;

/// So many looks in a row may find nobody there, or a function that fails.
const PATIENCE: u32 = 5;

/// `redrive watch`
#[derive(Debug, Args)]
pub struct Watch {
    /// The plan
    plan: String,
    /// Between two looks: 5s, 1m
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    interval: i64,
}

fn interval(text: &str) -> Result<i64, String> {
    let ms = when::duration(text)?;
    if ms < SECOND_MS { Err("must be a second at least".to_owned()) } else { Ok(ms) }
}

pub(super) async fn watch<W: World>(session: &mut Session<'_, W>, watch: &Watch) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let (mut last, mut unreachable) = (String::new(), 0);
    loop {
        match ask_status(&outside, &watch.plan).await {
            Ok(answer) => {
                unreachable = 0;
                let plan = &answer["plan"];
                let line = line(session, plan);
                if !session.global.json && line != last {
                    session.answer(&Value::Null, &line)?;
                    last = line;
                }
                if let Some(exit) = over(plan) {
                    let text = shown::plan(session, plan);
                    session.answer(&answer, &format!("\n{text}"))?;
                    return Ok(exit);
                }
            }
            Err(failure) if passes(&failure) && unreachable < PATIENCE => {
                unreachable += 1;
                session.note(&format!("{}; trying again", failure.message));
            }
            Err(failure) => return Err(failure),
        }
        let clock = session.world.clock();
        clock.sleep_until(clock.now().plus(watch.interval)).await;
    }
}

/// What may be over at the next look.
fn passes(failure: &Failure) -> bool {
    failure.exit == Exit::Unreachable || failure.code == "operator_function"
}

/// How the watch ends, if the plan is over: well only when no endpoint was given up and something was delivered.
fn over(plan: &Value) -> Option<Exit> {
    match plan["state"].as_str().unwrap_or_default() {
        "completed" => {
            let number = |name: &str| plan[name].as_u64().unwrap_or_default();
            let nothing = number("delivered") == 0 && number("released") > number("cancelled");
            Some(if nothing || !shown::stopped(plan).is_empty() { Exit::No } else { Exit::Done })
        }
        "aborted" | "expired" => Some(Exit::No),
        _ => None,
    }
}

fn line<W: World>(session: &Session<'_, W>, plan: &Value) -> String {
    let state = plan["state"].as_str().unwrap_or_default();
    let mut parts = vec![shown::state(session, state)];
    if plan["approval"] != json!(null) {
        parts.extend(shown::progress(plan));
    }
    parts.extend(shown::stopped(plan).into_iter().map(|(name, endpoints)| format!("{name} {endpoints}")));
    parts.join("; ")
}
