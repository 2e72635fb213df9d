//! The real adapters pass the suite that the fakes pass.

use platform::dynamodb::PayloadTable;
use testkit::conformance;

use super::{Stack, shared};

#[tokio::test]
async fn the_tables_of_dynamodb_conform() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let prefix = stack.id("conf");
    conformance::deliveries(&stack.deliveries, &prefix).await;
    conformance::endpoint_lists(&stack.deliveries, &prefix).await;
    conformance::decisions(&stack.deliveries, &prefix).await;
    conformance::endpoint_states(&stack.deliveries, &prefix).await;
    conformance::kept_answers(&stack.deliveries, &prefix).await;
    conformance::payloads(&PayloadTable::new(stack.dynamodb.clone(), stack.name("payloads_table")), &prefix).await;
}
