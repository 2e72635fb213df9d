//! `endpoint add` and `endpoint set`: one endpoint, from options.

use clap::Args;
use domain::comparison::{Change, compare};
use domain::id::EndpointKey;
use domain::registry::Registration;
use domain::review::warnings;
use serde_json::{Value, json};

use super::options::Options;
use super::secrets::{self, Fresh};
use super::{existing, goes_on, id, replace, unreadable};
use crate::exit::{Exit, Failure, lines};
use crate::outside::{Registry, World};
use crate::session::{Paint, Session};

/// `endpoint add`
#[derive(Debug, Args)]
pub struct Add {
    /// Its id: 1 to 64 of A-Z a-z 0-9 _ -
    #[arg(value_parser = id)]
    id: EndpointKey,
    /// Where to
    #[arg(long)]
    url: String,
    /// Bring a removed endpoint back, with this definition
    #[arg(long)]
    restore: bool,
    /// Register anew what is stored and cannot be read; secrets that can be read stay
    #[arg(long, conflicts_with = "restore")]
    replace_unreadable: bool,
    /// Take secrets from standard input, one a line, instead of making them
    #[arg(long)]
    secret_stdin: bool,
    #[command(flatten)]
    options: Options,
}

/// `endpoint set`
#[derive(Debug, Args)]
pub struct Set {
    /// The endpoint
    #[arg(value_parser = id)]
    id: EndpointKey,
    /// Where to
    #[arg(long)]
    url: Option<String>,
    /// Take a field away, by the name of its option or of the field; may be repeated
    #[arg(long, value_name = "FIELD")]
    unset: Vec<String>,
    #[command(flatten)]
    options: Options,
}

pub(super) async fn add<W: World>(session: &mut Session<'_, W>, add: &Add) -> Result<Exit, Failure> {
    let definition = add
        .options
        .define(json!({}), Some(&add.url), &[], session.environment)
        .map_err(|problems| Failure::problems("this is no endpoint:", &problems))?;
    let given = if add.secret_stdin { secrets::from_input(session)? } else { Vec::new() };
    let outside = session.connect().await?;
    let now = session.now();
    let old = outside.registration(&add.id).await?;
    let mut next = match &old {
        None => Registration::first(definition, now),
        Some(Err(broken)) if !add.replace_unreadable => return Err(unreadable(&add.id, broken)),
        Some(Err(broken)) => {
            for problem in lines("", &broken.problems) {
                session.note(&format!("It cannot be read: {problem}"));
            }
            let kept = broken.secrets.len();
            session.confirm(&format!("Register {} anew; {kept} of its secrets can be read and stay", add.id))?;
            Registration {
                version: broken.version + 1,
                secrets: broken.secrets.clone(),
                ..Registration::first(definition, now)
            }
        }
        Some(Ok(old)) => match old.removed_at {
            None => {
                let message = format!(
                    "there is an endpoint {} already (version {}): change it with `redeliver endpoint set {}`",
                    add.id, old.version, add.id
                );
                return Err(Failure::new(Exit::Conflict, "exists", message));
            }
            Some(at) if !add.restore => {
                let message = format!("{} was removed {}: bring it back with --restore", add.id, session.time(at));
                return Err(Failure::new(Exit::Conflict, "removed", message));
            }
            Some(_) => {
                session.confirm(&format!("Bring {} back, which lets what is held for it go on", add.id))?;
                old.defined(definition, now)
            }
        },
    };
    let mut fresh = Fresh::default();
    secrets::complete(session, &add.id, &mut next, &given, &mut fresh)?;
    let version = old.as_ref().map_or(0, |old| old.as_ref().map_or_else(|broken| broken.version, |old| old.version));
    replace(&outside, &add.id, version, &next).await?;
    let verb = match &old {
        None => "is registered",
        Some(Ok(_)) => "is back",
        Some(Err(_)) => "is registered anew",
    };
    let mut text = format!("{} {verb} (version {}).\n", add.id, next.version);
    let warnings = warnings(&next, now);
    text.push_str(&warned(session, &warnings));
    text.push_str(&fresh.to_text(session));
    if old.is_some() {
        text.push_str(&format!("\nWhat was held goes out after `redeliver endpoint resume {} --reason …`.\n", add.id));
    }
    let document = json!({"ok": true, "endpoint": add.id.as_str(), "version": next.version, "restored": old.is_some(), "warnings": warnings, "secrets": fresh.to_json()});
    session.answer(&document, &text)?;
    Ok(Exit::Done)
}

pub(super) async fn set<W: World>(session: &mut Session<'_, W>, set: &Set) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let old = existing(&outside, &set.id).await?;
    if old.removed_at.is_some() {
        let message =
            format!("{} is removed: bring it back with `redeliver endpoint add {} --restore --url …`", set.id, set.id);
        return Err(Failure::new(Exit::Conflict, "removed", message));
    }
    let definition = set
        .options
        .define(old.definition.to_json(), set.url.as_deref(), &set.unset, session.environment)
        .map_err(|problems| Failure::problems(&format!("{} cannot be like this:", set.id), &problems))?;
    let changes = compare(Some(&old.definition), &definition);
    let now = session.now();
    let mut next = old.defined(definition, now);
    let mut fresh = Fresh::default();
    secrets::complete(session, &set.id, &mut next, &[], &mut fresh)?;
    if changes.is_empty() && fresh.is_empty() {
        let document =
            json!({"ok": true, "endpoint": set.id.as_str(), "version": old.version, "changes": [], "secrets": []});
        session.answer(&document, &format!("{} is like this already (version {}).", set.id, old.version))?;
        return Ok(Exit::Done);
    }
    replace(&outside, &set.id, old.version, &next).await?;
    let warnings = warnings(&next, now);
    let mut text = format!("{} is version {}.\n{}", set.id, next.version, change_lines(session, &changes));
    text.push_str(&warned(session, &warnings));
    text.push_str(&goes_on(&set.id, &old, now).unwrap_or_default());
    text.push_str(&fresh.to_text(session));
    let document = json!({"ok": true, "endpoint": set.id.as_str(), "version": next.version, "changes": to_json(&changes), "warnings": warnings, "secrets": fresh.to_json()});
    session.answer(&document, &text)?;
    Ok(Exit::Done)
}

/// Changes, one a line.
pub(super) fn change_lines<W: World>(session: &Session<'_, W>, changes: &[Change]) -> String {
    let line = |change: &Change| match (&change.from, &change.to) {
        (None, Some(to)) => session.paint(Paint::Green, &format!("  + {}: {to}", change.field)),
        (Some(from), None) => session.paint(Paint::Red, &format!("  - {}: {from}", change.field)),
        (from, to) => {
            let word = |value: &Option<String>| value.clone().unwrap_or_default();
            session.paint(Paint::Yellow, &format!("  ~ {}: {} -> {}", change.field, word(from), word(to)))
        }
    };
    changes.iter().map(|change| line(change) + "\n").collect()
}

/// Changes, for scripts.
pub(super) fn to_json(changes: &[Change]) -> Value {
    changes.iter().map(|c| json!({"field": c.field, "from": c.from, "to": c.to})).collect()
}

/// Warnings, one a line.
pub(super) fn warned<W: World>(session: &Session<'_, W>, warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("{} {warning}\n", session.paint(Paint::Yellow, "warning:"))).collect()
}
