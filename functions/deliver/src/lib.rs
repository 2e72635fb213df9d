//! `deliver`: takes messages from the intake and the retry queue, and is the only function that opens a socket to an
//! endpoint. It cannot send to a queue: a retry is a change in the table, and the table's stream does the rest.

pub mod config;
pub mod deliver;
pub mod finish;
mod gates;
pub mod handler;
mod meet;
