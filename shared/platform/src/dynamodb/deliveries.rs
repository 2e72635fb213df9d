//! The port of the deliveries table.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, ReturnValue, ReturnValuesOnConditionCheckFailure};
use domain::id::{DeliveryKey, EventId};
use domain::kept_answer::KeptAnswer;
use domain::ports::{
    Claimed, Clock, Created, Cursor, Deliveries, ItemKey, Lane, Page, Range, Row, StoreError, Stored, Swapped,
};
use domain::record::{Lease, Record};
use domain::reject::Rejected;
use domain::time::Millis;

use super::item::{self, Item, n, s};
use super::{DeliveryTable, unavailable};
use crate::clock::SystemClock;

/// A batch read takes at most so many keys.
const BATCH: usize = 100;
/// Keys that a batch read leaves out are asked for again so often, after pauses that double.
const TRIES: u32 = 5;
/// The first of these pauses, in milliseconds.
const FIRST_PAUSE_MS: i64 = 50;

/// The old item that came with a failed condition; `Err` for any other failure.
pub(super) fn lost_update(error: SdkError<UpdateItemError>) -> Result<Option<Item>, StoreError> {
    match error.into_service_error() {
        UpdateItemError::ConditionalCheckFailedException(failed) => Ok(failed.item),
        other => Err(unavailable("updating an item", other)),
    }
}

/// The same for a put.
pub(super) fn lost_put(error: SdkError<PutItemError>) -> Result<Option<Item>, StoreError> {
    match error.into_service_error() {
        PutItemError::ConditionalCheckFailedException(failed) => Ok(failed.item),
        other => Err(unavailable("writing an item", other)),
    }
}

impl Deliveries for DeliveryTable {
    async fn get(&self, key: &DeliveryKey) -> Result<Option<Record>, StoreError> {
        let answer = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(item::key(key)))
            .consistent_read(true)
            .send()
            .await
            .map_err(|e| unavailable("reading a delivery", e))?;
        answer.item.as_ref().map(item::decode).transpose()
    }

    async fn of_event(&self, event: &EventId) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        let mut start = None;
        loop {
            let page = self
                .client
                .query()
                .table_name(&self.table)
                .key_condition_expression("pk = :pk AND begins_with(sk, :d)")
                .expression_attribute_values(":pk", s(&format!("E#{event}")))
                .expression_attribute_values(":d", s("D#"))
                .consistent_read(true)
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|e| unavailable("reading the deliveries of an event", e))?;
            for item in page.items() {
                records.push(item::decode(item)?);
            }
            start = page.last_evaluated_key;
            if start.as_ref().is_none_or(HashMap::is_empty) {
                return Ok(records);
            }
        }
    }

    async fn get_many(&self, keys: &[ItemKey]) -> Result<Vec<Stored>, StoreError> {
        let mut found = Vec::with_capacity(keys.len());
        let distinct: BTreeSet<(&str, &str)> = keys.iter().map(|k| (k.pk.as_str(), k.sk.as_str())).collect();
        let distinct: Vec<Item> = distinct.into_iter().map(|(pk, sk)| item::text_key(pk, sk)).collect();
        for batch in distinct.chunks(BATCH) {
            let mut wanted = batch.to_vec();
            let mut tries = 0;
            while !wanted.is_empty() {
                let request = KeysAndAttributes::builder().set_keys(Some(wanted)).consistent_read(true).build();
                let answer = self
                    .client
                    .batch_get_item()
                    .request_items(&self.table, request.map_err(|e| StoreError::Corrupt(e.to_string()))?)
                    .send()
                    .await
                    .map_err(|e| unavailable("reading items", e))?;
                found.extend(answer.responses.unwrap_or_default().values().flatten().map(item::decode_stored));
                let mut left = answer.unprocessed_keys.unwrap_or_default();
                wanted = left.remove(&self.table).map(|k| k.keys).unwrap_or_default();
                if !wanted.is_empty() {
                    if tries == TRIES {
                        return Err(StoreError::Unavailable("reading items: the table is throttled".to_owned()));
                    }
                    SystemClock.sleep_until(SystemClock.now().plus(FIRST_PAUSE_MS << tries)).await;
                    tries += 1;
                }
            }
        }
        Ok(found)
    }

    async fn create(&self, record: &Record) -> Result<Created, StoreError> {
        let new = item::encode(record);
        let answer = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(new.clone()))
            .condition_expression("attribute_not_exists(pk)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let Err(error) = answer else { return Ok(Created::New) };
        let old = match lost_put(error)? {
            Some(item) => item::decode(&item)?,
            // The record went away between the failed condition and its report; the caller's message comes again.
            None => {
                self.get(&record.key).await?.ok_or_else(|| StoreError::Unavailable("a record vanished".to_owned()))?
            }
        };
        // Our own write, repeated underneath us after its answer was lost; a cancel may have marked it since.
        let held_by_us = record.lease.as_ref().is_some_and(|lease| old.is_held_by(&lease.claim_id));
        if held_by_us || item::encode(&old) == new { Ok(Created::New) } else { Ok(Created::Exists(Box::new(old))) }
    }

    async fn claim(&self, key: &DeliveryKey, attempt: u32, lease: &Lease, now: Millis) -> Result<Claimed, StoreError> {
        let answer = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(item::key(key)))
            .update_expression(
                "SET #state = :in_flight, since = :now, rev = rev + :one, attempt = :next, lease_until = :until, claim_id = :claim \
                 REMOVE reason, released_from, booked",
            )
            // Nobody else has claimed it, its time has come, and it is not too late.
            .condition_expression(
                "#state = :waiting AND attempt = :attempt AND due <= :now \
                 AND (attribute_not_exists(deliver_by) OR deliver_by > :now)",
            )
            .expression_attribute_names("#state", "state")
            .expression_attribute_values(":in_flight", s("in_flight"))
            .expression_attribute_values(":waiting", s("waiting"))
            .expression_attribute_values(":now", n(now.0))
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":attempt", n(attempt))
            .expression_attribute_values(":next", n(attempt.saturating_add(1)))
            .expression_attribute_values(":until", n(lease.until.0))
            .expression_attribute_values(":claim", s(lease.claim_id.as_str()))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(done) => {
                let item = done.attributes.ok_or_else(|| StoreError::Corrupt("a claim returned no item".to_owned()))?;
                Ok(Claimed::Started(Box::new(item::decode(&item)?)))
            }
            Err(error) => match lost_update(error)?.as_ref().map(item::decode).transpose()? {
                // Our own claim, repeated underneath us after its answer was lost.
                Some(record) if record.is_held_by(&lease.claim_id) => Ok(Claimed::Started(Box::new(record))),
                other => Ok(Claimed::Refused(other.map(Box::new))),
            },
        }
    }

    async fn swap(&self, old: &Record, new: &Record) -> Result<Swapped, StoreError> {
        let (before, after) = (item::encode(old), item::encode(new));
        let mut names = HashMap::from([
            ("#state".to_owned(), "state".to_owned()),
            ("#attempt".to_owned(), "attempt".to_owned()),
            ("#rev".to_owned(), "rev".to_owned()),
        ]);
        let mut values = HashMap::from([
            (":state".to_owned(), s(old.state.name())),
            (":attempt".to_owned(), n(old.attempt)),
            (":rev".to_owned(), n(old.rev)),
        ]);
        let (mut set, mut remove) = (Vec::new(), Vec::new());
        for (i, (name, value)) in after.iter().filter(|(name, value)| before.get(*name) != Some(value)).enumerate() {
            names.insert(format!("#s{i}"), name.clone());
            values.insert(format!(":s{i}"), value.clone());
            set.push(format!("#s{i} = :s{i}"));
        }
        for (i, name) in before.keys().filter(|name| !after.contains_key(*name)).enumerate() {
            names.insert(format!("#r{i}"), name.clone());
            remove.push(format!("#r{i}"));
        }
        let mut update = format!("SET {}", set.join(", "));
        if !remove.is_empty() {
            update.push_str(&format!(" REMOVE {}", remove.join(", ")));
        }
        let answer = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(item::key(&old.key)))
            .update_expression(update)
            .condition_expression("#state = :state AND #attempt = :attempt AND #rev = :rev")
            .set_expression_attribute_names(Some(names))
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let Err(error) = answer else { return Ok(Swapped::Done) };
        match lost_update(error)?.as_ref().map(item::decode).transpose()? {
            // Our own write, repeated underneath us after its answer was lost.
            Some(there) if item::encode(&there) == after => Ok(Swapped::Done),
            there => Ok(Swapped::Lost(there.map(Box::new))),
        }
    }

    async fn rows(&self, range: Range<'_>) -> Result<Page, StoreError> {
        let (_, sort) = index(range.lane);
        let start = range.after.map(|row| start_key(range.lane, row));
        let page = self
            .range_query(&range)
            .limit(i32::try_from(range.limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|e| unavailable("reading an index", e))?;
        let rows = page.items().iter().map(|item| row(item, sort)).collect::<Result<Vec<_>, _>>()?;
        Ok(Page { rows, more: page.last_evaluated_key.is_some_and(|key| !key.is_empty()) })
    }

    async fn reject(&self, rejected: &Rejected) -> Result<u32, StoreError> {
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item::encode_rejected(rejected)))
            .condition_expression("attribute_not_exists(pk)")
            .send()
            .await;
        let Err(error) = put else { return Ok(1) };
        lost_put(error)?;
        let answer = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(item::text_key(&format!("R#{}", rejected.sha256), "R")))
            .update_expression("SET seen = seen + :one, expires_at = :expires, #reason = :reason, detail = :detail")
            .condition_expression("attribute_exists(pk)")
            .expression_attribute_names("#reason", "reason")
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":expires", n(rejected.expires_at.seconds_up()))
            .expression_attribute_values(":reason", s(rejected.reason.name()))
            .expression_attribute_values(":detail", s(&rejected.detail))
            .return_values(ReturnValue::UpdatedNew)
            .send()
            .await
            .map_err(|e| unavailable("counting a rejected message", e))?;
        let seen = answer
            .attributes
            .as_ref()
            .and_then(|a| a.get("seen"))
            .and_then(|v| v.as_n().ok())
            .and_then(|v| v.parse().ok());
        Ok(seen.unwrap_or(1))
    }

    async fn keep_answer(&self, key: &DeliveryKey, answer: &KeptAnswer, until: Millis) -> Result<(), StoreError> {
        let mut item = item::encode_answer(answer);
        item.extend(answer_key(key));
        item.insert("expires_at".to_owned(), n(until.seconds_up()));
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(pk) OR attempt <= :attempt")
            .expression_attribute_values(":attempt", n(answer.attempt))
            .send()
            .await;
        match put {
            Ok(_) => Ok(()),
            Err(error) => lost_put(error).map(|_| ()),
        }
    }

    async fn kept_answer(&self, key: &DeliveryKey) -> Result<Option<KeptAnswer>, StoreError> {
        let read = self.client.get_item().table_name(&self.table).set_key(Some(answer_key(key))).consistent_read(true);
        let answer = read.send().await.map_err(|e| unavailable("reading a kept answer", e))?;
        answer.item.as_ref().map(item::decode_answer).transpose()
    }

    async fn cursor(&self, cursor: Cursor) -> Result<Option<Millis>, StoreError> {
        let read =
            self.client.get_item().table_name(&self.table).set_key(Some(cursor_key(cursor))).consistent_read(true);
        let answer = read.send().await.map_err(|e| unavailable("reading a cursor", e))?;
        let at = answer.item.as_ref().and_then(|i| i.get("at")).and_then(|v| v.as_n().ok());
        Ok(at.and_then(|at| at.parse().ok()).map(Millis))
    }

    async fn set_cursor(&self, cursor: Cursor, to: Millis) -> Result<(), StoreError> {
        let mut item = cursor_key(cursor);
        item.insert("at".to_owned(), n(to.0));
        let mut put = self.client.put_item().table_name(&self.table).set_item(Some(item));
        if cursor.only_forward() {
            put = put
                .condition_expression("attribute_not_exists(pk) OR #at < :to")
                .expression_attribute_names("#at", "at")
                .expression_attribute_values(":to", n(to.0));
        }
        match put.send().await {
            Ok(_) => Ok(()),
            Err(error) => lost_put(error).map(|_| ()),
        }
    }
}

/// Beside the delivery: under its event, but not among the event's deliveries.
fn answer_key(key: &DeliveryKey) -> Item {
    item::text_key(&format!("E#{}", key.event), &format!("A#{}", key.endpoint))
}

fn cursor_key(cursor: Cursor) -> Item {
    let ItemKey { pk, sk } = cursor.at();
    item::text_key(&pk, &sk)
}

/// Name and sort attribute of a lane's index.
const fn index(lane: &Lane) -> (&'static str, &'static str) {
    match lane {
        Lane::Work(..) => ("work", "due"),
        Lane::Endpoint(..) => ("by_endpoint", "since"),
    }
}

fn partition(lane: &Lane) -> (&'static str, String) {
    match lane {
        Lane::Work(name, shard) => ("lane", format!("{name}#{shard:02}")),
        Lane::Endpoint(state, state_key, shard) => ("ep_lane", format!("{state}#{state_key}#{shard}")),
    }
}

fn start_key(lane: &Lane, row: &Row) -> Item {
    let (attribute, value) = partition(lane);
    let mut key = item::text_key(&row.at.pk, &row.at.sk);
    key.insert(attribute.to_owned(), s(&value));
    key.insert(index(lane).1.to_owned(), n(row.sort.0));
    key
}

fn row(item: &Item, sort: &str) -> Result<Row, StoreError> {
    let text = |name: &str| item.get(name).and_then(|v| v.as_s().ok()).cloned();
    let number = |name: &str| item.get(name).and_then(|v| v.as_n().ok()).and_then(|v| v.parse::<i64>().ok());
    match (text("pk"), text("sk"), number(sort)) {
        (Some(pk), Some(sk), Some(at)) => Ok(Row {
            at: ItemKey { pk, sk },
            sort: Millis(at),
            armed_at: number("armed_at").map(Millis),
            rearms: number("rearms").and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        }),
        _ => Err(StoreError::Corrupt("a row of an index lacks its keys".to_owned())),
    }
}

impl DeliveryTable {
    fn range_query(&self, range: &Range<'_>) -> aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder {
        let (index, sort) = index(range.lane);
        let (attribute, value) = partition(range.lane);
        self.client
            .query()
            .table_name(&self.table)
            .index_name(index)
            .key_condition_expression("#lane = :lane AND #sort BETWEEN :from AND :to")
            .expression_attribute_names("#lane", attribute)
            .expression_attribute_names("#sort", sort)
            .expression_attribute_values(":lane", AttributeValue::S(value))
            .expression_attribute_values(":from", n(range.from.0))
            .expression_attribute_values(":to", n(range.to.0))
    }
}
