//! `endpoint keys`: what the receiver of an inline URL needs to verify, and the rotation of the root keys that all such
//! keys are made from.

use clap::{Args, Subcommand};
use domain::registry::{RootKeys, SecretEntry};
use domain::revision::rotated;
use domain::signature::{Scheme, Secret};
use serde_json::json;
use url::Url;

use super::test::parse_url;
use crate::exit::{Exit, Failure, lines};
use crate::outside::{Registry, World};
use crate::session::{Paint, Session};
use crate::when;

/// `endpoint keys`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Keys {
    /// The URL: all of one origin have the same secret
    #[arg(long, value_parser = parse_url)]
    url: Option<Url>,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to do with the root keys.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make a new root key: every receiver of an inline URL needs its new keys within the overlap
    Rotate {
        /// How long the older root keys go on, 90d at most
        #[arg(long, value_name = "DURATION", value_parser = when::overlap, default_value = "24h")]
        overlap: i64,
    },
}

pub(super) async fn keys<W: World>(session: &mut Session<'_, W>, keys: &Keys) -> Result<Exit, Failure> {
    match (&keys.url, &keys.command) {
        (_, Some(Command::Rotate { overlap })) => rotate(session, *overlap).await,
        (Some(url), None) => show(session, url).await,
        (None, None) => Err(Failure::invalid("give --url, or `rotate`")),
    }
}

async fn show<W: World>(session: &mut Session<'_, W>, url: &Url) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let now = session.now();
    let mut roots = outside.root_keys().await?;
    if !roots.any_active(now) {
        if !roots.problems.is_empty() {
            return Err(Failure::problems(
                "no root key can be read; `redeliver endpoint keys rotate` makes a new one in place of these:",
                &lines("", &roots.problems),
            ));
        }
        // As the first delivery to an inline URL would do, so that its receiver can be told before.
        roots.keys.insert(0, SecretEntry { secret: new_root(session), created_at: now, retired_at: None });
        if !outside.replace_root_keys(roots.version, &roots.keys).await? {
            roots = outside.root_keys().await?;
        }
    }
    left_out(session, &roots);
    let origin = domain::id::origin(url);
    let mut text = format!(
        "Keys of {}, for its receiver. Anybody who has the secret can sign for it.\n",
        session.paint(Paint::Bold, &origin)
    );
    let mut documents = Vec::new();
    for root in roots.keys.iter().filter(|root| root.is_active(now)) {
        let secret = root.secret.for_origin(Scheme::V1, &origin);
        let public =
            root.secret.for_origin(Scheme::V1a, &origin).public_key().map(|key| key.to_string()).unwrap_or_default();
        let until = root.retired_at.map(|at| format!(", until {}", session.time(at))).unwrap_or_default();
        text.push_str(&format!(
            "\n  secret (v1){until}\n    {}\n  public key (v1a), the same for all origins{until}\n    {public}\n",
            *secret.expose()
        ));
        documents.push(json!({"secret": *secret.expose(), "public_key": public, "retires_at": root.retired_at.map(|at| at.to_string())}));
    }
    session.answer(&json!({"ok": true, "origin": origin, "keys": documents}), &text)?;
    Ok(Exit::Done)
}

/// Says which keys cannot be read: nothing is signed with them.
fn left_out<W: World>(session: &mut Session<'_, W>, roots: &RootKeys) {
    for problem in &roots.problems {
        session.note(&format!("A root key is left out, it cannot be read: {problem}"));
    }
}

fn new_root<W: World>(session: &Session<'_, W>) -> Secret {
    Secret::new(Scheme::V1, &session.world.random_key())
}

async fn rotate<W: World>(session: &mut Session<'_, W>, overlap: i64) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    left_out(session, &outside.root_keys().await?);
    session.confirm("Rotate the root key: every receiver of an inline URL needs new keys")?;
    let now = session.now();
    let new = new_root(session);
    for _ in 0..2 {
        let RootKeys { keys, version, problems: _ } = outside.root_keys().await?;
        let next = rotated(&keys, new.clone(), overlap, now).map_err(Failure::conflict)?;
        if outside.replace_root_keys(version, &next).await? {
            let until = next.iter().skip(1).filter(|root| root.is_active(now)).filter_map(|root| root.retired_at).max();
            let older = until.map_or_else(
                || "No older one signs any more.".to_owned(),
                |until| format!("Older ones sign too until {}.", session.time(until)),
            );
            let text = format!(
                "The root key is new (version {}). {older}\n`redeliver endpoint keys --url …` shows the keys of an origin.",
                version + 1
            );
            session.answer(
                &json!({"ok": true, "version": version + 1, "older_retire_at": until.map(|at| at.to_string())}),
                &text,
            )?;
            return Ok(Exit::Done);
        }
    }
    Err(Failure::conflict("the root keys are being changed by somebody else: nothing was written, try again"))
}
