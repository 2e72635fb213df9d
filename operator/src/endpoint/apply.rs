//! `endpoint apply`: the registry says what a reviewed file says. Read all, show all, agree once, then write; what is not
//! in the file stays, unless it is asked to go.

use std::path::PathBuf;

use clap::Args;
use domain::comparison::{Change, compare};
use domain::definition::Definition;
use domain::id::EndpointKey;
use domain::registry::Registration;
use serde_json::{Value, json};

use super::secrets::{self, Fresh};
use super::{file, write};
use crate::exit::{Exit, Failure, lines};
use crate::outside::{Outside, World};
use crate::session::{Paint, Session};

/// `endpoint apply`
#[derive(Debug, Args)]
pub struct Apply {
    /// A file of endpoints: .toml, .yaml or .yml
    file: PathBuf,
    /// Show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Remove endpoints that are not in the file
    #[arg(long)]
    prune: bool,
}

/// What is to be done with one endpoint.
struct Step {
    id: EndpointKey,
    old: Option<Registration>,
    /// None: it is to be removed.
    definition: Option<Definition>,
    changes: Vec<Change>,
}

impl Step {
    fn kind(&self) -> &'static str {
        match (&self.old, &self.definition) {
            (_, None) => "remove",
            (None, Some(_)) => "add",
            (Some(old), Some(_)) if old.removed_at.is_some() => "restore",
            (Some(_), Some(_)) => "change",
        }
    }
}

/// How one step ended.
enum Done {
    Written(u64),
    /// Somebody changed the same thing.
    Conflict,
}

pub(super) async fn apply<W: World>(session: &mut Session<'_, W>, apply: &Apply) -> Result<Exit, Failure> {
    let wanted = file::read(&apply.file, session.environment)?;
    let outside = session.connect().await?;
    let steps = plan(session, &outside, wanted, apply.prune).await?;
    if steps.is_empty() {
        session.answer(
            &json!({"ok": true, "steps": [], "secrets": []}),
            "Nothing to do: the registry says what the file says.",
        )?;
        return Ok(Exit::Done);
    }
    let shown: String =
        steps.iter().map(|step| heading(session, step) + &write::change_lines(session, &step.changes)).collect();
    let count = counted(&steps);
    if apply.dry_run {
        let document =
            json!({"ok": true, "dry_run": true, "steps": steps.iter().map(|s| described(s, None)).collect::<Value>()});
        session.answer(&document, &format!("{shown}\n{count}. Nothing was written.\n"))?;
        return Ok(Exit::Done);
    }
    // Who is asked must see what for; where nobody is asked, the answer shows it.
    let asked = !session.global.yes && session.io.asks;
    if asked {
        session.note(&shown);
    }
    session.confirm(&format!("{count}: apply"))?;
    let mut fresh = Fresh::default();
    let (mut documents, mut written, mut conflicts) = (Vec::new(), Vec::new(), Vec::new());
    let mut trouble = None;
    for step in &steps {
        match carry_out(session, &outside, step, &mut fresh).await {
            Ok(Done::Written(version)) => {
                documents.push(described(step, Some(version)));
                written.push(step);
            }
            Ok(Done::Conflict) => conflicts.push(step.id.to_string()),
            // What was written before must be told, the secrets above all.
            Err(failure) => {
                trouble = Some(failure);
                break;
            }
        }
    }
    let mut text = if asked { String::new() } else { shown };
    text.push_str(&format!("\n{} of {} written.\n", documents.len(), steps.len()));
    for id in &conflicts {
        let line = format!("conflict: {id} was changed by somebody else meanwhile and was left alone; apply again");
        text.push_str(&format!("{}\n", session.paint(Paint::Red, &line)));
    }
    if let Some(failure) = &trouble {
        let line = format!("stopped: {}; apply again to go on", failure.message);
        text.push_str(&format!("{}\n", session.paint(Paint::Red, &line)));
    }
    for step in written.iter().filter(|step| step.definition.is_some()) {
        let advice = step.old.as_ref().and_then(|old| super::goes_on(&step.id, old, session.now()));
        text.push_str(&advice.unwrap_or_default());
    }
    text.push_str(&fresh.to_text(session));
    let exit = match &trouble {
        Some(failure) => failure.exit,
        None if conflicts.is_empty() => Exit::Done,
        None => Exit::Conflict,
    };
    let error = match &trouble {
        Some(failure) => json!({"code": failure.code, "message": failure.message}),
        None if conflicts.is_empty() => Value::Null,
        None => {
            json!({"code": "conflict", "message": format!("changed by others meanwhile: {}", conflicts.join(", "))})
        }
    };
    let mut document =
        json!({"ok": exit == Exit::Done, "steps": documents, "conflicts": conflicts, "secrets": fresh.to_json()});
    if !error.is_null() {
        document["error"] = error;
    }
    session.answer(&document, text.trim_start_matches('\n'))?;
    Ok(exit)
}

async fn plan<W: World>(
    session: &Session<'_, W>,
    outside: &W::Outside,
    wanted: std::collections::BTreeMap<EndpointKey, Definition>,
    prune: bool,
) -> Result<Vec<Step>, Failure> {
    use crate::outside::Registry;
    let (mut there, mut problems) = (std::collections::BTreeMap::new(), Vec::new());
    for (id, stored) in outside.registrations().await? {
        match stored {
            Ok(registration) => {
                there.insert(id, registration);
            }
            Err(found) if wanted.contains_key(&id) => problems.extend(lines(id.as_str(), &found.problems)),
            // Not ours to repair, and not in the way.
            Err(_) => {}
        }
    }
    if !problems.is_empty() {
        return Err(Failure::problems(
            "what is stored of these endpoints cannot be read, nothing was written; `redeliver endpoint add ID --replace-unreadable --url …` registers one anew:",
            &problems,
        ));
    }
    let now = session.now();
    let mut steps = Vec::new();
    for (id, definition) in wanted {
        let old = there.remove(&id);
        let live = old.as_ref().filter(|old| old.removed_at.is_none());
        let changes = compare(live.map(|old| &old.definition), &definition);
        let complete = live.is_some_and(|old| old.defined(definition.clone(), now).unsigned_schemes(now).is_empty());
        if !(changes.is_empty() && complete) {
            steps.push(Step { id, old, definition: Some(definition), changes });
        }
    }
    if prune {
        let gone = there.into_iter().filter(|(_, old)| old.removed_at.is_none());
        steps.extend(gone.map(|(id, old)| Step { id, old: Some(old), definition: None, changes: Vec::new() }));
    }
    Ok(steps)
}

fn heading<W: World>(session: &Session<'_, W>, step: &Step) -> String {
    let version = step.old.as_ref().map(|old| format!(" (version {})", old.version)).unwrap_or_default();
    let paint = match step.kind() {
        "add" | "restore" => Paint::Green,
        "remove" => Paint::Red,
        _ => Paint::Yellow,
    };
    let secret = if step.definition.is_some() && step.changes.is_empty() {
        "\n  + a secret, because none is active"
    } else {
        ""
    };
    format!("{} {}{version}{secret}\n", session.paint(paint, step.kind()), step.id)
}

fn counted(steps: &[Step]) -> String {
    let count = |kind: &str| steps.iter().filter(|step| step.kind() == kind).count();
    let kinds = [("add", "to add"), ("change", "to change"), ("restore", "to restore"), ("remove", "to remove")];
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(kind, _)| count(kind) > 0)
        .map(|(kind, word)| format!("{} {word}", count(kind)))
        .collect();
    parts.join(", ")
}

fn described(step: &Step, version: Option<u64>) -> Value {
    let mut described =
        json!({"endpoint": step.id.as_str(), "what": step.kind(), "changes": write::to_json(&step.changes)});
    if let Some(version) = version {
        described["version"] = json!(version);
    }
    described
}

/// Writes one step. A lost race is tried again once, if what was agreed to is still the change that it would be.
async fn carry_out<W: World>(
    session: &Session<'_, W>,
    outside: &W::Outside,
    step: &Step,
    fresh: &mut Fresh,
) -> Result<Done, Failure> {
    let mut old = step.old.clone();
    for _ in 0..2 {
        let mut made = Fresh::default();
        let now = session.now();
        let next = match (&old, &step.definition) {
            (Some(old), None) => old.removed(now),
            (None, None) => return Ok(Done::Conflict),
            (old, Some(definition)) => {
                let mut next = old.as_ref().map_or_else(
                    || Registration::first(definition.clone(), now),
                    |old| old.defined(definition.clone(), now),
                );
                secrets::complete(session, &step.id, &mut next, &[], &mut made)?;
                next
            }
        };
        if write_once(outside, &step.id, old.as_ref(), &next).await? {
            fresh.take(made);
            return Ok(Done::Written(next.version));
        }
        let there = reread(outside, &step.id).await?;
        let same = match (&step.old, &there) {
            (None, None) => true,
            (Some(before), Some(now)) => before.definition == now.definition && before.removed_at == now.removed_at,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if !same {
            return Ok(Done::Conflict);
        }
        old = there;
    }
    Ok(Done::Conflict)
}

async fn write_once<O: Outside>(
    outside: &O,
    id: &EndpointKey,
    old: Option<&Registration>,
    next: &Registration,
) -> Result<bool, Failure> {
    outside.replace(id, old.map_or(0, |old| old.version), next).await
}

async fn reread<O: Outside>(outside: &O, id: &EndpointKey) -> Result<Option<Registration>, Failure> {
    match outside.registration(id).await? {
        None => Ok(None),
        Some(Ok(registration)) => Ok(Some(registration)),
        Some(Err(broken)) => Err(super::unreadable(id, &broken)),
    }
}
