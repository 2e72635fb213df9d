//! SQS: wake-ups out, transport DLQs in, and how much is waiting.

use std::collections::HashMap;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry};
use domain::ports::{DeadQueue, Received, StoreError};
use domain::time::Millis;
use domain::wakeup::{Delay, Waiting};

fn unavailable(what: &str, error: impl std::error::Error) -> StoreError {
    StoreError::Unavailable(format!("{what}: {}", aws_sdk_sqs::error::DisplayErrorContext(error)))
}

/// The retry queue, for sending.
pub struct WakeUps {
    client: Client,
    queue_url: String,
}

/// A wake-up that could not be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSent {
    /// Its place in what was given to [`WakeUps::send`].
    pub index: usize,
    /// SQS says that the entry itself is at fault: repeating it would not help.
    pub refused: bool,
    /// What SQS said.
    pub detail: String,
}

impl WakeUps {
    /// Sends to that queue.
    pub const fn new(client: Client, queue_url: String) -> Self {
        Self { client, queue_url }
    }

    /// Sends wake-ups in batches of ten, each with its own delay, and returns those that were not sent. A batch call can
    /// succeed as a whole and fail for single entries.
    pub async fn send(&self, wake_ups: &[(Waiting, Delay)]) -> Vec<NotSent> {
        let mut not_sent = Vec::new();
        for (batch, entries) in wake_ups.chunks(10).enumerate() {
            let offset = batch * 10;
            let request = self.client.send_message_batch().queue_url(&self.queue_url).set_entries(Some(
                entries.iter().enumerate().map(|(i, (waiting, delay))| entry(offset + i, waiting, *delay)).collect(),
            ));
            match request.send().await {
                Ok(answer) => not_sent.extend(answer.failed().iter().filter_map(|failure| {
                    Some(NotSent {
                        index: failure.id().parse().ok()?,
                        refused: failure.sender_fault(),
                        detail: format!("{}: {}", failure.code(), failure.message().unwrap_or_default()),
                    })
                })),
                Err(error) => {
                    let detail = unavailable("sending wake-ups", error).to_string();
                    not_sent.extend((offset..offset + entries.len()).map(|index| NotSent {
                        index,
                        refused: false,
                        detail: detail.clone(),
                    }));
                }
            }
        }
        not_sent
    }

    /// Opens the connection before the first event comes.
    pub async fn warm(&self) {
        visible(&self.client, &self.queue_url).await.ok();
    }
}

fn entry(index: usize, waiting: &Waiting, delay: Delay) -> SendMessageBatchRequestEntry {
    SendMessageBatchRequestEntry::builder()
        .id(index.to_string())
        .message_body(serde_json::to_string(&waiting.wake_up).expect("a wake-up is plain text and numbers"))
        .delay_seconds(i32::from(delay.seconds()))
        .message_group_id(&waiting.group)
        .build()
        .expect("id and body are set")
}

/// About how many messages of a queue are ready to be received.
async fn visible(client: &Client, queue_url: &str) -> Result<u64, StoreError> {
    let name = QueueAttributeName::ApproximateNumberOfMessages;
    let answer = client
        .get_queue_attributes()
        .queue_url(queue_url)
        .attribute_names(name.clone())
        .send()
        .await
        .map_err(|e| unavailable("reading the depth of a queue", e))?;
    Ok(answer.attributes().and_then(|attributes| attributes.get(&name)?.parse().ok()).unwrap_or(0))
}

/// A transport DLQ.
pub struct TransportDlq {
    client: Client,
    queue_url: String,
}

impl TransportDlq {
    /// Reads from that queue.
    pub const fn new(client: Client, queue_url: String) -> Self {
        Self { client, queue_url }
    }
}

impl DeadQueue for TransportDlq {
    async fn receive(&self) -> Result<Vec<Received>, StoreError> {
        let answer = self
            .client
            .receive_message()
            .queue_url(&self.queue_url)
            .max_number_of_messages(10)
            // A short poll asks a part of SQS only, and may come back empty although there are messages.
            .wait_time_seconds(1)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await
            .map_err(|e| unavailable("receiving from a transport DLQ", e))?;
        Ok(answer.messages.unwrap_or_default().into_iter().map(received).collect())
    }

    async fn delete(&self, message: &Received) -> Result<(), StoreError> {
        self.client
            .delete_message()
            .queue_url(&self.queue_url)
            .receipt_handle(&message.receipt)
            .send()
            .await
            .map(|_| ())
            .map_err(|e| unavailable("deleting from a transport DLQ", e))
    }

    async fn visible(&self) -> Result<u64, StoreError> {
        visible(&self.client, &self.queue_url).await
    }
}

fn received(message: aws_sdk_sqs::types::Message) -> Received {
    let empty = HashMap::new();
    let attributes = message.attributes.as_ref().unwrap_or(&empty);
    let number = |name| attributes.get(&name).and_then(|n: &String| n.parse::<i64>().ok());
    Received {
        receives: number(MessageSystemAttributeName::ApproximateReceiveCount)
            .and_then(|n| u32::try_from(n).ok())
            .unwrap_or(1),
        sent_at: Millis(number(MessageSystemAttributeName::SentTimestamp).unwrap_or_default()),
        sender: attributes.get(&MessageSystemAttributeName::SenderId).cloned(),
        message_id: message.message_id.unwrap_or_default(),
        receipt: message.receipt_handle.unwrap_or_default(),
        body: message.body.unwrap_or_default(),
    }
}

/// A client for all queues.
pub fn client(config: &aws_config::SdkConfig) -> Client {
    Client::new(config)
}

/// A queue whose depth is looked at.
pub struct Queue {
    client: Client,
    queue_url: String,
}

impl Queue {
    /// Looks at that queue.
    pub const fn new(client: Client, queue_url: String) -> Self {
        Self { client, queue_url }
    }

    /// About how many messages are ready to be received.
    pub async fn visible(&self) -> Result<u64, StoreError> {
        visible(&self.client, &self.queue_url).await
    }
}
