//! Settings of `schedule-retry`.

use domain::settings::{InvalidSettings, Reader};

/// Everything that `schedule-retry` is configured with.
#[derive(Debug)]
pub struct Config {
    /// Where wake-ups go.
    pub retry_queue_url: String,
}

impl Config {
    /// Reads the settings.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, InvalidSettings> {
        let mut r = Reader::new(lookup);
        let config = Self { retry_queue_url: r.text("RETRY_QUEUE_URL") };
        r.finish(config)
    }
}
