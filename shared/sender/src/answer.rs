//! Reads the part of an answer that is looked at, within bounds. Nothing here can turn an answer into a failure: its head
//! is complete, and what its headers or body hold or lack changes nothing.

use std::time::Duration;

use domain::outcome::{Answer, Directive, EXCERPT_MAX, printable};
use reqwest::header::{AGE, DATE, HeaderMap, HeaderName, LOCATION, RETRY_AFTER};
use sha2::{Digest, Sha256};
use url::Url;

/// At most so many bytes of an answer are read.
const MAX_ANSWER: usize = 64 * 1024;
/// Longest time spent on the body of an acceptance: it changes nothing.
const ACCEPTED_BODY: Duration = Duration::from_millis(500);
/// The longest value kept of a header, in bytes of its escaped form.
const MAX_VALUE: usize = 128;

/// What helps an operator, and the receiver's, to find the request in the receiver's logs. Of `location` only the origin.
const KEPT: &[&str] = &[
    "server",
    "date",
    "content-type",
    "content-length",
    "retry-after",
    "location",
    "x-request-id",
    "x-amzn-requestid",
    "x-amz-cf-id",
    "cf-ray",
    "x-correlation-id",
    "traceparent",
    "via",
];

/// What the head says. The body counts as broken until it has been read.
pub(crate) fn of_head(response: &reqwest::Response, url: &Url) -> Answer {
    let headers = response.headers();
    Answer {
        status: response.status().as_u16(),
        retry_after: only(headers, &RETRY_AFTER).map(<[u8]>::to_vec),
        date: only(headers, &DATE).map(<[u8]>::to_vec),
        age: headers.get(AGE).map(|age| age.as_bytes().to_vec()),
        directive: directive(headers),
        headers: KEPT.iter().filter_map(|name| Some(((*name).to_owned(), kept(headers, name, url)?))).collect(),
        body_broken: true,
        ..Answer::default()
    }
}

/// Reads the body into the answer. May be dropped at any moment: what was read by then is in the answer.
pub(crate) async fn read_body(mut response: reqwest::Response, reading: &mut Reading<'_>) {
    let accepted = response.status().is_success();
    let all = async {
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if reading.take(&chunk) => {}
                Ok(None) => return true,
                Ok(Some(_)) | Err(_) => return false,
            }
        }
    };
    let complete = if accepted { tokio::time::timeout(ACCEPTED_BODY, all).await.unwrap_or(false) } else { all.await };
    reading.answer.body_broken = !complete;
}

/// An answer whose body comes in. When it is dropped, the answer says what has been read.
pub(crate) struct Reading<'a> {
    answer: &'a mut Answer,
    digest: Sha256,
    start: Vec<u8>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(answer: &'a mut Answer) -> Self {
        Self { answer, digest: Sha256::new(), start: Vec::new() }
    }

    /// Takes what there is room for; `false` when there is more.
    fn take(&mut self, chunk: &[u8]) -> bool {
        let room = MAX_ANSWER - usize::try_from(self.answer.body_bytes).unwrap_or(MAX_ANSWER).min(MAX_ANSWER);
        let taken = &chunk[..chunk.len().min(room)];
        self.digest.update(taken);
        self.start.extend_from_slice(&taken[..taken.len().min(EXCERPT_MAX - self.start.len())]);
        self.answer.body_bytes += taken.len() as u64;
        taken.len() == chunk.len()
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.answer.excerpt = printable(&self.start, EXCERPT_MAX);
        if self.answer.body_bytes > 0 {
            let digest = std::mem::take(&mut self.digest).finalize();
            self.answer.body_sha256 = Some(digest.iter().map(|byte| format!("{byte:02x}")).collect());
        }
    }
}

/// The value of a header that came exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none()).map(|value| value.as_bytes())
}

fn directive(headers: &HeaderMap) -> Option<Directive> {
    let value = only(headers, &HeaderName::from_static("webhook-delivery"))?.trim_ascii();
    [Directive::AbortMessage, Directive::Disable].into_iter().find(|d| value.eq_ignore_ascii_case(d.name().as_bytes()))
}

fn kept(headers: &HeaderMap, name: &str, url: &Url) -> Option<String> {
    let value = headers.get(name)?;
    if name == LOCATION {
        // Path and query of a redirect may hold a token, as those of the endpoint may.
        let origin = url.join(value.to_str().ok()?).ok()?.origin();
        return origin.is_tuple().then(|| printable(origin.ascii_serialization().as_bytes(), MAX_VALUE));
    }
    Some(printable(value.as_bytes(), MAX_VALUE))
}
