//! Fakes for tests: the ports of the domain in memory, with virtual time, and the conformance suite that the fakes and the
//! real adapters both pass. The suite is the specification of the ports.
//!
//! A dev-dependency only: nothing here may be linked into a function.

pub mod clock;
pub mod conformance;
pub mod executor;
pub mod hostile;
pub mod memory;
pub mod queue;
pub mod samples;
pub mod sender;
