//! Tests of the whole, from fast to slow: the dependency wall, stories in virtual time, requests on the wire, and the real
//! binaries on the local stack.
#![allow(unreachable_pub, reason = "a test binary has no public interface")]

mod purity;
mod receiver;
mod stack;
mod stories;
mod wire;
mod world;
