//! `redrive-approve`: the operator's function. It lists, explains, cancels, proposes and approves; it never sends a
//! webhook, and it cannot read a payload.

pub mod action;
pub mod answer;
pub mod approve;
pub mod audit;
pub mod caller;
pub mod config;
pub mod endpoint;
pub mod explain;
pub mod handler;
pub mod list;
pub mod propose;
pub mod scan;
