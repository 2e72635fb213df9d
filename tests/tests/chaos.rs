//! Real processes under load: they are killed and frozen, event sources come and go, receivers do what they like, producers
//! repeat themselves. Afterwards every delivery has come to an end of which its record tells the truth.
#![allow(missing_docs, reason = "a test binary has no public interface")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rig::crowd::MIXED;
use rig::load;
use rig::run::{self, Load};
use rig::trouble::{self, Done, PATIENCE};

/// What `cargo test` runs.
const SMALL: usize = 300;
/// A load takes at least so many seconds, so that there is time for trouble.
const SECONDS: f64 = 20.0;
/// What the emulator can carry, in deliveries per second.
const MOST: f64 = 60.0;

fn main() -> ExitCode {
    run::main("chaos", SMALL, async |run| {
        let deliveries = run.options.deliveries;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(Done::default()));
        run.switches.patience(&run.stack, PATIENCE).await;
        let load = load::Load {
            deliveries,
            per_second: (deliveries as f64 / SECONDS).min(MOST),
            seed: run.options.seed,
            prefix: &run.prefix,
            shares: MIXED,
        };
        let sending = async {
            let sent = load::send(&run.stack, &run.crowd, load).await;
            stop.store(true, Ordering::Relaxed);
            sent
        };
        let breaking = trouble::run(&run.stack, &run.switches, run.options.seed, &stop, &done);
        let ((sent, copies), ()) = tokio::join!(sending, breaking);
        run.crowd.heal();
        Load { sent, copies, broken: done.as_json() }
    })
}
