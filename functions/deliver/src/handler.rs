//! The shape of a batch: every record parsed alone, different deliveries at once, one delivery in order, a suspicious
//! record after all others and alone, and an answer that names exactly what has to come back.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;

use aws_lambda_events::event::sqs::SqsEvent;
use domain::message::{self, Intake};
use domain::ports::{Clock, Deliveries, EndpointStates, Endpoints, Payloads, Plans, Sender};
use domain::time::Millis;
use domain::wakeup;
use futures_util::FutureExt;
use futures_util::future::join_all;
use platform::lambda::{BatchAnswer, Delivered, sqs_messages};

use crate::deliver::{Deliver, Job, Settled, Task};

/// A record received more often than this runs alone: an earlier process may have died of it.
const SUSPICIOUS_RECEIVES: u32 = 3;

/// The Lambda handler.
pub struct Handler<D, P, E, S, C> {
    /// Messages from this queue are wake-ups; all others are intake messages.
    pub retry_queue_arn: String,
    /// The story.
    pub deliver: Deliver<D, P, E, S, C>,
}

impl<D: Deliveries + EndpointStates + Plans, P: Payloads, E: Endpoints, S: Sender, C: Clock> Handler<D, P, E, S, C> {
    /// Handles a batch. An error fails the whole invocation; it is kept for events that are no batch.
    pub async fn handle(&self, event: SqsEvent, deadline: Millis) -> Result<BatchAnswer, String> {
        let messages = sqs_messages(event)?;
        let mut groups: Vec<Vec<Job<'_>>> = Vec::new();
        let mut by_delivery: HashMap<String, usize> = HashMap::new();
        for delivered in &messages {
            let task = self.task(delivered);
            let name = match &task {
                Task::Webhook(m) => m.key.to_string(),
                Task::Cancel(request) => request.key.to_string(),
                Task::WakeUp(key, _) => key.to_string(),
                Task::Refused(_) => format!("#{}", delivered.message.message_id),
            };
            let job = Job { received: &delivered.message, task, deadline, alone: false };
            let group = *by_delivery.entry(name).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(job);
        }
        let (suspicious, ordinary): (Vec<_>, Vec<_>) =
            groups.into_iter().partition(|group| group.iter().any(is_suspicious));
        let mut failed = Vec::new();
        let mut alone = suspicious;
        for (group_failed, rest) in join_all(ordinary.into_iter().map(|group| self.run(group))).await {
            failed.extend(group_failed);
            alone.extend(Some(rest).filter(|rest| !rest.is_empty()));
        }
        for mut group in alone {
            for job in &mut group {
                job.alone = true;
            }
            let (group_failed, rest) = self.run(group).await;
            failed.extend(group_failed);
            failed.extend(rest.into_iter().map(|job| job.received.message_id.clone()));
        }
        Ok(BatchAnswer::new(messages.iter().map(|m| m.message.message_id.as_str()), failed))
    }

    fn task(&self, delivered: &Delivered) -> Task {
        let body = &delivered.message.body;
        if delivered.queue_arn == self.retry_queue_arn {
            return wakeup::parse(body).map_or_else(Task::Refused, |(key, wake_up)| Task::WakeUp(key, wake_up));
        }
        match message::parse(body, &self.deliver.settings.limits) {
            Ok(Intake::Webhook(message)) => Task::Webhook(message),
            Ok(Intake::Cancel(request)) => Task::Cancel(request),
            Err(refusal) => Task::Refused(refusal),
        }
    }

    /// Runs the jobs of one delivery in order. Returns the messages that have to come back, and the jobs that have to run
    /// alone. A panic fails its own job only.
    async fn run<'a>(&self, group: Vec<Job<'a>>) -> (Vec<String>, Vec<Job<'a>>) {
        let mut failed = Vec::new();
        let mut jobs = group.into_iter();
        while let Some(job) = jobs.next() {
            let id = &job.received.message_id;
            match AssertUnwindSafe(self.deliver.handle(&job)).catch_unwind().await {
                Ok(Ok(Settled::Done)) => {}
                Ok(Ok(Settled::Return)) => failed.push(id.clone()),
                Ok(Ok(Settled::Alone)) => return (failed, std::iter::once(job).chain(jobs).collect()),
                Ok(Err(error)) => {
                    tracing::error!(sqs.message_id = id, %error, "a message could not be settled and will come back");
                    failed.push(id.clone());
                }
                Err(_) => {
                    tracing::error!(sqs.message_id = id, "a message made its handler panic and will come back");
                    failed.push(id.clone());
                }
            }
        }
        (failed, Vec::new())
    }
}

fn is_suspicious(job: &Job<'_>) -> bool {
    job.received.receives > SUSPICIOUS_RECEIVES || matches!(&job.task, Task::WakeUp(_, wake_up) if wake_up.abandoned)
}
