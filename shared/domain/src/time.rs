//! Points in time, as milliseconds since the Unix epoch. Durations are plain `i64` milliseconds with `_ms` names.

use std::fmt;

use jiff::Timestamp;

/// One second in milliseconds.
pub const SECOND_MS: i64 = 1_000;
/// One day in milliseconds.
pub const DAY_MS: i64 = 86_400 * SECOND_MS;

/// A point in time: milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub i64);

impl Millis {
    /// This point moved by `ms` milliseconds; saturates instead of wrapping.
    #[must_use]
    pub const fn plus(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this point; negative when this point comes first.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole seconds since the epoch, rounded down: the unit of `webhook-timestamp`.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND_MS)
    }

    /// Whole seconds since the epoch, rounded up: the unit of a table's TTL, which must never cut short.
    #[must_use]
    pub const fn seconds_up(self) -> i64 {
        self.0.div_euclid(SECOND_MS) + (self.0.rem_euclid(SECOND_MS) > 0) as i64
    }

    /// Reads an RFC 3339 time with offset, such as `2026-12-01T10:00:00Z`.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        // The calendar's parser knows more forms than the RFC.
        let form = is_rfc3339(text.as_bytes());
        form.then(|| text.parse::<Timestamp>().ok()).flatten().map(|t| Self(t.as_millisecond()))
    }
}

/// The form of RFC 3339 section 5.6, with nine digits of a second at most.
fn is_rfc3339(text: &[u8]) -> bool {
    const FORM: &[u8] = b"0000-00-00T00:00:00";
    let fits = |form: &[u8], text: &[u8]| {
        form.len() == text.len()
            && form.iter().zip(text).all(|(form, c)| match form {
                b'0' => c.is_ascii_digit(),
                form => c.eq_ignore_ascii_case(form),
            })
    };
    let Some((start, rest)) = text.split_at_checked(FORM.len()) else { return false };
    let rest = match rest.strip_prefix(b".") {
        Some(rest) => {
            let digits = rest.iter().take_while(|c| c.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &rest[digits..]
        }
        None => rest,
    };
    fits(FORM, start) && (fits(b"Z", rest) || fits(b"+00:00", rest) || fits(b"-00:00", rest))
}

impl fmt::Display for Millis {
    /// RFC 3339 in UTC with milliseconds; the bare number where no calendar date exists for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_with_offset() {
        assert_eq!(Millis::parse_rfc3339("1970-01-01T00:00:01Z"), Some(Millis(1000)));
        assert_eq!(Millis::parse_rfc3339("1970-01-01T01:00:01.5+01:00"), Some(Millis(1500)));
        assert_eq!(Millis::parse_rfc3339("1970-01-01t00:00:01.123456789z"), Some(Millis(1123)));
        assert_eq!(Millis::parse_rfc3339("1970-01-01T00:00:01-00:00"), Some(Millis(1000)));
        for wrong in [
            "1970-01-01T00:00:01",
            "1970-01-01",
            "yesterday",
            "",
            "1000",
            "2026-12-01T10Z",
            "2026-12-01T10:00Z",
            "2026-12-01 10:00:00Z",
            "20261201T100000Z",
            "2026-12-01T10:00:00+01",
            "2026-12-01T10:00:00+0100",
            "2026-12-01T10:00:00,5Z",
            "2026-12-01T10:00:00.Z",
            "2026-12-01T10:00:00.1234567890Z",
            "2026-12-01T10:00:00+01:00[Europe/Berlin]",
            "+002026-12-01T10:00:00Z",
            "2026-13-01T10:00:00Z",
            " 2026-12-01T10:00:00Z",
        ] {
            assert_eq!(Millis::parse_rfc3339(wrong), None, "{wrong}");
        }
        assert_eq!(Millis(1500).to_string(), "1970-01-01T00:00:01.500Z");
        assert_eq!(format!("{:?}", Millis(1500)), "1970-01-01T00:00:01.500Z");
        assert_eq!(Millis(i64::MAX).to_string(), i64::MAX.to_string());
    }

    #[test]
    fn a_ttl_is_rounded_up() {
        assert_eq!((Millis(1001).seconds(), Millis(1001).seconds_up(), Millis(2000).seconds_up()), (1, 2, 2));
    }
}
