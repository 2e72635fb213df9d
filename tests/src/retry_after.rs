//! `Retry-After`, with the `Date` and the `Age` of its answer.

use domain::hint::retry_after as hint;
use domain::outcome::Answer;
use domain::time::{Millis, SECOND_MS};

/// Some time in 2026, to the millisecond.
const NOW: Millis = Millis(1_790_000_000_123);
/// The last millisecond of the year 9999.
const LAST: i64 = 253_402_300_799_999;

/// A hint only delays, at most by its cap, and digits are seconds. The input is a line each of: `Retry-After`, `Date`, `Age`,
/// the cap in seconds, and the time; the last four may be missing.
pub fn retry_after(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let value = lines.next().unwrap_or_default();
    let (date, age) = (lines.next(), lines.next());
    let mut number = || std::str::from_utf8(lines.next()?).ok()?.parse::<i64>().ok();
    let cap_ms = number().unwrap_or(600).clamp(1, 30 * 86_400) * SECOND_MS;
    let now = number().map_or(NOW, |ms| Millis(ms.clamp(0, LAST)));
    let answer = Answer {
        status: 503,
        retry_after: Some(value.to_vec()),
        date: date.filter(|d| !d.is_empty()).map(<[u8]>::to_vec),
        age: age.filter(|a| !a.is_empty()).map(<[u8]>::to_vec),
        ..Answer::default()
    };
    let until = hint(&answer, now, cap_ms);
    if let Some(until) = until {
        assert!(now < until && until.since(now) <= cap_ms, "{until} at {now}");
    }
    let blanks: &[char] = &[' ', '\t'];
    let digits = std::str::from_utf8(value)
        .ok()
        .map(|text| text.trim_matches(blanks))
        .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    if let Some(digits) = digits {
        // More than fits is more than any cap.
        let seconds = digits.parse::<u64>().unwrap_or(u64::MAX);
        let wait_ms = seconds.saturating_mul(1_000).min(cap_ms as u64) as i64;
        assert_eq!(until, (seconds > 0).then(|| now.plus(wait_ms)));
    } else if !value.iter().any(|b| b" ,-:".contains(b)) {
        assert_eq!(until, None, "neither digits nor a date");
    }
    let without = Answer { retry_after: None, ..answer };
    assert_eq!(hint(&without, now, cap_ms), None);
}
