//! The HTTP client: one request, once. No redirects, no proxy, no retries, no connection or session kept for the next
//! attempt, no decompression. What happened is data ([`Outcome`]); this file never decides what it means.

use std::sync::Arc;
use std::time::Duration;

use domain::egress::EgressPolicy;
use domain::outcome::{Answer, Outcome, Phase};
use domain::ports::Sender;
use domain::request::Request;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
pub use rustls::pki_types::CertificateDer;

use crate::answer::{self, Reading};
use crate::attempt::{Attempt, CURRENT, TrackedBody};
use crate::cause;
use crate::resolver::{self, Judged, Lookup, NoAddress};
use crate::tls;

/// Longest time to connect and finish the TLS handshake.
const CONNECT: Duration = Duration::from_secs(3);
/// Most header lines of an answer. Together they are bounded by the client's buffer, about 400 KiB.
const MAX_HEADERS: usize = 8 * 1024;
/// Largest header list of an HTTP/2 answer, in bytes.
const MAX_HEADER_LIST: u32 = 400 * 1024;

/// Headers whose values are no secret. A signature is none, but it is worth nothing to anybody else.
const OURS: &[&str] =
    &["content-type", "user-agent", "webhook-id", "webhook-timestamp", "idempotency-key", "redeliver-attempt"];

/// The client for endpoints.
pub struct HttpSender {
    client: reqwest::Client,
    policy: EgressPolicy,
    lookup: Lookup,
}

impl HttpSender {
    /// A client that trusts the bundled root certificates and these.
    pub fn new(policy: EgressPolicy, extra_roots: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        Self::with_lookup(policy, extra_roots, resolver::system())
    }

    /// A client that asks `lookup` for the addresses of names.
    pub fn with_lookup(
        policy: EgressPolicy,
        extra_roots: impl IntoIterator<Item = CertificateDer<'static>>,
        lookup: Lookup,
    ) -> Self {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::config(extra_roots))
            .dns_resolver(Arc::new(Judged))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            // With a pool the client would connect in a task of its own, where no attempt is known.
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT)
            // A head that can be understood is an answer, whatever is wrong with single lines of it.
            .http1_ignore_invalid_headers_in_responses(true)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_max_headers(MAX_HEADERS)
            .http2_max_header_list_size(MAX_HEADER_LIST)
            .build()
            .expect("the client's settings are constant and valid");
        Self { client, policy, lookup }
    }
}

/// Reads certificates of authorities in PEM; an empty text has none. The error repeats nothing of the text.
pub fn parse_roots(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    tls::parse_roots(pem)
}

impl Sender for HttpSender {
    async fn post(&self, request: &Request<'_>) -> Outcome {
        let target = match self.policy.check_url(&request.url) {
            Ok(target) => target,
            Err(detail) => return Outcome::Blocked { detail },
        };
        let headers = match headers(request) {
            Ok(headers) => headers,
            Err(detail) => return Outcome::Blocked { detail },
        };
        let total = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        // Where the attempt stands when the time is over: on the name, on the wire, or on the body.
        let mut sending: Option<Arc<Attempt>> = None;
        let mut answered: Option<Answer> = None;
        let attempt = async {
            let (name, addresses) = match target.name.as_deref() {
                Some(name) => match resolver::resolve(&self.lookup, &self.policy, &target, name).await {
                    Ok(addresses) => (name, addresses),
                    Err(no_address) => return Some(unresolved(no_address)),
                },
                None => ("", Vec::new()),
            };
            let attempt = Arc::clone(sending.insert(Arc::new(Attempt::new(name.to_owned(), addresses))));
            let body = reqwest::Body::wrap(TrackedBody::new(request.body, Arc::clone(&attempt)));
            let send = self.client.post(request.url.clone()).headers(headers).body(body).send();
            match CURRENT.scope(Arc::clone(&attempt), send).await {
                Ok(response) => {
                    let answer = answered.insert(answer::of_head(&response, &request.url));
                    answer::read_body(response, &mut Reading::new(answer)).await;
                    None
                }
                Err(error) => Some(cause::outcome(&error, attempt.phase())),
            }
        };
        match tokio::time::timeout(total, attempt).await {
            Ok(Some(outcome)) => outcome,
            Ok(None) | Err(_) => match (answered, sending) {
                (Some(answer), _) => Outcome::Answered(answer),
                (None, Some(attempt)) => Outcome::Failed { phase: attempt.phase(), detail: "timeout".to_owned() },
                (None, None) => unresolved(NoAddress::TooLate),
            },
        }
    }
}

fn unresolved(no_address: NoAddress) -> Outcome {
    match no_address {
        NoAddress::Refused(detail) => Outcome::Blocked { detail },
        NoAddress::Unresolved => Outcome::Failed { phase: Phase::Dns, detail: "dns".to_owned() },
        NoAddress::TooLate => Outcome::Failed { phase: Phase::Dns, detail: "dns_timeout".to_owned() },
    }
}

fn headers(request: &Request<'_>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::with_capacity(request.headers.len());
    for (name, value) in &request.headers {
        let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
            return Err(format!("header {name:?} cannot be sent"));
        };
        // Whatever a person configured may be a credential: it stays out of traces and of header tables.
        value.set_sensitive(!OURS.contains(&name.as_str()));
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_be_credentials_are_marked_and_not_debugged() {
        let names = ["authorization", "cookie", "x-api-key", "webhook-signature", "webhook-id", "content-type"];
        let request = Request {
            url: "https://h.example.test/".parse().unwrap(),
            headers: names.iter().map(|name| ((*name).to_owned(), "t0ken".to_owned())).collect(),
            body: b"",
            timeout_ms: 1,
        };
        let headers = headers(&request).unwrap();
        let marked: Vec<&str> = names.into_iter().filter(|name| headers[*name].is_sensitive()).collect();
        assert_eq!(marked, names[..4]);
    }
}
