//! A redrive at scale: the dead letters of one endpoint, through the command line and the real functions, at 50 a second
//! into a receiver that counts. Meanwhile other endpoints get fresh deliveries, and the sweep is killed in the middle of
//! its work. The last line of the output is one JSON object.
#![allow(missing_docs, reason = "a test binary has no public interface")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests stop at the first surprise, run in real time, and print what they measure"
)]

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use operator::exit::Exit;
use rig::chance::Chance;
use rig::cli::Ran;
use rig::options::{self, Options};
use rig::processes::{self, Signal};
use rig::receiver::{Reply, epoch_ms};
use rig::stack::Stack;
use serde_json::{Value, json};

/// What `cargo test` runs.
const SMALL: usize = 1_000;
/// Deliveries per second of the plan.
const RATE: usize = 50;
/// The rate may be exceeded by so much, in any ten seconds: when the emulator stands still for a moment, what it kept back
/// comes at once.
const SLACK: f64 = 1.2;
/// How often one looks at the plan. Each look counts all its records, which keeps the emulator busy for a while.
const LOOK: Duration = Duration::from_secs(10);
/// A first page, as a person asks for it.
const PAGE: usize = 100;
/// Another endpoint gets so many fresh deliveries per second.
const FRESH_PER_SECOND: u32 = 5;
/// How long fresh deliveries are measured without a plan.
const CALM: Duration = Duration::from_secs(20);
/// Who waits behind a plan, waits longer than so many milliseconds.
const BEHIND_MS: f64 = 2_000.0;
/// The sweep is killed so many times.
const KILLS: usize = 4;
/// Messages on the intake queue, before producers wait.
const BACKLOG: i64 = 400;

const OLD: &str = "old";
const FRESH: &str = "fresh";

fn main() -> ExitCode {
    let options = match options::read("redrive", SMALL, std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(text) => {
            println!("redrive: {text}; it takes --deliveries N and --seed N");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(run(options))
}

async fn run(options: Options) -> ExitCode {
    let count = options.deliveries;
    println!("redrive: {count} dead letters at {RATE} a second");
    let stack = Stack::connect().await;
    let id = format!("redrive-{}", epoch_ms());
    let url = stack.receiver.script(OLD, [Reply::status(400)]);
    done(&stack.cli(&format!("endpoint add {id} --url {url}")).await);
    let ids = dead_letters(&stack, &id, count).await;
    println!("  {count} are dead letters");
    stack.receiver.script(OLD, [Reply::status(200)]);

    // What an operator does first, and how long it takes.
    let (page_ms, page) = timed(&stack, &format!("list dead_lettered --endpoint {id} --limit {PAGE} --json")).await;
    let (all_ms, all) = timed(&stack, &format!("list dead_lettered --endpoint {id} --all --json")).await;
    let listed = |answer: &Value| answer["items"].as_array().unwrap().len();
    assert_eq!((listed(&page), listed(&all)), (count.min(PAGE), count));
    let line = format!("redrive propose --endpoint {id} --rate {RATE} --note proof --json");
    let (propose_ms, proposed) = timed(&stack, &line).await;
    assert_eq!(proposed["count"], json!(count));
    let plan = proposed["plan_id"].as_str().unwrap().to_owned();

    let calm = fresh(&stack, "calm", |time| time < CALM).await;
    let loaded = loaded(&stack).await;
    let kills_over = AtomicBool::new(false);
    let (during, (approve_ms, watched, killed)) = {
        // What a killed sweep costs is another matter.
        let during = async {
            while !kills_over.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            fresh(&stack, "during", |time| stack.receiver.came(OLD) < 2 * count && time < patience(count)).await
        };
        let plan_runs = async {
            let line = format!("redrive approve {plan} --reason proof --yes --json");
            let (approve_ms, _) = timed(&stack, &line).await;
            let over = AtomicBool::new(false);
            let watching = async {
                let watched = watch(&stack, &plan, count).await;
                over.store(true, Ordering::Relaxed);
                watched
            };
            let killing = async {
                let killed = kills(&stack, options.seed, &over).await;
                kills_over.store(true, Ordering::Relaxed);
                killed
            };
            let (watched, killed) = tokio::join!(watching, killing);
            (approve_ms, watched, killed)
        };
        tokio::join!(during, plan_runs)
    };

    let redriven: Vec<_> = stack.receiver.seen(OLD).split_off(count);
    let mut times: HashMap<&str, usize> = HashMap::new();
    redriven.iter().for_each(|seen| *times.entry(seen.id()).or_default() += 1);
    let missing = ids.iter().filter(|id| !times.contains_key(id.as_str())).count();
    let again = times.values().filter(|times| **times > 1).count();
    let mut arrivals: Vec<i64> = redriven.iter().map(|seen| seen.at).collect();
    arrivals.sort_unstable();
    let seconds = arrivals.last().zip(arrivals.first()).map_or(0.0, |(last, first)| (last - first) as f64 / 1_000.0);
    let [in_1s, in_5s, in_10s] = [1_000, 5_000, 10_000].map(|ms| most_within(&arrivals, ms));
    let allowed = (RATE as f64 * SLACK * 10.0).ceil() as usize;
    let (calm, loaded, during) = (Times::of(calm), Times::of(loaded), Times::of(during));
    let report = json!({
        "deliveries": count, "seed": options.seed, "rate": RATE, "seconds": rounded(seconds),
        "list_page_ms": page_ms, "list_all_ms": all_ms, "propose_ms": propose_ms, "approve_ms": approve_ms,
        "missing": missing, "twice": again, "most_in_1s": in_1s, "most_in_5s": in_5s, "most_in_10s": in_10s,
        "sweeps_killed": killed, "state": watched.state, "counts_wrong": watched.wrong,
        "fresh_calm": calm.shown(), "fresh_loaded": loaded.shown(), "fresh_during": during.shown(),
    });
    let well = missing == 0
        && again == 0
        && in_10s <= allowed
        && watched.state == "completed"
        && watched.wrong == 0
        && (killed > 0 || count < SMALL)
        && !during.waits_behind_a_plan();
    println!("{report}");
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A command that must work, and how many milliseconds it took.
async fn timed(stack: &Stack, line: &str) -> (u64, Value) {
    let began = Instant::now();
    let ran = stack.cli(line).await;
    let took = u64::try_from(began.elapsed().as_millis()).unwrap();
    done(&ran);
    println!("  {took} ms: redeliver {line}");
    (took, ran.json())
}

fn done(ran: &Ran) {
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
}

/// Sends so many webhooks that the endpoint refuses, and waits until each is a dead letter. Returns their ids.
async fn dead_letters(stack: &Stack, endpoint: &str, count: usize) -> Vec<String> {
    let ids: Vec<String> = (0..count).map(|i| stack.id(&format!("old{i}"))).collect();
    for batch in ids.chunks(10) {
        let bodies: Vec<String> =
            batch.iter().map(|id| json!({"id": id, "endpoint": endpoint, "json": {"event": id}}).to_string()).collect();
        stack.send_batch(&bodies).await;
        while stack.depth("intake_queue_url").await[0] > BACKLOG {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let patience = Duration::from_secs(60) + Duration::from_millis(50) * u32::try_from(count).unwrap();
    stack.receiver.wait_for(OLD, count, patience).await;
    // The last answers are on their way into the records.
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let ran = stack.cli(&format!("list dead_lettered --endpoint {endpoint} --all --json")).await;
        let listed = ran.json()["items"].as_array().unwrap().len();
        if listed == count {
            return ids;
        }
        assert!(Instant::now() < end, "{listed} of {count} are dead letters");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Sends fresh deliveries to another endpoint for a while. Returns how long each was on its way, in milliseconds.
async fn fresh(stack: &Stack, when: &str, goes_on: impl Fn(Duration) -> bool) -> Vec<f64> {
    let url = stack.receiver.url(FRESH);
    let began = Instant::now();
    let mut sent = HashMap::new();
    let mut next = began;
    while goes_on(began.elapsed()) {
        let id = stack.id(&format!("{when}{}", sent.len()));
        sent.insert(id.clone(), epoch_ms());
        stack.send(&id, &url).await;
        next += Duration::from_secs(1) / FRESH_PER_SECOND;
        tokio::time::sleep_until(next.into()).await;
    }
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let seen = stack.receiver.seen(FRESH);
        let took: Vec<f64> = seen.iter().filter_map(|seen| Some((seen.at - sent.get(seen.id())?) as f64)).collect();
        if took.len() >= sent.len() {
            return took;
        }
        assert!(Instant::now() < end, "{} of {} fresh deliveries came", took.len(), sent.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The same while a third endpoint gets ordinary deliveries at the rate of the plan, to compare with.
async fn loaded(stack: &Stack) -> Vec<f64> {
    let over = AtomicBool::new(false);
    let url = stack.receiver.url("others");
    let load = async {
        let (mut next, mut sent) = (Instant::now(), 0);
        while !over.load(Ordering::Relaxed) {
            let bodies: Vec<String> = (0..10)
                .map(|i| json!({"id": stack.id(&format!("other{}", sent + i)), "url": url, "json": i}).to_string())
                .collect();
            stack.send_batch(&bodies).await;
            sent += 10;
            next += Duration::from_secs(10) / u32::try_from(RATE).unwrap();
            tokio::time::sleep_until(next.into()).await;
        }
    };
    let measured = async {
        let times = fresh(stack, "loaded", |time| time < CALM).await;
        over.store(true, Ordering::Relaxed);
        times
    };
    tokio::join!(measured, load).0
}

/// A plan has so long.
fn patience(count: usize) -> Duration {
    Duration::from_secs(180) + Duration::from_millis(60) * u32::try_from(count).unwrap()
}

/// What was seen of a plan.
struct Watched {
    state: String,
    /// How often its figures did not add up.
    wrong: usize,
}

/// Looks at a plan until it is over; its figures have to add up whenever one looks.
async fn watch(stack: &Stack, plan: &str, count: usize) -> Watched {
    let end = Instant::now() + patience(count);
    let mut wrong = 0;
    loop {
        let ran = stack.cli(&format!("redrive status {plan} --json")).await;
        done(&ran);
        let status = &ran.json()["plan"];
        let number = |name: &str| status[name].as_u64().unwrap();
        wrong += usize::from(number("released") + number("skipped") + number("remaining") != count as u64);
        let state = status["state"].as_str().unwrap();
        if state == "completed" || state == "aborted" || Instant::now() > end {
            println!("  {state}: {status}");
            return Watched { state: state.to_owned(), wrong };
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Runs the sweep and kills it in the middle. Returns how many runs died.
async fn kills(stack: &Stack, seed: u64, over: &AtomicBool) -> usize {
    let mut chance = Chance::of(seed, "kills");
    let mut died = 0;
    while died < KILLS && !over.load(Ordering::Relaxed) {
        let run = json!({"run": "arm", "mode": "act"});
        let running = stack.try_invoke("dlq_sweep", &run);
        let killing = async {
            tokio::time::sleep(Duration::from_millis(chance.between(20, 800))).await;
            let sweep = stack.function("dlq_sweep");
            for process in processes::all(stack.emulator()).into_iter().filter(|p| p.function == sweep) {
                process.send(Signal::Kill);
            }
        };
        let (ended, ()) = tokio::join!(running, killing);
        died += usize::from(ended.is_err());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    died
}

/// The most that came within so many milliseconds.
fn most_within(sorted: &[i64], ms: i64) -> usize {
    let (mut first, mut most) = (0, 0);
    for (last, at) in sorted.iter().enumerate() {
        while at - sorted[first] >= ms {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

/// How long deliveries were on their way.
struct Times {
    sorted: Vec<f64>,
    mean: f64,
    /// Standard error of the mean.
    error: f64,
}

impl Times {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let n = times.len() as f64;
        let mean = times.iter().sum::<f64>() / n;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { sorted: times, mean, error: (variance / n).sqrt() }
    }

    /// Whether fresh deliveries stood in line with those of the plan, where they would wait for many seconds. How much later
    /// they are than without it is printed and no reason to fail: the emulator is one process, which serves the table, the
    /// queues and the functions of all, and is busy with the releases themselves.
    fn waits_behind_a_plan(&self) -> bool {
        self.at(0.95) > BEHIND_MS
    }

    fn at(&self, share: f64) -> f64 {
        self.sorted[((self.sorted.len() - 1) as f64 * share) as usize]
    }

    fn shown(&self) -> Value {
        json!({"deliveries": self.sorted.len(), "mean_ms": rounded(self.mean), "error_ms": rounded(self.error),
               "p50_ms": self.at(0.5), "p95_ms": self.at(0.95)})
    }
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
