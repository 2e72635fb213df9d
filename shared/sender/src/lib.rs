//! The HTTP client for endpoints: one request per attempt, and the egress guard on the address that is dialled. A crate of
//! its own, so that only `deliver` can open a socket to an endpoint.

#![allow(clippy::wildcard_enum_match_arm, reason = "the enums matched here are the system's, and they grow")]

mod answer;
mod attempt;
mod cause;
pub mod http;
pub mod resolver;
mod tls;
