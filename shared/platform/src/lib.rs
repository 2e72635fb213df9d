//! The outside of Redeliver: DynamoDB, SQS, the clock, logs, and the shape of Lambda events.
//!
//! This crate implements the ports of [`domain::ports`] and decides nothing: which change is made, when, and why, is said
//! by the domain. The types of the AWS SDK end here. The HTTP client for endpoints is a crate of its own, `sender`, so that
//! only `deliver` links it.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the enums matched here are the SDK's and the system's, and they grow"
)]

pub mod aws;
pub mod clock;
pub mod dynamodb;
pub mod lambda;
pub mod sqs;
pub mod telemetry;
