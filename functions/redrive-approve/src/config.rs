//! Settings of `redrive-approve`.

use domain::settings::{InvalidSettings, Reader, Retention};

/// Everything that `redrive-approve` is configured with.
#[derive(Debug)]
pub struct Config {
    /// Name of the deliveries table.
    pub deliveries_table: String,
    /// Name of the payloads table.
    pub payloads_table: String,
    /// How long things are kept.
    pub retention: Retention,
    /// The alias that carries the function URL.
    pub alias: String,
    /// Whoever proposed a plan may not approve it, and both must be verified.
    pub two_people: bool,
}

impl Config {
    /// Reads the settings.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, InvalidSettings> {
        let mut r = Reader::new(lookup);
        let config = Self {
            deliveries_table: r.text("DELIVERIES_TABLE"),
            payloads_table: r.text("PAYLOADS_TABLE"),
            retention: r.retention(),
            alias: r.text("OPERATOR_ALIAS"),
            two_people: r.flag("REQUIRE_SECOND_PERSON"),
        };
        r.finish(config)
    }
}
