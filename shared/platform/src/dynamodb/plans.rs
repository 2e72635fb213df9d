//! The port of the plans: items of the deliveries table. A plan is one JSON document beside the attributes that
//! conditions and the index need.

use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use domain::plan::{CHUNK, Frozen, Plan, PlanState};
use domain::ports::{Plans, StoreError};
use domain::time::{DAY_MS, Millis};

use super::deliveries::lost_put;
use super::item::{self, Item, n, s};
use super::{DeliveryTable, unavailable};

/// Lane of the plans that are being released.
const RAMPING: &str = "plan#ramping";
/// Plans are cleaned up so long after their proposal.
const KEPT_MS: i64 = 400 * DAY_MS;

fn encode(plan: &Plan) -> Item {
    let mut item = item::text_key(&format!("PLAN#{}", plan.id), "PLAN");
    item.insert("doc".to_owned(), s(&serde_json::to_string(plan).expect("a plan is plain data")));
    item.insert("rev".to_owned(), n(plan.rev));
    item.insert("expires_at".to_owned(), n(Millis(plan.created_at).plus(KEPT_MS).seconds_up()));
    if plan.state == PlanState::Ramping {
        item.insert("lane".to_owned(), s(RAMPING));
        item.insert("due".to_owned(), n(plan.created_at));
    }
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
    async fn propose(&self, plan: &Plan, list: &[Frozen]) -> Result<(), StoreError> {
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
        let put = self.client.put_item().table_name(&self.table).set_item(Some(encode(plan)));
        put.send().await.map(|_| ()).map_err(|e| unavailable("storing a plan", e))
    }

    async fn plan(&self, id: &str) -> Result<Option<Plan>, StoreError> {
        self.read_doc(&format!("PLAN#{id}"), "PLAN").await
    }

    async fn chunk(&self, id: &str, chunk: usize) -> Result<Vec<Frozen>, StoreError> {
        let list = self.read_doc(&format!("PLAN#{id}"), &format!("CHUNK#{chunk}")).await?;
        list.ok_or_else(|| StoreError::Corrupt(format!("piece {chunk} of plan {id} is missing")))
    }

    async fn save_plan(&self, old: &Plan, new: &Plan) -> Result<bool, StoreError> {
        let after = encode(new);
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

    async fn ramping(&self) -> Result<Vec<String>, StoreError> {
        self.in_lane(RAMPING, "PLAN#", "looking for plans").await
    }
}
