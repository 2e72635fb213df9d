//! The endpoints table. `deliver` reads it through the port; an operator's command line writes it through
//! [`EndpointTable::replace`], always naming the version that a change was made from.
//!
//! One item that is no endpoint lives here too, because it is as secret: the root keys of inline URLs.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use domain::endpoint::{Defaults, Found};
use domain::fields::Problem;
use domain::id::EndpointKey;
use domain::ports::{Clock, Endpoints, StoreError};
use domain::registry::{Registration, RootKeys, SecretEntry, Unreadable};
use domain::signature::{Scheme, Secret};
use serde_json::Value;

use super::cache::Cache;
use super::document;
use super::item::{Item, n, s};
use super::{ENDPOINTS_KEPT_MS, unavailable_without_dump};
use crate::clock::{SystemClock, random_key};

/// Key of the item with the root keys of inline URLs. No endpoint's id can hold a `#`.
const INLINE_KEYS: &str = "#inline-keys";

/// The endpoints table, with a short cache.
pub struct EndpointTable {
    client: Client,
    table: String,
    defaults: Defaults,
    found: Cache<EndpointKey, Found>,
    inline: Cache<(), Vec<Secret>>,
}

impl EndpointTable {
    /// The endpoints of that table.
    pub fn new(client: Client, table: String, defaults: Defaults) -> Self {
        Self { client, table, defaults, found: Cache::new(ENDPOINTS_KEPT_MS), inline: Cache::new(ENDPOINTS_KEPT_MS) }
    }

    async fn item(&self, key: &str) -> Result<Option<Item>, StoreError> {
        let read = self.client.get_item().table_name(&self.table).key("endpoint", s(key)).consistent_read(true);
        Ok(read.send().await.map_err(|e| unavailable_without_dump("reading the endpoints table", &e))?.item)
    }

    /// Reads a registration as it is stored: `None` when there is none, the problems when it cannot be read.
    pub async fn registration(&self, id: &EndpointKey) -> Result<Option<Result<Registration, Unreadable>>, StoreError> {
        Ok(self.item(id.as_str()).await?.map(decode))
    }

    /// Every registration, in order of their ids.
    pub async fn registrations(&self) -> Result<Vec<(EndpointKey, Result<Registration, Unreadable>)>, StoreError> {
        let (mut all, mut start) = (Vec::new(), None);
        loop {
            let page = self
                .client
                .scan()
                .table_name(&self.table)
                .consistent_read(true)
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|e| unavailable_without_dump("listing the endpoints table", &e))?;
            start = page.last_evaluated_key;
            for item in page.items.unwrap_or_default() {
                let id = item.get("endpoint").and_then(|v| v.as_s().ok());
                if let Some(id) = id.and_then(|id| EndpointKey::registered(id).ok()) {
                    all.push((id, decode(item)));
                }
            }
            if start.as_ref().is_none_or(HashMap::is_empty) {
                all.sort_by(|a, b| a.0.cmp(&b.0));
                return Ok(all);
            }
        }
    }

    /// Writes a registration in place of version `expected` (0: there is none, or one that nobody versioned). False when
    /// somebody else was faster.
    pub async fn replace(
        &self,
        id: &EndpointKey,
        expected: u64,
        registration: &Registration,
    ) -> Result<bool, StoreError> {
        let stored = registration.to_stored().map_err(|problems| unwritable(&problems))?;
        self.put(id.as_str(), expected, stored).await
    }

    /// The root keys of inline URLs, retired ones included; none before the first one was needed.
    pub async fn root_keys(&self) -> Result<RootKeys, StoreError> {
        let item = self.item(INLINE_KEYS).await?;
        Ok(item.map_or_else(RootKeys::default, |item| RootKeys::from_json(without_key(item))))
    }

    /// Writes the root keys in place of version `expected`. False when somebody else was faster.
    pub async fn replace_root_keys(&self, expected: u64, keys: &[SecretEntry]) -> Result<bool, StoreError> {
        let stored = RootKeys::to_stored(keys, expected + 1).map_err(|problems| unwritable(&problems))?;
        self.put(INLINE_KEYS, expected, stored).await
    }

    async fn put(&self, key: &str, expected: u64, document: Value) -> Result<bool, StoreError> {
        let Value::Object(object) = document else { return Err(StoreError::Corrupt("no object".to_owned())) };
        let mut item = document::from_json(object);
        item.insert("endpoint".to_owned(), s(key));
        let put = self.client.put_item().table_name(&self.table).set_item(Some(item.clone()));
        let put = if expected == 0 {
            put.condition_expression("attribute_not_exists(#version)")
        } else {
            put.condition_expression("#version = :expected").expression_attribute_values(":expected", n(expected))
        };
        let put = put
            .expression_attribute_names("#version", "version")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match put {
            Ok(_) => Ok(true),
            // True when our own write was repeated underneath us after its answer was lost.
            Err(error) => match error.into_service_error() {
                PutItemError::ConditionalCheckFailedException(failed) => {
                    Ok(failed.item.is_some_and(|there| there == item))
                }
                other => Err(unavailable_without_dump("writing to the endpoints table", &other)),
            },
        }
    }
}

impl Endpoints for EndpointTable {
    async fn find(&self, endpoint: &EndpointKey, fresh: bool) -> Result<Found, StoreError> {
        let now = SystemClock.now();
        if let Some(found) = self.found.get(endpoint, now).filter(|_| !fresh) {
            return Ok(found);
        }
        let found = match self.registration(endpoint).await? {
            None => Found::Unknown,
            Some(Ok(registration)) if registration.removed_at.is_some() => Found::Removed,
            Some(Ok(registration)) => match registration.resolve(&self.defaults, now) {
                Ok(config) => Found::Config(Box::new(config)),
                Err(problem) => Found::misconfigured(&[problem]),
            },
            Some(Err(unreadable)) => Found::misconfigured(&unreadable.problems),
        };
        // A missing endpoint is looked up every time: it may be registered at any moment.
        if !matches!(found, Found::Unknown) {
            self.found.put(endpoint.clone(), found.clone(), now);
        }
        Ok(found)
    }

    async fn inline_keys(&self) -> Result<Vec<Secret>, StoreError> {
        let now = SystemClock.now();
        if let Some(keys) = self.inline.get(&(), now) {
            return Ok(keys);
        }
        let mut roots = self.root_keys().await?;
        for problem in &roots.problems {
            tracing::error!(%problem, "a root key of inline URLs cannot be read, nothing is signed with it");
        }
        if !roots.any_active(now) {
            // Another key in place of one that cannot be read would be news to every receiver: a person decides.
            if !roots.problems.is_empty() {
                return Err(StoreError::Corrupt(format!("the root keys of inline URLs: {}", joined(&roots.problems))));
            }
            let first = Secret::new(Scheme::V1, &random_key());
            roots.keys.insert(0, SecretEntry { secret: first, created_at: now, retired_at: None });
            if !self.replace_root_keys(roots.version, &roots.keys).await? {
                roots = self.root_keys().await?;
            }
        }
        let active: Vec<Secret> =
            roots.keys.into_iter().filter(|key| key.is_active(now)).map(|key| key.secret).collect();
        self.inline.put((), active.clone(), now);
        Ok(active)
    }
}

fn without_key(mut item: Item) -> Value {
    item.remove("endpoint");
    document::to_json(item)
}

fn decode(item: Item) -> Result<Registration, Unreadable> {
    Registration::read(without_key(item))
}

fn joined(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn unwritable(problems: &[Problem]) -> StoreError {
    StoreError::Corrupt(format!("what was about to be written could not be read again: {}", joined(problems)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document_comes_back_from_its_item() {
        let value = json!({"a": "x", "b": [1, 2.5, true], "c": {"d": "", "e": 9_007_199_254_740_993_u64}});
        let Value::Object(object) = value.clone() else { panic!() };
        let mut item = document::from_json(object);
        item.insert("endpoint".to_owned(), s("p"));
        assert_eq!(without_key(item), value);
    }

    #[test]
    fn an_item_written_by_hand_is_read_too() {
        let item = Item::from([
            ("endpoint".to_owned(), s("p")),
            ("url".to_owned(), s("https://h.example.test/")),
            (
                "secrets".to_owned(),
                aws_sdk_dynamodb::types::AttributeValue::L(vec![s(
                    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
                )]),
            ),
        ]);
        let read = decode(item).unwrap();
        assert_eq!((read.secrets.len(), read.version), (1, 0));
        let wrong = Item::from([("url".to_owned(), aws_sdk_dynamodb::types::AttributeValue::Ss(vec!["x".to_owned()]))]);
        assert_eq!(decode(wrong).unwrap_err().problems[0].field, "url");
    }
}
