//! Wiring of the `dlq-sweep` function.

use dlq_sweep::config::Config;
use dlq_sweep::handler::{Queues, Sweep};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use platform::clock::{SystemClock, environment};
use platform::dynamodb::{DeliveryTable, PayloadTable};
use platform::sqs::TransportDlq;
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    platform::telemetry::init(&environment);
    let config = Config::read(&environment).inspect_err(|e| tracing::error!(error = %e, "cannot start"))?;
    let aws = platform::aws::load().await;
    let dynamodb = platform::dynamodb::client(&aws);
    let sqs = platform::sqs::client(&aws);
    let queues = Queues {
        intake_dlq: TransportDlq::new(sqs.clone(), config.intake_dlq_url),
        retry_dlq: TransportDlq::new(sqs.clone(), config.retry_dlq_url),
        retry: platform::sqs::Queue::new(sqs, config.retry_queue_url),
    };
    let deliveries = DeliveryTable::new(dynamodb.clone(), config.deliveries_table);
    deliveries.warm().await;
    let sweep = Sweep {
        deliveries,
        payloads: PayloadTable::new(dynamodb, config.payloads_table),
        queues,
        clock: SystemClock,
        settings: config.settings,
    };
    let sweep = &sweep;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Value>| async move {
        let deadline = platform::lambda::deadline(event.context.deadline);
        sweep.handle(&event.payload, deadline, &event.context.request_id).await.map_err(Error::from)
    }))
    .await
}
