//! Wiring of the `deliver` function.

use aws_lambda_events::event::sqs::SqsEvent;
use deliver::config::Config;
use deliver::deliver::Deliver;
use deliver::handler::Handler;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use platform::clock::{SystemClock, environment};
use platform::dynamodb::{DeliveryTable, EndpointTable, PayloadTable};
use sender::http::HttpSender;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    platform::telemetry::init(&environment);
    let config = Config::read(&environment).inspect_err(|e| tracing::error!(error = %e, "cannot start"))?;
    tracing::info!(retry.schedule_seconds = ?config.settings.defaults.policy.schedule_seconds(), "started");
    let aws = platform::aws::load().await;
    let dynamodb = platform::dynamodb::client(&aws);
    let deliveries = DeliveryTable::new(dynamodb.clone(), config.deliveries_table);
    deliveries.warm().await;
    let handler = Handler {
        retry_queue_arn: config.retry_queue_arn,
        deliver: Deliver {
            payloads: PayloadTable::new(dynamodb.clone(), config.payloads_table),
            endpoints: EndpointTable::new(dynamodb, config.endpoints_table, config.settings.defaults.clone()),
            sender: HttpSender::new(config.egress, config.private_roots),
            clock: SystemClock,
            settings: config.settings,
            deliveries,
        },
    };
    let handler = &handler;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<SqsEvent>| async move {
        let deadline = platform::lambda::deadline(event.context.deadline);
        handler.handle(event.payload, deadline).await.map_err(Error::from)
    }))
    .await
}
