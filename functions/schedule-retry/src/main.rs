//! Wiring of the `schedule-retry` function.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use platform::clock::{SystemClock, environment};
use platform::lambda::StreamEvent;
use platform::sqs::WakeUps;
use schedule_retry::config::Config;
use schedule_retry::handler;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    platform::telemetry::init(&environment);
    let config = Config::read(&environment).inspect_err(|e| tracing::error!(error = %e, "cannot start"))?;
    let aws = platform::aws::load().await;
    let wake_ups = WakeUps::new(platform::sqs::client(&aws), config.retry_queue_url);
    wake_ups.warm().await;
    let wake_ups = &wake_ups;
    lambda_runtime::run(service_fn(move |event: LambdaEvent<StreamEvent>| async move {
        Ok::<_, Error>(handler::handle(&event.payload, wake_ups, &SystemClock).await)
    }))
    .await
}
