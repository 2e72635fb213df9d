//! Settings of `dlq-sweep`.

use domain::message::Limits;
use domain::settings::{InvalidSettings, Reader, Retention};
use domain::sweep::Patience;

/// Everything that `dlq-sweep` is configured with.
#[derive(Debug)]
pub struct Config {
    /// Name of the deliveries table.
    pub deliveries_table: String,
    /// Name of the payloads table.
    pub payloads_table: String,
    /// The retry queue, whose depth is looked at.
    pub retry_queue_url: String,
    /// Transport DLQ of the intake queue.
    pub intake_dlq_url: String,
    /// Transport DLQ of the retry queue.
    pub retry_dlq_url: String,
    /// What the runs need.
    pub settings: Settings,
}

/// Settings of the runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When a repair is due.
    pub patience: Patience,
    /// How long things are kept.
    pub retention: Retention,
    /// Budget of a delivery that was never tried and whose endpoint is not looked up.
    pub max_attempts: u32,
    /// What a message may hold.
    pub limits: Limits,
}

impl Config {
    /// Reads the settings.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, InvalidSettings> {
        let mut r = Reader::new(lookup);
        let timing = r.timing();
        let config = Self {
            deliveries_table: r.text("DELIVERIES_TABLE"),
            payloads_table: r.text("PAYLOADS_TABLE"),
            retry_queue_url: r.text("RETRY_QUEUE_URL"),
            intake_dlq_url: r.text("INTAKE_DLQ_URL"),
            retry_dlq_url: r.text("RETRY_DLQ_URL"),
            settings: Settings {
                patience: Patience {
                    grace_ms: r.seconds_ms("OVERDUE_GRACE_SECONDS", 1..=3600),
                    lease_ms: timing.lease_ms,
                    visibility_ms: timing.visibility_ms,
                },
                retention: r.retention(),
                max_attempts: r.number("MAX_ATTEMPTS", 1..=100),
                limits: Limits {
                    max_body_bytes: r.number("MAX_BODY_BYTES", 1..=358_400) as usize,
                    allow_inline_urls: r.flag("ALLOW_INLINE_URLS"),
                },
            },
        };
        r.finish(config)
    }
}
