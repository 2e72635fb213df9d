//! What the tests of real processes stand on. [`stack`] is the local stack, [`cli`] its command line, [`receiver`] a
//! receiver that does as it is told. The rest is for runs under load, in which everything goes wrong at once: [`crowd`] are the receivers, [`load`]
//! sends, [`trouble`] and [`faulty`] break things, [`settle`] waits, and [`compare`] says whether the records tell what the
//! receivers saw. Only tests use this; it never decides what the functions should do.
#![allow(unreachable_pub, missing_docs, reason = "only tests use it")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "tests stop at the first surprise, run in real time, and print what they measure"
)]

pub mod chance;
pub mod cli;
pub mod compare;
pub mod crowd;
pub mod faulty;
pub mod ledger;
pub mod load;
pub mod options;
pub mod processes;
pub mod receiver;
pub mod run;
pub mod settle;
pub mod stack;
pub mod switches;
pub mod told;
pub mod trouble;
