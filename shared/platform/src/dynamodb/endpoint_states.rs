//! The port of the endpoints' operational states: items of the deliveries table, with a short cache for the sender.

use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use domain::endpoint_state::{EndpointState, Status};
use domain::id::StateKey;
use domain::ports::{Clock, EndpointStates, StoreError};
use domain::time::Millis;

use super::deliveries::lost_put;
use super::item::{self, Item, n, s};
use super::{DeliveryTable, unavailable};
use crate::clock::SystemClock;

/// Lane of the endpoints whose held deliveries are being released.
const RESUMED: &str = "endpoint#resumed";

fn encode(state: &EndpointState) -> Item {
    let mut item = item::text_key(&format!("EP#{}", state.key), "STATE");
    item.insert("status".to_owned(), s(state.status.name()));
    item.insert("since".to_owned(), n(state.since.0));
    item.insert("because".to_owned(), s(&state.because));
    item.insert("rev".to_owned(), n(state.rev));
    if let Some(released) = state.released {
        item.insert("released".to_owned(), n(released));
        item.insert("lane".to_owned(), s(RESUMED));
        item.insert("due".to_owned(), n(state.since.0));
    }
    item
}

fn decode(key: &StateKey, item: &Item) -> Result<EndpointState, StoreError> {
    let text = |name: &str| item.get(name).and_then(|v| v.as_s().ok());
    let number = |name: &str| item.get(name).and_then(|v| v.as_n().ok());
    let status = text("status").and_then(|name| Status::from_name(name));
    let since = number("since").and_then(|n| n.parse().ok()).map(Millis);
    match (status, since, number("rev").and_then(|n| n.parse().ok())) {
        (Some(status), Some(since), Some(rev)) => Ok(EndpointState {
            key: key.clone(),
            status,
            since,
            because: text("because").cloned().unwrap_or_default(),
            released: number("released").and_then(|n| n.parse().ok()),
            rev,
        }),
        _ => Err(StoreError::Corrupt(format!("the state of endpoint {key} cannot be read"))),
    }
}

impl EndpointStates for DeliveryTable {
    async fn endpoint_state(&self, key: &StateKey, fresh: bool) -> Result<EndpointState, StoreError> {
        let now = SystemClock.now();
        if let Some(state) = self.states.get(key, now).filter(|_| !fresh) {
            return Ok(state);
        }
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(item::text_key(&format!("EP#{key}"), "STATE")))
            .consistent_read(true);
        let answer = request.send().await.map_err(|e| unavailable("reading the state of an endpoint", e))?;
        let state = answer.item.map_or_else(|| Ok(EndpointState::untouched(key)), |item| decode(key, &item))?;
        self.states.put(key.clone(), state.clone(), now);
        Ok(state)
    }

    async fn save_endpoint_state(&self, old: &EndpointState, new: &EndpointState) -> Result<bool, StoreError> {
        let after = encode(new);
        let put = self.client.put_item().table_name(&self.table).set_item(Some(after.clone()));
        let put = if old.rev == 0 {
            put.condition_expression("attribute_not_exists(pk)")
        } else {
            put.condition_expression("rev = :rev").expression_attribute_values(":rev", n(old.rev))
        };
        let put =
            put.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld).send().await;
        self.states.forget(&new.key);
        match put {
            Ok(_) => Ok(true),
            // True when our own write was repeated underneath us after its answer was lost.
            Err(error) => Ok(lost_put(error)?.is_some_and(|there| there == after)),
        }
    }

    async fn resumed_endpoints(&self) -> Result<Vec<StateKey>, StoreError> {
        let keys = self.in_lane(RESUMED, "EP#", None, "looking for resumed endpoints").await?;
        Ok(keys.iter().map(|key| StateKey::stored(key)).collect())
    }
}
