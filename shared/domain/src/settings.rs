//! Settings that several functions share, and the rules that tie them together.

use crate::retry::{RetryPolicy, Waits};
use crate::time::{DAY_MS, SECOND_MS};

/// How long things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Records in a final state, in milliseconds; also the window in which duplicates are recognised.
    pub record_ms: i64,
    /// Payloads, counted from the last moment that may need them, in milliseconds.
    pub payload_ms: i64,
}

/// The least retention of a record: intake queue (4 days) and transport DLQ (14 days) together, so that the last copy
/// of a message still meets its record.
pub const MIN_RETENTION_DAYS: u32 = 18;

/// The times that must fit each other, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Longest HTTP request.
    pub request_ms: i64,
    /// Timeout of the function that sends.
    pub function_ms: i64,
    /// How long a claim is respected.
    pub lease_ms: i64,
    /// Visibility timeout of the queues.
    pub visibility_ms: i64,
}

/// `maxReceiveCount` of the intake queue: a budget for our own trouble, never the attempt budget.
pub const INTAKE_MAX_RECEIVES: u32 = 20;
/// `maxReceiveCount` of the retry queue.
pub const RETRY_MAX_RECEIVES: u32 = 5;

/// Left of an invocation after the longest request, for recording what came of it, in milliseconds.
pub const FINISH_MARGIN_MS: i64 = 1_500;

impl Timing {
    /// `request + margin < function < lease < visibility`: a claim outlives the process that made it, and a message
    /// outlives the claim. Each broken rule is one sentence that names the variables.
    pub fn check(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut rule = |holds: bool, sentence: &str| {
            if !holds {
                problems.push(sentence.to_owned());
            }
        };
        rule(
            self.request_ms + FINISH_MARGIN_MS < self.function_ms,
            "REQUEST_TIMEOUT_SECONDS must be at least 2 s shorter than FUNCTION_TIMEOUT_SECONDS, or no outcome could be recorded",
        );
        rule(
            self.function_ms < self.lease_ms,
            "LEASE_SECONDS must be longer than FUNCTION_TIMEOUT_SECONDS, or a running attempt could be taken over",
        );
        rule(
            self.lease_ms < self.visibility_ms,
            "VISIBILITY_TIMEOUT_SECONDS must be longer than LEASE_SECONDS, or a message would return before its claim has ended",
        );
        problems
    }
}

/// Reads settings from a lookup function, and collects what is missing or wrong instead of stopping at the first.
pub struct Reader<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    problems: Vec<String>,
}

/// Everything that is wrong with a configuration; each line names a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidSettings(pub Vec<String>);

impl std::fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invalid configuration: {}", self.0.join("; "))
    }
}

impl std::error::Error for InvalidSettings {}

impl<'a> Reader<'a> {
    /// Reads through `lookup`, which is the environment in production.
    pub fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { lookup, problems: Vec::new() }
    }

    /// Notes a problem.
    pub fn problem(&mut self, sentence: impl Into<String>) {
        self.problems.push(sentence.into());
    }

    /// A text that must be there.
    pub fn text(&mut self, name: &str) -> String {
        match (self.lookup)(name) {
            Some(value) if !value.trim().is_empty() => value.trim().to_owned(),
            _ => {
                self.problem(format!("{name} is not set"));
                String::new()
            }
        }
    }

    /// A text that may be missing or empty.
    pub fn optional_text(&mut self, name: &str) -> String {
        (self.lookup)(name).map(|v| v.trim().to_owned()).unwrap_or_default()
    }

    /// A whole number in a range.
    pub fn number(&mut self, name: &str, range: std::ops::RangeInclusive<u32>) -> u32 {
        let text = self.text(name);
        if text.is_empty() {
            return *range.start();
        }
        match text.parse::<u32>() {
            Ok(n) if range.contains(&n) => n,
            _ => {
                self.problem(format!(
                    "{name} must be a whole number from {} to {}, not {text:?}",
                    range.start(),
                    range.end()
                ));
                *range.start()
            }
        }
    }

    /// `true` or `false`.
    pub fn flag(&mut self, name: &str) -> bool {
        match self.text(name).as_str() {
            "true" => true,
            "false" | "" => false,
            other => {
                self.problem(format!("{name} must be true or false, not {other:?}"));
                false
            }
        }
    }

    /// A number of seconds, in milliseconds.
    pub fn seconds_ms(&mut self, name: &str, range: std::ops::RangeInclusive<u32>) -> i64 {
        i64::from(self.number(name, range)) * SECOND_MS
    }

    /// `RECORD_RETENTION_DAYS` and `PAYLOAD_RETENTION_DAYS`, which must be as long: a dead letter is of no use without its
    /// payload.
    pub fn retention(&mut self) -> Retention {
        let mut days = |name| i64::from(self.number(name, MIN_RETENTION_DAYS..=3650));
        let (record, payload) = (days("RECORD_RETENTION_DAYS"), days("PAYLOAD_RETENTION_DAYS"));
        if payload < record {
            self.problem(format!(
                "PAYLOAD_RETENTION_DAYS ({payload}) must be at least RECORD_RETENTION_DAYS ({record}), or dead letters could not be redriven"
            ));
        }
        Retention { record_ms: record * DAY_MS, payload_ms: payload * DAY_MS }
    }

    /// The four times, with their cross-field rules.
    pub fn timing(&mut self) -> Timing {
        let timing = Timing {
            request_ms: self.seconds_ms("REQUEST_TIMEOUT_SECONDS", 1..=30),
            function_ms: self.seconds_ms("FUNCTION_TIMEOUT_SECONDS", 3..=900),
            lease_ms: self.seconds_ms("LEASE_SECONDS", 4..=900),
            visibility_ms: self.seconds_ms("VISIBILITY_TIMEOUT_SECONDS", 5..=43_200),
        };
        self.problems.extend(timing.check());
        timing
    }

    /// The default retry policy.
    pub fn retry_policy(&mut self) -> RetryPolicy {
        let schedule = self.text("RETRY_SCHEDULE_SECONDS");
        let waits = Waits::parse(&schedule).unwrap_or_else(|e| {
            self.problem(format!("RETRY_SCHEDULE_SECONDS: {e}"));
            Waits::List(vec![1])
        });
        RetryPolicy {
            attempts: self.number("MAX_ATTEMPTS", 1..=100),
            waits,
            jitter_percent: u8::try_from(self.number("RETRY_JITTER_PERCENT", 0..=100)).unwrap_or(100),
            hint_cap_seconds: self.number("HINT_CAP_SECONDS", 1..=crate::retry::MAX_WAIT_SECONDS),
            window_seconds: None,
        }
    }

    /// The settings, if nothing was wrong with them.
    pub fn finish<T>(self, settings: T) -> Result<T, InvalidSettings> {
        if self.problems.is_empty() { Ok(settings) } else { Err(InvalidSettings(self.problems)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_do_not_fit_are_named() {
        let good = Timing { request_ms: 10_000, function_ms: 45_000, lease_ms: 60_000, visibility_ms: 270_000 };
        assert!(good.check().is_empty());
        for (timing, name) in [
            (Timing { request_ms: 43_500, ..good }, "REQUEST_TIMEOUT_SECONDS"),
            (Timing { lease_ms: 45_000, ..good }, "LEASE_SECONDS"),
            (Timing { visibility_ms: 60_000, ..good }, "VISIBILITY_TIMEOUT_SECONDS"),
        ] {
            let problems = timing.check();
            assert!(problems.len() == 1 && problems[0].starts_with(name), "{problems:?}");
        }
    }

    #[test]
    fn retention_is_given_in_days() {
        let lookup = |name: &str| Some(if name.starts_with("RECORD") { "18" } else { "30" }.to_owned());
        let retention = Retention { record_ms: 18 * 86_400_000, payload_ms: 30 * 86_400_000 };
        assert_eq!(Reader::new(&lookup).retention(), retention);
    }

    #[test]
    fn every_problem_is_collected_and_names_its_variable() {
        let lookup = |name: &str| match name {
            "MAX_ATTEMPTS" => Some("0".to_owned()),
            "RETRY_SCHEDULE_SECONDS" => Some("1,zwei".to_owned()),
            "RETRY_JITTER_PERCENT" => Some("15".to_owned()),
            _ => None,
        };
        let mut reader = Reader::new(&lookup);
        let policy = reader.retry_policy();
        let text = reader.finish(policy).unwrap_err().to_string();
        for name in ["MAX_ATTEMPTS", "RETRY_SCHEDULE_SECONDS", "HINT_CAP_SECONDS"] {
            assert!(text.contains(name), "{text}");
        }
        assert!(!text.contains("JITTER"), "{text}");
    }

    #[test]
    fn payloads_outlive_the_records() {
        for (record, payload, fits) in [("30", "30", true), ("30", "31", true), ("30", "29", false)] {
            let lookup = |name: &str| Some(if name.starts_with("RECORD") { record } else { payload }.to_owned());
            let mut reader = Reader::new(&lookup);
            let retention = reader.retention();
            match reader.finish(retention) {
                Ok(retention) => assert!(fits && retention.payload_ms >= retention.record_ms),
                Err(error) => assert!(!fits && error.to_string().contains("PAYLOAD_RETENTION_DAYS (29)"), "{error}"),
            }
        }
    }
}
