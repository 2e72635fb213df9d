//! Times and durations, as people read and write them.

use domain::revision::MAX_OVERLAP_MS;
use domain::time::{DAY_MS, Millis, SECOND_MS};
use jiff::Timestamp;
use jiff::tz::TimeZone;

const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;

/// Reads `90`, `90s`, `30m`, `24h`, `7d` or `1h30m`, in milliseconds; a bare number is in seconds.
pub fn duration(text: &str) -> Result<i64, String> {
    let help = "write it as 90s, 30m, 24h, 7d or 1h30m";
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(help.to_owned());
    }
    let mut total = 0_i64;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: i64 = rest[..digits].parse().map_err(|_| help.to_owned())?;
        rest = &rest[digits..];
        let unit = rest.chars().next();
        let unit_ms = match unit {
            None | Some('s') => SECOND_MS,
            Some('m') => MINUTE_MS,
            Some('h') => HOUR_MS,
            Some('d') => DAY_MS,
            Some(_) => return Err(help.to_owned()),
        };
        rest = &rest[unit.map_or(0, char::len_utf8)..];
        total = number.checked_mul(unit_ms).and_then(|ms| total.checked_add(ms)).ok_or("is too long".to_owned())?;
    }
    Ok(total)
}

/// Reads how long older secrets go on beside a new one.
pub fn overlap(text: &str) -> Result<i64, String> {
    let ms = duration(text)?;
    if ms > MAX_OVERLAP_MS { Err("may be 90d at most".to_owned()) } else { Ok(ms) }
}

/// Reads a whole number.
pub fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "must be a whole number".to_owned())
}

/// Reads a duration in whole seconds.
pub fn seconds(text: &str) -> Result<u32, String> {
    u32::try_from(duration(text)? / SECOND_MS).map_err(|_| "is too long".to_owned())
}

/// Reads an RFC 3339 time, or seconds since the epoch.
pub fn time(text: &str) -> Result<Millis, String> {
    let seconds = text.trim().parse::<i64>().ok().map(|seconds| Millis(seconds.saturating_mul(SECOND_MS)));
    Millis::parse_rfc3339(text).or(seconds).ok_or_else(|| {
        "must be an RFC 3339 time with offset, such as 2026-12-01T10:00:00Z, or seconds since 1970".to_owned()
    })
}

/// A point in time, as an option gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// This one.
    At(Millis),
    /// So many milliseconds ago.
    Ago(i64),
}

impl Point {
    /// The time that is meant.
    pub const fn seen_from(self, now: Millis) -> Millis {
        match self {
            Self::At(at) => at,
            Self::Ago(ms) => Millis(now.0.saturating_sub(ms)),
        }
    }
}

/// Reads a time, or a duration with its unit, which is that long ago.
pub fn point(text: &str) -> Result<Point, String> {
    match (time(text), duration(text)) {
        (Ok(at), _) => Ok(Point::At(at)),
        (Err(_), Ok(ms)) => Ok(Point::Ago(ms)),
        (Err(_), Err(_)) => {
            Err("must be an RFC 3339 time with offset, such as 2026-12-01T10:00:00Z, or how long ago, such as 2h"
                .to_owned())
        }
    }
}

/// A duration in its largest unit.
pub fn rough(ms: i64) -> String {
    let ms = ms.abs();
    for (unit_ms, unit) in [(DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s")] {
        if ms >= unit_ms {
            return format!("{} {unit}", ms / unit_ms);
        }
    }
    "less than 1 s".to_owned()
}

/// A point in time in a zone, and how far from now.
pub fn shown(at: Millis, now: Millis, zone: &TimeZone) -> String {
    let date = Timestamp::from_millisecond(at.0).map_or_else(
        |_| at.to_string(),
        |t| t.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string(),
    );
    let distance = rough(at.since(now));
    if at > now { format!("{date} (in {distance})") } else { format!("{date} ({distance} ago)") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ms) in [
            ("0", 0),
            ("90", 90_000),
            ("90s", 90_000),
            ("30m", 1_800_000),
            ("24h", DAY_MS),
            ("1h30m", 5_400_000),
            ("7d", 7 * DAY_MS),
        ] {
            assert_eq!(duration(text), Ok(ms), "{text}");
        }
        for wrong in ["", "h", "-1h", "1w", "1.5h", "99999999999999999999", "9223372036854775807d", "1é"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_overlap_is_90_days_at_most() {
        assert_eq!((overlap("90d"), overlap("0")), (Ok(90 * DAY_MS), Ok(0)));
        assert!(overlap("90d1s").is_err() && overlap("9999999d").is_err());
    }

    #[test]
    fn times_are_rfc_3339_or_epoch_seconds() {
        assert_eq!((time("1970-01-01T00:00:01Z"), time("1")), (Ok(Millis(1_000)), Ok(Millis(1_000))));
        assert!(time("yesterday").is_err());
    }

    #[test]
    fn a_point_in_time_may_be_given_by_how_long_ago_it_was() {
        let seen = |text| point(text).map(|point| point.seen_from(Millis(DAY_MS)));
        assert_eq!(
            (seen("2h"), seen("1970-01-01T00:00:01Z"), seen("7")),
            (Ok(Millis(79_200_000)), Ok(Millis(1_000)), Ok(Millis(7_000)))
        );
        assert!(point("yesterday").unwrap_err().contains("how long ago"));
    }

    #[test]
    fn a_time_is_shown_in_its_zone_and_from_now() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(shown(Millis(0), Millis(90_000), &zone), "1970-01-01 02:00:00 +02:00 (1 min ago)");
        assert_eq!(shown(Millis(DAY_MS), Millis(0), &TimeZone::UTC), "1970-01-02 00:00:00 +00:00 (in 1 d)");
    }
}
