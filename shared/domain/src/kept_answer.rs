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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_when_it_is_a_failure_and_says_more_than_its_status() {
        let kept = |headers: &[(&str, &str)], body_bytes, class| {
            let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            let answer = Answer { status: 500, headers, body_bytes, ..Answer::default() };
            KeptAnswer::of(&Outcome::Answered(answer), class, 1, Millis(0)).is_some()
        };
        let header = [("x-request-id", "1")];
        for (headers, body_bytes, class, expected) in [
            (&[][..], 0, Class::Transient, false),
            (&header[..], 0, Class::Transient, true),
            (&[][..], 1, Class::Transient, true),
            (&[][..], 2, Class::Transient, true),
            (&header[..], 2, Class::Accepted, false),
        ] {
            assert_eq!(kept(headers, body_bytes, class), expected, "{headers:?} {body_bytes} {class}");
        }
    }
}
