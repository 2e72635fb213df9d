//! What can be written on the command line. Each group of commands keeps its own arguments beside its story.

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::{audit, cancel, endpoint, exit, explain, list, redrive, send, sweep, verify};

/// Redeliver from the command line: register endpoints, send and test webhooks, check signatures.
#[derive(Debug, Parser)]
#[command(name = "redeliver", version, after_help = exit::HELP)]
pub struct Arguments {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// A CloudFormation stack, or the path of a stack.json [default: $REDELIVER_STACK, .local/stack.json, redeliver]
    #[arg(long, global = true, value_name = "NAME|PATH")]
    pub stack: Option<String>,
    /// A profile of the AWS configuration
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
    /// An AWS region
    #[arg(long, global = true, value_name = "NAME")]
    pub region: Option<String>,
    /// Answer with one JSON document
    #[arg(long, global = true)]
    pub json: bool,
    /// Agree to what would be asked
    #[arg(long, short = 'y', global = true)]
    pub yes: bool,
    /// Who decides, for the record; ignored where AWS vouches for the caller [default: the caller as AWS knows it, or $USER]
    #[arg(long, global = true, value_name = "NAME")]
    pub operator: Option<String>,
    /// Whether to use colours: auto, always or never
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub color: Color,
    /// Show all that AWS said about a failure
    #[arg(long, global = true)]
    pub verbose: bool,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Register, change, look at and test endpoints
    #[command(subcommand)]
    Endpoint(endpoint::Command),
    /// Put a webhook on the intake queue
    Send(Box<send::Arguments>),
    /// List deliveries that wait, are held, were given up, or were not accepted
    List(list::Arguments),
    /// Tell the story of one delivery, and what can be done
    Explain(explain::Arguments),
    /// Do not deliver it
    Cancel(cancel::Arguments),
    /// Bring deliveries back by a plan: propose, approve, watch, abort
    #[command(subcommand)]
    Redrive(redrive::Command),
    /// List the plans
    Plans(redrive::Plans),
    /// Who decided what, and whether that record is whole
    Audit(audit::Arguments),
    /// Repairs
    #[command(subcommand)]
    Sweep(sweep::Command),
    /// Check that the parts of a stack fit each other
    Doctor,
    /// Find out why a receiver does not accept a signature
    Verify(Box<verify::Arguments>),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    Man,
}
