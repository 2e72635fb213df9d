//! The answer of a receiver, through the real HTTP client and a real socket.

use std::net::SocketAddr;
use std::time::Duration;

use domain::egress::EgressPolicy;
use domain::hint::retry_after;
use domain::outcome::{Answer, AnswerRules, Class, EXCERPT_MAX, NOT_PROCESSED, Outcome, Phase, classify};
use domain::ports::Sender;
use domain::request::Request;
use domain::time::Millis;
use sender::http::HttpSender;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The longest request. The receiver closes behind its answer, so that hardly any takes so long.
const TIMEOUT_MS: i64 = 2_000;
/// At most so many bytes of an answer are read.
const MAX_ANSWER: u64 = 64 * 1024;
/// Heads that accept, whatever follows them.
const ACCEPTING: &[&str] = &[
    "HTTP/1.1 200 OK\r\n\r\n",
    "HTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 202 Accepted\r\ncontent-length: 70000\r\n\r\n",
    "HTTP/1.1 299 X\r\ntransfer-encoding: chunked\r\n\r\n",
    "HTTP/1.0 201 Created\r\ncontent-encoding: gzip\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nretry-after: 7\r\n\r\n",
];

struct World {
    runtime: Runtime,
    sender: HttpSender,
    listener: TcpListener,
    address: SocketAddr,
}

thread_local! {
    static WORLD: World = {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).expect("a loopback port is free");
        let address = listener.local_addr().expect("it is bound");
        let policy = EgressPolicy::parse(true, "any", "127.0.0.0/8", "").expect("these are well-formed");
        World { runtime, sender: HttpSender::new(policy, []), listener, address }
    };
}

/// Whatever bytes come back, there is an outcome in time, its evidence is bounded and printable, and a head that accepts is
/// an acceptance. The first byte chooses such a head to go before the rest, or none; the second how often the rest is sent.
pub fn answer(data: &[u8]) {
    let (head, times, rest) = match data {
        [head, times, rest @ ..] => (ACCEPTING.get(usize::from(*head)), usize::from(*times % 32) + 1, rest),
        _ => (None, 1, data),
    };
    let mut bytes = head.map_or(Vec::new(), |head| head.as_bytes().to_vec());
    for _ in 0..times {
        bytes.extend_from_slice(rest);
    }
    let outcome = WORLD.with(|world| exchange(world, &bytes));
    let class = holds(&outcome);
    if head.is_some() {
        assert_eq!(class, Class::Accepted, "{outcome:?}");
    }
    match &outcome {
        Outcome::Answered(_) => assert!(bytes.windows(5).any(|w| w == b"HTTP/"), "an answer begins like one"),
        Outcome::Failed { phase, .. } => assert_eq!(*phase, Phase::Sent, "the request was written"),
        Outcome::Blocked { detail } => panic!("{detail}"),
    }
}

/// What must hold for an outcome of a request that was not blocked, and its class.
pub(crate) fn holds(outcome: &Outcome) -> Class {
    let class = classify(outcome, None, &AnswerRules::default());
    match outcome {
        Outcome::Answered(answer) => bounded(answer),
        Outcome::Failed { phase, detail } => {
            let known = ["closed", "protocol", "reset", "timeout", NOT_PROCESSED];
            assert!(known.contains(&detail.as_str()), "{detail}");
            let may_have_it = *phase == Phase::Sent && detail != NOT_PROCESSED;
            assert_eq!(class, if may_have_it { Class::Unknown } else { Class::Transient }, "{outcome:?}");
        }
        Outcome::Blocked { detail } => panic!("{detail}"),
    }
    class
}

fn bounded(answer: &Answer) {
    assert!((100..=999).contains(&answer.status), "{}", answer.status);
    let printable = |text: &str, max| text.len() <= max && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    assert!(printable(&answer.excerpt, EXCERPT_MAX), "{:?}", answer.excerpt);
    assert!(answer.headers.iter().all(|(_, value)| printable(value, 128)), "{:?}", answer.headers);
    assert!(answer.body_bytes <= MAX_ANSWER);
    assert_eq!(answer.body_sha256.is_some(), answer.body_bytes > 0);
    let now = Millis(1_790_000_000_123);
    assert!(retry_after(answer, now, 1_000).is_none_or(|until| (1..=1_000).contains(&until.since(now))));
}

/// One request, answered with these bytes and nothing more.
fn exchange(world: &World, bytes: &[u8]) -> Outcome {
    let url = format!("http://{}/h", world.address);
    let receive = async {
        let (mut stream, _) = world.listener.accept().await.expect("somebody connects");
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n{}") {
            assert!(stream.read_buf(&mut seen).await.expect("the request comes") > 0, "the request is whole");
        }
        // The client may have seen enough and be gone.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        stream
    };
    world.runtime.block_on(outcome_of(&world.sender, &url, receive))
}

/// The outcome of one request to a receiver that plays along, in time. Its connection is closed only then: closing it
/// earlier would reset it.
pub(crate) async fn outcome_of<C>(sender: &HttpSender, url: &str, receive: impl Future<Output = C>) -> Outcome {
    let url = url.parse().expect("a URL");
    let request = Request { url, headers: Vec::new(), body: b"{}", timeout_ms: TIMEOUT_MS };
    let both = async {
        let (outcome, connection) = tokio::join!(sender.post(&request), receive);
        drop(connection);
        outcome
    };
    let limit = Duration::from_millis(TIMEOUT_MS.unsigned_abs() + 3_000);
    tokio::time::timeout(limit, both).await.expect("there is an outcome in time")
}
