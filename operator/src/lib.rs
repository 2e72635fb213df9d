//! The command line `redeliver`, for the people who run a stack: it registers endpoints, sends and tests webhooks, and
//! checks signatures; it lists and explains deliveries, and carries a redrive from its proposal to its end. It talks to AWS
//! and to no endpoint; what it decides is said by the domain.
//!
//! The cast: [`arguments`] is what can be written; one module per group of commands ([`endpoint`], [`send`], [`verify`],
//! [`list`], [`explain`], [`cancel`], [`redrive`], [`audit`], [`sweep`], [`doctor`]) tells the stories; [`session`] is one run with its
//! streams, [`outside`] the traits of what it talks to, [`aws`] and [`url`] their only implementation; [`stack`] finds the stack,
//! [`exit`] holds the exit codes. A secret is printed once, when it is made, and by no other command.

pub mod arguments;
pub mod audit;
pub mod aws;
pub mod cancel;
pub mod doctor;
pub mod endpoint;
pub mod exit;
pub mod explain;
#[cfg(test)]
mod fakes;
pub mod follow;
pub mod list;
pub mod outside;
pub mod redrive;
pub mod send;
pub mod session;
pub mod stack;
#[cfg(test)]
mod stories;
pub mod sweep;
pub mod url;
pub mod verify;
pub mod when;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use serde_json::json;

use crate::arguments::{Arguments, Command};
use crate::exit::{Exit, Failure};
use crate::outside::World;
use crate::session::{Environment, Io, Session, plain_lines};

/// Runs a command line (its first word is the name of the program) against AWS.
pub async fn run<'a>(words: Vec<OsString>, environment: Environment<'a>, io: Io<'a>) -> Exit {
    run_in(&aws::Aws, words, environment, io).await
}

/// Runs a command line in a world.
pub async fn run_in<'a, W: World>(
    world: &'a W,
    words: Vec<OsString>,
    environment: Environment<'a>,
    io: Io<'a>,
) -> Exit {
    let json = words.iter().any(|word| word == "--json");
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return not_parsed(&error, json, io),
    };
    let Arguments { global, command } = arguments;
    let mut session = Session { world, global, environment, io };
    let done = match command {
        Command::Endpoint(command) => endpoint::run(&mut session, command).await,
        Command::Send(arguments) => send::run(&mut session, &arguments).await,
        Command::List(arguments) => list::run(&mut session, &arguments).await,
        Command::Explain(arguments) => explain::run(&mut session, &arguments).await,
        Command::Cancel(arguments) => cancel::run(&mut session, &arguments).await,
        Command::Redrive(command) => redrive::run(&mut session, command).await,
        Command::Plans(plans) => redrive::plans(&mut session, &plans).await,
        Command::Audit(arguments) => audit::run(&mut session, &arguments).await,
        Command::Sweep(command) => sweep::run(&mut session, &command).await,
        Command::Doctor => doctor::run(&mut session).await,
        Command::Verify(arguments) => verify::run(&mut session, &arguments).await,
        Command::Completions { shell } => completions(&mut session, shell),
        Command::Man => man(&mut session),
    };
    done.unwrap_or_else(|failure| fail(&mut session, &failure))
}

fn fail<W: World>(session: &mut Session<'_, W>, failure: &Failure) -> Exit {
    let verbose = session.global.verbose;
    if session.global.json {
        session.answer(&failure.to_json(verbose), "").ok();
    } else {
        // Parts of it may be somebody else's words.
        session.note(&plain_lines(&format!("error: {}", failure.message)));
        if let Some(detail) = failure.detail.as_ref().filter(|_| verbose) {
            session.note(&plain_lines(detail));
        }
    }
    failure.exit
}

/// Help and versions are answers; anything else was wrong usage.
fn not_parsed(error: &clap::Error, json: bool, io: Io<'_>) -> Exit {
    let text = error.render().to_string();
    if !error.use_stderr() {
        write!(io.stdout, "{text}").ok();
        return Exit::Done;
    }
    let text = redacted(&text);
    if json {
        let message = text.trim_start_matches("error: ").trim();
        let failure = json!({"ok": false, "error": {"code": "usage", "message": message}});
        writeln!(io.stdout, "{failure:#}").ok();
    } else {
        write!(io.stderr, "{text}").ok();
    }
    Exit::Usage
}

/// The parser repeats what it did not understand; a URL may hold a token, and a secret is one.
fn redacted(text: &str) -> String {
    let in_base64 = |c: char| c.is_ascii_alphanumeric() || "+/".contains(c);
    // The shortest secret without its prefix; no word of ours is that long.
    let is_long = |run: &str| run.len() >= 32;
    let word = |word: &str| {
        let quoted = |what: &str| if word.starts_with('\'') { format!("'{what}'") } else { what.to_owned() };
        if word.contains("://") {
            quoted("(a URL)")
        } else if word.contains("whsec_") || word.contains("whsk_") || word.split(|c| !in_base64(c)).any(is_long) {
            quoted("(a secret)")
        } else {
            word.to_owned()
        }
    };
    text.split_inclusive([' ', '\n'])
        .map(|piece| {
            let bare = piece.trim_end_matches([' ', '\n']);
            word(bare) + &piece[bare.len()..]
        })
        .collect()
}

fn completions<W: World>(session: &mut Session<'_, W>, shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "redeliver", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    session.answer(&json!({"ok": true, "script": script}), &script)?;
    Ok(Exit::Done)
}

fn man<W: World>(session: &mut Session<'_, W>) -> Result<Exit, Failure> {
    let mut page = Vec::new();
    let mut pages = vec![Arguments::command()];
    pages[0].build();
    // One page with every command, the outermost first.
    let mut at = 0;
    while let Some(command) = pages.get(at).cloned() {
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        pages.extend(command.get_subcommands().filter(|c| c.get_name() != "help" && at < 64).cloned());
        at += 1;
    }
    let page = String::from_utf8_lossy(&page).into_owned();
    session.answer(&json!({"ok": true, "page": page}), &page)?;
    Ok(Exit::Done)
}
