//! When to try again: a list of waits, or base, factor and cap; jitter that only adds; a hint that only delays.

use crate::time::{Millis, SECOND_MS};

/// The longest wait that a policy may hold: 30 days in seconds.
pub const MAX_WAIT_SECONDS: u32 = 30 * 86_400;

/// The retry policy of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts per generation, the first included.
    pub attempts: u32,
    /// The waits between them.
    pub waits: Waits,
    /// Jitter adds up to this many percent of the wait.
    pub jitter_percent: u8,
    /// The longest wait that a hint can ask for, in seconds.
    pub hint_cap_seconds: u32,
    /// No attempt later than this after the first one of its generation, in seconds.
    pub window_seconds: Option<u32>,
}

/// The waits between attempts, in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waits {
    /// One wait per retry; the last one repeats.
    List(Vec<u32>),
    /// `min(cap, base · factor^(retry − 1))`.
    Exponential {
        /// The first wait.
        base: u32,
        /// Growth per retry.
        factor: u32,
        /// The longest wait.
        cap: u32,
    },
}

impl Waits {
    /// Reads `30,120,600` or `base:30,factor:4,cap:43200`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let help = "write seconds as a list such as 30,120,600, or base:30,factor:4,cap:43200";
        let number = |part: &str| -> Result<u32, String> {
            let n: u32 =
                part.trim().parse().map_err(|_| format!("{:?} is no number of seconds; {help}", part.trim()))?;
            if n > MAX_WAIT_SECONDS { Err(format!("{n} s is longer than 30 days")) } else { Ok(n) }
        };
        if !text.contains(':') {
            let list = text.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
            return match list.iter().position(|n| *n == 0) {
                Some(i) => {
                    Err(format!("wait {} is 0: a failed attempt is never repeated at once, write 1 or more", i + 1))
                }
                None => Ok(Self::List(list)),
            };
        }
        let (mut base, mut factor, mut cap) = (None, None, None);
        for part in text.split(',') {
            let (name, value) = part.split_once(':').ok_or_else(|| format!("{part:?} has no `:`; {help}"))?;
            let slot = match name.trim() {
                "base" => &mut base,
                "factor" => &mut factor,
                "cap" => &mut cap,
                other => return Err(format!("unknown word {other:?}; {help}")),
            };
            if slot.replace(number(value)?).is_some() {
                return Err(format!("{name:?} is given twice; {help}"));
            }
        }
        match (base, factor, cap) {
            (Some(base @ 1..), Some(factor @ 1..), Some(cap)) if cap >= base => {
                Ok(Self::Exponential { base, factor, cap })
            }
            _ => Err(format!("base and factor must be at least 1 and cap not below base; {help}")),
        }
    }

    /// The wait before retry number `retry` (1 is the first), in milliseconds, without jitter. At least one second.
    pub fn wait_ms(&self, retry: u32) -> i64 {
        let seconds = match self {
            Self::List(list) => {
                let index = usize::try_from(retry.saturating_sub(1)).unwrap_or(usize::MAX);
                list.get(index).or(list.last()).copied().unwrap_or(1)
            }
            Self::Exponential { base, factor, cap } => {
                // Saturating before the cap: 2 to the power of 64 is a long wait, not zero.
                factor.saturating_pow(retry.saturating_sub(1)).saturating_mul(*base).min(*cap)
            }
        };
        i64::from(seconds.max(1)) * SECOND_MS
    }
}

impl RetryPolicy {
    /// When attempt `used + 1` of a generation is due, `used` attempts having failed. `random` in `[0, 1)` is the share
    /// of the jitter that is added; a hint moves the time later, never earlier.
    pub fn due(&self, used: u32, now: Millis, hint: Option<Millis>, random: f64) -> Millis {
        let wait = self.waits.wait_ms(used.max(1));
        let share = if random.is_finite() { random.clamp(0.0, 1.0) } else { 0.0 };
        let most = wait / 100 * i64::from(self.jitter_percent);
        // Exact: `most` is far below 2^52.
        #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
        let jitter = (most as f64 * share) as i64;
        let due = now.plus(wait + jitter);
        hint.map_or(due, |hint| due.max(hint))
    }

    /// The waits of a whole generation in seconds, without jitter: logged once at a cold start.
    pub fn schedule_seconds(&self) -> Vec<i64> {
        (1..self.attempts).map(|retry| self.waits.wait_ms(retry) / SECOND_MS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(waits: &str, jitter_percent: u8) -> RetryPolicy {
        RetryPolicy {
            attempts: 8,
            waits: Waits::parse(waits).unwrap(),
            jitter_percent,
            hint_cap_seconds: 600,
            window_seconds: None,
        }
    }

    #[test]
    fn the_default_schedule() {
        let p = policy("30,120,600,1800,7200,21600,43200", 15);
        assert_eq!(p.schedule_seconds(), [30, 120, 600, 1800, 7200, 21600, 43200]);
        assert_eq!(p.due(1, Millis(0), None, 0.0), Millis(30_000));
        assert_eq!(p.due(1, Millis(0), None, 1.0), Millis(34_500));
        assert_eq!(p.due(u32::MAX, Millis(0), None, 0.0), Millis(43_200_000));
    }

    #[test]
    fn wh_o_16_no_attempt_number_wraps_a_wait() {
        let p = policy("base:2,factor:2,cap:43200", 100);
        for used in [0, 1, 2, 14, 15, 16, 30, 31, 32, 33, 62, 63, 64, 65, 1_000, u32::MAX - 1, u32::MAX] {
            let seconds = if used < 16 { (1_i64 << used.max(1)).min(43_200) } else { 43_200 };
            assert_eq!(p.due(used, Millis(0), None, 0.0), Millis(seconds * SECOND_MS), "{used}");
            for random in [1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -1.0] {
                let due = p.due(used, Millis(0), None, random);
                assert!((seconds * SECOND_MS..=2 * seconds * SECOND_MS).contains(&due.0), "{used} {random}");
            }
        }
        assert_eq!(p.due(u32::MAX, Millis(i64::MAX), None, 1.0), Millis(i64::MAX));
        let zero = RetryPolicy { waits: Waits::List(vec![0]), ..p };
        assert_eq!(zero.due(64, Millis(0), None, 0.0), Millis(SECOND_MS), "never at once");
    }

    #[test]
    fn good_waits_are_read_as_they_are_written() {
        assert_eq!(Waits::parse(" 1, 2592000"), Ok(Waits::List(vec![1, MAX_WAIT_SECONDS])));
        let waits = |base, factor, cap| Ok(Waits::Exponential { base, factor, cap });
        assert_eq!(Waits::parse("base:30,factor:4,cap:43200"), waits(30, 4, 43_200));
        assert_eq!(Waits::parse("cap:5, base:5, factor:1"), waits(5, 1, 5));
    }

    #[test]
    fn bad_policies_are_named() {
        for (text, part) in [
            ("", "no number"),
            ("30,x", "\"x\""),
            ("0,5", "wait 1 is 0"),
            ("-1", "no number"),
            ("99999999", "30 days"),
            ("base:1", "cap"),
            ("base:0,factor:2,cap:5", "at least 1"),
            ("base:9,factor:2,cap:5", "below base"),
            ("base:1,base:2,factor:2,cap:5", "twice"),
            ("base:1,grow:2,cap:5", "\"grow\""),
        ] {
            let error = Waits::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_wait_is_never_zero_never_shrinks_and_never_passes_the_cap(
            retry in prop_oneof![0u32..100, Just(u32::MAX)], base in 1u32..100, factor in 1u32..1000, extra in 0u32..100_000,
        ) {
            let waits = Waits::Exponential { base, factor, cap: base + extra };
            let wait = waits.wait_ms(retry);
            prop_assert!((1_000..=i64::from(base + extra) * 1_000).contains(&wait));
            prop_assert!(waits.wait_ms(retry.saturating_add(1)) >= wait);
        }

        #[test]
        fn jitter_only_adds_and_a_hint_only_delays(
            used in 0u32..200, random in prop_oneof![0.0f64..1.0, Just(f64::NAN), Just(-1.0), Just(7.0)], hint in proptest::option::of(0i64..10_000_000), jitter in 0u8..=100,
        ) {
            let p = policy("1,2,2,3,3,4,4", jitter);
            let plain = p.due(used, Millis(5_000), None, 0.0);
            let due = p.due(used, Millis(5_000), hint.map(Millis), random);
            prop_assert!(due >= plain);
            prop_assert!(hint.is_none_or(|h| due >= Millis(h)));
            let most = plain.since(Millis(5_000)) * (100 + i64::from(jitter)) / 100;
            prop_assert!(due.since(Millis(5_000)) <= most.max(hint.unwrap_or(0) - 5_000));
        }
    }
}
