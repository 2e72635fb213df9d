//! The settings of the worlds: the defaults of the template where they matter, with retry schedules that end within hours.

use domain::endpoint::{Defaults, EndpointConfig, Found};
use domain::outcome::AnswerRules;
use domain::retry::{RetryPolicy, Waits};
use domain::settings::{Retention, Timing};
use domain::sweep::Patience;
use domain::time::{DAY_MS, Millis};

pub use domain::settings::{INTAKE_MAX_RECEIVES, RETRY_MAX_RECEIVES};

/// 2026-12-01T00:00:00Z.
pub const START: Millis = Millis(1_796_083_200_000);
/// The times of the template.
pub const TIMING: Timing = Timing { request_ms: 10_000, function_ms: 45_000, lease_ms: 60_000, visibility_ms: 270_000 };
/// Visibility timeout of the transport DLQs, in milliseconds.
pub const DLQ_VISIBILITY_MS: i64 = 120_000;
/// How long a sweep or an operator's call may take, in milliseconds.
pub const OTHER_FUNCTIONS_MS: i64 = 60_000;
/// How long things are kept.
pub const RETENTION: Retention = Retention { record_ms: 30 * DAY_MS, payload_ms: 30 * DAY_MS };
/// No policy allows more attempts.
pub const MOST_ATTEMPTS: u32 = 8;
/// ARN of the retry queue.
pub const RETRY_ARN: &str = "arn:aws:sqs:eu-west-1:000000000000:retry";
/// ARN of the intake queue.
pub const INTAKE_ARN: &str = "arn:aws:sqs:eu-west-1:000000000000:intake";
/// When a repair is due.
pub const PATIENCE: Patience =
    Patience { grace_ms: 60_000, lease_ms: TIMING.lease_ms, visibility_ms: TIMING.visibility_ms };

/// The policy of the deployment. One wait is longer than SQS can hold a message.
pub fn policy() -> RetryPolicy {
    RetryPolicy {
        attempts: MOST_ATTEMPTS,
        waits: Waits::List(vec![5, 30, 120, 300, 1_000, 300, 60]),
        jitter_percent: 15,
        hint_cap_seconds: 3_600,
        window_seconds: None,
    }
}

/// What an endpoint has where its definition says nothing.
pub fn defaults() -> Defaults {
    Defaults { policy: policy(), timeout_ms: TIMING.request_ms }
}

/// The registration of an endpoint. Those that begin with `s` have a short policy.
pub fn found(id: &str) -> Found {
    let short = RetryPolicy { attempts: 4, waits: Waits::List(vec![2, 20, 950]), ..policy() };
    Found::Config(Box::new(EndpointConfig {
        url: format!("https://hooks.example.test/{id}"),
        timeout_ms: TIMING.request_ms,
        policy: if id.starts_with('s') { short } else { policy() },
        headers: Vec::new(),
        rules: AnswerRules::default(),
        secrets: Vec::new(),
    }))
}
