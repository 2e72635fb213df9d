//! Time, chance and the environment: the only file that reads them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::ports::Clock;
use domain::time::Millis;
use zeroize::Zeroizing;

/// The machine's clock and the operating system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Millis {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    fn random(&self) -> f64 {
        f64::from(self.nonce()) / (f64::from(u32::MAX) + 1.0)
    }

    #[allow(clippy::disallowed_methods, reason = "this is the one place that draws random numbers")]
    fn nonce(&self) -> u32 {
        let mut bytes = [0u8; 4];
        getrandom::fill(&mut bytes).expect("the operating system has random numbers");
        u32::from_ne_bytes(bytes)
    }

    #[allow(clippy::disallowed_methods, reason = "this is the one place that waits")]
    async fn sleep_until(&self, until: Millis) {
        let ms = u64::try_from(until.since(self.now())).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// 32 random bytes, for a key.
#[allow(clippy::disallowed_methods, reason = "this is the one place that draws random numbers")]
pub fn random_key() -> Zeroizing<[u8; 32]> {
    let mut bytes = Zeroizing::new([0u8; 32]);
    getrandom::fill(bytes.as_mut()).expect("the operating system has random numbers");
    bytes
}

/// A variable of the environment, as the lookup function that configurations are read through.
#[allow(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
