//! `dlq-sweep`: the broom. It arms long waits, repairs what got lost, drains the transport DLQs into records, goes on with
//! approved plans, and reports. It sends no webhook and no message: it changes records, and the stream does the rest.

pub mod arm;
pub mod config;
pub mod drain;
pub mod evidence;
pub mod handler;
pub mod reconcile;
pub mod walk;
