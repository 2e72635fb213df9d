//! The HTTP client: one request, once. No redirects, no proxy, no retries, no connection kept for the next invocation,
//! no decompression. What happened is data ([`Outcome`]); this file never decides what it means.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use domain::egress::EgressPolicy;
use domain::outcome::{Answer, EXCERPT_MAX, Outcome, Phase, printable};
use domain::ports::Sender;
use domain::request::Request;
use http_body::{Body, Frame, SizeHint};
use reqwest::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use crate::resolver::{GuardedResolver, Refused, Unresolved};

/// Longest time to resolve, connect and finish the TLS handshake.
const CONNECT: Duration = Duration::from_secs(3);
/// At most so many bytes of an answer are read.
const MAX_ANSWER: usize = 64 * 1024;
/// Longest time spent on the body of an acceptance: it changes nothing.
const ACCEPTED_BODY: Duration = Duration::from_millis(500);

/// The client for endpoints.
pub struct HttpSender {
    client: reqwest::Client,
    policy: Arc<EgressPolicy>,
}

impl HttpSender {
    /// A client with the bundled root certificates, and whatever roots a deployment adds.
    pub fn new(policy: EgressPolicy) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider supports TLS 1.2 and 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        // The client offers these only in a configuration that it made itself.
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let policy = Arc::new(policy);
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Arc::new(GuardedResolver::new(Arc::clone(&policy))))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT)
            .http2_max_header_list_size(64 * 1024)
            .build()
            .expect("the client's settings are constant and valid");
        Self { client, policy }
    }
}

impl Sender for HttpSender {
    async fn post(&self, request: &Request<'_>) -> Outcome {
        if let Err(detail) = self.policy.check_url(&request.url) {
            return Outcome::Blocked { detail };
        }
        let mut headers = HeaderMap::with_capacity(request.headers.len());
        for (name, value) in &request.headers {
            let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
                return Outcome::Blocked { detail: format!("header {name:?} cannot be sent") };
            };
            headers.append(name, value);
        }
        let sent = Arc::new(AtomicBool::new(false));
        let body = TrackedBody { bytes: Some(Bytes::copy_from_slice(request.body)), sent: Arc::clone(&sent) };
        let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        let answer = self
            .client
            .post(request.url.clone())
            .headers(headers)
            .body(reqwest::Body::wrap(body))
            .timeout(timeout)
            .send()
            .await;
        match answer {
            Ok(response) => Outcome::Answered(read(response).await),
            // The client never asks for an empty body: then anything past connecting counts as sent.
            Err(error) => {
                failure(&error, sent.load(Ordering::Relaxed) || (request.body.is_empty() && !error.is_connect()))
            }
        }
    }
}

/// Reads the part of an answer that is looked at. A body that breaks, drips or never ends changes nothing.
async fn read(mut response: reqwest::Response) -> Answer {
    let mut hints = response.headers().get_all(RETRY_AFTER).iter();
    let retry_after = match (hints.next(), hints.next()) {
        (Some(one), None) => Some(one.as_bytes().to_vec()),
        _ => None,
    };
    let mut answer = Answer {
        status: response.status().as_u16(),
        retry_after,
        date: response.headers().get(DATE).map(|d| d.as_bytes().to_vec()),
        excerpt: String::new(),
        body_broken: false,
    };
    let mut body = Vec::new();
    let reading = async {
        while let Some(chunk) = response.chunk().await? {
            let room = MAX_ANSWER - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() == MAX_ANSWER {
                break;
            }
        }
        Ok::<(), reqwest::Error>(())
    };
    let complete = if (200..300).contains(&answer.status) {
        matches!(tokio::time::timeout(ACCEPTED_BODY, reading).await, Ok(Ok(())))
    } else {
        reading.await.is_ok()
    };
    answer.body_broken = !complete;
    answer.excerpt = printable(&body[..body.len().min(EXCERPT_MAX)], EXCERPT_MAX);
    answer
}

/// The cause of a failure in one word. Nothing of the error's text is kept: it may hold the URL.
fn failure(error: &reqwest::Error, sent: bool) -> Outcome {
    let mut word = None;
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(Refused(detail)) = cause.downcast_ref() {
            return Outcome::Blocked { detail: detail.clone() };
        }
        if cause.is::<Unresolved>() {
            word = Some("dns");
        } else if cause.is::<rustls::Error>() {
            word = Some("tls");
        } else if let Some(io) = cause.downcast_ref::<io::Error>() {
            word = match io.kind() {
                io::ErrorKind::ConnectionRefused => Some("refused"),
                io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
                    Some("reset")
                }
                io::ErrorKind::TimedOut => Some("timeout"),
                _ => word,
            };
            // An io::Error hides what it wraps from `source`.
            if let Some(inner) = io.get_ref()
                && inner.is::<rustls::Error>()
            {
                word = Some("tls");
            }
        }
        source = cause.source();
    }
    if error.is_timeout() {
        word = Some("timeout");
    }
    if error.is_builder() {
        return Outcome::Blocked { detail: "the request cannot be built".to_owned() };
    }
    let phase = if sent { Phase::Sent } else { Phase::Connect };
    let word = word.unwrap_or(if sent { "closed" } else { "connect" });
    Outcome::Failed { phase, detail: word.to_owned() }
}

/// A body that tells when it begins to be written: the client asks for it only once a connection stands.
struct TrackedBody {
    bytes: Option<Bytes>,
    sent: Arc<AtomicBool>,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.sent.store(true, Ordering::Relaxed);
        Poll::Ready(self.bytes.take().filter(|b| !b.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}
