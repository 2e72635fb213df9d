//! Tests of the whole, from fast to slow: the dependency wall, stories in virtual time, requests on the wire, and the real
//! binaries on the local stack.
#![allow(unreachable_pub, missing_docs, reason = "a test binary has no public interface")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::wildcard_enum_match_arm,
    reason = "tests stop at the first surprise, run in real time, and print what they measure"
)]

mod cases;
mod chain;
mod citations;
mod documents;
mod endpoints;
mod explanations;
mod gates;
mod items;
mod operators;
mod own_writes;
mod purity;
mod receiver;
mod redrives;
mod relay;
mod seeds;
mod semantics;
mod stack;
mod standard_webhooks;
mod stories;
mod sweeps;
mod template;
mod wire;
mod world;
