//! Requests on the wire: the real HTTP client against receivers that misbehave. Cases of public reports carry their id.

mod answers;
mod evidence;
mod failures;
mod guard;
mod http2;
mod request;
mod tls;

use std::time::{Duration, Instant};

use domain::egress::EgressPolicy;
use domain::outcome::{Answer, AnswerRules, Class, Outcome, Phase, classify};
use domain::ports::Sender;
use domain::request::Request;
use rustls::ServerConfig;
use sender::http::HttpSender;
use std::sync::Arc;
use url::Url;

use crate::receiver::certificates;
use crate::receiver::raw::{Raw, Step};

/// What is allowed: anything on the loopback network, over http too.
fn local() -> EgressPolicy {
    EgressPolicy::parse(true, "any", "127.0.0.0/8, ::1/128", "").unwrap()
}

fn sender() -> HttpSender {
    HttpSender::new(local(), [certificates::root()])
}

async fn post_with(sender: &HttpSender, url: &str, body: &[u8], timeout_ms: i64) -> Outcome {
    let headers = vec![("webhook-id".to_owned(), "e".to_owned()), ("x-tenant".to_owned(), "7 \t~".to_owned())];
    sender.post(&Request { url: Url::parse(url).unwrap(), headers, body, timeout_ms }).await
}

async fn post(url: &str, body: &[u8], timeout_ms: i64) -> Outcome {
    post_with(&sender(), url, body, timeout_ms).await
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn class(outcome: &Outcome) -> Class {
    classify(outcome, None, &AnswerRules::default())
}

fn failed(phase: Phase, word: &str) -> Outcome {
    Outcome::Failed { phase, detail: word.to_owned() }
}

/// One way to misbehave. The parts that the cases of a table share are set in the table.
struct Case {
    name: &'static str,
    tls: Option<Arc<ServerConfig>>,
    scheme: &'static str,
    body: Vec<u8>,
    timeout_ms: i64,
}

/// What must be seen, besides the outcome.
struct Played {
    outcome: Outcome,
    receiver: Raw,
}

impl Case {
    fn plain(name: &'static str) -> Self {
        Self { name, tls: None, scheme: "http", body: b"{\"a\":1}".to_vec(), timeout_ms: 1_000 }
    }

    fn tls(name: &'static str, tls: Arc<ServerConfig>) -> Self {
        Self { tls: Some(tls), scheme: "https", ..Self::plain(name) }
    }

    /// Sends one request. Whatever happens: one connection, at most one request, and no later than its time.
    async fn play(self, steps: Vec<Step>) -> Played {
        let receiver = Raw::start(self.tls, steps).await;
        let url = format!("{}://127.0.0.1:{}/T000/tok3n?k=s3cr3t", self.scheme, receiver.port);
        let started = Instant::now();
        let outcome = post(&url, &self.body, self.timeout_ms).await;
        let name = self.name;
        assert!(
            started.elapsed() < Duration::from_millis(self.timeout_ms as u64 + 900),
            "{name}: {:?}",
            started.elapsed()
        );
        assert_eq!(receiver.connections(), 1, "{name}: {outcome:?}");
        assert!(receiver.requests() <= 1, "{name}: {outcome:?}");
        let text = format!("{outcome:?}");
        assert!(!text.contains("tok3n") && !text.contains("s3cr3t"), "{name}: {text}");
        Played { outcome, receiver }
    }
}
