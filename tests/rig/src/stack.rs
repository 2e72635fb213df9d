//! The local stack as its users and operators see it: queues, tables, functions, rules. `make up` starts it; its
//! description is found through `REDELIVER_STACK`, or at `.local/stack.json`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_lambda::error::DisplayErrorContext;
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use domain::delivery::State;
use domain::id::{EndpointKey, sha256_hex};
use domain::ports::Deliveries;
use domain::record::Record;
use platform::dynamodb::DeliveryTable;
use serde_json::{Value, json};
use url::Url;

use crate::receiver::{Receiver, epoch_ms};

/// A running stack, and a receiver of this run.
pub struct Stack {
    path: PathBuf,
    /// What `make up` wrote about it.
    pub description: Value,
    pub sqs: aws_sdk_sqs::Client,
    pub dynamodb: aws_sdk_dynamodb::Client,
    pub lambda: aws_sdk_lambda::Client,
    pub events: aws_sdk_eventbridge::Client,
    pub deliveries: DeliveryTable,
    pub receiver: Receiver,
}

impl Stack {
    pub async fn connect() -> Self {
        let path = std::env::var("REDELIVER_STACK")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../.local/stack.json").to_owned());
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{path}: {e}; start the local stack with `make up`"));
        let description: Value = serde_json::from_str(&text).expect("the description is JSON");
        let word = |name: &str| description[name].as_str().unwrap_or_else(|| panic!("{name} is missing")).to_owned();
        let config = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(word("endpoint_url"))
            .region(aws_config::Region::new(word("region")))
            .credentials_provider(aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "test"))
            .load()
            .await;
        let dynamodb = aws_sdk_dynamodb::Client::new(&config);
        Self {
            sqs: aws_sdk_sqs::Client::new(&config),
            lambda: aws_sdk_lambda::Client::new(&config),
            events: aws_sdk_eventbridge::Client::new(&config),
            deliveries: DeliveryTable::new(dynamodb.clone(), word("deliveries_table")),
            dynamodb,
            receiver: Receiver::start().await,
            path: PathBuf::from(path),
            description,
        }
    }

    /// Where the description is.
    pub fn stack_path(&self) -> String {
        self.path.to_str().expect("a path in Unicode").to_owned()
    }

    pub fn name(&self, name: &str) -> String {
        self.description[name].as_str().expect("part of the description").to_owned()
    }

    /// An event id that no other test or run uses.
    pub fn id(&self, test: &str) -> String {
        format!("{test}_{}_{}", epoch_ms(), self.receiver.port)
    }

    /// Sends a webhook for a URL with a small body.
    pub async fn send(&self, id: &str, url: &str) {
        self.send_raw(&json!({"id": id, "url": url, "json": {"event": id}}).to_string()).await;
    }

    /// Puts any text on the intake queue.
    pub async fn send_raw(&self, body: &str) {
        self.sqs.send_message().queue_url(self.name("intake_queue_url")).message_body(body).send().await.expect("sent");
    }

    /// Puts up to ten texts on the intake queue in one call, so that they come in one batch.
    pub async fn send_batch(&self, bodies: &[String]) {
        let entries = bodies.iter().enumerate().map(|(i, body)| {
            SendMessageBatchRequestEntry::builder().id(format!("m{i}")).message_body(body).build().expect("complete")
        });
        let call =
            self.sqs.send_message_batch().queue_url(self.name("intake_queue_url")).set_entries(Some(entries.collect()));
        assert!(call.send().await.expect("sent").failed().is_empty());
    }

    pub fn endpoint(url: &str) -> EndpointKey {
        EndpointKey::inline(&Url::parse(url).expect("a URL"))
    }

    pub async fn find(&self, id: &str, url: &str) -> Option<Record> {
        let key = domain::id::DeliveryKey::parse(id, Self::endpoint(url).as_str()).expect("a key");
        self.deliveries.get(&key).await.expect("the table can be read")
    }

    /// Waits until the record is as wanted.
    pub async fn wait(&self, id: &str, url: &str, within_seconds: u64, wanted: impl Fn(&Record) -> bool) -> Record {
        let end = Instant::now() + Duration::from_secs(within_seconds);
        loop {
            let record = self.find(id, url).await;
            if let Some(record) = record.as_ref().filter(|r| wanted(r)) {
                return record.clone();
            }
            assert!(Instant::now() < end, "{id} is not as wanted after {within_seconds} s: {record:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn wait_state(&self, id: &str, url: &str, within_seconds: u64, state: State) -> Record {
        self.wait(id, url, within_seconds, |r| r.state == state).await
    }

    /// Items of the payloads table with a partition key.
    async fn payload_items(&self, pk: String) -> Vec<std::collections::HashMap<String, AttributeValue>> {
        let query = self.dynamodb.query().table_name(self.name("payloads_table")).key_condition_expression("pk = :pk");
        query
            .expression_attribute_values(":pk", AttributeValue::S(pk))
            .send()
            .await
            .expect("readable")
            .items
            .unwrap_or_default()
    }

    /// How many payloads are kept for a delivery.
    pub async fn payloads(&self, id: &str, url: &str) -> usize {
        self.payload_items(format!("E#{id}#{}", Self::endpoint(url))).await.len()
    }

    /// The raw text kept of a rejected message.
    pub async fn raw(&self, raw: &str) -> Option<String> {
        let items = self.payload_items(format!("R#{}", sha256_hex(raw.as_bytes()))).await;
        let bytes = items.first()?.get("body")?.as_b().ok()?.clone().into_inner();
        String::from_utf8(bytes).ok()
    }

    /// The rejected message with this raw text: its reason and sentence.
    pub async fn rejected(&self, raw: &str, within_seconds: u64) -> (String, String) {
        let end = Instant::now() + Duration::from_secs(within_seconds);
        loop {
            let get = self.dynamodb.get_item().table_name(self.name("deliveries_table")).consistent_read(true);
            let pk = AttributeValue::S(format!("R#{}", sha256_hex(raw.as_bytes())));
            let item =
                get.key("pk", pk).key("sk", AttributeValue::S("R".to_owned())).send().await.expect("readable").item;
            if let Some(item) = item {
                let text = |name: &str| item[name].as_s().expect("a text").clone();
                return (text("reason"), text("detail"));
            }
            assert!(Instant::now() < end, "not rejected after {within_seconds} s: {raw}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Messages of a queue: visible, in flight, delayed.
    pub async fn depth(&self, queue: &str) -> [i64; 3] {
        use QueueAttributeName::{
            ApproximateNumberOfMessages, ApproximateNumberOfMessagesDelayed, ApproximateNumberOfMessagesNotVisible,
        };
        let names =
            [ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible, ApproximateNumberOfMessagesDelayed];
        let get = self.sqs.get_queue_attributes().queue_url(self.name(queue)).set_attribute_names(Some(names.to_vec()));
        let attributes = get.send().await.expect("readable").attributes.unwrap_or_default();
        names.map(|name| attributes[&name].parse().expect("a number"))
    }

    /// Waits until a queue holds nothing at all.
    pub async fn wait_empty(&self, queue: &str, within_seconds: u64) {
        let end = Instant::now() + Duration::from_secs(within_seconds);
        loop {
            let depth = self.depth(queue).await;
            if depth == [0, 0, 0] {
                return;
            }
            assert!(Instant::now() < end, "{queue} still holds {depth:?} after {within_seconds} s");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Name of a function.
    pub fn function(&self, role: &str) -> String {
        self.description["functions"][role].as_str().expect("part of the description").to_owned()
    }

    /// Process id of the emulator.
    pub fn emulator(&self) -> u32 {
        self.description["emulator_pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process id")
    }

    /// Folder of the local stack, for what a run leaves behind.
    pub fn folder(&self) -> &Path {
        self.path.parent().expect("the description is in a folder")
    }

    /// Invokes a function and returns its answer; an error of the function fails the test.
    pub async fn invoke(&self, function: &str, input: &Value) -> Value {
        self.try_invoke(function, input).await.unwrap_or_else(|error| panic!("{function}: {error}"))
    }

    /// Invokes a function that may fail.
    pub async fn try_invoke(&self, function: &str, input: &Value) -> Result<Value, String> {
        let payload = Blob::new(input.to_string());
        let call = self.lambda.invoke().function_name(self.function(function)).payload(payload);
        let answer = call.send().await.map_err(|e| DisplayErrorContext(e).to_string())?;
        let text = answer.payload.map(Blob::into_inner).unwrap_or_default();
        if answer.function_error.is_some() {
            return Err(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(serde_json::from_slice(&text).expect("the answer is JSON"))
    }

    /// Delays, in seconds, with which wake-ups of a delivery were sent, from the log of the relay.
    pub fn delays_sent(&self, id: &str) -> Vec<i64> {
        let of_delivery = |line: &Value| line["delivery.id"] == id;
        self.log("wake-up sent")
            .iter()
            .filter(|l| of_delivery(l))
            .filter_map(|l| l["retry.delay_seconds"].as_i64())
            .collect()
    }

    /// What the functions wrote, and the emulator. Named relative to the project's folder, two above the description.
    pub fn log_path(&self) -> PathBuf {
        let folder = self.path.parent().and_then(Path::parent).expect("the description is in .local");
        folder.join(self.name("emulator_log"))
    }

    /// Lines of the functions' logs with this message.
    pub fn log(&self, message: &str) -> Vec<Value> {
        let log = std::fs::read_to_string(self.log_path()).expect("the emulator keeps the functions' output");
        let lines = log.lines().filter(|line| line.contains(message));
        let json = lines.filter_map(|line| serde_json::from_str::<Value>(&line[line.find('{')?..]).ok());
        json.filter(|line| line["message"] == message).collect()
    }

    pub async fn operator(&self, action: Value) -> Value {
        self.invoke("redrive_approve", &action).await
    }

    pub async fn sweep(&self, run: &str, mode: &str) -> Value {
        let evidence = self.invoke("dlq_sweep", &json!({"run": run, "mode": mode})).await;
        assert_eq!(evidence["errors"], json!([]), "{evidence}");
        evidence
    }
}
