//! Waiting until everything has come to its end: on conditions, and for a bounded time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use domain::ports::{Deliveries, ItemKey, Stored};
use domain::record::Record;
use serde_json::json;

use crate::load::Sent;
use crate::stack::Stack;

/// How often one looks.
const LOOK: Duration = Duration::from_secs(2);
/// So many records are looked at.
const AT_ONCE: usize = 500;
/// How often reconcile runs by hand meanwhile: its own rule runs it each five minutes only.
const RECONCILE: Duration = Duration::from_secs(10);

/// Waits until each delivery is final and the queues hold nothing that is ready or in flight, or until the time is over.
/// Returns the records by event.
pub async fn settle(stack: &Stack, sent: &[Sent], within: Duration) -> HashMap<String, Record> {
    let end = Instant::now() + within;
    let mut open: Vec<&Sent> = sent.iter().collect();
    let mut settled = HashMap::with_capacity(sent.len());
    let mut reconciled = Instant::now();
    loop {
        // Some at a time: reading all of them again and again would be a load of its own.
        let looked_at = open.len().min(AT_ONCE);
        keep(&mut settled, read(stack, &open[..looked_at]).await);
        let before = open.len();
        open.retain(|one| !settled.get(one.event()).is_some_and(|record| record.state.is_final()));
        let still_open = looked_at - (before - open.len());
        open.rotate_left(still_open);
        if (open.is_empty() && quiet(stack).await) || Instant::now() >= end {
            // What a late request or a late acceptance has changed since a record was read is in here.
            keep(&mut settled, read(stack, &sent.iter().collect::<Vec<_>>()).await);
            return settled;
        }
        if still_open == 0 && !open.is_empty() {
            continue;
        }
        if reconciled.elapsed() >= RECONCILE {
            reconcile(stack).await;
            reconciled = Instant::now();
            println!("  {} of {} are not final yet", open.len(), sent.len());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn keep(settled: &mut HashMap<String, Record>, records: Vec<Record>) {
    settled.extend(records.into_iter().map(|record| (record.key.event.as_str().to_owned(), record)));
}

/// One reconcile run. What fails in it, the next one does: something may be broken on purpose.
pub async fn reconcile(stack: &Stack) {
    stack.try_invoke("dlq_sweep", &json!({"run": "reconcile", "mode": "act"})).await.ok();
}

async fn read(stack: &Stack, which: &[&Sent]) -> Vec<Record> {
    let keys: Vec<ItemKey> = which.iter().map(|one| ItemKey::of(&one.key)).collect();
    let stored = stack.deliveries.get_many(&keys).await.expect("the table can be read");
    stored.into_iter().filter_map(|one| if let Stored::Delivery(record) = one { Some(*record) } else { None }).collect()
}

/// Nothing is ready or in flight on any queue. What other tests left there with a delay does not matter.
async fn quiet(stack: &Stack) -> bool {
    for queue in ["intake_queue_url", "retry_queue_url", "intake_dlq_url", "retry_dlq_url"] {
        if stack.depth(queue).await[..2] != [0, 0] {
            return false;
        }
    }
    true
}
