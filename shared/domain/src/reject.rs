//! A message that is not accepted: kept whole, with its reason, and never in the way of the others.

use crate::delivery::RejectedReason;
use crate::id::sha256_hex;
use crate::message::Refusal;
use crate::ports::{Deliveries, Payloads, StoreError};
use crate::settings::Retention;
use crate::time::Millis;

/// A rejected message on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// SHA-256 of the raw text: the same bytes again count up, and never occupy a delivery's key.
    pub sha256: String,
    /// Why.
    pub reason: RejectedReason,
    /// What is wrong and what to do.
    pub detail: String,
    /// The event id, when it could be read.
    pub event: Option<String>,
    /// The endpoint, when it could be read.
    pub endpoint: Option<String>,
    /// Length of the raw text in bytes.
    pub bytes: u64,
    /// Who sent it.
    pub sender: Option<String>,
    /// When it was first rejected.
    pub since: Millis,
    /// How often it came.
    pub seen: u32,
    /// When the table may clean it up.
    pub expires_at: Millis,
}

impl Rejected {
    /// The partition of the `work` index.
    pub fn lane(&self) -> String {
        let byte = u8::from_str_radix(self.sha256.get(..2).unwrap_or("0"), 16).unwrap_or(0);
        format!("rejected#{:02}", byte % crate::id::SHARDS)
    }
}

/// Keeps the raw text, then the record; the caller acknowledges the message after that.
pub async fn reject(
    deliveries: &impl Deliveries,
    payloads: &impl Payloads,
    raw: &str,
    refusal: Refusal,
    sender: Option<&str>,
    retention: Retention,
    now: Millis,
) -> Result<Rejected, StoreError> {
    let sha256 = sha256_hex(raw.as_bytes());
    let mut rejected = Rejected {
        reason: refusal.reason,
        detail: refusal.detail,
        event: refusal.key.as_ref().map(|key| key.event.to_string()),
        endpoint: refusal.key.as_ref().map(|key| key.endpoint.to_string()),
        bytes: raw.len() as u64,
        sender: sender.map(ToOwned::to_owned),
        since: now,
        seen: 1,
        expires_at: now.plus(retention.record_ms),
        sha256,
    };
    payloads.keep_raw(&rejected.sha256, raw, now.plus(retention.payload_ms)).await?;
    rejected.seen = deliveries.reject(&rejected).await?;
    Ok(rejected)
}
