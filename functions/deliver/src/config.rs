//! Settings of `deliver`, read once at a cold start. A wrong one stops the start and is named.

use domain::egress::EgressPolicy;
use domain::endpoint::Defaults;
use domain::message::Limits;
use domain::settings::{InvalidSettings, Reader, Retention, Timing};
use sender::http::{CertificateDer, parse_roots};

/// Everything that `deliver` is configured with.
#[derive(Debug)]
pub struct Config {
    /// Name of the deliveries table.
    pub deliveries_table: String,
    /// Name of the payloads table.
    pub payloads_table: String,
    /// Name of the endpoints table.
    pub endpoints_table: String,
    /// Messages from this queue are wake-ups.
    pub retry_queue_arn: String,
    /// Where requests may go.
    pub egress: EgressPolicy,
    /// Authorities that receivers may use beside the public ones.
    pub private_roots: Vec<CertificateDer<'static>>,
    /// What the story needs.
    pub settings: Settings,
}

/// Settings of the story.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a message may hold.
    pub limits: Limits,
    /// What an endpoint has where its configuration says nothing; all that an inline URL has.
    pub defaults: Defaults,
    /// The times that fit each other.
    pub timing: Timing,
    /// How long things are kept.
    pub retention: Retention,
}

impl Config {
    /// Reads the settings.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, InvalidSettings> {
        let mut r = Reader::new(lookup);
        let timing = r.timing();
        let (ports, cidrs) = (r.text("ALLOWED_PORTS"), r.optional_text("EGRESS_ALLOW_CIDRS"));
        let (hosts, runtime_api) = (r.optional_text("EGRESS_ALLOW_HOSTS"), r.optional_text("AWS_LAMBDA_RUNTIME_API"));
        let egress = EgressPolicy::parse(r.flag("ALLOW_HTTP"), &ports, &cidrs, &hosts)
            .and_then(|policy| policy.with_runtime_api(Some(runtime_api.as_str()).filter(|api| !api.is_empty())))
            .unwrap_or_else(|e| {
                r.problem(format!(
                    "ALLOWED_PORTS, EGRESS_ALLOW_CIDRS, EGRESS_ALLOW_HOSTS or AWS_LAMBDA_RUNTIME_API: {e}"
                ));
                EgressPolicy::default()
            });
        // Line breaks do not survive every way into an environment.
        let private_ca = r.optional_text("PRIVATE_CA_PEM").replace("\\n", "\n");
        let private_roots = parse_roots(&private_ca).unwrap_or_else(|e| {
            r.problem(format!("PRIVATE_CA_PEM: {e}"));
            Vec::new()
        });
        let config = Self {
            deliveries_table: r.text("DELIVERIES_TABLE"),
            payloads_table: r.text("PAYLOADS_TABLE"),
            endpoints_table: r.text("ENDPOINTS_TABLE"),
            retry_queue_arn: r.text("RETRY_QUEUE_ARN"),
            egress,
            private_roots,
            settings: Settings {
                limits: Limits {
                    max_body_bytes: r.number("MAX_BODY_BYTES", 1..=358_400) as usize,
                    allow_inline_urls: r.flag("ALLOW_INLINE_URLS"),
                },
                defaults: Defaults { policy: r.retry_policy(), timeout_ms: timing.request_ms },
                timing,
                retention: r.retention(),
            },
        };
        r.finish(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        let value = match name {
            "DELIVERIES_TABLE" | "PAYLOADS_TABLE" | "ENDPOINTS_TABLE" | "RETRY_QUEUE_ARN" => "x",
            "RETRY_SCHEDULE_SECONDS" => "30,120,600,1800,7200,21600,43200",
            "MAX_ATTEMPTS" => "8",
            "RETRY_JITTER_PERCENT" => "15",
            "HINT_CAP_SECONDS" => "21600",
            "REQUEST_TIMEOUT_SECONDS" => "10",
            "FUNCTION_TIMEOUT_SECONDS" => "45",
            "LEASE_SECONDS" => "60",
            "VISIBILITY_TIMEOUT_SECONDS" => "270",
            "MAX_BODY_BYTES" => "262144",
            "RECORD_RETENTION_DAYS" | "PAYLOAD_RETENTION_DAYS" => "30",
            "ALLOW_INLINE_URLS" => "true",
            "ALLOW_HTTP" => "false",
            "ALLOWED_PORTS" => "443",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn the_defaults_of_the_template_are_valid() {
        assert!(Config::read(&environment).is_ok());
    }

    #[test]
    fn every_missing_or_wrong_variable_stops_the_start_and_is_named() {
        for (broken, value) in [
            ("DELIVERIES_TABLE", None),
            ("RETRY_QUEUE_ARN", Some(" ")),
            ("RETRY_SCHEDULE_SECONDS", Some("30,0")),
            ("MAX_ATTEMPTS", Some("0")),
            ("LEASE_SECONDS", Some("45")),
            ("RECORD_RETENTION_DAYS", Some("17")),
            ("ALLOW_HTTP", Some("yes")),
            ("ALLOWED_PORTS", Some("https")),
            ("EGRESS_ALLOW_CIDRS", Some("10.0.0.0/99")),
            ("EGRESS_ALLOW_HOSTS", Some("a b")),
            ("AWS_LAMBDA_RUNTIME_API", Some("nonsense")),
            ("PRIVATE_CA_PEM", Some("-----BEGIN CERTIFICATE-----\\nx")),
            ("EGRESS_ALLOW_HOSTS", Some("10.0.0.1")),
            ("AWS_LAMBDA_RUNTIME_API", Some(":9001")),
        ] {
            let lookup = |name: &str| if name == broken { value.map(ToOwned::to_owned) } else { environment(name) };
            let error = Config::read(&lookup).unwrap_err().to_string();
            assert!(error.contains(broken), "{broken}: {error}");
        }
    }
}
