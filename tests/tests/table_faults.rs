//! The table is down, and the queue; and when they are not, some of their answers are wrong, late or lost. Real functions
//! under load, and a faulty way between them and AWS. Afterwards every delivery has come to an end of which its record
//! tells the truth.
#![allow(missing_docs, reason = "a test binary has no public interface")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests stop at the first surprise, run in real time, and print what they measure"
)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rig::crowd::ORDINARY;
use rig::faulty::{Way, Weather};
use rig::load;
use rig::run::{self, Load, Run};
use rig::settle;
use rig::stack::Stack;
use url::Url;

/// What `cargo test` runs.
const SMALL: usize = 200;
/// A load takes at least so many seconds: a little less than all weathers together.
const SECONDS: f64 = 28.0;
/// What the emulator can carry, in deliveries per second.
const MOST: f64 = 60.0;

/// The weathers of a run in turn, in seconds. An outage is longer than the 4 s for which the SDK repeats a call, and than
/// a whole invocation of deliver.
const WEATHERS: [(Weather, u64); 4] =
    [(Weather::Flaky, 8), (Weather::TableDown, 11), (Weather::Flaky, 6), (Weather::QueueDown, 6)];
/// With `--to-dlq`: messages are received 20 and 5 times, 20 s apart, before they reach a transport DLQ.
const TO_DLQ: Duration = Duration::from_secs(900);

fn main() -> ExitCode {
    run::main("table_faults", SMALL, async |run| {
        let deliveries = run.options.deliveries;
        let upstream = Url::parse(&run.stack.name("endpoint_url")).expect("a URL");
        let way = Way::open(upstream.authority(), run.options.seed).await;
        run.switches.detour(&run.stack, &format!("http://127.0.0.1:{}", way.port)).await;
        let load = load::Load {
            deliveries,
            per_second: (deliveries as f64 / SECONDS).min(MOST),
            seed: run.options.seed,
            prefix: &run.prefix,
            shares: ORDINARY,
        };
        let all_sent = AtomicBool::new(false);
        let sending = async {
            let sent = load::send(&run.stack, &run.crowd, load).await;
            all_sent.store(true, Ordering::Relaxed);
            sent
        };
        let ((sent, copies), (), ()) =
            tokio::join!(sending, weathers(run, &way, &all_sent), sweeps(&run.stack, &all_sent));
        way.weather(Weather::Clear);
        run.crowd.heal();
        assert!(way.calls() > 0, "the functions did not take the way that they were told");
        Load { sent, copies, broken: way.as_json() }
    })
}

/// One weather after the other until all is sent; each has its turn at least once.
async fn weathers(run: &Run, way: &Way, all_sent: &AtomicBool) {
    loop {
        for (weather, seconds) in WEATHERS {
            way.weather(weather);
            let end = Instant::now() + Duration::from_secs(seconds);
            tokio::time::sleep_until(end.into()).await;
            if weather == Weather::TableDown && run.options.to_dlq && !all_sent.load(Ordering::Relaxed) {
                until_dlqs_fill(run).await;
            }
        }
        if all_sent.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// The sweep goes the same way as the others.
async fn sweeps(stack: &Stack, all_sent: &AtomicBool) {
    while !all_sent.load(Ordering::Relaxed) {
        settle::reconcile(stack).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

/// Waits until both transport DLQs hold something, while the table stays down.
async fn until_dlqs_fill(run: &Run) {
    let end = Instant::now() + TO_DLQ;
    loop {
        let (intake, retry) = (run.stack.depth("intake_dlq_url").await[0], run.stack.depth("retry_dlq_url").await[0]);
        if intake > 0 && retry > 0 {
            println!("  {intake} and {retry} messages are on the transport DLQs");
            return;
        }
        assert!(Instant::now() < end, "only {intake} and {retry} messages reached the transport DLQs");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
