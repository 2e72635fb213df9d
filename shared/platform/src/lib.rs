//! The outside of Redeliver: DynamoDB, SQS, HTTP, the clock, logs, and the shape of Lambda events.
//!
//! This crate implements the ports of [`domain::ports`] and decides nothing: which change is made, when, and why, is said
//! by the domain. The types of the AWS SDK end here.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the enums matched here are the SDK's and the system's, and they grow"
)]

pub mod aws;
pub mod clock;
pub mod dynamodb;
pub mod http;
pub mod lambda;
pub mod resolver;
pub mod sqs;
pub mod telemetry;
