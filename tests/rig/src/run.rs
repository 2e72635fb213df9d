//! One run under load: send while things break, put everything right, wait until it has settled, and hold the records
//! against what the receivers saw. The last line of the output is one JSON object.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use domain::delivery::State;
use domain::outcome::Class;
use domain::record::Record;
use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::chance::Chance;
use crate::compare::{self, Fault};
use crate::crowd::Crowd;
use crate::ledger;
use crate::load::Sent;
use crate::options::{self, Options};
use crate::processes::{self, Signal};
use crate::receiver::epoch_ms;
use crate::settle;
use crate::stack::Stack;
use crate::switches::Switches;
use crate::told::Told;

/// So many deliveries are asked of `explain`.
const EXPLAINED: usize = 300;
/// Faults that are printed; all of them are in the evidence.
const PRINTED: usize = 20;

/// What a run works with.
pub struct Run {
    pub options: Options,
    pub stack: Stack,
    pub switches: Switches,
    pub crowd: Crowd,
    /// Start of all event ids of this run.
    pub prefix: String,
}

/// What was sent while things broke.
pub struct Load {
    pub sent: Vec<Sent>,
    /// Messages that were sent once more.
    pub copies: usize,
    /// What was broken, for the report.
    pub broken: Value,
}

/// Runs a story with its own main function: `small` deliveries unless another number is asked for.
pub fn main(name: &str, small: usize, story: impl AsyncFnOnce(&Run) -> Load) -> ExitCode {
    let options = match options::read(name, small, std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(text) => {
            println!("{name}: {text}; it takes --deliveries N and --seed N");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(run(name, options, story))
}

async fn run(name: &str, options: Options, story: impl AsyncFnOnce(&Run) -> Load) -> ExitCode {
    println!("{name}: {} deliveries, seed {}", options.deliveries, options.seed);
    let stack = Stack::connect().await;
    let switches = Switches::find(&stack).await;
    let crowd = Crowd::start(options.seed, stack.emulator()).await;
    let prefix = format!("{name}-{}-{}-", options.seed, epoch_ms());
    let run = Run { options, stack, switches, crowd, prefix };
    // An aborted run may have left something behind.
    run.put_right().await;
    let started = Instant::now();
    let load = tokio::select! {
        load = AssertUnwindSafe(story(&run)).catch_unwind() => load.map_err(|_| "the run panicked"),
        () = interrupted() => Err("interrupted"),
    };
    run.put_right().await;
    let load = match load {
        Ok(load) => load,
        Err(text) => {
            println!("{name}: {text}; the stack is as it was");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "  all {} are sent, after {} s; now everything is put right",
        load.sent.len(),
        started.elapsed().as_secs()
    );
    let within =
        Duration::from_secs(240) + Duration::from_millis(40) * u32::try_from(load.sent.len()).unwrap_or(u32::MAX);
    let records = settle::settle(&run.stack, &load.sent, within).await;
    let seconds = started.elapsed().as_secs_f64();
    let judged = run.judge(&load, &records).await;
    let mut report = judged.report(&run, &load, &records, seconds);
    if !judged.is_well() {
        let kept = run.keep(name, &load, &records, &judged, &report);
        report.insert("evidence".to_owned(), json!(kept));
    }
    println!("{}", Value::Object(report));
    if judged.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Ends when somebody asks the process to end: the stack has to be put right first.
async fn interrupted() {
    let mut terminated = signal(SignalKind::terminate()).expect("signals can be caught");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

/// What came of the comparison.
#[derive(Default)]
struct Judged {
    /// Event, fault, and what it is.
    faults: Vec<(String, Fault, String)>,
    ambiguous: usize,
    explained: usize,
}

impl Run {
    /// Nothing is frozen, switched off or led astray any more, and all receivers accept.
    async fn put_right(&self) {
        for process in processes::all(self.stack.emulator()) {
            process.send(Signal::Thaw);
        }
        self.switches.restore(&self.stack).await;
    }

    async fn judge(&self, load: &Load, records: &HashMap<String, Record>) -> Judged {
        let mut judged = Judged::default();
        let ledger = self.crowd.ledger();
        for one in &load.sent {
            let told = records.get(one.event()).map(Told::of_record);
            let verdict = compare::delivery(one, told.as_ref(), &ledger.of(one.event()));
            judged.ambiguous += verdict.ambiguous;
            judged.faults.extend(verdict.faults.into_iter().map(|(fault, text)| (one.event().to_owned(), fault, text)));
        }
        let known: HashSet<&str> = load.sent.iter().map(Sent::event).collect();
        for stranger in ledger.strangers(|event| known.contains(event)) {
            judged.faults.push((stranger, Fault::Changed, "nobody has sent this event".to_owned()));
        }
        for (event, text) in self.surplus(&load.sent).await {
            judged.faults.push((event, Fault::Untrue, text));
        }
        self.explain(load, &mut judged).await;
        judged
    }

    /// Records of this run that should not be there: a second one of an event, or a rejected message.
    async fn surplus(&self, sent: &[Sent]) -> Vec<(String, String)> {
        let wanted: HashSet<(String, String)> =
            sent.iter().map(|one| (format!("E#{}", one.event()), format!("D#{}", one.key.endpoint.as_str()))).collect();
        let mut surplus = Vec::new();
        let mut start = None;
        loop {
            let scan = self.stack.dynamodb.scan().table_name(self.stack.name("deliveries_table"));
            let scan = scan
                .filter_expression(
                    "begins_with(pk, :ours) AND begins_with(sk, :delivery) OR begins_with(event_id, :prefix)",
                )
                .expression_attribute_values(":ours", AttributeValue::S(format!("E#{}", self.prefix)))
                .expression_attribute_values(":delivery", AttributeValue::S("D#".to_owned()))
                .expression_attribute_values(":prefix", AttributeValue::S(self.prefix.clone()))
                .projection_expression("pk, sk")
                .consistent_read(true);
            let page = scan.set_exclusive_start_key(start).send().await.expect("the table can be read");
            for item in page.items() {
                let part = |name: &str| item[name].as_s().cloned().unwrap_or_default();
                let at = (part("pk"), part("sk"));
                if !wanted.contains(&at) {
                    surplus.push((at.0, format!("an item {} that no message asked for", at.1)));
                }
            }
            start = page.last_evaluated_key;
            if start.as_ref().is_none_or(HashMap::is_empty) {
                return surplus;
            }
        }
    }

    /// Asks `explain` about some, and holds its answers against the receivers by the same rules.
    async fn explain(&self, load: &Load, judged: &mut Judged) {
        let mut chance = Chance::of(self.options.seed, "explain");
        let mut order: Vec<&Sent> = load.sent.iter().collect();
        for i in (1..order.len()).rev() {
            order.swap(i, chance.below(i as u64 + 1) as usize);
        }
        // Those with more to tell come first.
        order.sort_by_key(|one| std::cmp::Reverse(self.crowd.ledger().of(one.event()).len().min(2)));
        let half = EXPLAINED / 2;
        let (eventful, rest) = order.split_at(half.min(order.len()));
        for one in eventful.iter().chain(rest.iter().rev().take(half)) {
            let action = json!({"action": "explain", "id": one.event(), "endpoint": one.key.endpoint.as_str()});
            let answer = self.stack.invoke("redrive_approve", &action).await;
            judged.explained += 1;
            let event = || one.event().to_owned();
            let Some(told) = Told::of_explain(&answer) else {
                judged.faults.push((event(), Fault::Untrue, format!("explain answered {answer}")));
                continue;
            };
            let verdict = compare::delivery(one, Some(&told), &self.crowd.ledger().of(one.event()));
            let faults = verdict.faults.into_iter();
            judged.faults.extend(faults.map(|(_, text)| (event(), Fault::Untrue, format!("explain: {text}"))));
        }
    }

    /// Keeps what a person needs to find out what happened.
    fn keep(
        &self,
        name: &str,
        load: &Load,
        records: &HashMap<String, Record>,
        judged: &Judged,
        report: &Map<String, Value>,
    ) -> String {
        let folder = self.options.evidence.clone().unwrap_or_else(|| self.stack.folder().join(name));
        std::fs::create_dir_all(&folder).expect("the evidence can be kept");
        let mut text = format!("{}\n", Value::Object(report.clone()));
        for (event, fault, what) in &judged.faults {
            let _ = writeln!(text, "{event} {fault:?}: {what}");
        }
        let guilty: HashSet<&str> = judged.faults.iter().map(|(event, ..)| event.as_str()).collect();
        for one in load.sent.iter().filter(|one| guilty.contains(one.event())) {
            let seen: Vec<Value> = self.crowd.ledger().of(one.event()).iter().map(ledger::as_json).collect();
            let _ = writeln!(text, "\n{one:#?}\nits receiver: {}", json!(seen));
            let _ = writeln!(text, "its record: {:#?}", records.get(one.event()));
        }
        let file = folder.join(format!("{}faults.txt", self.prefix));
        std::fs::write(&file, text).expect("the evidence can be kept");
        // The log of the functions goes with the stack; what it says now may not be there later.
        std::fs::copy(self.stack.log_path(), folder.join(format!("{}emulator.log", self.prefix))).ok();
        for (event, fault, what) in judged.faults.iter().take(PRINTED) {
            println!("  {event} {fault:?}: {what}");
        }
        file.display().to_string()
    }
}

impl Judged {
    fn is_well(&self) -> bool {
        self.faults.is_empty()
    }

    /// Deliveries with this fault.
    fn count(&self, fault: Fault) -> usize {
        self.faults.iter().filter(|f| f.1 == fault).map(|f| &f.0).collect::<HashSet<_>>().len()
    }

    fn report(&self, run: &Run, load: &Load, records: &HashMap<String, Record>, seconds: f64) -> Map<String, Value> {
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        // An attempt that had been taken over learnt that it was accepted.
        let is_late = |record: &&Record| {
            record.accepted_late
                || record.state == State::Delivered && !record.attempts().any(|a| a.class == Class::Accepted)
        };
        let late = records.values().filter(is_late).count();
        let (mut attempts, mut abandoned) = (0, 0);
        for told in records.values().map(Told::of_record) {
            let reason = told.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            *ends.entry(format!("{}{reason}", told.state)).or_default() += 1;
            attempts += told.attempts.len();
            abandoned += told.attempts.iter().filter(|a| a.abandoned).count();
        }
        let rounded = |number: f64| (number * 10.0).round() / 10.0;
        let report = json!({
            "deliveries": load.sent.len(),
            "lost": self.count(Fault::Lost),
            "stuck": self.count(Fault::Stuck),
            "over_budget": self.count(Fault::OverBudget),
            "changed": self.count(Fault::Changed),
            "duplicates_ambiguous": self.ambiguous,
            "duplicates_other": self.count(Fault::Duplicate),
            "untrue": self.count(Fault::Untrue),
            "seed": run.options.seed,
            "copies_sent": load.copies,
            "kills_on_receipt": run.crowd.kills(),
            "requests": run.crowd.ledger().counts().1,
            "attempts": attempts,
            "abandoned": abandoned,
            "accepted_late": late,
            "explained": self.explained,
            "ends": ends,
            "seconds": rounded(seconds),
            "deliveries_per_second": rounded(load.sent.len() as f64 / seconds),
        });
        let Value::Object(mut report) = report else { return Map::new() };
        if let Value::Object(broken) = &load.broken {
            report.extend(broken.clone());
        }
        report
    }
}
