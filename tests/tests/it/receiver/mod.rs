//! Receivers: the one that speaks HTTP/1.1, and [`raw`], which goes below it.

pub mod certificates;
pub mod raw;

pub use rig::receiver::{Receiver, Reply, Seen, epoch_ms};
