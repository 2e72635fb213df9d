//! The payloads table and the registry in memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use domain::endpoint::Found;
use domain::id::{DeliveryKey, EndpointKey};
use domain::payload::Payload;
use domain::ports::{Endpoints, Payloads, StoreError};
use domain::signature::{Scheme, Secret};
use domain::time::Millis;

/// Payloads and their end, by delivery and hash.
type Kept = BTreeMap<(String, String), (Payload, Millis)>;

/// The payloads table.
#[derive(Clone, Debug, Default)]
pub struct MemoryPayloads {
    kept: Rc<RefCell<Kept>>,
    raw: Rc<RefCell<BTreeMap<String, String>>>,
}

impl MemoryPayloads {
    /// How many payloads are kept.
    pub fn len(&self) -> usize {
        self.kept.borrow().len()
    }

    /// True when none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Until when a payload is kept.
    pub fn kept_until(&self, key: &DeliveryKey, hash: &str) -> Option<Millis> {
        self.kept.borrow().get(&(key.to_string(), hash.to_owned())).map(|(_, until)| *until)
    }

    /// Loses all payloads.
    pub fn clear(&self) {
        self.kept.borrow_mut().clear();
    }

    /// The raw text of a rejected message.
    pub fn raw(&self, sha256: &str) -> Option<String> {
        self.raw.borrow().get(sha256).cloned()
    }
}

impl Payloads for MemoryPayloads {
    async fn keep(&self, key: &DeliveryKey, payload: &Payload, until: Millis) -> Result<(), StoreError> {
        let mut kept = self.kept.borrow_mut();
        let there = kept.entry((key.to_string(), payload.hash())).or_insert_with(|| (payload.clone(), until));
        there.1 = there.1.max(until);
        Ok(())
    }

    async fn load(&self, key: &DeliveryKey) -> Result<Vec<Payload>, StoreError> {
        let name = key.to_string();
        Ok(self.kept.borrow().iter().filter(|((k, _), _)| *k == name).map(|(_, (p, _))| p.clone()).collect())
    }

    async fn extend(&self, key: &DeliveryKey, hash: &str, until: Millis) -> Result<bool, StoreError> {
        let mut kept = self.kept.borrow_mut();
        let there = kept.get_mut(&(key.to_string(), hash.to_owned()));
        Ok(there.map(|(_, end)| *end = until).is_some())
    }

    async fn keep_raw(&self, sha256: &str, raw: &str, _until: Millis) -> Result<(), StoreError> {
        self.raw.borrow_mut().insert(sha256.to_owned(), raw.to_owned());
        Ok(())
    }
}

/// The registry of endpoints.
#[derive(Clone, Debug, Default)]
pub struct MemoryEndpoints {
    found: Rc<RefCell<HashMap<EndpointKey, Found>>>,
}

impl MemoryEndpoints {
    /// Registers, changes or removes an endpoint.
    pub fn set(&self, endpoint: &EndpointKey, found: Found) {
        self.found.borrow_mut().insert(endpoint.clone(), found);
    }
}

impl Endpoints for MemoryEndpoints {
    async fn find(&self, endpoint: &EndpointKey, _fresh: bool) -> Result<Found, StoreError> {
        Ok(self.found.borrow().get(endpoint).cloned().unwrap_or(Found::Unknown))
    }

    async fn inline_keys(&self) -> Result<Vec<Secret>, StoreError> {
        Ok(vec![Secret::new(Scheme::V1, &[7; 32].into())])
    }
}
