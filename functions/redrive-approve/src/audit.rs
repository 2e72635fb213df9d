//! `audit`: who decided what, in the order of the chain, with what it takes to verify it.

use domain::ports::{Audit, Clock, Deliveries, EndpointStates, Payloads, Plans};
use serde_json::{Value, json};

use crate::action::{self, time};
use crate::answer::{Failure, Refusal};
use crate::handler::Operator;

/// The most entries of a page.
const MAX_LIMIT: usize = 500;

impl<D: Deliveries + Plans + Audit + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    pub(crate) async fn audit(&self, action: &action::Audit) -> Result<Value, Failure> {
        let limit = action.limit.unwrap_or(50);
        if limit == 0 || limit > MAX_LIMIT {
            return Err(Refusal::invalid(format!("`limit` must be between 1 and {MAX_LIMIT}")).into());
        }
        if action.newest && (action.cursor.is_some() || action.after.is_some()) {
            return Err(Refusal::invalid("`newest` goes without `after` and `cursor`").into());
        }
        let after = match (&action.cursor, time("after", action.after.as_deref())?) {
            (Some(cursor), _) => cursor.clone(),
            (None, Some(time)) => format!("{:020}", time.0),
            (None, None) => String::new(),
        };
        // The head first: entries that come meanwhile are behind it, and a reader can tell.
        let head = self.store.head().await?;
        let (entries, more) = if action.newest {
            (self.store.newest(limit).await?, false)
        } else {
            self.store.entries(&after, limit).await?
        };
        let cursor = entries.last().filter(|_| more).map(domain::audit::Entry::key);
        let head = json!({ "seq": head.seq, "hash": head.hash });
        Ok(json!({ "ok": true, "entries": entries, "cursor": cursor, "head": head }))
    }
}
