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

/// The same for the endpoints table: code and message only, because the SDK's dump holds the body of an answer, in which
/// secrets stand.
fn unavailable_without_dump(what: &str, error: &dyn std::error::Error) -> StoreError {
    let mut text = format!("{what}: {error}");
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    StoreError::Unavailable(text)
}

/// A client for all tables.
pub fn client(config: &aws_config::SdkConfig) -> Client {
    Client::new(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_with_the_endpoints_table_is_told_without_the_body_of_the_answer() {
        use aws_sdk_dynamodb::config::http::HttpResponse;
        use aws_sdk_dynamodb::error::SdkError;
        use aws_sdk_dynamodb::operation::get_item::GetItemError;
        let answer = HttpResponse::new(200_u16.try_into().unwrap(), "{\"Item\": \"whsec_s3cr3t\"".into());
        let error: SdkError<GetItemError, HttpResponse> = SdkError::response_error("no JSON", answer);
        let dumped = unavailable("reading", &error).to_string();
        assert!(dumped.contains("whsec_s3cr3t"), "the dump is what it is about: {dumped}");
        let told = unavailable_without_dump("reading", &error).to_string();
        assert!(!told.contains("s3cr3t") && told.contains("reading: ") && told.contains("no JSON"), "{told}");
    }
}
