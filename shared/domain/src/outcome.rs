//! What happened on the wire, and what it counts as: one table, in one place.

use crate::name::named;
use crate::time::Millis;

named! {
    /// What an outcome counts as.
    pub enum Class {
        /// The endpoint has it.
        Accepted => "accepted",
        /// The endpoint asks for less.
        Throttled => "throttled",
        /// It may work later, and the endpoint does not have it.
        Transient => "transient",
        /// Bytes were sent and no answer came: the endpoint may have it.
        Unknown => "unknown",
        /// The endpoint refuses it for good.
        Permanent => "permanent",
        /// The endpoint says that it no longer exists.
        Gone => "gone",
        /// We must not or cannot send it.
        Blocked => "blocked",
    }
}

named! {
    /// How far an attempt got.
    pub enum Phase {
        /// Nothing was dialled.
        Claimed => "claimed",
        /// Resolving the name, connecting, or the TLS handshake.
        Connect => "connect",
        /// The request was being written, or had been.
        Sent => "sent",
        /// The head of the final answer came in.
        Head => "head",
    }
}

/// What came of one HTTP request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A complete final answer head.
    Answered(Answer),
    /// No answer head.
    Failed {
        /// How far it got: decides whether the endpoint may have it.
        phase: Phase,
        /// A short word for the cause: `dns`, `refused`, `tls`, `timeout`, `reset`, `connect`, `protocol`.
        detail: String,
    },
    /// Not sent, and sending it again would not help.
    Blocked {
        /// Why, for an operator; names no address that the endpoint's owner should not learn.
        detail: String,
    },
}

/// The part of an answer that we look at.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Bytes of the one `Retry-After` header, if there is exactly one.
    pub retry_after: Option<Vec<u8>>,
    /// The `Date` header.
    pub date: Option<Vec<u8>>,
    /// Start of the body, printable.
    pub excerpt: String,
    /// The body broke or was cut; it changes nothing.
    pub body_broken: bool,
}

/// Per-endpoint changes to the status table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusOverrides {
    /// Statuses that count as transient.
    pub retry: Vec<u16>,
    /// Statuses that count as permanent.
    pub permanent: Vec<u16>,
}

/// The class of an outcome. `hint` tells whether a valid hint came with the answer.
pub fn classify(outcome: &Outcome, hint: Option<Millis>, overrides: &StatusOverrides) -> Class {
    match outcome {
        Outcome::Blocked { .. } => Class::Blocked,
        Outcome::Failed { phase: Phase::Sent | Phase::Head, .. } => Class::Unknown,
        Outcome::Failed { phase: Phase::Claimed | Phase::Connect, .. } => Class::Transient,
        Outcome::Answered(answer) => {
            let status = answer.status;
            let accepted = (200..300).contains(&status);
            if !accepted && overrides.retry.contains(&status) {
                return Class::Transient;
            }
            if !accepted && overrides.permanent.contains(&status) {
                return Class::Permanent;
            }
            match status {
                200..=299 => Class::Accepted,
                429 => Class::Throttled,
                503 if hint.is_some() => Class::Throttled,
                408 | 421 | 425 => Class::Transient,
                410 => Class::Gone,
                300..=499 => Class::Permanent,
                // Every 5xx; and numbers outside of the classes of RFC 9110 section 15, which say nothing we could rely on.
                _ => Class::Transient,
            }
        }
    }
}

/// The longest excerpt kept, in bytes of its escaped form.
pub const EXCERPT_MAX: usize = 1024;

/// Bytes of an answer as printable text: what is not printable ASCII is escaped, `max` bytes at most.
pub fn printable(bytes: &[u8], max: usize) -> String {
    let mut text = String::new();
    for byte in bytes {
        let escaped = match byte {
            b' '..=b'~' => char::from(*byte).to_string(),
            b'\n' | b'\r' | b'\t' => " ".to_owned(),
            _ => format!("\\x{byte:02x}"),
        };
        if text.len() + escaped.len() > max {
            break;
        }
        text.push_str(&escaped);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(status: u16, hint: bool) -> Class {
        let outcome = Outcome::Answered(Answer { status, ..Answer::default() });
        classify(&outcome, hint.then_some(Millis(1)), &StatusOverrides::default())
    }

    #[test]
    fn every_status_has_one_class() {
        for status in 100..=999u16 {
            let expected = match status {
                200..=299 => Class::Accepted,
                429 => Class::Throttled,
                408 | 421 | 425 => Class::Transient,
                410 => Class::Gone,
                300..=499 => Class::Permanent,
                _ => Class::Transient,
            };
            assert_eq!(class(status, false), expected, "{status}");
            let hinted = if status == 503 { Class::Throttled } else { expected };
            assert_eq!(class(status, true), hinted, "{status} with a hint");
        }
    }

    #[test]
    fn overrides_change_failures_but_never_a_success() {
        let overrides = StatusOverrides { retry: vec![200, 404], permanent: vec![204, 500] };
        let with = |status| classify(&Outcome::Answered(Answer { status, ..Answer::default() }), None, &overrides);
        assert_eq!(
            [with(200), with(204), with(404), with(500)],
            [Class::Accepted, Class::Accepted, Class::Transient, Class::Permanent]
        );
    }

    #[test]
    fn without_an_answer_the_phase_decides() {
        let failed =
            |phase| classify(&Outcome::Failed { phase, detail: "timeout".into() }, None, &StatusOverrides::default());
        assert_eq!(failed(Phase::Connect), Class::Transient);
        assert_eq!(failed(Phase::Sent), Class::Unknown);
    }

    #[test]
    fn excerpts_are_printable_and_bounded() {
        assert_eq!(printable(b"a\xe9\0\nb", 100), "a\\xe9\\x00 b");
        assert_eq!(printable(b"\xff\xff", 7), "\\xff");
    }
}
