//! Sample messages and records.

use domain::message::{Intake, Limits, Message, parse};
use domain::record::{ClaimId, Lease, Record};
use domain::settings::Retention;
use domain::time::Millis;
use domain::transition::Arrival;

/// Limits that allow everything a sample needs.
pub const LIMITS: Limits = Limits { max_body_bytes: 262_144, allow_inline_urls: true };
/// A retention of 30 days.
pub const RETENTION: Retention = Retention { record_ms: 30 * 86_400_000, payload_ms: 30 * 86_400_000 };

/// A webhook for endpoint `p`.
///
/// # Panics
/// When `id` is no event id.
pub fn message(id: &str) -> Message {
    let raw = format!(r#"{{"id":"{id}","endpoint":"p","json":{{"a": 1.0}},"headers":{{"x-tenant":"7"}}}}"#);
    match parse(&raw, &LIMITS) {
        Ok(Intake::Webhook(message)) => *message,
        other => panic!("{other:?}"),
    }
}

/// A lease until `until`, of a claim by that message.
pub fn lease(message_id: &str, nonce: u32, until: Millis) -> Lease {
    Lease { until, claim_id: ClaimId::new(message_id, nonce) }
}

/// The first record of a webhook, its first attempt claimed by message `m` at `now` for a minute.
///
/// # Panics
/// Never: a new record can be claimed.
pub fn claimed(message: &Message, now: Millis) -> Record {
    let arrival = Arrival { message, accepted_at: now, sender: Some("producer"), budget: 8 };
    arrival.claimed(lease("m", 1, now.plus(60_000)), now).expect("a new record can be claimed")
}
