//! `list`: what is in a state, oldest first.

use domain::ports::{Audit, Clock, Deliveries, EndpointStates, Payloads, Plans, Stored};
use domain::record::Record;
use domain::reject::Rejected;
use domain::time::{Millis, SECOND_MS};
use serde_json::{Value, json};

use crate::action::List;
use crate::answer::{Failure, Refusal};
use crate::handler::Operator;
use crate::scan::Scan;

/// The most items of a page.
const MAX_LIMIT: usize = 500;
/// Index pages read for one page of the answer, when most of what is found does not match.
const ROUNDS: usize = 20;

impl<D: Deliveries + Plans + Audit + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    /// Lists a page.
    pub(crate) async fn list(&self, list: &List) -> Result<Value, Failure> {
        let limit = list.limit.unwrap_or(50);
        if limit == 0 || limit > MAX_LIMIT {
            return Err(Refusal::invalid(format!("`limit` must be between 1 and {MAX_LIMIT}")).into());
        }
        let mut scan = Scan::new(&list.state, list.endpoint.as_deref())?;
        if let Some(cursor) = &list.cursor {
            scan = scan.resume(cursor)?;
        }
        let now = self.clock.now();
        let mut items: Vec<(i64, Value)> = Vec::new();
        let mut unreadable = 0;
        for _ in 0..ROUNDS {
            let wanted = limit - items.len();
            for stored in scan.next(&self.store, wanted).await? {
                let (state, reason, endpoint, since, item) = match &stored {
                    Stored::Delivery(r) => {
                        (r.state.name(), r.state.reason(), Some(r.key.endpoint.as_str()), r.since, delivery(r, now))
                    }
                    Stored::Rejected(r) => {
                        ("rejected", Some(r.reason.name()), r.endpoint.as_deref(), r.since, rejected(r, now))
                    }
                    Stored::Unreadable(at, why) => {
                        tracing::error!(item.pk = at.pk, item.sk = at.sk, why, "an item cannot be read");
                        unreadable += 1;
                        continue;
                    }
                };
                // The index may be behind; an attempt in flight keeps its place among the waiting.
                let wanted = state == list.state
                    && list.endpoint.as_deref().is_none_or(|e| endpoint == Some(e))
                    && list.reason.as_deref().is_none_or(|r| reason == Some(r));
                if wanted {
                    items.push((since.0, item));
                }
            }
            if scan.is_done() || items.len() >= limit {
                break;
            }
        }
        items.sort_by_key(|(since, _)| *since);
        let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
        Ok(json!({"ok": true, "items": items, "cursor": scan.cursor(), "unreadable": unreadable}))
    }
}

fn delivery(record: &Record, now: Millis) -> Value {
    json!({
        "id": record.key.event.as_str(),
        "endpoint": record.key.endpoint.as_str(),
        "state": record.state.name(),
        "reason": record.state.reason(),
        "attempt": record.attempt,
        "generation": record.generation,
        "due": record.due.map(|d| d.0),
        "age_seconds": now.since(record.since) / SECOND_MS,
        "correlation_id": record.correlation_id,
    })
}

fn rejected(rejected: &Rejected, now: Millis) -> Value {
    json!({
        "id": rejected.event,
        "endpoint": rejected.endpoint,
        "state": "rejected",
        "reason": rejected.reason.name(),
        "attempt": 0,
        "generation": 0,
        "due": rejected.since.0,
        "age_seconds": now.since(rejected.since) / SECOND_MS,
        "detail": rejected.detail,
        "sha256": rejected.sha256,
        "seen": rejected.seen,
    })
}
