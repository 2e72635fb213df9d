//! `redeliver endpoint …`: everything about receivers. Every write names the version it was made from.

mod apply;
mod export;
mod file;
mod keys;
mod options;
mod remove;
mod secrets;
mod show;
mod state;
mod test;
mod write;

use clap::Subcommand;
use domain::id::EndpointKey;
use domain::registry::{Registration, Unreadable};
use domain::time::Millis;

use crate::exit::{Exit, Failure, lines};
use crate::outside::{Outside, World};
use crate::session::Session;

/// What to do with endpoints.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Register an endpoint; its secret is made, and shown once
    Add(Box<write::Add>),
    /// Change fields of an endpoint
    Set(Box<write::Set>),
    /// Show an endpoint: definition, secrets without their keys, state, warnings
    Show(show::Show),
    /// List the endpoints
    List(show::List),
    /// Make a new secret; the older ones go on for a while
    RotateSecret(secrets::Rotate),
    /// Hold its deliveries back
    Pause(state::State),
    /// Let its deliveries go out again, the held ones too
    Resume(state::State),
    /// Give it up for now: its deliveries are held
    Disable(state::State),
    /// Remove it: its deliveries are held, nothing is deleted
    Remove(remove::Remove),
    /// Send one signed test event, and show what came back
    Test(test::Test),
    /// Make the registry say what a file says
    Apply(apply::Apply),
    /// Write endpoints in the form of `apply`
    Export(export::Export),
    /// Keys of inline URLs
    Keys(keys::Keys),
}

/// Runs a command.
pub async fn run<W: World>(session: &mut Session<'_, W>, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Add(add) => write::add(session, &add).await,
        Command::Set(set) => write::set(session, &set).await,
        Command::Show(show) => show::show(session, &show).await,
        Command::List(list) => show::list(session, &list).await,
        Command::RotateSecret(rotate) => secrets::rotate(session, &rotate).await,
        Command::Pause(action) => state::set(session, &action, domain::endpoint_state::Status::Paused).await,
        Command::Resume(action) => state::set(session, &action, domain::endpoint_state::Status::Active).await,
        Command::Disable(action) => state::set(session, &action, domain::endpoint_state::Status::Disabled).await,
        Command::Remove(remove) => remove::remove(session, &remove).await,
        Command::Test(test) => test::test(session, &test).await,
        Command::Apply(apply) => apply::apply(session, &apply).await,
        Command::Export(export) => export::export(session, &export).await,
        Command::Keys(keys) => keys::keys(session, &keys).await,
    }
}

/// An id as an argument.
fn id(text: &str) -> Result<EndpointKey, String> {
    EndpointKey::registered(text)
}

/// The registration of an endpoint that has to be there.
async fn existing<O: Outside>(outside: &O, id: &EndpointKey) -> Result<Registration, Failure> {
    match outside.registration(id).await? {
        None => Err(Failure::not_found(format!(
            "there is no endpoint {id}; `redeliver endpoint list` shows those there are"
        ))),
        Some(Ok(registration)) => Ok(registration),
        Some(Err(broken)) => Err(unreadable(id, &broken)),
    }
}

fn unreadable(id: &EndpointKey, broken: &Unreadable) -> Failure {
    let intro = format!(
        "what is stored of {id} cannot be read, and its deliveries are held; `redeliver endpoint add {id} --replace-unreadable --url …` registers it anew:"
    );
    let failure = Failure::problems(&intro, &lines("", &broken.problems));
    Failure { code: "misconfigured".to_owned(), ..failure }
}

/// What to do after a repair, for an endpoint whose deliveries were held: they go on only when somebody says so.
fn goes_on(id: &EndpointKey, old: &Registration, now: Millis) -> Option<String> {
    let held = old.removed_at.is_some() || !old.unsigned_schemes(now).is_empty();
    held.then(|| format!("What was held for {id} goes out after `redeliver endpoint resume {id} --reason …`.\n"))
}

/// Writes the next version, or says that somebody was faster.
async fn replace<O: Outside>(outside: &O, id: &EndpointKey, old: u64, new: &Registration) -> Result<(), Failure> {
    if outside.replace(id, old, new).await? {
        return Ok(());
    }
    let there = outside.registration(id).await?.and_then(Result::ok).map_or(0, |r| r.version);
    let message = format!(
        "{id} was changed by somebody else meanwhile (version {old} became {there}): nothing was written; look at it and try again"
    );
    Err(Failure::conflict(message).with("version", serde_json::json!(there)))
}
