//! Secrets: made, imported, shown once, rotated. No other module turns one into text.

use clap::Args;
use domain::id::EndpointKey;
use domain::registry::{Registration, SecretEntry};
use domain::revision::{imported, rotated};
use domain::signature::{Scheme, Secret};
use domain::time::Millis;
use serde_json::{Value, json};

use super::{existing, goes_on, id};
use crate::exit::{Exit, Failure};
use crate::outside::{Registry, World};
use crate::session::{Paint, Session};
use crate::when;

/// `endpoint rotate-secret`
#[derive(Debug, Args)]
pub struct Rotate {
    /// The endpoint
    #[arg(value_parser = id)]
    id: EndpointKey,
    /// Which secret, where there are both
    #[arg(long, value_name = "SCHEME", value_parser = ["v1", "v1a"])]
    scheme: Option<String>,
    /// How long the older secrets go on: 24h, 7d, 90d at most, or 0 to retire them at once
    #[arg(long, value_name = "DURATION", value_parser = when::overlap, default_value = "24h")]
    overlap: i64,
    /// Take the new secret from standard input
    #[arg(long)]
    secret_stdin: bool,
}

/// Secrets that were made or imported just now, for the one time that they are shown.
#[derive(Default)]
pub(super) struct Fresh {
    of: Vec<(String, Secret, bool)>,
}

impl Fresh {
    /// Notes one; `imported`: the caller has it already.
    pub(super) fn note(&mut self, owner: &str, secret: &Secret, imported: bool) {
        self.of.push((owner.to_owned(), secret.clone(), imported));
    }

    /// Nothing was made or imported.
    pub(super) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Takes over what another one noted.
    pub(super) fn take(&mut self, other: Self) {
        self.of.extend(other.of);
    }

    /// What the receiver needs: the secret of `v1`, the public key of `v1a`, whose private half never leaves the table.
    pub(super) fn to_json(&self) -> Value {
        let secrets = self.of.iter().map(|(owner, secret, imported)| {
            let mut shown = json!({"endpoint": owner, "scheme": secret.scheme().name(), "imported": imported});
            match secret.public_key() {
                Some(key) => shown["public_key"] = json!(key.to_string()),
                None if *imported => {}
                None => shown["secret"] = json!(*secret.expose()),
            }
            shown
        });
        Value::Array(secrets.collect())
    }

    /// The same, for people.
    pub(super) fn to_text<W: World>(&self, session: &Session<'_, W>) -> String {
        let mut text = String::new();
        for (owner, secret, imported) in &self.of {
            match secret.public_key() {
                Some(key) => text.push_str(&format!("\nPublic key (v1a) of {owner}, for its receiver:\n\n  {key}\n")),
                None if *imported => text.push_str(&format!("\nThe secret (v1) of {owner} was imported.\n")),
                None => {
                    let note = session.paint(Paint::Yellow, "It is not shown again.");
                    text.push_str(&format!(
                        "\nSecret (v1) of {owner}, for its receiver. {note}\n\n  {}\n",
                        *secret.expose()
                    ));
                }
            }
        }
        text
    }
}

/// Secrets from standard input, one a line.
pub(super) fn from_input<W: World>(session: &mut Session<'_, W>) -> Result<Vec<Secret>, Failure> {
    let text = session.secret_input()?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            Secret::parse(line).map_err(|e| Failure::invalid(format!("--secret-stdin, line {}: {e}", i + 1)))
        })
        .collect()
}

/// Gives every scheme without an active secret one: of those given, else a new one.
pub(super) fn complete<W: World>(
    session: &Session<'_, W>,
    owner: &EndpointKey,
    registration: &mut Registration,
    given: &[Secret],
    fresh: &mut Fresh,
) -> Result<(), Failure> {
    let now = session.now();
    for secret in given {
        if !registration.definition.signatures.contains(&secret.scheme()) {
            return Err(Failure::invalid(format!("--secret-stdin: {owner} is not signed by {}", secret.scheme())));
        }
        fresh.note(owner.as_str(), secret, true);
    }
    registration.secrets = imported(&registration.secrets, given, now).map_err(Failure::conflict)?;
    for scheme in registration.unsigned_schemes(now) {
        let secret = Secret::new(scheme, &session.world.random_key());
        add(registration, secret.clone(), 0, now)?;
        fresh.note(owner.as_str(), &secret, false);
    }
    Ok(())
}

fn add(registration: &mut Registration, secret: Secret, overlap_ms: i64, now: Millis) -> Result<(), Failure> {
    registration.secrets = rotated(&registration.secrets, secret, overlap_ms, now).map_err(Failure::conflict)?;
    Ok(())
}

/// Makes a new secret. A lost race is tried again once: whatever the other change was, a rotation still applies.
pub(super) async fn rotate<W: World>(session: &mut Session<'_, W>, rotate: &Rotate) -> Result<Exit, Failure> {
    let given = if rotate.secret_stdin { from_input(session)? } else { Vec::new() };
    if given.len() > 1 {
        return Err(Failure::invalid("--secret-stdin: one secret at a time is rotated"));
    }
    let outside = session.connect().await?;
    let asked = rotate.scheme.as_deref().and_then(Scheme::from_name);
    let now = session.now();
    let mut secret: Option<Secret> = given.first().cloned();
    for _ in 0..2 {
        let old = existing(&outside, &rotate.id).await?;
        let scheme = scheme_of(&rotate.id, &old, asked, secret.as_ref())?;
        let new = secret.get_or_insert_with(|| Secret::new(scheme, &session.world.random_key())).clone();
        let mut next = old.next(now);
        add(&mut next, new.clone(), rotate.overlap, now)?;
        if outside.replace(&rotate.id, old.version, &next).await? {
            return told(session, rotate, &new, &old, &next);
        }
    }
    Err(Failure::conflict(format!("{} is being changed by somebody else: nothing was written, try again", rotate.id)))
}

fn scheme_of(
    id: &EndpointKey,
    old: &Registration,
    asked: Option<Scheme>,
    given: Option<&Secret>,
) -> Result<Scheme, Failure> {
    let signatures = &old.definition.signatures;
    match (asked, given.map(Secret::scheme)) {
        (Some(asked), Some(given)) if asked != given => {
            Err(Failure::invalid(format!("the secret on standard input is one of {given}, not of {asked}")))
        }
        (Some(scheme), _) | (None, Some(scheme)) => Ok(scheme),
        (None, None) => match signatures.as_slice() {
            [scheme] => Ok(*scheme),
            [] => Err(Failure::invalid(format!("{id} is not signed; give --scheme to prepare a secret all the same"))),
            _ => Err(Failure::invalid(format!("{id} is signed by v1 and v1a: say which with --scheme"))),
        },
    }
}

fn told<W: World>(
    session: &mut Session<'_, W>,
    rotate: &Rotate,
    new: &Secret,
    old: &Registration,
    next: &Registration,
) -> Result<Exit, Failure> {
    let now = session.now();
    let mut fresh = Fresh::default();
    fresh.note(rotate.id.as_str(), new, rotate.secret_stdin);
    let older = |s: &&SecretEntry| s.secret.scheme() == new.scheme() && s.retired_at.is_some() && s.is_active(now);
    let retiring: Vec<Millis> = next.secrets.iter().filter(older).filter_map(|s| s.retired_at).collect();
    let mut text =
        format!("{}: a new {} secret signs from now on (version {}).\n", rotate.id, new.scheme(), next.version);
    match retiring.iter().max() {
        Some(until) => text.push_str(&format!("Older ones sign too until {}.\n", session.time(*until))),
        None => text.push_str("No older one signs any more.\n"),
    }
    if !next.definition.signatures.contains(&new.scheme()) {
        let warning = format!(
            "It does not sign yet: `redeliver endpoint set {} --signature {}` lets it.",
            rotate.id,
            new.scheme()
        );
        text.push_str(&format!("{}\n", session.paint(Paint::Yellow, &warning)));
    }
    text.push_str(&goes_on(&rotate.id, old, now).unwrap_or_default());
    text.push_str(&fresh.to_text(session));
    let retires: Vec<String> = retiring.iter().map(ToString::to_string).collect();
    let document = json!({"ok": true, "endpoint": rotate.id.as_str(), "version": next.version, "secrets": fresh.to_json(), "older_retire_at": retires});
    session.answer(&document, &text)?;
    Ok(Exit::Done)
}

/// The secrets of a registration without their keys, for people.
pub(super) fn described<W: World>(session: &Session<'_, W>, secrets: &[SecretEntry]) -> Vec<String> {
    let now = session.now();
    secrets
        .iter()
        .map(|entry| {
            let created =
                if entry.created_at == Millis(0) { "by hand".to_owned() } else { session.time(entry.created_at) };
            let until = match entry.retired_at {
                None => String::new(),
                Some(at) if at > now => format!(", retires {}", session.time(at)),
                Some(at) => format!(", retired {}", session.time(at)),
            };
            let active = if entry.is_active(now) { "active" } else { "retired" };
            let public = entry.secret.public_key().map(|key| format!(", {key}")).unwrap_or_default();
            format!("{} {active}, made {created}{until}{public}", entry.secret.scheme())
        })
        .collect()
}
