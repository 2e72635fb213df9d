//! DynamoDB: the deliveries table (records, rejected messages, plans, cursors), the payloads table, the endpoints table.
//!
//! Every write that changes a state names the state, the attempt and the revision it believes in, and asks for the old
//! item when it is wrong, so that a lost race is known in one round trip.

mod audit;
mod cache;
mod deliveries;
mod document;
mod endpoint_states;
mod endpoints;
pub mod item;
mod payloads;
mod plans;

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::DisplayErrorContext;
use domain::endpoint_state::EndpointState;
use domain::id::StateKey;
use domain::plan::Plan;
use domain::ports::StoreError;
use domain::time::SECOND_MS;

use cache::Cache;

pub use endpoints::EndpointTable;
pub use payloads::PayloadTable;

/// The deliveries table.
#[derive(Clone, Debug)]
pub struct DeliveryTable {
    client: Client,
    table: String,
    states: Cache<StateKey, EndpointState>,
    plans: Cache<String, Option<Plan>>,
}

/// The configuration and the state of an endpoint are used for so many milliseconds after they were read.
const ENDPOINTS_KEPT_MS: i64 = 10 * SECOND_MS;
/// The same for a plan: an abort bites after this time at the latest.
const PLANS_KEPT_MS: i64 = 5 * SECOND_MS;

impl DeliveryTable {
    /// The deliveries of that table.
    pub fn new(client: Client, table: String) -> Self {
        Self { client, table, states: Cache::new(ENDPOINTS_KEPT_MS), plans: Cache::new(PLANS_KEPT_MS) }
    }

    /// Opens the connection before the first event comes.
    pub async fn warm(&self) {
        let key = item::text_key("WARM", "UP");
        self.client.get_item().table_name(&self.table).set_key(Some(key)).send().await.ok();
    }

    /// What follows `prefix` in the partition keys of a lane of the `work` index that is not sharded: all, oldest first,
    /// or the `newest` so many.
    async fn in_lane(
        &self,
        lane: &str,
        prefix: &str,
        newest: Option<usize>,
        what: &str,
    ) -> Result<Vec<String>, StoreError> {
        let (mut names, mut start) = (Vec::new(), None);
        loop {
            let page = self
                .client
                .query()
                .table_name(&self.table)
                .index_name("work")
                .key_condition_expression("lane = :lane")
                .expression_attribute_values(":lane", item::s(lane))
                .scan_index_forward(newest.is_none())
                .set_limit(newest.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX).max(1)))
                .set_exclusive_start_key(start)
                .send()
                .await
                .map_err(|e| unavailable(what, e))?;
            let name = |item: &item::Item| Some(item.get("pk")?.as_s().ok()?.strip_prefix(prefix)?.to_owned());
            names.extend(page.items().iter().filter_map(name));
            start = page.last_evaluated_key;
            let enough = newest.is_some_and(|limit| names.len() >= limit);
            if enough || start.as_ref().is_none_or(HashMap::is_empty) {
                names.truncate(newest.unwrap_or(usize::MAX));
                return Ok(names);
            }
        }
    }
}

fn unavailable(what: &str, error: impl std::error::Error) -> StoreError {
    StoreError::Unavailable(format!("{what}: {}", DisplayErrorContext(error)))
}

/// A client for all tables.
pub fn client(config: &aws_config::SdkConfig) -> Client {
    Client::new(config)
}
