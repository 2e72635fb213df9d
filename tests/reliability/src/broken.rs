//! Stores with one bug each. The checks must find every one of them, or they prove nothing.

use domain::audit::{Decision, Entry, Head};
use domain::endpoint_state::EndpointState;
use domain::id::{DeliveryKey, EventId, StateKey};
use domain::kept_answer::KeptAnswer;
use domain::payload::Payload;
use domain::plan::{Frozen, Plan, PlanState};
use domain::ports::{
    Audit, Claimed, Created, Cursor, Deliveries, EndpointStates, ItemKey, Page, Payloads, Plans, Range, StoreError,
    Stored, Swapped,
};
use domain::record::{Lease, Record};
use domain::reject::Rejected;
use domain::time::Millis;
use domain::transition;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A change is written whatever is there.
    SwapWithoutCondition,
    /// A change is reported as written, and one in seven is not.
    SwapForgets,
    /// A claim does not look at the due time.
    ClaimEarly,
    /// A claim does not look whether somebody else has it.
    ClaimTwice,
    /// A lease never ends.
    EndlessLease,
    /// Our own repeated write is taken for somebody else's.
    OwnWriteUnknown,
    /// The index leaves out one delivery in seven.
    IndexForgets,
    /// A payload is not kept.
    PayloadForgets,
    /// The state of an endpoint is always read as it was at first.
    PauseUnseen,
    /// A plan saved by two is saved twice.
    PlanWithoutCondition,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::SwapWithoutCondition,
        Self::SwapForgets,
        Self::ClaimEarly,
        Self::ClaimTwice,
        Self::EndlessLease,
        Self::OwnWriteUnknown,
        Self::IndexForgets,
        Self::PayloadForgets,
        Self::PauseUnseen,
        Self::PlanWithoutCondition,
    ];
}

/// A store with a bug, or with none.
#[derive(Clone)]
pub struct Broken<T> {
    inner: T,
    bug: Option<Bug>,
}

impl<T> Broken<T> {
    /// A store.
    pub const fn new(inner: T, bug: Option<Bug>) -> Self {
        Self { inner, bug }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// One delivery in seven.
fn unlucky(text: &str) -> bool {
    text.bytes().fold(0u32, |sum, b| sum.wrapping_mul(31).wrapping_add(u32::from(b))).is_multiple_of(7)
}

impl<D: Deliveries> Deliveries for Broken<D> {
    async fn get(&self, key: &DeliveryKey) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn of_event(&self, event: &EventId) -> Result<Vec<Record>, StoreError> {
        self.inner.of_event(event).await
    }

    async fn get_many(&self, keys: &[ItemKey]) -> Result<Vec<Stored>, StoreError> {
        self.inner.get_many(keys).await
    }

    async fn create(&self, record: &Record) -> Result<Created, StoreError> {
        let mut record = record.clone();
        if self.has(Bug::EndlessLease)
            && let Some(lease) = &mut record.lease
        {
            lease.until = Millis(i64::MAX);
        }
        if self.has(Bug::OwnWriteUnknown)
            && let Some(there) = self.inner.get(&record.key).await?
        {
            return Ok(Created::Exists(Box::new(there)));
        }
        self.inner.create(&record).await
    }

    async fn claim(&self, key: &DeliveryKey, attempt: u32, lease: &Lease, now: Millis) -> Result<Claimed, StoreError> {
        let there = self.inner.get(key).await?;
        let mut lease = lease.clone();
        if self.has(Bug::EndlessLease) {
            lease.until = Millis(i64::MAX);
        }
        if self.has(Bug::ClaimEarly)
            && let Some(there) = there.as_ref().filter(|there| there.attempt == attempt)
            && let Ok(next) = transition::claim(there, lease.clone(), now)
        {
            return Ok(match self.inner.swap(there, &next).await? {
                Swapped::Done => Claimed::Started(Box::new(next)),
                Swapped::Lost(there) => Claimed::Refused(there),
            });
        }
        match self.inner.claim(key, attempt, &lease, now).await? {
            Claimed::Started(record) if self.has(Bug::OwnWriteUnknown) && there.as_ref() == Some(&*record) => {
                Ok(Claimed::Refused(Some(record)))
            }
            Claimed::Refused(Some(mut record))
                if self.has(Bug::ClaimTwice) && record.attempt == attempt + 1 && record.lease.is_some() =>
            {
                record.lease = Some(lease);
                Ok(Claimed::Started(record))
            }
            answer @ (Claimed::Started(_) | Claimed::Refused(_)) => Ok(answer),
        }
    }

    async fn swap(&self, old: &Record, new: &Record) -> Result<Swapped, StoreError> {
        if self.has(Bug::SwapForgets) && unlucky(&format!("{}{}", new.key, new.rev)) {
            return Ok(Swapped::Done);
        }
        if self.has(Bug::SwapWithoutCondition)
            && let Some(there) = self.inner.get(&old.key).await?
        {
            return self.inner.swap(&there, new).await;
        }
        self.inner.swap(old, new).await
    }

    async fn rows(&self, range: Range<'_>) -> Result<Page, StoreError> {
        let mut page = self.inner.rows(range).await?;
        if self.has(Bug::IndexForgets) {
            page.rows.retain(|row| !unlucky(&row.at.pk));
        }
        Ok(page)
    }

    async fn reject(&self, rejected: &Rejected) -> Result<u32, StoreError> {
        self.inner.reject(rejected).await
    }

    async fn keep_answer(&self, key: &DeliveryKey, answer: &KeptAnswer, until: Millis) -> Result<(), StoreError> {
        self.inner.keep_answer(key, answer, until).await
    }

    async fn kept_answer(&self, key: &DeliveryKey) -> Result<Option<KeptAnswer>, StoreError> {
        self.inner.kept_answer(key).await
    }

    async fn cursor(&self, cursor: Cursor) -> Result<Option<Millis>, StoreError> {
        self.inner.cursor(cursor).await
    }

    async fn set_cursor(&self, cursor: Cursor, to: Millis) -> Result<(), StoreError> {
        self.inner.set_cursor(cursor, to).await
    }
}

impl<D: Plans> Plans for Broken<D> {
    async fn propose(&self, plan: &Plan, list: &[Frozen], decision: Decision) -> Result<(), StoreError> {
        self.inner.propose(plan, list, decision).await
    }

    async fn plan(&self, id: &str, fresh: bool) -> Result<Option<Plan>, StoreError> {
        self.inner.plan(id, fresh).await
    }

    async fn chunk(&self, id: &str, chunk: usize) -> Result<Vec<Frozen>, StoreError> {
        self.inner.chunk(id, chunk).await
    }

    async fn save_plan(&self, old: &Plan, new: &Plan, decision: Option<Decision>) -> Result<bool, StoreError> {
        if self.has(Bug::PlanWithoutCondition)
            && let Some(there) = self.inner.plan(&old.id, true).await?
        {
            return self.inner.save_plan(&there, new, decision).await;
        }
        self.inner.save_plan(old, new, decision).await
    }

    async fn bind_redrive_id(&self, redrive_id: &str, plan_id: &str, now: Millis) -> Result<String, StoreError> {
        self.inner.bind_redrive_id(redrive_id, plan_id, now).await
    }

    async fn plans_in(&self, state: PlanState, limit: usize) -> Result<Vec<String>, StoreError> {
        self.inner.plans_in(state, limit).await
    }

    async fn book(&self, id: &str, rate: u32, now: Millis) -> Result<Millis, StoreError> {
        self.inner.book(id, rate, now).await
    }
}

impl<D: Audit> Audit for Broken<D> {
    async fn record(&self, decision: Decision) -> Result<(), StoreError> {
        self.inner.record(decision).await
    }

    async fn head(&self) -> Result<Head, StoreError> {
        self.inner.head().await
    }

    async fn entries(&self, after: &str, limit: usize) -> Result<(Vec<Entry>, bool), StoreError> {
        self.inner.entries(after, limit).await
    }

    async fn newest(&self, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.inner.newest(limit).await
    }
}

impl<D: EndpointStates> EndpointStates for Broken<D> {
    async fn endpoint_state(&self, key: &StateKey, fresh: bool) -> Result<EndpointState, StoreError> {
        if self.has(Bug::PauseUnseen) {
            return Ok(EndpointState::untouched(key));
        }
        self.inner.endpoint_state(key, fresh).await
    }

    async fn save_endpoint_state(&self, old: &EndpointState, new: &EndpointState) -> Result<bool, StoreError> {
        if self.has(Bug::PauseUnseen) {
            let there = self.inner.endpoint_state(&old.key, true).await?;
            return self.inner.save_endpoint_state(&there, &EndpointState { rev: there.rev + 1, ..new.clone() }).await;
        }
        self.inner.save_endpoint_state(old, new).await
    }

    async fn resumed_endpoints(&self) -> Result<Vec<StateKey>, StoreError> {
        self.inner.resumed_endpoints().await
    }
}

impl<P: Payloads> Payloads for Broken<P> {
    async fn keep(&self, key: &DeliveryKey, payload: &Payload, until: Millis) -> Result<(), StoreError> {
        if self.has(Bug::PayloadForgets) && unlucky(&key.to_string()) {
            return Ok(());
        }
        self.inner.keep(key, payload, until).await
    }

    async fn load(&self, key: &DeliveryKey) -> Result<Vec<Payload>, StoreError> {
        self.inner.load(key).await
    }

    async fn extend(&self, key: &DeliveryKey, hash: &str, until: Millis) -> Result<bool, StoreError> {
        self.inner.extend(key, hash, until).await
    }

    async fn keep_raw(&self, sha256: &str, raw: &str, until: Millis) -> Result<(), StoreError> {
        self.inner.keep_raw(sha256, raw, until).await
    }
}
