//! The promise, "late at worst, never lost, and a needless duplicate is a bug", under every fault that can be produced in
//! memory. The stories of the function crates run unchanged, in virtual time, in a world that plays AWS; what happens to
//! their calls is decided by a plan, by a seed, or by all possible orders. A model that reads only what really happened
//! judges the outcome.
//!
//! Nothing here is linked into a function, and nothing here sends anything anywhere.

pub mod broken;
pub mod chance;
pub mod crash;
mod driver;
pub mod fates;
pub mod interleave;
pub mod judge;
pub mod ledger;
pub mod races;
pub mod receiver;
pub mod report;
pub mod round;
pub mod scenario;
pub mod settings;
pub mod shrink;
pub mod stories;
pub mod story;
pub mod watch;
pub mod weather;
mod workers;

pub mod world;
