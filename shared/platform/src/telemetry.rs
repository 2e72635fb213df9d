//! Logs: JSON lines on standard output, one wide line per attempt, sweep and decision (see docs/LOGGING.md).

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

/// Starts logging at the level that Lambda's logging configuration names. Libraries are capped at `warn`: at lower
/// levels they print URLs.
pub fn init(lookup: &dyn Fn(&str) -> Option<String>) {
    let level = match lookup("AWS_LAMBDA_LOG_LEVEL").as_deref().map(str::to_ascii_uppercase).as_deref() {
        Some("TRACE") => LevelFilter::TRACE,
        Some("DEBUG") => LevelFilter::DEBUG,
        Some("WARN") => LevelFilter::WARN,
        Some("ERROR" | "FATAL") => LevelFilter::ERROR,
        _ => LevelFilter::INFO,
    };
    let ours = ["domain", "platform", "deliver", "schedule_retry", "dlq_sweep", "redrive_approve"];
    let filter =
        Targets::new().with_default(level.min(LevelFilter::WARN)).with_targets(ours.map(|target| (target, level)));
    let lines =
        fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false).with_target(false);
    // A second start in one process (tests) keeps the first subscriber.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}
