//! Tests of the whole, from fast to slow: the dependency wall, the template against the code, stories in virtual time,
//! requests on the wire, and the real binaries on the local stack.

mod purity;
mod stack;
mod stories;
mod wire;
mod world;
