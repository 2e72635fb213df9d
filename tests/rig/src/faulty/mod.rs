//! A faulty way from the functions to DynamoDB and SQS: a proxy that refuses, loses, delays and halves calls. It knows the
//! operation of a call and nothing of what the functions want with it.

mod fault;
mod http;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::chance::Chance;
use fault::{Fault, choose};
use http::Message;

/// How things stand on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Everything arrives.
    Clear,
    /// Some calls go wrong, each in its own way.
    Flaky,
    /// No call reaches DynamoDB.
    TableDown,
    /// No call reaches SQS.
    QueueDown,
}

/// The way, and what happened on it.
pub struct Way {
    pub port: u16,
    shared: Arc<Shared>,
}

type Counts = BTreeMap<String, u64>;

struct Shared {
    upstream: String,
    seed: u64,
    weather: Mutex<Weather>,
    calls: AtomicU64,
    /// By operation, and by what happened.
    faults: Mutex<(Counts, Counts)>,
}

impl Way {
    /// Opens a way to what listens at `upstream` (host and port).
    pub async fn open(upstream: &str, seed: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a loopback port is free");
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            seed,
            weather: Mutex::new(Weather::Clear),
            calls: AtomicU64::new(0),
            faults: Mutex::default(),
        });
        let of_task = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&of_task);
                tokio::spawn(async move {
                    // Either side may go away in the middle; that is what this is for.
                    let _ = carry(client, &shared).await;
                });
            }
        });
        Self { port, shared }
    }

    pub fn weather(&self, weather: Weather) {
        *self.shared.weather.lock().unwrap() = weather;
    }

    /// Calls that came this way.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// What happened, for the report.
    pub fn as_json(&self) -> Value {
        let faults = self.shared.faults.lock().unwrap();
        let all = faults.0.values().sum::<u64>();
        json!({"calls": self.calls(), "faults": all, "faults_by_operation": faults.0, "faults_by_kind": faults.1})
    }
}

/// Carries the calls of one connection, one after the other.
async fn carry(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut upstream = None;
    while let Some(call) = http::read(&mut client).await? {
        let number = shared.calls.fetch_add(1, Ordering::Relaxed);
        let weather = *shared.weather.lock().unwrap();
        let operation = call.operation();
        let mut chance = Chance::of(shared.seed, &format!("call {number}"));
        let fault = choose(weather, &operation, &mut chance);
        if let Some(name) = fault.name() {
            let mut faults = shared.faults.lock().unwrap();
            *faults.0.entry(operation).or_default() += 1;
            *faults.1.entry(name).or_default() += 1;
        }
        match fault {
            Fault::None => http::write(&mut client, &forward(shared, &mut upstream, &call).await?).await?,
            Fault::Refused(refusal) => http::write(&mut client, &refusal.answer()).await?,
            Fault::RefusedAfterEffect(refusal) => {
                forward(shared, &mut upstream, &call).await?;
                http::write(&mut client, &refusal.answer()).await?;
            }
            Fault::LostCall => return Ok(()),
            Fault::LostAnswer => {
                forward(shared, &mut upstream, &call).await?;
                return Ok(());
            }
            Fault::Silence(ms) => {
                sleep(ms).await;
                return Ok(());
            }
            Fault::SilenceAfterEffect(ms) => {
                forward(shared, &mut upstream, &call).await?;
                sleep(ms).await;
                return Ok(());
            }
            // The client has given up, and perhaps tried again, when this takes effect.
            Fault::Straggler(ms) => {
                sleep(ms).await;
                forward(shared, &mut upstream, &call).await?;
                return Ok(());
            }
            Fault::Slow(ms) => {
                let answer = forward(shared, &mut upstream, &call).await?;
                sleep(ms).await;
                http::write(&mut client, &answer).await?;
            }
            Fault::Halved => {
                let (kept, left_out) = fault::halve(&call, &mut chance);
                let answer = match kept {
                    Some(kept) => Some(forward(shared, &mut upstream, &kept).await?),
                    None => None,
                };
                http::write(&mut client, &left_out.complete(answer)).await?;
            }
        }
    }
    Ok(())
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Sends a call on, over the connection's own connection, and reads its answer.
async fn forward(shared: &Shared, upstream: &mut Option<TcpStream>, call: &Message) -> io::Result<Message> {
    let mut stream = match upstream.take() {
        Some(stream) => stream,
        None => TcpStream::connect(&shared.upstream).await?,
    };
    http::write(&mut stream, call).await?;
    let answer = http::read(&mut stream).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    if !answer.closes() {
        *upstream = Some(stream);
    }
    Ok(answer)
}
