//! The port of the chain of decisions: items `AUDIT` / `<time>#<number>` and their head. An entry is written in one
//! transaction with the head, and with whatever was decided, so that there is neither a decision without its entry nor an
//! entry without its place in the chain.

use std::collections::HashMap;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use domain::audit::{Decision, Entry, Head};
use domain::ports::{Audit, Clock, StoreError};

use super::item::{self, Item, n, s};
use super::{DeliveryTable, unavailable};
use crate::clock::SystemClock;

/// Where the head is: outside of the entries' own range.
const HEAD: (&str, &str) = ("AUDIT#HEAD", "HEAD");
/// So often the end of the chain is looked up again when others write to it at the same moment …
const TRIES: u32 = 40;
/// … after a pause of up to so many milliseconds at first, and twice as many each time …
const FIRST_PAUSE_MS: i64 = 10;
/// … up to so many: 40 tries take 10 seconds, or 20 at most.
const LAST_PAUSE_MS: i64 = 500;

/// What became of a transaction.
pub(super) enum Written {
    /// It is in place.
    Done,
    /// The condition of what was decided does not hold.
    Lost,
}

impl DeliveryTable {
    /// Writes what was decided together with its entry in the chain. `decided` carries its own condition; without one there is
    /// only the entry.
    pub(super) async fn write_decision(&self, decided: Option<Put>, decision: Decision) -> Result<Written, StoreError> {
        for tried in 0..TRIES {
            let head = self.head().await?;
            let entry = decision.clone().after(&head);
            let mut items: Vec<TransactWriteItem> = Vec::with_capacity(3);
            if let Some(put) = &decided {
                items.push(TransactWriteItem::builder().put(put.clone()).build());
            }
            items.push(self.put(entry_item(&entry), "attribute_not_exists(pk)", None)?);
            let condition = if head.seq == 0 { "attribute_not_exists(pk)" } else { "seq = :seq" };
            items.push(self.put(head_item(&entry.head()), condition, (head.seq > 0).then_some(head.seq))?);
            let sent = self.client.transact_write_items().set_transact_items(Some(items)).send().await;
            let Err(error) = sent else { return Ok(Written::Done) };
            let service = error.into_service_error();
            let refused = refusal(&service, decided.is_some());
            if refused == Some(Refused::Meanwhile) {
                pause(tried).await;
            }
            // Our own transaction, repeated underneath us after its answer was lost.
            if self.is_written(&entry).await? {
                return Ok(Written::Done);
            }
            match refused {
                Some(Refused::Decided) => return Ok(Written::Lost),
                Some(Refused::Meanwhile) => {}
                None => return Err(unavailable("writing a decision", service)),
            }
        }
        Err(StoreError::Unavailable("writing a decision: too many others write at this moment".to_owned()))
    }

    async fn is_written(&self, entry: &Entry) -> Result<bool, StoreError> {
        let key = item::text_key("AUDIT", &entry.key());
        let read = self.client.get_item().table_name(&self.table).set_key(Some(key)).consistent_read(true);
        let answer = read.send().await.map_err(|e| unavailable("reading a decision", e))?;
        Ok(answer.item == Some(entry_item(entry)))
    }

    fn put(&self, item: Item, condition: &str, seq: Option<u64>) -> Result<TransactWriteItem, StoreError> {
        let mut put = Put::builder().table_name(&self.table).set_item(Some(item)).condition_expression(condition);
        if let Some(seq) = seq {
            put = put.expression_attribute_values(":seq", n(seq));
        }
        let put = put.build().map_err(|e| StoreError::Corrupt(e.to_string()))?;
        Ok(TransactWriteItem::builder().put(put).build())
    }
}

/// Why a transaction was not carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// The condition of what was decided does not hold.
    Decided,
    /// Others wrote to the end of the chain, or to the same item, at that moment.
    Meanwhile,
}

/// `None`: whether it was carried out is not known.
fn refusal(error: &TransactWriteItemsError, decided: bool) -> Option<Refused> {
    if error.is_transaction_in_progress_exception() {
        return Some(Refused::Meanwhile);
    }
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else { return None };
    let first = cancelled.cancellation_reasons().first().and_then(|reason| reason.code());
    // A conflict says nothing about the condition: the other transaction may fail yet.
    Some(if decided && first == Some("ConditionalCheckFailed") { Refused::Decided } else { Refused::Meanwhile })
}

/// Waits, so that those who met do not meet again.
async fn pause(tried: u32) {
    let most = FIRST_PAUSE_MS.saturating_mul(1 << tried.min(16)).min(LAST_PAUSE_MS);
    let clock = SystemClock;
    #[allow(clippy::cast_possible_truncation, reason = "a fraction of a small number")]
    let ms = (clock.random() * most as f64) as i64;
    clock.sleep_until(clock.now().plus(ms)).await;
}

fn head_item(head: &Head) -> Item {
    let mut item = item::text_key(HEAD.0, HEAD.1);
    item.insert("seq".to_owned(), n(head.seq));
    item.insert("hash".to_owned(), s(&head.hash));
    item
}

fn read_entry(item: &Item) -> Result<Entry, StoreError> {
    let doc = item.get("doc").and_then(|v| v.as_s().ok()).map_or("", String::as_str);
    serde_json::from_str(doc).map_err(|e| StoreError::Corrupt(format!("a decision cannot be read: {e}")))
}

fn entry_item(entry: &Entry) -> Item {
    let mut item = item::text_key("AUDIT", &entry.key());
    item.insert("doc".to_owned(), s(&serde_json::to_string(entry).expect("an entry is plain data")));
    item
}

impl Audit for DeliveryTable {
    async fn record(&self, decision: Decision) -> Result<(), StoreError> {
        self.write_decision(None, decision).await.map(|_| ())
    }

    async fn head(&self) -> Result<Head, StoreError> {
        let key = item::text_key(HEAD.0, HEAD.1);
        let read = self.client.get_item().table_name(&self.table).set_key(Some(key)).consistent_read(true);
        let answer = read.send().await.map_err(|e| unavailable("reading the end of the decisions", e))?;
        let Some(item) = answer.item else { return Ok(Head::default()) };
        let seq = item.get("seq").and_then(|v| v.as_n().ok()).and_then(|v| v.parse().ok());
        let hash = item.get("hash").and_then(|v| v.as_s().ok()).cloned();
        match (seq, hash) {
            (Some(seq), Some(hash)) => Ok(Head { seq, hash }),
            _ => Err(StoreError::Corrupt("the end of the decisions cannot be read".to_owned())),
        }
    }

    async fn entries(&self, after: &str, limit: usize) -> Result<(Vec<Entry>, bool), StoreError> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX).max(1);
        let page = self
            .client
            .query()
            .table_name(&self.table)
            .key_condition_expression("pk = :pk AND sk > :after")
            .expression_attribute_values(":pk", s("AUDIT"))
            // An empty text is no key value; every entry sorts behind a blank.
            .expression_attribute_values(":after", s(if after.is_empty() { " " } else { after }))
            .consistent_read(true)
            .limit(limit)
            .send()
            .await
            .map_err(|e| unavailable("reading the decisions", e))?;
        let entries = page.items().iter().map(read_entry).collect::<Result<Vec<Entry>, _>>()?;
        Ok((entries, page.last_evaluated_key.is_some_and(|key| !HashMap::is_empty(&key))))
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let (mut entries, mut start) = (Vec::new(), None);
        // A page ends early when its items are large.
        while entries.len() < limit {
            let left = i32::try_from(limit - entries.len()).unwrap_or(i32::MAX);
            let page = self
                .client
                .query()
                .table_name(&self.table)
                .key_condition_expression("pk = :pk")
                .expression_attribute_values(":pk", s("AUDIT"))
                .consistent_read(true)
                .scan_index_forward(false)
                .limit(left)
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|e| unavailable("reading the last decisions", e))?;
            for item in page.items() {
                entries.push(read_entry(item)?);
            }
            start = page.last_evaluated_key;
            if start.as_ref().is_none_or(HashMap::is_empty) {
                break;
            }
        }
        entries.reverse();
        Ok(entries)
    }
}
