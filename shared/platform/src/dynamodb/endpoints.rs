//! The port of the endpoints table. Only `deliver` reads it.

use std::cell::RefCell;
use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use domain::endpoint::{EndpointConfig, Found};
use domain::id::EndpointKey;
use domain::outcome::StatusOverrides;
use domain::ports::{Clock, Endpoints, StoreError};
use domain::request::check_endpoint_header;
use domain::retry::{RetryPolicy, Waits};
use domain::signature::Secret;
use domain::time::{Millis, SECOND_MS};

use super::item::{Item, s};
use super::unavailable;
use crate::clock::SystemClock;

/// An endpoint is looked up again after so many milliseconds.
const CACHE_MS: i64 = 10 * SECOND_MS;

/// What an endpoint has where its configuration says nothing.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// When to try again.
    pub policy: RetryPolicy,
    /// Longest request in milliseconds.
    pub timeout_ms: i64,
}

/// The endpoints table, with a short cache.
pub struct EndpointTable {
    client: Client,
    table: String,
    defaults: Defaults,
    cache: RefCell<HashMap<EndpointKey, (Millis, Found)>>,
}

impl EndpointTable {
    /// The endpoints of that table.
    pub fn new(client: Client, table: String, defaults: Defaults) -> Self {
        Self { client, table, defaults, cache: RefCell::default() }
    }
}

impl Endpoints for EndpointTable {
    async fn find(&self, endpoint: &EndpointKey, fresh: bool) -> Result<Found, StoreError> {
        let now = SystemClock.now();
        if !fresh
            && let Some((read_at, found)) = self.cache.borrow().get(endpoint)
            && now.since(*read_at) < CACHE_MS
        {
            return Ok(found.clone());
        }
        let answer = self
            .client
            .get_item()
            .table_name(&self.table)
            .key("endpoint", s(endpoint.as_str()))
            .consistent_read(true)
            .send()
            .await
            .map_err(|e| unavailable("reading an endpoint", e))?;
        let found = match &answer.item {
            None => Found::Unknown,
            Some(item) if item.contains_key("removed_at") => Found::Removed,
            Some(item) => match decode(item, &self.defaults) {
                Ok(config) => Found::Config(Box::new(config)),
                Err(why) => Found::Misconfigured(why),
            },
        };
        // A missing endpoint is looked up every time: it may be registered at any moment.
        if !matches!(found, Found::Unknown) {
            self.cache.borrow_mut().insert(endpoint.clone(), (now, found.clone()));
        }
        Ok(found)
    }
}

/// Reads a configuration: `url` (required), `timeout_seconds`, `retry_schedule_seconds`, `max_attempts`, `headers`,
/// `secrets`, `retry_statuses`, `permanent_statuses`. The error names the attribute and repeats no value.
fn decode(item: &Item, defaults: &Defaults) -> Result<EndpointConfig, String> {
    let number = |name: &str| -> Result<Option<u32>, String> {
        item.get(name)
            .map(|v| v.as_n().ok().and_then(|v| v.parse().ok()).ok_or_else(|| format!("`{name}` is no whole number")))
            .transpose()
    };
    let url = item.get("url").and_then(|v| v.as_s().ok()).ok_or("`url` is missing")?;
    // The parser's message may repeat parts of the URL.
    if !url::Url::parse(url).is_ok_and(|u| matches!(u.scheme(), "http" | "https") && u.has_host()) {
        return Err("`url` is no http or https URL".to_owned());
    }
    let timeout_ms = match number("timeout_seconds")? {
        Some(seconds @ 1..=30) => (i64::from(seconds) * SECOND_MS).min(defaults.timeout_ms),
        Some(_) => return Err("`timeout_seconds` must be between 1 and 30".to_owned()),
        None => defaults.timeout_ms,
    };
    let mut policy = defaults.policy.clone();
    if let Some(schedule) = item.get("retry_schedule_seconds") {
        let text = schedule.as_s().map_err(|_| "`retry_schedule_seconds` is no text")?;
        policy.waits = Waits::parse(text).map_err(|e| format!("`retry_schedule_seconds`: {e}"))?;
    }
    if let Some(attempts) = number("max_attempts")? {
        policy.attempts = attempts;
    }
    policy.check().map_err(|e| format!("retry policy: {e}"))?;
    let headers = match item.get("headers").map(|h| h.as_m()) {
        Some(Ok(map)) => map
            .iter()
            .map(|(name, value)| value.as_s().ok().map(|v| (name.to_ascii_lowercase(), v.clone())))
            .collect::<Option<Vec<_>>>()
            .ok_or("`headers` must hold texts")?,
        Some(Err(_)) => return Err("`headers` is no map".to_owned()),
        None => Vec::new(),
    };
    for (name, value) in &headers {
        check_endpoint_header(name, value).map_err(|e| format!("`headers`: {e}"))?;
    }
    let secrets = match item.get("secrets").map(|l| l.as_l()) {
        Some(Ok(list)) => list
            .iter()
            .map(|v| Secret::parse(v.as_s().map_or("", String::as_str)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("`secrets`: {e}"))?,
        Some(Err(_)) => return Err("`secrets` is no list".to_owned()),
        None => Vec::new(),
    };
    let statuses = |name: &str| -> Result<Vec<u16>, String> {
        match item.get(name).map(|l| l.as_l()) {
            None => Ok(Vec::new()),
            Some(Ok(list)) => list
                .iter()
                .map(|v| v.as_n().ok().and_then(|v| v.parse().ok()))
                .collect::<Option<_>>()
                .ok_or_else(|| format!("`{name}` must hold status codes")),
            Some(Err(_)) => Err(format!("`{name}` is no list")),
        }
    };
    Ok(EndpointConfig {
        url: url.clone(),
        timeout_ms,
        policy,
        headers,
        overrides: StatusOverrides { retry: statuses("retry_statuses")?, permanent: statuses("permanent_statuses")? },
        secrets,
    })
}
