//! `redeliver sweep run`: a run of the sweep right now, and its evidence. The runs by schedule go on beside it.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::outside::{Sweeper, World};
use crate::session::{Paint, Session, plain};
use crate::when;

/// What the figures of a run are called; the names are those of the evidence.
const FIGURES: &[(&str, &str)] = &[
    ("examined", "due rows looked at"),
    ("armed", "long waits brought into the queue"),
    ("rearmed", "overdue waits woken again"),
    ("taken_over", "expired attempts taken over"),
    ("skipped_owned", "overdue, somebody works on them"),
    ("skipped_queued", "overdue, the retry queue is busy"),
    ("skipped_moved", "had moved on"),
    ("unreadable", "items that cannot be read"),
    ("dlq_visible", "messages on the transport DLQs"),
    ("drained", "of those, turned into a record"),
    ("left_in_dlq", "of those, left there"),
    ("rejected", "of those, rejected"),
    ("released", "deliveries released"),
    ("expired", "held deliveries past their deadline"),
    ("extended", "payloads kept longer"),
    ("retry_queue_visible", "messages ready on the retry queue"),
    ("oldest_overdue_seconds", "the most overdue wait, in seconds"),
    ("pages_left", "parts left to the next run"),
];

/// The sweep.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Reconcile now, and show the evidence
    Run(Run),
}

/// `sweep run`
#[derive(Debug, Args)]
pub struct Run {
    /// The arm run, as each minute: bring long waits into the queue, and take approved plans further
    #[arg(long)]
    arm: bool,
    /// Look, and change nothing
    #[arg(long)]
    observe: bool,
}

/// Runs it.
pub async fn run<W: World>(session: &mut Session<'_, W>, command: &Command) -> Result<Exit, Failure> {
    let Command::Run(arguments) = command;
    let (run, does) = if arguments.arm {
        ("arm", "bring long waits into the queue, and take approved plans further")
    } else {
        (
            "reconcile",
            "wake what is overdue, take expired attempts over, drain the transport DLQs, end held deliveries whose deadline passed, and take approved plans and resumed endpoints further",
        )
    };
    if !arguments.observe {
        session.confirm(&format!("Run the sweep now: {does}"))?;
    }
    let outside = session.connect().await?;
    let mode = if arguments.observe { "observe" } else { "act" };
    let evidence = outside.sweep(json!({"run": run, "mode": mode})).await?;
    if evidence.get("run_id").is_none() {
        let message = "the sweep function gave an answer that this version does not understand";
        return Err(Failure { detail: Some(evidence.to_string()), ..Failure::new(Exit::Own, "answer", message) });
    }
    let errors = evidence["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    let exit = if errors.is_empty() { Exit::Done } else { Exit::No };
    let text = told(session, &evidence, errors);
    session.answer(&json!({"ok": errors.is_empty(), "evidence": evidence}), &text)?;
    Ok(exit)
}

fn told<W: World>(session: &Session<'_, W>, evidence: &Value, errors: &[Value]) -> String {
    let word = |name: &str| evidence[name].as_str().map(plain).unwrap_or_default();
    let took = evidence["duration_ms"].as_i64().unwrap_or_default();
    let mut text = format!("{}, {}, {took} ms: run {}\n\n", word("run"), word("mode"), word("run_id"));
    let figures = FIGURES.iter().filter_map(|(name, means)| {
        let figure = evidence[name].as_i64()?;
        Some(vec![(*name).to_owned(), figure.to_string(), (*means).to_owned()])
    });
    text.push_str(&session.table(&["FIGURE", "COUNT", "WHAT"], figures.collect()));
    let piles = ["waiting", "held", "dead_lettered", "rejected"].map(|name| {
        let pile = &evidence["backlog"][name];
        let oldest = pile["oldest_seconds"].as_i64().filter(|age| *age > 0);
        let count = pile["count"].as_u64().unwrap_or_default();
        vec![name.to_owned(), count.to_string(), oldest.map_or_else(|| "-".to_owned(), |s| when::rough(s * 1_000))]
    });
    text.push_str("\n\n");
    text.push_str(&session.table(&["BACKLOG", "COUNT", "OLDEST"], piles.to_vec()));
    text.push('\n');
    if evidence["backlog_capped"] == json!(true) {
        text.push_str("There is more of it than one run counts.\n");
    }
    for error in errors {
        let error = error.as_str().map(plain).unwrap_or_default();
        text.push_str(&format!("{}: {error}\n", session.paint(Paint::Red, "failed")));
    }
    if !errors.is_empty() {
        text.push_str("The other steps were done; the next run tries these again.\n");
    }
    text
}
