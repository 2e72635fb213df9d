//! The port of the plans: items of the deliveries table. A plan is one JSON document beside the attributes that
//! conditions and the index need.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{Put, ReturnValue, ReturnValuesOnConditionCheckFailure};
use domain::audit::Decision;
use domain::plan::{CHUNK, Frozen, Plan, PlanState};
use domain::ports::{Clock, Plans, StoreError};
use domain::time::{DAY_MS, Millis};

use super::audit::Written;
use super::deliveries::{lost_put, lost_update};
use super::item::{self, Item, n, s};
use super::{DeliveryTable, unavailable};
use crate::clock::SystemClock;

/// Lane of the plans in a state; the sweep looks at those that run.
fn lane(state: PlanState) -> String {
    format!("plan#{}", state.name())
}

/// So often a booking is tried when the meter changes hands at the same moment.
const BOOKINGS: usize = 5;
/// Plans are cleaned up so long after their proposal.
const KEPT_MS: i64 = 400 * DAY_MS;

fn encode(plan: &Plan) -> Item {
    let mut item = item::text_key(&format!("PLAN#{}", plan.id), "PLAN");
    item.insert("doc".to_owned(), s(&serde_json::to_string(plan).expect("a plan is plain data")));
    item.insert("rev".to_owned(), n(plan.rev));
    item.insert("expires_at".to_owned(), n(Millis(plan.created_at).plus(KEPT_MS).seconds_up()));
    item.insert("lane".to_owned(), s(&lane(plan.state)));
    item.insert("due".to_owned(), n(plan.created_at));
    item
}

fn decode<T: serde::de::DeserializeOwned>(item: &Item) -> Result<T, StoreError> {
    let doc = item
        .get("doc")
        .and_then(|v| v.as_s().ok())
        .ok_or_else(|| StoreError::Corrupt("a plan has no document".to_owned()))?;
    serde_json::from_str(doc).map_err(|e| StoreError::Corrupt(format!("a plan cannot be read: {e}")))
}

impl DeliveryTable {
    async fn read_doc<T: serde::de::DeserializeOwned>(&self, pk: &str, sk: &str) -> Result<Option<T>, StoreError> {
        let request =
            self.client.get_item().table_name(&self.table).set_key(Some(item::text_key(pk, sk))).consistent_read(true);
        let answer = request.send().await.map_err(|e| unavailable("reading a plan", e))?;
        answer.item.as_ref().map(decode).transpose()
    }
}

impl Plans for DeliveryTable {
    async fn propose(&self, plan: &Plan, list: &[Frozen], decision: Decision) -> Result<(), StoreError> {
        // The list first: a plan that can be read has all of it.
        let pk = format!("PLAN#{}", plan.id);
        let expires = n(Millis(plan.created_at).plus(KEPT_MS).seconds_up());
        for (i, chunk) in list.chunks(CHUNK).enumerate() {
            let mut item = item::text_key(&pk, &format!("CHUNK#{i}"));
            item.insert("doc".to_owned(), s(&serde_json::to_string(chunk).expect("a list is plain data")));
            item.insert("expires_at".to_owned(), expires.clone());
            let put = self.client.put_item().table_name(&self.table).set_item(Some(item));
            put.send().await.map_err(|e| unavailable("storing the list of a plan", e))?;
        }
        let put = Put::builder().table_name(&self.table).set_item(Some(encode(plan)));
        let put = put.build().map_err(|e| StoreError::Corrupt(e.to_string()))?;
        self.write_decision(Some(put), decision).await.map(|_| ())
    }

    async fn plan(&self, id: &str, fresh: bool) -> Result<Option<Plan>, StoreError> {
        let now = SystemClock.now();
        if let Some(plan) = self.plans.get(&id.to_owned(), now).filter(|_| !fresh) {
            return Ok(plan);
        }
        let plan: Option<Plan> = self.read_doc(&format!("PLAN#{id}"), "PLAN").await?;
        self.plans.put(id.to_owned(), plan.clone(), now);
        Ok(plan)
    }

    async fn chunk(&self, id: &str, chunk: usize) -> Result<Vec<Frozen>, StoreError> {
        let list = self.read_doc(&format!("PLAN#{id}"), &format!("CHUNK#{chunk}")).await?;
        list.ok_or_else(|| StoreError::Corrupt(format!("piece {chunk} of plan {id} is missing")))
    }

    async fn save_plan(&self, old: &Plan, new: &Plan, decision: Option<Decision>) -> Result<bool, StoreError> {
        self.plans.forget(&new.id);
        let after = encode(new);
        if let Some(decision) = decision {
            let put = Put::builder()
                .table_name(&self.table)
                .set_item(Some(after))
                .condition_expression("rev = :rev")
                .expression_attribute_values(":rev", n(old.rev))
                .build()
                .map_err(|e| StoreError::Corrupt(e.to_string()))?;
            return Ok(matches!(self.write_decision(Some(put), decision).await?, Written::Done));
        }
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(after.clone()))
            .condition_expression("rev = :rev")
            .expression_attribute_values(":rev", n(old.rev))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match put {
            Ok(_) => Ok(true),
            // A decision about the plan is being written at this moment: whoever reads it again will see which.
            Err(error) if error.as_service_error().is_some_and(PutItemError::is_transaction_conflict_exception) => {
                Ok(false)
            }
            // True when our own write was repeated underneath us after its answer was lost.
            Err(error) => Ok(lost_put(error)?.is_some_and(|there| there == after)),
        }
    }

    async fn bind_redrive_id(&self, redrive_id: &str, plan_id: &str, now: Millis) -> Result<String, StoreError> {
        let mut item = item::text_key(&format!("REDRIVE#{redrive_id}"), "ID");
        item.insert("plan".to_owned(), s(plan_id));
        item.insert("expires_at".to_owned(), n(now.plus(KEPT_MS).seconds_up()));
        let put = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(pk)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let Err(error) = put else { return Ok(plan_id.to_owned()) };
        let bound = lost_put(error)?.and_then(|item| item.get("plan").and_then(|v| v.as_s().ok()).cloned());
        bound.ok_or_else(|| StoreError::Corrupt(format!("redrive id {redrive_id} names no plan")))
    }

    async fn plans_in(&self, state: PlanState, limit: usize) -> Result<Vec<String>, StoreError> {
        self.in_lane(&lane(state), "PLAN#", Some(limit), "looking for plans").await
    }

    async fn book(&self, id: &str, rate: u32, now: Millis) -> Result<Millis, StoreError> {
        // In microseconds: at a high rate a slot is shorter than a few milliseconds.
        let step = 1_000_000 / i64::from(rate.max(1));
        let now_us = now.0.saturating_mul(1_000);
        let key = item::text_key(&format!("PLAN#{id}"), "METER");
        let expires = n(now.plus(KEPT_MS).seconds_up());
        for _ in 0..BOOKINGS {
            // A slot behind the last one, while those are in the future; else this very moment.
            for (update, condition) in [
                ("SET #next = #next + :step, expires_at = :expires", "#next >= :now"),
                ("SET #next = :now + :step, expires_at = :expires", "attribute_not_exists(#next) OR #next < :now"),
            ] {
                let booked = self
                    .client
                    .update_item()
                    .table_name(&self.table)
                    .set_key(Some(key.clone()))
                    .update_expression(update)
                    .condition_expression(condition)
                    .expression_attribute_names("#next", "next")
                    .expression_attribute_values(":step", n(step))
                    .expression_attribute_values(":now", n(now_us))
                    .expression_attribute_values(":expires", expires.clone())
                    .return_values(ReturnValue::UpdatedNew)
                    .send()
                    .await;
                match booked {
                    Ok(done) => {
                        let next = done.attributes.and_then(|a| a.get("next")?.as_n().ok()?.parse::<i64>().ok());
                        let next = next.ok_or_else(|| StoreError::Corrupt("a booking returned no slot".to_owned()))?;
                        return Ok(Millis((next - step).div_euclid(1_000)));
                    }
                    Err(error) => lost_update(error).map(|_| ())?,
                }
            }
        }
        Err(StoreError::Unavailable("booking a slot: too many others do at this moment".to_owned()))
    }
}
