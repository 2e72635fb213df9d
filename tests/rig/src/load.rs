//! The producers of a run: webhooks in batches, at a steady rate, some of them more than once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use domain::id::{DeliveryKey, sha256_hex};
use serde_json::json;

use crate::chance::Chance;
use crate::crowd::{Crowd, Temper, temper};
use crate::stack::Stack;

const BATCH: usize = 10;
/// A message that comes again does so after at most so many batches.
const LATEST_COPY: u64 = 40;
/// Producers wait while more messages than this are on the queue: what is sent has to meet the trouble, not wait it out.
const BACKLOG: i64 = 400;
/// They look at the queue after so many batches.
const LOOK: usize = 10;
/// Of a thousand messages, so many come twice at once, and so many again later.
const TWICE: u64 = 40;
const AGAIN: u64 = 60;

/// One webhook that was put on the queue.
#[derive(Clone, Debug)]
pub struct Sent {
    pub key: DeliveryKey,
    pub temper: Temper,
    pub body_hash: String,
}

impl Sent {
    pub fn event(&self) -> &str {
        self.key.event.as_str()
    }
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    pub deliveries: usize,
    pub per_second: f64,
    pub seed: u64,
    /// Start of all event ids.
    pub prefix: &'a str,
    pub shares: &'a [(Temper, u64)],
}

/// Sends a load. Returns what was sent, and how many messages were copies.
pub async fn send(stack: &Stack, crowd: &Crowd, load: Load<'_>) -> (Vec<Sent>, usize) {
    let mut chance = Chance::of(load.seed, "load");
    let mut sent = Vec::with_capacity(load.deliveries);
    let mut copies: VecDeque<(usize, String)> = VecDeque::new();
    let (mut copied, mut batches) = (0, 0);
    let started = Instant::now();
    // A stack that does not move at all must not keep the run from ending.
    let patience = started + Duration::from_secs(1_200) + Duration::from_millis(200) * load.deliveries as u32;
    while sent.len() < load.deliveries || !copies.is_empty() {
        let mut batch = Vec::with_capacity(BATCH);
        while batch.len() < BATCH {
            let due = copies.iter().position(|(at, _)| *at <= batches || sent.len() == load.deliveries);
            if let Some((_, copy)) = due.and_then(|i| copies.remove(i)) {
                copied += 1;
                batch.push(copy);
                continue;
            }
            if sent.len() == load.deliveries {
                break;
            }
            let (one, message) = webhook(crowd, &load, &mut chance, sent.len());
            sent.push(one);
            if chance.per_mille(TWICE) && batch.len() + 1 < BATCH {
                copied += 1;
                batch.push(message.clone());
            } else if chance.per_mille(AGAIN) {
                copies.push_back((batches + chance.between(1, LATEST_COPY) as usize, message.clone()));
            }
            batch.push(message);
        }
        put(stack, &batch).await;
        batches += 1;
        while batches % LOOK == 0 && stack.depth("intake_queue_url").await[0] > BACKLOG && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let on_time = started + Duration::from_secs_f64(sent.len() as f64 / load.per_second);
        tokio::time::sleep_until(on_time.into()).await;
    }
    (sent, copied)
}

fn webhook(crowd: &Crowd, load: &Load<'_>, chance: &mut Chance, n: usize) -> (Sent, String) {
    let temper = temper(load.shares, chance.below(1_000));
    let (id, url) = (format!("{}{n:06}", load.prefix), crowd.url(temper, chance));
    let words =
        ["\u{e9}v\u{e9}nement", "117.63331139400017", "\\ud800", "{\"a\": [1,  2]}", "\u{1f4e6}", "\r\n\t", "plain"];
    let body: String = (0..chance.between(1, 60)).map(|_| *chance.pick(&words).expect("not empty")).collect();
    let key = DeliveryKey::parse(&id, Stack::endpoint(&url).as_str()).expect("a key");
    let message = json!({"id": id, "url": url, "body": body}).to_string();
    (Sent { key, temper, body_hash: sha256_hex(body.as_bytes()) }, message)
}

async fn put(stack: &Stack, bodies: &[String]) {
    let mut entries: Vec<_> = bodies
        .iter()
        .enumerate()
        .map(|(i, body)| {
            SendMessageBatchRequestEntry::builder().id(i.to_string()).message_body(body).build().expect("complete")
        })
        .collect();
    while !entries.is_empty() {
        let queue = stack.name("intake_queue_url");
        let call = stack.sqs.send_message_batch().queue_url(queue).set_entries(Some(entries.clone()));
        // A producer repeats what was not taken; a copy does no harm.
        if let Ok(answer) = call.send().await {
            let failed: Vec<&str> = answer.failed().iter().map(|f| f.id()).collect();
            entries.retain(|e| failed.contains(&e.id()));
        }
    }
}
