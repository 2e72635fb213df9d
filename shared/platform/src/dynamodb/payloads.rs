//! The port of the payloads table: immutable content, kept only when it is needed again.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use domain::id::DeliveryKey;
use domain::payload::Payload;
use domain::ports::{Payloads, StoreError};
use domain::time::Millis;

use super::deliveries::lost_put;
use super::item::{self, Item, n, s};
use super::unavailable;

/// A stored piece of a rejected message: an item of DynamoDB holds 400 KB.
const PIECE_BYTES: usize = 350 * 1024;

/// The payloads table.
#[derive(Clone, Debug)]
pub struct PayloadTable {
    client: Client,
    table: String,
}

impl PayloadTable {
    /// The payloads of that table.
    pub const fn new(client: Client, table: String) -> Self {
        Self { client, table }
    }

    async fn put(&self, item: Item) -> Result<(), StoreError> {
        let request = self.client.put_item().table_name(&self.table).set_item(Some(item));
        request.send().await.map(|_| ()).map_err(|e| unavailable("keeping a payload", e))
    }
}

fn partition(key: &DeliveryKey) -> String {
    format!("E#{}#{}", key.event, key.endpoint)
}

fn decode(item: &Item) -> Option<Payload> {
    let text = |name: &str| item.get(name).and_then(|v| v.as_s().ok()).cloned();
    let headers = match item.get("headers").map(|h| h.as_m()) {
        Some(Ok(map)) => {
            let mut headers: Vec<(String, String)> =
                map.iter().map(|(k, v)| v.as_s().ok().map(|v| (k.clone(), v.clone()))).collect::<Option<_>>()?;
            headers.sort();
            headers
        }
        Some(Err(_)) => return None,
        None => Vec::new(),
    };
    Some(Payload {
        body: item.get("body")?.as_b().ok()?.clone().into_inner(),
        content_type: text("content_type")?,
        headers,
        url: text("url"),
    })
}

impl Payloads for PayloadTable {
    async fn keep(&self, key: &DeliveryKey, payload: &Payload, until: Millis) -> Result<(), StoreError> {
        let mut item = item::text_key(&partition(key), &payload.hash());
        item.insert("body".to_owned(), AttributeValue::B(Blob::new(payload.body.clone())));
        item.insert("content_type".to_owned(), s(&payload.content_type));
        item.insert("expires_at".to_owned(), n(until.seconds_up()));
        if !payload.headers.is_empty() {
            let headers = payload.headers.iter().map(|(name, value)| (name.clone(), s(value))).collect();
            item.insert("headers".to_owned(), AttributeValue::M(headers));
        }
        if let Some(url) = &payload.url {
            item.insert("url".to_owned(), s(url));
        }
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(pk) OR expires_at < :until")
            .expression_attribute_values(":until", n(until.seconds_up()))
            .send()
            .await;
        match put {
            Ok(_) => Ok(()),
            // It is there already, and for longer.
            Err(error) => lost_put(error).map(|_| ()),
        }
    }

    async fn load(&self, key: &DeliveryKey) -> Result<Vec<Payload>, StoreError> {
        let (mut payloads, mut start) = (Vec::new(), None);
        loop {
            let page = self
                .client
                .query()
                .table_name(&self.table)
                .key_condition_expression("pk = :pk")
                .expression_attribute_values(":pk", s(&partition(key)))
                .consistent_read(true)
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|e| unavailable("reading a payload", e))?;
            // An unreadable or altered payload is as good as none: the record's hash decides.
            let intact =
                |item: &Item| decode(item).filter(|p| item.get("sk").and_then(|v| v.as_s().ok()) == Some(&p.hash()));
            payloads.extend(page.items().iter().filter_map(intact));
            start = page.last_evaluated_key;
            if start.as_ref().is_none_or(HashMap::is_empty) {
                return Ok(payloads);
            }
        }
    }

    async fn extend(&self, key: &DeliveryKey, hash: &str, until: Millis) -> Result<bool, StoreError> {
        let update = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(item::text_key(&partition(key), hash)))
            .update_expression("SET expires_at = :until")
            .condition_expression("attribute_exists(pk)")
            .expression_attribute_values(":until", n(until.seconds_up()))
            .send()
            .await;
        match update.map_err(aws_sdk_dynamodb::error::SdkError::into_service_error) {
            Ok(_) => Ok(true),
            Err(UpdateItemError::ConditionalCheckFailedException(_)) => Ok(false),
            Err(other) => Err(unavailable("extending a payload", other)),
        }
    }

    async fn keep_raw(&self, sha256: &str, raw: &str, until: Millis) -> Result<(), StoreError> {
        let pieces = raw.as_bytes().chunks(PIECE_BYTES);
        for (i, piece) in std::iter::once(&[][..]).filter(|_| raw.is_empty()).chain(pieces).enumerate() {
            let mut item = item::text_key(&format!("R#{sha256}"), &format!("raw#{i}"));
            item.insert("body".to_owned(), AttributeValue::B(Blob::new(piece)));
            item.insert("expires_at".to_owned(), n(until.seconds_up()));
            self.put(item).await?;
        }
        Ok(())
    }
}
