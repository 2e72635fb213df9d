//! The reviewed part of an endpoint: where its webhooks go and how, all but the secrets. The same JSON shape stands in a file
//! that an operator reviews, in the table, and in answers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fields::{Fields, Problem};
use crate::message::{MAX_HEADER_BYTES, MAX_HEADERS};
use crate::request::{check_endpoint_header, check_url, is_token, origin_shown};
use crate::retry::{MAX_WAIT_SECONDS, Waits};
use crate::signature::Scheme;

/// The longest description, in characters.
pub const MAX_DESCRIPTION: usize = 256;
/// The most waits in a schedule.
pub const MAX_SCHEDULE: usize = 100;

/// When to try again, as far as the endpoint differs from the deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// Attempts per generation, the first included.
    pub max_attempts: Option<u32>,
    /// The waits between them.
    pub waits: Option<Waits>,
    /// Jitter adds up to this many percent.
    pub jitter_percent: Option<u8>,
    /// No attempt later than this after the first one of its generation, in seconds.
    pub window_seconds: Option<u32>,
    /// The longest wait that a hint can ask for, in seconds.
    pub hint_cap_seconds: Option<u32>,
}

/// The reviewed part of an endpoint: all but its secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Definition {
    /// Where to.
    pub url: String,
    /// For people.
    pub description: Option<String>,
    /// Longest request in seconds.
    pub timeout_seconds: Option<u32>,
    /// When to try again.
    pub retry: Retry,
    /// Statuses that count as transient.
    pub retry_statuses: Vec<u16>,
    /// Statuses that count as permanent.
    pub permanent_statuses: Vec<u16>,
    /// Honour the `webhook-delivery` header of answers.
    pub receiver_control: bool,
    /// Headers for every request: lower-case names.
    pub headers: BTreeMap<String, String>,
    /// How to sign; empty: not signed.
    pub signatures: Vec<Scheme>,
    /// The most attempts per second.
    pub max_per_second: Option<u32>,
    /// The most attempts at once.
    pub max_in_flight: Option<u32>,
}

impl std::fmt::Debug for Definition {
    /// Without the path of the URL and without values of headers: they may be credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Definition")
            .field("url", &origin_shown(&self.url))
            .field("description", &self.description)
            .field("timeout_seconds", &self.timeout_seconds)
            .field("retry", &self.retry)
            .field("retry_statuses", &self.retry_statuses)
            .field("permanent_statuses", &self.permanent_statuses)
            .field("receiver_control", &self.receiver_control)
            .field("headers", &self.headers.keys())
            .field("signatures", &self.signatures)
            .field("max_per_second", &self.max_per_second)
            .field("max_in_flight", &self.max_in_flight)
            .finish()
    }
}

/// A character that a terminal obeys, or that changes how the text around it is read: control characters, those that turn
/// the direction of writing, those that are not seen.
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl Definition {
    /// Reads a definition from a file or from options; every problem is collected.
    pub fn from_json(value: Value) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::of("", value)?;
        if fields.has("secrets") {
            fields.wrong("secrets", "do not stand in a definition: they are generated, and shown once");
        }
        Self::read(fields)
    }

    /// Reads what is left of an object after the fields that only the table has.
    pub(crate) fn read(mut fields: Fields) -> Result<Self, Vec<Problem>> {
        let url = fields.take::<String>("url", "must be a text").unwrap_or_default();
        if let Err(message) = check_url(&url) {
            fields.wrong("url", message);
        }
        let description = fields.take::<String>("description", "must be a text");
        if description.as_ref().is_some_and(|d| d.chars().count() > MAX_DESCRIPTION) {
            fields.wrong("description", format!("must have {MAX_DESCRIPTION} characters at most"));
        }
        if description.as_ref().is_some_and(|d| d.chars().any(is_deceptive)) {
            fields.wrong("description", "must be one line, without characters that are not seen");
        }
        let timeout_seconds = fields.number("timeout_seconds", 1, 30);
        let retry = fields.take::<Value>("retry", "must be an object").map_or_else(Retry::default, |value| {
            Retry::from_json(value).unwrap_or_else(|problems| {
                fields.problems.extend(problems);
                Retry::default()
            })
        });
        let retry_statuses = fields.statuses("retry_statuses");
        let permanent_statuses = fields.statuses("permanent_statuses");
        if let Some(both) = retry_statuses.iter().find(|status| permanent_statuses.contains(status)) {
            fields.wrong("permanent_statuses", format!("has {both}, which stands in `retry_statuses` too"));
        }
        let receiver_control = fields.take("receiver_control", "must be true or false").unwrap_or(false);
        let headers = fields.headers();
        let signatures = fields.signatures();
        let max_per_second = fields.number("max_per_second", 1, 100_000);
        let max_in_flight = fields.number("max_in_flight", 1, 10_000);
        fields.finish()?;
        Ok(Self {
            url,
            description,
            timeout_seconds,
            retry,
            retry_statuses,
            permanent_statuses,
            receiver_control,
            headers,
            signatures,
            max_per_second,
            max_in_flight,
        })
    }

    /// The JSON form; what is not set is left out.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(name.to_owned(), value);
            }
        };
        set("url", Some(json!(self.url)));
        set("description", self.description.as_ref().map(|d| json!(d)));
        set("timeout_seconds", self.timeout_seconds.map(|n| json!(n)));
        set("retry", Some(self.retry.to_json()).filter(|r| r.as_object().is_some_and(|r| !r.is_empty())));
        let statuses = |list: &[u16]| (!list.is_empty()).then(|| json!(list));
        set("retry_statuses", statuses(&self.retry_statuses));
        set("permanent_statuses", statuses(&self.permanent_statuses));
        set("receiver_control", self.receiver_control.then_some(json!(true)));
        set("headers", (!self.headers.is_empty()).then(|| json!(self.headers)));
        set("signatures", Some(json!(self.signatures.iter().map(|s| s.name()).collect::<Vec<_>>())));
        set("max_per_second", self.max_per_second.map(|n| json!(n)));
        set("max_in_flight", self.max_in_flight.map(|n| json!(n)));
        Value::Object(map)
    }
}

impl Retry {
    fn from_json(value: Value) -> Result<Self, Vec<Problem>> {
        let mut fields = Fields::of("retry", value)?;
        let max_attempts = fields.number("max_attempts", 1, 100);
        let schedule = fields.take::<Vec<u32>>("schedule_seconds", "must be a list of whole seconds");
        let base = fields.number("base_seconds", 1, MAX_WAIT_SECONDS);
        let factor = fields.number("factor", 1, 1_000);
        let cap = fields.number("cap_seconds", 1, MAX_WAIT_SECONDS);
        let jitter = fields.number("jitter_percent", 0, 100);
        let window_seconds = fields.number("window_seconds", 1, MAX_WAIT_SECONDS);
        let hint_cap_seconds = fields.number("hint_cap_seconds", 1, MAX_WAIT_SECONDS);
        let waits = match (schedule, base, factor, cap) {
            (None, None, None, None) => None,
            (Some(list), None, None, None) => {
                if (1..=MAX_SCHEDULE).contains(&list.len()) && list.iter().all(|s| (1..=MAX_WAIT_SECONDS).contains(s)) {
                    Some(Waits::List(list))
                } else {
                    let message = format!("must hold 1 to {MAX_SCHEDULE} waits of 1 s to 30 days");
                    fields.wrong("schedule_seconds", message);
                    None
                }
            }
            (None, Some(base), Some(factor), Some(cap)) if cap >= base => {
                Some(Waits::Exponential { base, factor, cap })
            }
            (Some(_), ..) => {
                fields
                    .wrong("schedule_seconds", "excludes base_seconds, factor and cap_seconds: give one or the other");
                None
            }
            (None, ..) => {
                fields.wrong("base_seconds", "goes with factor and with a cap_seconds that is not below it");
                None
            }
        };
        fields.finish()?;
        let jitter_percent = jitter.and_then(|n| u8::try_from(n).ok());
        Ok(Self { max_attempts, waits, jitter_percent, window_seconds, hint_cap_seconds })
    }

    fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(name.to_owned(), value);
            }
        };
        set("max_attempts", self.max_attempts.map(|n| json!(n)));
        match &self.waits {
            None => {}
            Some(Waits::List(list)) => set("schedule_seconds", Some(json!(list))),
            Some(Waits::Exponential { base, factor, cap }) => {
                set("base_seconds", Some(json!(base)));
                set("factor", Some(json!(factor)));
                set("cap_seconds", Some(json!(cap)));
            }
        }
        set("jitter_percent", self.jitter_percent.map(|n| json!(n)));
        set("window_seconds", self.window_seconds.map(|n| json!(n)));
        set("hint_cap_seconds", self.hint_cap_seconds.map(|n| json!(n)));
        Value::Object(map)
    }
}

/// What only endpoints have.
impl Fields {
    fn statuses(&mut self, name: &str) -> Vec<u16> {
        let must = "must be a list of statuses from 300 to 599; a 2xx always means success";
        let mut list = self.take::<Vec<u16>>(name, must).unwrap_or_default();
        if list.iter().any(|status| !(300..=599).contains(status)) {
            self.wrong(name, must);
        }
        list.sort_unstable();
        list.dedup();
        list
    }

    fn headers(&mut self) -> BTreeMap<String, String> {
        let given = self.take::<BTreeMap<String, String>>("headers", "must be an object of texts").unwrap_or_default();
        let mut headers = BTreeMap::new();
        for (name, value) in given {
            if let Err(message) = check_endpoint_header(&name, &value) {
                // Under its own name, so that a file's line can be told; but what is no name is repeated once, and cut.
                let field = if is_token(&name) { format!("headers.{name}") } else { "headers".to_owned() };
                self.wrong(&field, format!("cannot be sent: {message}"));
            }
            if headers.insert(name.to_ascii_lowercase(), value).is_some() {
                self.wrong("headers", format!("has {:?} twice", name.to_ascii_lowercase()));
            }
        }
        let bytes: usize = headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
            self.wrong("headers", format!("may hold {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes at most"));
        }
        headers
    }

    fn signatures(&mut self) -> Vec<Scheme> {
        let must = "must be a list of \"v1\" and \"v1a\"; an empty one means that requests are not signed";
        let Some(names) = self.take::<Vec<String>>("signatures", must) else { return vec![Scheme::V1] };
        let mut schemes: Vec<Scheme> = names.iter().filter_map(|name| Scheme::from_name(name)).collect();
        if schemes.len() < names.len() {
            self.wrong("signatures", must);
        }
        schemes.sort_unstable();
        schemes.dedup();
        schemes
    }
}
