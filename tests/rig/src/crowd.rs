//! The receivers of a run. Each has a temper; what it does to a request follows from the seed, the event and the attempt,
//! and, for those that come and go, from the time. When they are healed, all of them answer 200.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::chance::Chance;
use crate::ledger::Ledger;
use crate::processes;
use crate::receiver::read_request;

/// Longer than the local request timeout of 5 s.
const HANG: Duration = Duration::from_millis(6_500);

/// How a receiver behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Temper {
    /// Accepts.
    Good,
    /// Accepts after a while.
    Slow,
    /// Accepts, and breaks off inside the body of its answer.
    Cut,
    /// Fails now and then.
    Broken,
    /// Fails always.
    Down,
    /// Asks to be left alone for a while.
    Busy,
    /// Reads, and resets the connection.
    Quiet,
    /// Reads, and answers too late.
    Hangs,
    /// Up for some seconds, down for some seconds.
    Flaps,
    /// Refuses for good.
    Refuses,
    /// Is gone for good.
    Gone,
    /// Resets many connections before it has read anything.
    Rude,
    /// Reads, and the sender's process is killed before it can be answered.
    Deadly,
}

/// Tempers with how many of a thousand deliveries go to them.
pub const MIXED: &[(Temper, u64)] = &[
    (Temper::Good, 520),
    (Temper::Slow, 80),
    (Temper::Cut, 20),
    (Temper::Broken, 80),
    (Temper::Down, 20),
    (Temper::Busy, 60),
    (Temper::Quiet, 40),
    (Temper::Hangs, 15),
    (Temper::Flaps, 70),
    (Temper::Refuses, 15),
    (Temper::Gone, 10),
    (Temper::Rude, 50),
    (Temper::Deadly, 20),
];

/// Receivers with enough failures for many retries, and nothing stranger: for runs in which something else is strange.
pub const ORDINARY: &[(Temper, u64)] =
    &[(Temper::Good, 490), (Temper::Slow, 100), (Temper::Broken, 300), (Temper::Busy, 90), (Temper::Refuses, 20)];

/// How many receivers of each temper there are.
const OF_EACH: u64 = 4;

/// What is done to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub after: Duration,
    pub end: End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Answer {
        status: u16,
        headers: &'static str,
    },
    /// The answer promises more than comes.
    Cut,
    Reset,
    /// The sender dies.
    Kill,
}

impl Plan {
    fn answer(status: u16) -> Self {
        Self { after: Duration::ZERO, end: End::Answer { status, headers: "" } }
    }

    /// What the ledger says about it.
    fn status(&self) -> Option<u16> {
        match self.end {
            End::Answer { status, .. } => Some(status),
            End::Cut => Some(200),
            End::Reset | End::Kill => None,
        }
    }
}

/// Decides what a receiver does.
pub fn plan(temper: Temper, chance: &mut Chance, attempt: u32, since_start: Duration, healed: bool) -> Plan {
    let good = Plan::answer(200);
    if healed {
        return good;
    }
    let later = |status, headers| Plan { after: Duration::ZERO, end: End::Answer { status, headers } };
    match temper {
        Temper::Good | Temper::Rude => good,
        Temper::Slow => Plan { after: Duration::from_millis(chance.between(50, 2_500)), ..good },
        Temper::Cut => Plan { after: Duration::ZERO, end: End::Cut },
        Temper::Broken if chance.per_mille(500) => {
            Plan::answer(*chance.pick(&[500, 502, 503, 504, 408]).expect("not empty"))
        }
        Temper::Down => Plan::answer(500),
        Temper::Busy if attempt <= 4 && chance.per_mille(650) => {
            let headers = if chance.per_mille(500) { "Retry-After: 1\r\n" } else { "Retry-After: 2\r\n" };
            later(if chance.per_mille(800) { 429 } else { 503 }, headers)
        }
        Temper::Quiet if attempt <= 3 && chance.per_mille(600) => Plan { after: Duration::ZERO, end: End::Reset },
        Temper::Hangs if attempt <= 2 && chance.per_mille(700) => Plan { after: HANG, ..good },
        Temper::Flaps if since_start.as_millis() % 7_000 >= 4_000 => {
            if chance.per_mille(300) {
                Plan { after: Duration::ZERO, end: End::Reset }
            } else {
                Plan::answer(503)
            }
        }
        Temper::Deadly if chance.per_mille(600) => Plan { after: Duration::ZERO, end: End::Kill },
        Temper::Refuses => Plan::answer(*chance.pick(&[400, 404, 302]).expect("not empty")),
        Temper::Gone => Plan::answer(410),
        Temper::Broken | Temper::Busy | Temper::Quiet | Temper::Hangs | Temper::Flaps | Temper::Deadly => good,
    }
}

/// All receivers of a run, on two ports: one for those that read, one for those that may not even do that.
#[derive(Clone)]
pub struct Crowd {
    shared: Arc<Shared>,
    port: u16,
    rude_port: u16,
}

struct Shared {
    seed: u64,
    emulator: u32,
    kills: AtomicUsize,
    started: Instant,
    healed: AtomicBool,
    ledger: Ledger,
}

impl Crowd {
    /// Starts them; `emulator` is the process whose functions the deadly ones may kill.
    pub async fn start(seed: u64, emulator: u32) -> Self {
        let shared = Arc::new(Shared {
            seed,
            emulator,
            kills: AtomicUsize::new(0),
            started: Instant::now(),
            healed: AtomicBool::new(false),
            ledger: Ledger::default(),
        });
        let port = listen(&shared, false).await;
        let rude_port = listen(&shared, true).await;
        Self { shared, port, rude_port }
    }

    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Senders that were killed on receipt.
    pub fn kills(&self) -> usize {
        self.shared.kills.load(Ordering::Relaxed)
    }

    /// From now on everybody answers 200.
    pub fn heal(&self) {
        self.shared.healed.store(true, Ordering::Relaxed);
    }

    /// Where a delivery goes: one of the receivers of that temper.
    pub fn url(&self, temper: Temper, chance: &mut Chance) -> String {
        let port = if temper == Temper::Rude { self.rude_port } else { self.port };
        format!("http://127.0.0.1:{port}/{}/{}", temper as u8, chance.below(OF_EACH))
    }
}

/// The temper that a share of a thousand falls to.
pub fn temper(shares: &[(Temper, u64)], mut share: u64) -> Temper {
    for (temper, size) in shares {
        if share < *size {
            return *temper;
        }
        share -= size;
    }
    Temper::Good
}

async fn listen(shared: &Arc<Shared>, rude: bool) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a loopback port is free");
    let port = listener.local_addr().unwrap().port();
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let mut chance = Chance::of(shared.seed, "connections");
        while let Ok((stream, peer)) = listener.accept().await {
            if rude && !shared.healed.load(Ordering::Relaxed) && chance.per_mille(550) {
                let _ = stream.set_zero_linger();
                continue;
            }
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                // A sender that goes away in the middle is part of the tests.
                let _ = serve(stream, peer.port(), &shared).await;
            });
        }
    });
    port
}

async fn serve(mut stream: TcpStream, port: u16, shared: &Shared) -> std::io::Result<()> {
    let Some(seen) = read_request(&mut stream, port).await? else { return Ok(()) };
    let temper = seen.line.split(['/', ' ']).nth(2).and_then(|n| n.parse::<usize>().ok());
    let temper = temper.and_then(|n| MIXED.get(n)).map_or(Temper::Good, |(temper, _)| *temper);
    let attempt = seen.header("redeliver-attempt").and_then(|n| n.parse().ok()).unwrap_or_default();
    let mut chance = Chance::of(shared.seed, &format!("{} {attempt}", seen.id()));
    let plan = plan(temper, &mut chance, attempt, shared.started.elapsed(), shared.healed.load(Ordering::Relaxed));
    shared.ledger.note(&seen, plan.status());
    tokio::time::sleep(plan.after).await;
    match plan.end {
        End::Answer { status, headers } => {
            let answer = format!("HTTP/1.1 {status} X\r\n{headers}content-length: 2\r\n\r\nok");
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await
        }
        End::Cut => {
            stream.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 2000\r\n\r\nnot all of it").await?;
            stream.shutdown().await
        }
        End::Reset => stream.set_zero_linger(),
        End::Kill => {
            let killed = processes::kill_function_behind(port, shared.emulator);
            shared.kills.fetch_add(usize::from(killed), Ordering::Relaxed);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_a_thousand_and_a_temper_is_found_by_its_number() {
        for shares in [MIXED, ORDINARY] {
            assert_eq!(shares.iter().map(|(_, size)| size).sum::<u64>(), 1_000);
        }
        for (i, (temper, _)) in MIXED.iter().enumerate() {
            assert_eq!(*temper as usize, i, "paths carry the place in this list");
        }
        assert_eq!((temper(MIXED, 0), temper(MIXED, 999)), (Temper::Good, Temper::Deadly));
    }

    #[test]
    fn the_same_request_meets_the_same_plan_and_the_healed_accept() {
        for (temper, _) in MIXED {
            let one = |healed| plan(*temper, &mut Chance::of(1, "e 1"), 1, Duration::from_secs(5), healed);
            assert_eq!(one(false), one(false), "{temper:?}");
            assert_eq!(one(true), Plan::answer(200), "{temper:?}");
        }
    }
}
