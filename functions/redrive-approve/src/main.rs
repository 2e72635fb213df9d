//! Wiring of the `redrive-approve` function.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use platform::clock::{SystemClock, environment};
use platform::dynamodb::{DeliveryTable, PayloadTable};
use redrive_approve::config::Config;
use redrive_approve::handler::{Invocation, Operator};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    platform::telemetry::init(&environment);
    let config = Config::read(&environment).inspect_err(|e| tracing::error!(error = %e, "cannot start"))?;
    let aws = platform::aws::load().await;
    let dynamodb = platform::dynamodb::client(&aws);
    let store = DeliveryTable::new(dynamodb.clone(), config.deliveries_table);
    store.warm().await;
    let operator = Operator {
        store,
        payloads: PayloadTable::new(dynamodb, config.payloads_table),
        clock: SystemClock,
        retention: config.retention,
        alias: config.alias,
        two_people: config.two_people,
    };
    let operator = &operator;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Value>| async move {
        let invocation = Invocation {
            deadline: platform::lambda::deadline(event.context.deadline),
            function_arn: &event.context.invoked_function_arn,
        };
        operator.handle(event.payload, &invocation).await.map_err(Error::from)
    }))
    .await
}
