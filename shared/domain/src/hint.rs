//! `Retry-After` (RFC 9110 section 10.2.3): digits, or one of the three HTTP-dates. Anything else is no hint. A hint only
//! ever delays, and never beyond its cap.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::Offset;

use crate::outcome::Answer;
use crate::time::{DAY_MS, Millis, SECOND_MS};

/// Until when the answer asks us to wait; `None` without a valid hint, or for a time that has passed.
/// A date is compared with the answer's own `Date`, so that a receiver's wrong clock does not matter; but with our clock
/// when the answer has an `Age` (it comes out of a cache) or its `Date` is more than a day away from ours.
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
        http_date(value, now)?.since(receivers_clock(answer, now))
    };
    (wait_ms > 0).then(|| now.plus(wait_ms.min(cap_ms)))
}

fn receivers_clock(answer: &Answer, now: Millis) -> Millis {
    answer
        .date
        .as_deref()
        .filter(|_| answer.age.is_none())
        .and_then(|date| http_date(trim(date), now))
        .filter(|date| date.since(now).saturating_abs() <= DAY_MS)
        .unwrap_or(now)
}

/// Without the optional white space around a field value.
fn trim(value: &[u8]) -> &[u8] {
    let start = value.iter().position(|b| !b" \t".contains(b)).unwrap_or(value.len());
    let end = value.iter().rposition(|b| !b" \t".contains(b)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// One of the three date forms of RFC 9110 section 5.6.7. A leap second is the second after it.
fn http_date(value: &[u8], now: Millis) -> Option<Millis> {
    let text = std::str::from_utf8(value).ok()?;
    let text = full_year(text, now).unwrap_or_else(|| text.to_owned());
    let leap = text.contains(":60 ");
    let time: SystemTime =
        httpdate::parse_http_date(&if leap { text.replacen(":60 ", ":59 ", 1) } else { text }).ok()?;
    let since_epoch = time.duration_since(UNIX_EPOCH).ok()?;
    let ms = i64::try_from(since_epoch.as_millis()).ok()?;
    Some(Millis(ms).plus(if leap { SECOND_MS } else { 0 }))
}

/// The obsolete form with two digits of the year, in the form with four: the latest such year that is no more than 50
/// years ahead.
fn full_year(text: &str, now: Millis) -> Option<String> {
    const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let (day, rest) = text.split_once(", ")?;
    let day = DAYS.iter().find(|name| **name == day)?.get(..3)?;
    let (date, time) = rest.split_once(' ')?;
    let [number, month, digits]: [&str; 3] = date.split('-').collect::<Vec<_>>().try_into().ok()?;
    if digits.len() != 2 || !digits.bytes().all(|d| d.is_ascii_digit()) {
        return None;
    }
    let latest = i32::from(Offset::UTC.to_datetime(Timestamp::from_millisecond(now.0).ok()?).year()) + 50;
    let year = latest - (latest - digits.parse::<i32>().ok()?).rem_euclid(100);
    Some(format!("{day}, {number} {month} {year} {time}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: i64 = 6 * 3600 * SECOND_MS;

    fn now() -> Millis {
        Millis::parse_rfc3339("2026-11-30T12:00:00Z").unwrap()
    }

    fn answer(value: &[u8], date: Option<&str>) -> Answer {
        let date = date.map(|d| d.as_bytes().to_vec());
        Answer { retry_after: Some(value.to_vec()), date, ..Answer::default() }
    }

    fn wait(value: &[u8], date: Option<&str>) -> Option<i64> {
        retry_after(&answer(value, date), now(), CAP).map(|t| t.since(now()))
    }

    #[test]
    fn seconds_and_the_three_date_forms_are_hints() {
        for (value, seconds) in [
            ("3", 3),
            ("  7  ", 7),
            ("\t7", 7),
            ("007", 7),
            ("2015", 2015),
            ("Mon, 30 Nov 2026 12:05:00 GMT", 300),
            ("Monday, 30-Nov-26 12:05:00 GMT", 300),
            ("Mon Nov 30 12:05:00 2026", 300),
            ("Tue Dec  1 12:00:00 2026", 86_400),
            ("Mon, 30 Nov 2026 12:05:60 GMT", 360),
            ("Mon Nov 30 12:05:60 2026", 360),
            ("Monday, 30-Nov-26 12:05:60 GMT", 360),
        ] {
            assert_eq!(wait(value.as_bytes(), None), Some((seconds * SECOND_MS).min(CAP)), "{value}");
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
            "3,",
            "3;",
            "7\u{a0}",
            "\u{c}7",
            "１２",
            "٣٠",
            "\u{221e}",
            "NaN",
            "  ",
            "0000",
            "Mon, 30 Nov 2026 12:05:00 GMT, 7",
            "Mon, 30 Nov 2026 12:05:00 GMT x",
            "Mon, 30 Nov 2026 12:05:00",
            "Mon, 30 Nov 2026 12:05:00 UTC",
            "mon, 30 nov 2026 12:05:00 gmt",
            "MON, 30 NOV 2026 12:05:00 GMT",
            "Mon,  30 Nov 2026 12:05:00 GMT",
            "Mon, 30 Nov 2026 24:05:00 GMT",
            "Mon, 30 Nov 2026 12:60:00 GMT",
            "Mon, 30 Nov 2026 12:05:61 GMT",
            "Sat, 30 Feb 2027 12:05:00 GMT",
            "Sun, 30 Feb 2027 12:05:00 GMT",
            "Mon, 29 Feb 2027 12:05:00 GMT",
            "Mon, 3 Nov 2026 12:05:00 GMT",
            "Tuesday, 30-Nov-26 12:05:00 GMT",
            "Mon, 30-Nov-26 12:05:00 GMT",
            "Monday, 30-Nov-2026 12:05:00 GMT",
            "Monday, 30-Nov-+6 12:05:00 GMT",
            "Sun, 30 Nov 1969 12:05:00 GMT",
            "Thu, 01 Jan 1970 00:00:00 GMT",
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
    fn two_digits_of_a_year_are_at_most_fifty_years_ahead() {
        // 2070 and 2076 lie ahead, 1977 lies behind; each with the weekday of its own year.
        assert_eq!(wait(b"Sunday, 30-Nov-70 12:00:00 GMT", None), Some(CAP));
        assert_eq!(wait(b"Monday, 30-Nov-76 12:00:00 GMT", None), Some(CAP));
        assert_eq!(wait(b"Wednesday, 30-Nov-77 12:00:00 GMT", None), None);
        assert_eq!(wait(b"Tuesday, 30-Nov-77 12:00:00 GMT", None), None);
        assert_eq!(wait(b"Wednesday, 30-Nov-05 12:00:00 GMT", None), None);
    }

    #[test]
    fn a_date_is_read_by_the_clock_of_the_answer() {
        let value = b"Mon, 30 Nov 2026 12:05:00 GMT";
        assert_eq!(wait(value, Some("Mon, 30 Nov 2026 11:55:00 GMT")), Some(600 * SECOND_MS));
        assert_eq!(wait(value, Some("Monday, 30-Nov-26 11:55:00 GMT")), Some(600 * SECOND_MS));
        assert_eq!(wait(value, Some("nonsense")), Some(300 * SECOND_MS));
        assert_eq!(wait(value, Some("")), Some(300 * SECOND_MS));
        assert_eq!(wait(value, Some("Mon, 30 Nov 2026 12:06:00 GMT")), None);
    }

    #[test]
    fn our_clock_is_used_for_an_answer_out_of_a_cache_or_out_of_time() {
        let value = b"Mon, 30 Nov 2026 12:05:00 GMT";
        let mut cached = answer(value, Some("Mon, 30 Nov 2026 11:55:00 GMT"));
        cached.age = Some(b"600".to_vec());
        assert_eq!(retry_after(&cached, now(), CAP).map(|t| t.since(now())), Some(300 * SECOND_MS));
        for absurd in
            ["Sun, 29 Nov 2026 11:59:59 GMT", "Tue, 01 Dec 2026 12:00:01 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"]
        {
            assert_eq!(wait(value, Some(absurd)), Some(300 * SECOND_MS), "{absurd}");
        }
        assert_eq!(wait(value, Some("Sun, 29 Nov 2026 12:00:00 GMT")), Some(CAP));
    }

    proptest::proptest! {
        #[test]
        fn a_hint_only_delays_and_never_beyond_its_cap(
            value in "[0-9]{1,30}|[-+0-9. ]{0,8}|(Mon|Sun|Monday), ?[0-9]{1,2}[ -](Nov|Feb)[ -][0-9]{2,4} [0-9:]{8} GMT|.{0,40}",
            date in proptest::option::of("(Mon|Sun), [0-9]{2} (Nov|Dec) 20[0-9]{2} [0-2][0-9]:[0-6][0-9]:[0-6][0-9] GMT"),
            aged: bool,
            now in 0..4_000_000_000_000i64,
            cap in 0..DAY_MS,
        ) {
            let mut answer = answer(value.as_bytes(), date.as_deref());
            answer.age = aged.then(|| b"1".to_vec());
            if let Some(until) = retry_after(&answer, Millis(now), cap) {
                proptest::prop_assert!((0..=cap).contains(&until.since(Millis(now))), "{}", until);
            }
        }

        #[test]
        fn digits_are_seconds(seconds in 1..CAP / SECOND_MS) {
            proptest::prop_assert_eq!(wait(seconds.to_string().as_bytes(), None), Some(seconds * SECOND_MS));
        }

        #[test]
        fn every_second_of_a_date_is_exact(ahead in 1..CAP / SECOND_MS) {
            let until = UNIX_EPOCH + std::time::Duration::from_millis(now().plus(ahead * SECOND_MS).0 as u64);
            let value = httpdate::fmt_http_date(until);
            proptest::prop_assert_eq!(wait(value.as_bytes(), None), Some(ahead * SECOND_MS));
        }
    }
}
