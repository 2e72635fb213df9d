//! The payloads, the registry and a transport DLQ behind a gate.

use domain::endpoint::Found;
use domain::id::{DeliveryKey, EndpointKey};
use domain::payload::Payload;
use domain::ports::{DeadQueue, Endpoints, Payloads, Received, StoreError};
use domain::signature::Secret;
use domain::time::Millis;

use super::Hostile;

impl<P: Payloads> Payloads for Hostile<P> {
    async fn keep(&self, key: &DeliveryKey, payload: &Payload, until: Millis) -> Result<(), StoreError> {
        self.write("keep", key, || self.inner.keep(key, payload, until)).await
    }

    async fn load(&self, key: &DeliveryKey) -> Result<Vec<Payload>, StoreError> {
        self.read("load", key, || self.inner.load(key)).await
    }

    async fn extend(&self, key: &DeliveryKey, hash: &str, until: Millis) -> Result<bool, StoreError> {
        self.write("extend", key, || self.inner.extend(key, hash, until)).await
    }

    async fn keep_raw(&self, sha256: &str, raw: &str, until: Millis) -> Result<(), StoreError> {
        self.write("keep_raw", &sha256, || self.inner.keep_raw(sha256, raw, until)).await
    }
}

impl<E: Endpoints> Endpoints for Hostile<E> {
    async fn find(&self, endpoint: &EndpointKey, fresh: bool) -> Result<Found, StoreError> {
        self.read("find", endpoint, || self.inner.find(endpoint, fresh)).await
    }

    async fn inline_keys(&self) -> Result<Vec<Secret>, StoreError> {
        self.read("inline_keys", &"", || self.inner.inline_keys()).await
    }
}

impl<Q: DeadQueue> DeadQueue for Hostile<Q> {
    async fn receive(&self) -> Result<Vec<Received>, StoreError> {
        self.write("receive", &"", || self.inner.receive()).await
    }

    async fn delete(&self, message: &Received) -> Result<(), StoreError> {
        self.write("delete", &message.message_id, || self.inner.delete(message)).await
    }

    async fn visible(&self) -> Result<u64, StoreError> {
        self.read("visible", &"", || self.inner.visible()).await
    }
}
