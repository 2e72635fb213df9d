//! What the answer of the last failed attempt looked like, for the operator: more than the record holds, in an item beside
//! it. Evidence only: nothing is decided by it, and a failure to keep it changes nothing.

use crate::outcome::{Answer, Class, Outcome};
use crate::time::Millis;

/// An answer as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    /// Which attempt it answered; an older one never replaces a newer one.
    pub attempt: u32,
    /// When it had come in.
    pub at: Millis,
    /// Its status.
    pub status: u16,
    /// Headers that help to find the request in the receiver's logs, printable.
    pub headers: Vec<(String, String)>,
    /// Start of its body, printable, 1 KiB at most.
    pub excerpt: String,
    /// Bytes of the body that were read.
    pub body_bytes: u64,
    /// SHA-256 of what was read, in hex.
    pub body_sha256: Option<String>,
    /// The body broke, or was cut by our limits.
    pub body_broken: bool,
}

impl KeptAnswer {
    /// What is worth keeping of an outcome: a failure's answer that says more than its status.
    pub fn of(outcome: &Outcome, class: Class, attempt: u32, at: Millis) -> Option<Self> {
        let Outcome::Answered(answer) = outcome else { return None };
        let Answer { status, headers, excerpt, body_bytes, body_sha256, body_broken, .. } = answer.clone();
        let says_more = !headers.is_empty() || body_bytes > 0;
        (class != Class::Accepted && says_more).then_some(Self {
            attempt,
            at,
            status,
            headers,
            excerpt,
            body_bytes,
            body_sha256,
            body_broken,
        })
    }
}
