//! `Retry-After` (RFC 9110 section 10.2.3): digits, or one of the three HTTP-dates. Anything else is no hint.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::outcome::Answer;
use crate::time::{Millis, SECOND_MS};

/// Until when the answer asks us to wait; `None` without a valid hint, or for a time that has passed.
/// A date is compared with the answer's own `Date`, so that a receiver's wrong clock does not matter.
/// The hint is capped at `cap_ms` from now, so that a receiver cannot park a delivery for ever.
pub fn retry_after(answer: &Answer, now: Millis, cap_ms: i64) -> Option<Millis> {
    let value = trim(answer.retry_after.as_deref()?);
    let wait_ms = if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        // Saturating: more digits than fit still mean "very long".
        value
            .iter()
            .fold(0i64, |n, d| n.saturating_mul(10).saturating_add(i64::from(d - b'0')))
            .saturating_mul(SECOND_MS)
    } else {
        let until = http_date(value)?;
        let reference = answer.date.as_deref().and_then(|d| http_date(trim(d))).unwrap_or(now);
        until.since(reference)
    };
    (wait_ms > 0).then(|| now.plus(wait_ms.min(cap_ms)))
}

fn trim(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

/// One of the three date forms of RFC 9110 section 5.6.7.
fn http_date(value: &[u8]) -> Option<Millis> {
    let time: SystemTime = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since_epoch.as_millis()).ok().map(Millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: i64 = 6 * 3600 * SECOND_MS;

    fn now() -> Millis {
        Millis::parse_rfc3339("2026-11-30T12:00:00Z").unwrap()
    }

    fn wait(value: &[u8], date: Option<&str>) -> Option<i64> {
        let answer = Answer {
            retry_after: Some(value.to_vec()),
            date: date.map(|d| d.as_bytes().to_vec()),
            ..Answer::default()
        };
        retry_after(&answer, now(), CAP).map(|t| t.since(now()))
    }

    #[test]
    fn seconds_and_the_three_date_forms_are_hints() {
        for (value, seconds) in [
            ("3", 3),
            ("  7  ", 7),
            ("007", 7),
            ("2015", 2015),
            ("Mon, 30 Nov 2026 12:05:00 GMT", 300),
            ("Monday, 30-Nov-26 12:05:00 GMT", 300),
            ("Mon Nov 30 12:05:00 2026", 300),
        ] {
            assert_eq!(wait(value.as_bytes(), None), Some(seconds * SECOND_MS), "{value}");
        }
    }

    #[test]
    fn anything_else_is_no_hint() {
        for value in [
            "",
            "-3",
            "+3",
            "-0",
            "0",
            "1.5",
            "1e3",
            "3 s",
            "0x10",
            "٣",
            "3, 4",
            "soon",
            "Mon, 30 Nov 2026 12:05:00 +0000",
            "Tue, 30 Nov 2026 12:05:00 GMT",
            "Mon, 30 Nov 2026 11:00:00 GMT",
            "2026-11-30T12:05:00Z",
        ] {
            assert_eq!(wait(value.as_bytes(), None), None, "{value}");
        }
        assert_eq!(wait(b"\xe9", None), None);
    }

    #[test]
    fn a_hint_is_capped() {
        for value in ["999999", "99999999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(wait(value.as_bytes(), None), Some(CAP), "{value}");
        }
    }

    #[test]
    fn a_date_is_read_by_the_clock_of_the_answer() {
        let value = b"Mon, 30 Nov 2026 12:05:00 GMT";
        assert_eq!(wait(value, Some("Mon, 30 Nov 2026 11:55:00 GMT")), Some(600 * SECOND_MS));
        assert_eq!(wait(value, Some("nonsense")), Some(300 * SECOND_MS));
        assert_eq!(wait(value, Some("Mon, 30 Nov 2026 12:06:00 GMT")), None);
    }
}
