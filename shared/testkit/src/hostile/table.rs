//! The deliveries table behind a gate.

use domain::id::{DeliveryKey, EventId};
use domain::kept_answer::KeptAnswer;
use domain::ports::{Claimed, Created, Cursor, Deliveries, ItemKey, Lane, Page, Range, StoreError, Stored, Swapped};
use domain::record::{Lease, Record};
use domain::reject::Rejected;
use domain::time::Millis;

use super::Hostile;

impl<D: Deliveries> Deliveries for Hostile<D> {
    async fn get(&self, key: &DeliveryKey) -> Result<Option<Record>, StoreError> {
        self.read("get", key, || self.inner.get(key)).await
    }

    async fn of_event(&self, event: &EventId) -> Result<Vec<Record>, StoreError> {
        self.read("of_event", event, || self.inner.of_event(event)).await
    }

    async fn get_many(&self, keys: &[ItemKey]) -> Result<Vec<Stored>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.read("get_many", &keys.len(), || self.inner.get_many(keys)).await
    }

    async fn create(&self, record: &Record) -> Result<Created, StoreError> {
        self.write("create", &record.key, || self.inner.create(record)).await
    }

    async fn claim(&self, key: &DeliveryKey, attempt: u32, lease: &Lease, now: Millis) -> Result<Claimed, StoreError> {
        self.write("claim", key, || self.inner.claim(key, attempt, lease, now)).await
    }

    async fn swap(&self, old: &Record, new: &Record) -> Result<Swapped, StoreError> {
        self.write("swap", &old.key, || self.inner.swap(old, new)).await
    }

    async fn rows(&self, range: Range<'_>) -> Result<Page, StoreError> {
        let lane = match range.lane {
            Lane::Work(name, shard) => format!("{name}#{shard}"),
            Lane::Endpoint(name, key, shard) => format!("{name}#{key}#{shard}"),
        };
        self.read("rows", &lane, || self.inner.rows(range.clone())).await
    }

    async fn reject(&self, rejected: &Rejected) -> Result<u32, StoreError> {
        self.write("reject", &rejected.sha256, || self.inner.reject(rejected)).await
    }

    async fn keep_answer(&self, key: &DeliveryKey, answer: &KeptAnswer, until: Millis) -> Result<(), StoreError> {
        self.write("keep_answer", key, || self.inner.keep_answer(key, answer, until)).await
    }

    async fn kept_answer(&self, key: &DeliveryKey) -> Result<Option<KeptAnswer>, StoreError> {
        self.read("kept_answer", key, || self.inner.kept_answer(key)).await
    }

    async fn cursor(&self, cursor: Cursor) -> Result<Option<Millis>, StoreError> {
        self.read("cursor", &cursor.at().pk, || self.inner.cursor(cursor)).await
    }

    async fn set_cursor(&self, cursor: Cursor, to: Millis) -> Result<(), StoreError> {
        self.write("set_cursor", &cursor.at().pk, || self.inner.set_cursor(cursor, to)).await
    }
}
