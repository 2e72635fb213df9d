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
        /// Nothing was asked or dialled.
        Claimed => "claimed",
        /// Resolving the name.
        Dns => "dns",
        /// Connecting, until the TCP connection stood.
        Connect => "connect",
        /// The TLS handshake had begun, or had ended without a request being written yet.
        Tls => "tls",
        /// The request was being written, or had been.
        Sent => "sent",
        /// The head of the final answer came in.
        Head => "head",
        /// The whole answer came in.
        Body => "body",
    }
}

named! {
    /// What a receiver asks for in its `webhook-delivery` header.
    pub enum Directive {
        /// Do not send this message again.
        AbortMessage => "abort-message",
        /// Send nothing more to this endpoint.
        Disable => "disable",
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
        /// A short word for the cause: `dns`, `dns_timeout`, `refused`, `unreachable`, `reset`, `connect`, `tls`,
        /// `certificate` (also with what is wrong with it, as `certificate_expired`), `timeout`, `closed`, `protocol`,
        /// [`NOT_PROCESSED`].
        detail: String,
    },
    /// Not sent, and sending it again would not help.
    Blocked {
        /// Why, for an operator; names no address that the endpoint's owner should not learn.
        detail: String,
    },
}

/// The word for a request that the receiver, by its protocol, has not processed (RFC 9113 section 8.7).
pub const NOT_PROCESSED: &str = "not_processed";

/// The part of an answer that we look at.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Bytes of the one `Retry-After` header, if there is exactly one.
    pub retry_after: Option<Vec<u8>>,
    /// The `Date` header.
    pub date: Option<Vec<u8>>,
    /// The `Age` header: with it, `Date` is not the time of this answer.
    pub age: Option<Vec<u8>>,
    /// What the one `webhook-delivery` header asks for.
    pub directive: Option<Directive>,
    /// Headers that help an operator to find the request in the receiver's logs, printable.
    pub headers: Vec<(String, String)>,
    /// Start of the body, printable.
    pub excerpt: String,
    /// Bytes of the body that were read.
    pub body_bytes: u64,
    /// SHA-256 of the bytes that were read, in hex; `None` when none were.
    pub body_sha256: Option<String>,
    /// The body broke or was cut; it changes nothing.
    pub body_broken: bool,
}

impl Answer {
    /// How far the attempt got.
    #[must_use]
    pub fn phase(&self) -> Phase {
        if self.body_broken { Phase::Head } else { Phase::Body }
    }
}

/// Per-endpoint changes to what an answer counts as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerRules {
    /// Statuses that count as transient.
    pub retry: Vec<u16>,
    /// Statuses that count as permanent.
    pub permanent: Vec<u16>,
    /// The receiver's `webhook-delivery` header is honoured.
    pub directives: bool,
}

impl AnswerRules {
    /// What the receiver asks for, if that is honoured.
    pub fn directive(&self, answer: &Answer) -> Option<Directive> {
        answer.directive.filter(|_| self.directives)
    }
}

impl Outcome {
    /// Whether the receiver says that the endpoint is to get nothing more: 410, unless the rules say what that means, or
    /// an honoured directive, with whatever status it came.
    #[must_use]
    pub fn disables(&self, rules: &AnswerRules) -> bool {
        match self {
            Self::Answered(answer) => {
                rules.directive(answer) == Some(Directive::Disable)
                    || of_status(answer.status, false, rules) == Class::Gone
            }
            Self::Failed { .. } | Self::Blocked { .. } => false,
        }
    }
}

/// The class of an outcome. `hint` tells whether a valid hint came with the answer.
pub fn classify(outcome: &Outcome, hint: Option<Millis>, rules: &AnswerRules) -> Class {
    match outcome {
        Outcome::Blocked { .. } => Class::Blocked,
        Outcome::Failed { detail, .. } if detail == NOT_PROCESSED => Class::Transient,
        Outcome::Failed { phase: Phase::Sent | Phase::Head | Phase::Body, .. } => Class::Unknown,
        Outcome::Failed { phase: Phase::Claimed | Phase::Dns | Phase::Connect | Phase::Tls, .. } => Class::Transient,
        Outcome::Answered(answer) => {
            let class = of_status(answer.status, hint.is_some(), rules);
            match rules.directive(answer) {
                // What was accepted is delivered, whatever the receiver wants for the future.
                _ if class == Class::Accepted => class,
                Some(Directive::Disable) => Class::Gone,
                Some(Directive::AbortMessage) if class != Class::Gone => Class::Permanent,
                Some(Directive::AbortMessage) | None => class,
            }
        }
    }
}

fn of_status(status: u16, hinted: bool, rules: &AnswerRules) -> Class {
    match status {
        200..=299 => Class::Accepted,
        _ if rules.retry.contains(&status) => Class::Transient,
        _ if rules.permanent.contains(&status) => Class::Permanent,
        429 => Class::Throttled,
        503 if hinted => Class::Throttled,
        408 | 421 | 425 => Class::Transient,
        410 => Class::Gone,
        // 1xx: only 101 is ever final, and it answers a question that was not asked.
        100..=499 => Class::Permanent,
        // Every 5xx; other numbers are treated like them (RFC 9110 section 15).
        _ => Class::Transient,
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
        classify(&outcome, hint.then_some(Millis(1)), &AnswerRules::default())
    }

    #[test]
    fn every_status_has_one_class() {
        for status in 100..=999u16 {
            let expected = match status {
                200..=299 => Class::Accepted,
                429 => Class::Throttled,
                408 | 421 | 425 => Class::Transient,
                410 => Class::Gone,
                100..=499 => Class::Permanent,
                _ => Class::Transient,
            };
            assert_eq!(class(status, false), expected, "{status}");
            let hinted = if status == 503 { Class::Throttled } else { expected };
            assert_eq!(class(status, true), hinted, "{status} with a hint");
        }
    }

    #[test]
    fn overrides_change_failures_but_never_a_success() {
        let overrides = AnswerRules { retry: vec![200, 404], permanent: vec![204, 500], directives: false };
        let with = |status| classify(&Outcome::Answered(Answer { status, ..Answer::default() }), None, &overrides);
        assert_eq!(
            [with(200), with(204), with(404), with(500)],
            [Class::Accepted, Class::Accepted, Class::Transient, Class::Permanent]
        );
    }

    #[test]
    fn without_an_answer_the_phase_decides() {
        let failed = |phase, word: &str| {
            classify(&Outcome::Failed { phase, detail: word.to_owned() }, None, &AnswerRules::default())
        };
        for phase in [Phase::Claimed, Phase::Dns, Phase::Connect, Phase::Tls] {
            assert_eq!(failed(phase, "timeout"), Class::Transient, "{phase:?}");
        }
        for phase in [Phase::Sent, Phase::Head, Phase::Body] {
            assert_eq!(failed(phase, "timeout"), Class::Unknown, "{phase:?}");
        }
        assert_eq!(failed(Phase::Sent, NOT_PROCESSED), Class::Transient);
    }

    #[test]
    fn a_directive_counts_only_where_it_is_honoured_and_never_against_an_acceptance() {
        use Directive::{AbortMessage, Disable};
        for (status, directive, honoured, class, disables) in [
            (500, Some(AbortMessage), true, Class::Permanent, false),
            (429, Some(AbortMessage), true, Class::Permanent, false),
            (410, Some(AbortMessage), true, Class::Gone, true),
            (200, Some(AbortMessage), true, Class::Accepted, false),
            (500, Some(Disable), true, Class::Gone, true),
            (200, Some(Disable), true, Class::Accepted, true),
            (500, Some(AbortMessage), false, Class::Transient, false),
            (500, Some(Disable), false, Class::Transient, false),
            (200, Some(Disable), false, Class::Accepted, false),
            (410, None, false, Class::Gone, true),
            (404, None, true, Class::Permanent, false),
        ] {
            let outcome = Outcome::Answered(Answer { status, directive, ..Answer::default() });
            let rules = AnswerRules { directives: honoured, ..AnswerRules::default() };
            let case = format!("{status} {directive:?} {honoured}");
            assert_eq!((classify(&outcome, None, &rules), outcome.disables(&rules)), (class, disables), "{case}");
        }
        let failed = Outcome::Failed { phase: Phase::Sent, detail: "timeout".to_owned() };
        assert!(!failed.disables(&AnswerRules { directives: true, ..AnswerRules::default() }));
    }

    #[test]
    fn a_410_with_a_meaning_of_its_own_does_not_disable() {
        let gone = Outcome::Answered(Answer { status: 410, ..Answer::default() });
        let retry = AnswerRules { retry: vec![410], ..AnswerRules::default() };
        let permanent = AnswerRules { permanent: vec![410], ..AnswerRules::default() };
        assert_eq!((classify(&gone, None, &retry), gone.disables(&retry)), (Class::Transient, false));
        assert_eq!((classify(&gone, None, &permanent), gone.disables(&permanent)), (Class::Permanent, false));
    }

    #[test]
    fn excerpts_are_printable_and_bounded() {
        assert_eq!(printable(b"a\xe9\0\nb", 100), "a\\xe9\\x00 b");
        assert_eq!([7, 8].map(|max| printable(b"\xff\xff", max)), ["\\xff", "\\xff\\xff"]);
        assert_eq!([3, 4].map(|max| printable(b"aaaa", max)), ["aaa", "aaaa"]);
    }
}
