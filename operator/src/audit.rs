//! `redeliver audit`: who decided what, and whether the chain of decisions is whole. It reads; the check is the domain's,
//! and runs here, so that nobody has to take the function's word for it.

use clap::{Args, Subcommand};
use domain::audit::{Entry, Head, verify};
use domain::time::Millis;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::{Paint, Session, plain};
use crate::when::{self, Point};

/// The most entries that the operator function gives at once.
const PAGE: usize = 500;
/// Entries written while the chain is read can come in front of what was read: then it is read again.
const READS: usize = 3;

/// `audit`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// From this time on, or since so long ago: 2026-12-01T10:00:00Z, 24h
    #[arg(long, value_name = "TIME", value_parser = when::point)]
    after: Option<Point>,
    /// At most so many, the newest
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,
    /// What else
    #[command(subcommand)]
    command: Option<Command>,
}

/// What else to do with decisions.
#[derive(Debug, Subcommand)]
enum Command {
    /// Read the whole chain, and check that nothing was changed, left out or put in
    Verify(Verify),
}

/// `audit verify`
#[derive(Debug, Args)]
struct Verify {
    /// The end that `audit verify` showed at an earlier time: it must still be there
    #[arg(long, value_name = "SEQ:HASH", value_parser = noted)]
    head: Option<Head>,
}

fn noted(text: &str) -> Result<Head, String> {
    let (seq, hash) = text.split_once(':').unwrap_or_default();
    match seq.parse() {
        Ok(seq) if seq > 0 && hash.len() == 64 && hash.bytes().all(|c| c.is_ascii_hexdigit()) => {
            Ok(Head { seq, hash: hash.to_ascii_lowercase() })
        }
        Ok(_) | Err(_) => Err("must be as `audit verify` showed it: a number, a colon, 64 hex digits".to_owned()),
    }
}

/// What was read.
struct Chain {
    entries: Vec<Value>,
    /// The end of the chain, as it stood before the last page was read.
    head: Head,
}

/// Lists or verifies.
pub async fn run<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    match &arguments.command {
        Some(Command::Verify(verify)) => verified(session, &outside, verify.head.as_ref()).await,
        None => list(session, &outside, arguments).await,
    }
}

async fn list<W: World>(
    session: &mut Session<'_, W>,
    outside: &W::Outside,
    arguments: &Arguments,
) -> Result<Exit, Failure> {
    let after = arguments.after.map(|point| point.seen_from(session.now()).to_string());
    let (entries, older, head) = if after.is_none() && arguments.limit <= PAGE {
        let question = json!({"action": "audit", "newest": true, "limit": arguments.limit});
        let mut page = Failure::of_answer(outside.ask(question).await?)?;
        let (entries, head) = (page["entries"].take(), head(&page));
        let entries = if let Value::Array(entries) = entries { entries } else { Vec::new() };
        let first = entries.iter().filter_map(|entry| entry["seq"].as_u64()).min().unwrap_or(1);
        (entries, usize::try_from(first.saturating_sub(1)).unwrap_or(usize::MAX), head)
    } else {
        let Chain { mut entries, head } = read(outside, after).await?;
        let older = entries.len().saturating_sub(arguments.limit);
        entries.drain(..older);
        (entries, older, head)
    };
    let text =
        if entries.is_empty() { "No decision is on record there.".to_owned() } else { shown(session, &entries, older) };
    let document =
        json!({"ok": true, "entries": entries, "older": older, "head": {"seq": head.seq, "hash": head.hash}});
    session.answer(&document, &text)?;
    Ok(Exit::Done)
}

fn shown<W: World>(session: &Session<'_, W>, entries: &[Value], older: usize) -> String {
    let word = |value: &Value| value.as_str().map(plain).unwrap_or_default();
    let rows = entries.iter().map(|entry| {
        let by = &entry["by"];
        let verified = if by["verified"] == json!(true) { "" } else { " (unverified)" };
        vec![
            entry["seq"].as_u64().unwrap_or_default().to_string(),
            entry["at"].as_i64().map(|at| session.time(Millis(at))).unwrap_or_default(),
            format!("{}{verified}", word(&by["name"])),
            word(&entry["action"]),
            word(&entry["subject"]),
            word(&entry["reason"]),
        ]
    });
    let mut text = session.table(&["SEQ", "WHEN", "WHO", "WHAT", "ABOUT", "WHY"], rows.collect());
    text.push('\n');
    if older > 0 {
        text.push_str(&format!("\n{older} older ones are not shown: --limit\n"));
    }
    text
}

async fn verified<W: World>(
    session: &mut Session<'_, W>,
    outside: &W::Outside,
    noted: Option<&Head>,
) -> Result<Exit, Failure> {
    let mut verdict = Ok(Head::default());
    for _ in 0..READS {
        verdict = judged(&read(outside, None).await?, noted);
        if verdict.is_ok() {
            break;
        }
    }
    let (document, text, exit) = match verdict {
        Ok(end) => {
            let holds = session.paint(Paint::Green, "holds");
            let mut text = format!("The chain {holds}: {} decisions, none changed, left out or put in", end.seq);
            text.push_str(noted.map_or("", |_| ", and the end that was noted is among them"));
            text.push_str(".\n");
            if end.seq > 0 {
                text.push_str(&format!("Its end is {}:{}\n", end.seq, end.hash));
            }
            let head = json!({"seq": end.seq, "hash": end.hash});
            (json!({"ok": true, "holds": true, "entries": end.seq, "head": head}), text, Exit::Done)
        }
        Err(why) => {
            let text = format!(
                "{}: {why}.\nSomebody or something wrote to the table past the operator function: keep a copy of the table, and look for who in CloudTrail.",
                session.paint(Paint::Red, "The chain does not hold")
            );
            (json!({"ok": false, "holds": false, "error": {"code": "broken_chain", "message": why}}), text, Exit::No)
        }
    };
    session.answer(&document, &text)?;
    Ok(exit)
}

/// The end of a chain that holds, or the first thing that is wrong.
fn judged(chain: &Chain, noted: Option<&Head>) -> Result<Head, String> {
    let entry = |value: &Value| {
        serde_json::from_value::<Entry>(value.clone())
            .map_err(|e| format!("entry {} cannot be read: {e}", value["seq"]))
    };
    let mut entries = chain.entries.iter().map(entry).collect::<Result<Vec<Entry>, String>>()?;
    // The table sorts by time, and two decisions of one moment can have their times the other way round.
    entries.sort_by_key(|entry| entry.seq);
    let (known, newer) = entries.split_at(entries.partition_point(|entry| entry.seq <= chain.head.seq));
    verify(&Head::default(), known, &chain.head)?;
    let end = newer.last().map_or_else(|| chain.head.clone(), Entry::head);
    verify(&chain.head, newer, &end)?;
    match noted {
        Some(noted) if end.seq < noted.seq => {
            Err(format!("it ends at entry {}, before entry {} that was noted", end.seq, noted.seq))
        }
        Some(noted) if !entries.iter().any(|entry| entry.head() == *noted) => {
            Err(format!("entry {} is not the one that was noted", noted.seq))
        }
        Some(_) | None => Ok(end),
    }
}

/// The end of the chain, as an answer names it.
fn head(page: &Value) -> Head {
    let head = &page["head"];
    let hash = head["hash"].as_str().unwrap_or_default().to_owned();
    Head { seq: head["seq"].as_u64().unwrap_or_default(), hash }
}

async fn read<O: Operator>(outside: &O, after: Option<String>) -> Result<Chain, Failure> {
    let (mut entries, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let mut question = json!({"action": "audit", "limit": PAGE});
        if !cursor.is_null() {
            question["cursor"] = cursor;
        } else if let Some(after) = &after {
            question["after"] = json!(after);
        }
        let mut page = Failure::of_answer(outside.ask(question).await?)?;
        if let Value::Array(found) = page["entries"].take() {
            entries.extend(found);
        }
        cursor = page["cursor"].take();
        if cursor.is_null() {
            return Ok(Chain { entries, head: head(&page) });
        }
    }
}
