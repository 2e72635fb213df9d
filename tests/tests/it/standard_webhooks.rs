//! What we sign, others verify: the official Standard Webhooks libraries for Rust, Python and Node, and for what they do not
//! know (bodies that are no text, and `v1a`), HMAC and ed25519 of other hands than ours. Each verifier must also refuse what
//! was tampered with, so that its "accepted" means something.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::egress::EgressPolicy;
use domain::endpoint::Defaults;
use domain::ports::Sender;
use domain::registry::Registration;
use domain::request::{Request, build};
use domain::retry::{RetryPolicy, Waits};
use domain::signature::{Scheme, Secret};
use domain::time::Millis;
use sender::http::HttpSender;
use serde_json::json;
use testkit::samples::{claimed, message};
use zeroize::Zeroizing;

use crate::receiver::{Receiver, epoch_ms};

/// How a request is verified.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// The official library, with a `v1` secret. It takes text only.
    Library,
    /// `v1` by hand.
    Bytes,
    /// ed25519 by hand, with a public key.
    V1a,
}

/// What of a request is verified.
#[derive(Clone)]
struct Signed {
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// One request, one key, and whether they belong together.
#[derive(Clone)]
struct Check {
    name: String,
    way: Way,
    key: String,
    request: Signed,
    accepted: bool,
}

impl Check {
    fn new(name: &str, way: Way, key: &str, request: &Signed, accepted: bool) -> Self {
        Self { name: name.to_owned(), way, key: key.to_owned(), request: request.clone(), accepted }
    }
}

fn secret(byte: u8, length: usize) -> String {
    format!("whsec_{}", STANDARD.encode(vec![byte; length]))
}

fn private_key(byte: u8) -> Secret {
    Secret::new(Scheme::V1a, &Zeroizing::new([byte; 32]))
}

fn public(key: &Secret) -> String {
    key.public_key().expect("a v1a key has a public half").to_string()
}

fn exposed(key: &Secret) -> String {
    key.expose().to_string()
}

/// A request to an endpoint with these secrets, the newest first.
fn signed(url: &str, secrets: &[&str], body: &[u8], now: Millis) -> Signed {
    let policy = RetryPolicy {
        attempts: 8,
        waits: Waits::List(vec![30]),
        jitter_percent: 0,
        hint_cap_seconds: 600,
        window_seconds: None,
    };
    let schemes: Vec<&str> =
        if secrets.iter().any(|s| s.starts_with("whsk_")) { vec!["v1", "v1a"] } else { vec!["v1"] };
    // All but the newest are retired soon, as in a rotation.
    let entries: Vec<_> = secrets
        .iter()
        .enumerate()
        .map(|(i, s)| json!({"secret": s, "retired_at": (i > 0).then(|| now.plus(60_000).to_string())}))
        .collect();
    let stored = json!({"url": url, "secrets": entries, "signatures": schemes});
    let registration = Registration::from_json(stored).expect("the endpoint is well-formed");
    let endpoint = registration.resolve(&Defaults { policy, timeout_ms: 5_000 }, now).expect("its secrets are active");
    let mut message = message("evt_01J8:a@b+c=d~-");
    message.payload.body = body.to_vec();
    let record = claimed(&message, now);
    let request = build(&record, &message.payload, &endpoint, now).expect("it can be built");
    Signed { headers: request.headers.iter().cloned().collect(), body: request.body.to_vec() }
}

const URL: &str = "https://hooks.example.test/in";
const JSON: &[u8] = br#"{"w":136.0, "f":117.63331139400017}"#;

fn checks() -> Vec<Check> {
    let now = Millis(epoch_ms());
    [bodies(now), rotation(now), both_schemes(now), inline(now), tampered(now)].concat()
}

/// Secrets of every length, bodies of every kind.
fn bodies(now: Millis) -> Vec<Check> {
    let large = json!({"items": vec!["é \u{1f600} \\ \" <html>"; 11_000]}).to_string().into_bytes();
    assert!(large.len() > 200_000);
    let texts = [("json", JSON.to_vec()), ("empty", vec![]), ("200 KB", large), ("text", "\u{feff}a\0\r\n".into())];
    let binary = [("every byte", (0..=255).collect()), ("cut text", vec![0xc3])];
    let mut checks = Vec::new();
    for length in [24, 32, 64] {
        let key = secret(7, length);
        let sign = |body: &[u8]| signed(URL, &[&key], body, now);
        for (name, body) in &texts {
            let (name, request) = (format!("{name}, {length} bytes of secret"), sign(body));
            checks.push(Check::new(&name, Way::Library, &key, &request, true));
            checks.push(Check::new(&name, Way::Bytes, &key, &request, true));
        }
        for (name, body) in &binary {
            let (name, request) = (format!("{name}, {length} bytes of secret"), sign(body));
            checks.push(Check::new(&name, Way::Bytes, &key, &request, true));
            // Known of these libraries: a receiver of such bodies verifies by hand.
            checks.push(Check::new(&name, Way::Library, &key, &request, false));
        }
    }
    checks
}

fn rotation(now: Millis) -> Vec<Check> {
    let [new, old, third] = [secret(1, 32), secret(2, 24), secret(3, 32)];
    let request = signed(URL, &[&new, &old], JSON, now);
    let by = |way| {
        [
            Check::new("the new secret", way, &new, &request, true),
            Check::new("the old secret", way, &old, &request, true),
            Check::new("a third secret", way, &third, &request, false),
        ]
    };
    [by(Way::Library), by(Way::Bytes)].concat()
}

fn both_schemes(now: Millis) -> Vec<Check> {
    let (v1, wrong) = (secret(1, 32), secret(3, 32));
    let (own, old, other) = (private_key(4), private_key(5), private_key(6));
    let request = signed(URL, &[&v1, &exposed(&own), &exposed(&old)], JSON, now);
    let binary = signed(URL, &[&v1, &exposed(&own)], &[0xff, 0, 0xc3], now);
    let only_v1 = signed(URL, &[&v1], JSON, now);
    vec![
        Check::new("v1 beside v1a", Way::Library, &v1, &request, true),
        Check::new("v1 beside v1a", Way::Bytes, &v1, &request, true),
        Check::new("a wrong v1 secret beside v1a", Way::Library, &wrong, &request, false),
        Check::new("v1a beside v1", Way::V1a, &public(&own), &request, true),
        Check::new("the old v1a key", Way::V1a, &public(&old), &request, true),
        Check::new("v1a over bytes", Way::V1a, &public(&own), &binary, true),
        Check::new("a wrong public key", Way::V1a, &public(&other), &request, false),
        Check::new("v1a where only v1 is signed", Way::V1a, &public(&own), &only_v1, false),
    ]
}

/// Inline URLs: a secret of their origin, and one public key for all.
fn inline(now: Millis) -> Vec<Check> {
    let root = Secret::parse(&secret(9, 32)).expect("a root key");
    let of = |scheme, origin: &str| root.for_origin(scheme, origin);
    let [here, elsewhere] = ["https://a.example", "https://b.example"].map(|origin| exposed(&of(Scheme::V1, origin)));
    let v1a = of(Scheme::V1a, "https://a.example");
    let request = signed("https://a.example/x", &[&here, &exposed(&v1a)], JSON, now);
    vec![
        Check::new("the origin's secret", Way::Library, &here, &request, true),
        Check::new("another origin's secret", Way::Library, &elsewhere, &request, false),
        Check::new("the root itself", Way::Library, &exposed(&root), &request, false),
        Check::new(
            "another origin's public key",
            Way::V1a,
            &public(&of(Scheme::V1a, "https://b.example")),
            &request,
            true,
        ),
    ]
}

fn tampered(now: Millis) -> Vec<Check> {
    let (v1, v1a) = (secret(1, 32), private_key(4));
    let good = signed(URL, &[&v1, &exposed(&v1a)], JSON, now);
    let with = |name: &str, value: String| {
        let mut request = good.clone();
        request.headers.insert(name.to_owned(), value);
        request
    };
    let with_body = |body: Vec<u8>| Signed { body, ..good.clone() };
    let changed = [
        ("the body", with_body([b"[".as_slice(), &JSON[1..]].concat())),
        ("the end of the body", with_body([JSON, b" "].concat())),
        ("the id", with("webhook-id", format!("{}x", good.headers["webhook-id"]))),
        // By one second: still recent enough, so that it is the signature that does not fit.
        ("the timestamp", with("webhook-timestamp", (now.seconds() - 1).to_string())),
        ("every signature", with("webhook-signature", flipped(&good.headers["webhook-signature"]))),
        ("the schemes", with("webhook-signature", good.headers["webhook-signature"].replace("v1", "v2"))),
    ];
    let mut checks = Vec::new();
    for (way, key) in [(Way::Library, v1.clone()), (Way::Bytes, v1.clone()), (Way::V1a, public(&v1a))] {
        checks.push(Check::new("nothing changed", way, &key, &good, true));
        for (what, request) in &changed {
            checks.push(Check::new(&format!("{what} changed"), way, &key, request, false));
        }
    }
    let old = signed(URL, &[&v1], JSON, now.plus(-600_000));
    checks.push(Check::new("ten minutes old", Way::Library, &v1, &old, false));
    checks
}

/// Every signature with one bit of it changed.
fn flipped(signatures: &str) -> String {
    let flip = |value: &str| {
        let (scheme, encoded) = value.split_once(',').expect("a scheme and a signature");
        let mut bytes = STANDARD.decode(encoded).expect("base64");
        bytes[0] ^= 1;
        format!("{scheme},{}", STANDARD.encode(bytes))
    };
    signatures.split(' ').map(flip).collect::<Vec<_>>().join(" ")
}

/// What the official Rust library says.
fn by_rust(check: &Check) -> String {
    let headers = check.request.headers.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
    match standardwebhooks::Webhook::new(&check.key).unwrap().verify(&check.request.body, &headers) {
        Ok(()) => "accepted".to_owned(),
        Err(error) => format!("refused: {error}"),
    }
}

/// What a program of `local/verify` says.
fn by_program(program: &str, arguments: &[&str], checks: &[Check]) -> Vec<String> {
    let asked: Vec<_> = checks
        .iter()
        .map(|check| {
            let way = match check.way {
                Way::Library => "library",
                Way::Bytes => "bytes",
                Way::V1a => "v1a",
            };
            let Signed { headers, body } = &check.request;
            json!({"way": way, "key": check.key, "headers": headers, "body_base64": STANDARD.encode(body)})
        })
        .collect();
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}; install it with `python3 local/stack.py verifiers`"));
    // Each program reads everything before it writes anything.
    let sent = child.stdin.take().expect("it is piped").write_all(json!(asked).to_string().as_bytes());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && sent.is_ok(), "{program}: run `python3 local/stack.py verifiers` first");
    serde_json::from_slice(&output.stdout).expect("a list of verdicts")
}

/// Every check has the verdict that it should have, and a refusal has a reason.
fn judge(checks: &[Check], verdicts: &[String]) {
    assert_eq!(checks.len(), verdicts.len());
    for (check, verdict) in checks.iter().zip(verdicts) {
        if check.accepted {
            assert_eq!(verdict, "accepted", "{}", check.name);
        } else {
            assert!(verdict.starts_with("refused: "), "{}: {verdict}", check.name);
        }
    }
}

fn python(checks: &[Check]) {
    judge(checks, &by_program(".venv/verify/bin/python", &["local/verify/verify.py"], checks));
}

fn node(checks: &[Check]) {
    judge(checks, &by_program("node", &["local/verify/verify.mjs"], checks));
}

fn rust(checks: &[Check]) {
    let of_library: Vec<Check> = checks.iter().filter(|c| c.way == Way::Library).cloned().collect();
    assert!(!of_library.is_empty());
    judge(&of_library, &of_library.iter().map(by_rust).collect::<Vec<_>>());
}

#[test]
fn the_official_rust_library_agrees() {
    rust(&checks());
}

#[test]
fn the_official_python_library_and_another_ed25519_agree() {
    python(&checks());
}

#[test]
fn the_official_node_library_and_another_ed25519_agree() {
    node(&checks());
}

#[test]
fn the_reference_vector_has_one_signature() {
    let (key, id, timestamp) = ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330);
    let body = br#"{"test": 2432232314}"#;
    let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    assert_eq!(standardwebhooks::Webhook::new(key).unwrap().sign(id, timestamp, body).unwrap(), expected);
    assert_eq!(Secret::parse(key).unwrap().sign(id, timestamp, body), expected);
}

#[tokio::test]
async fn what_arrives_at_a_receiver_is_verified_by_every_library() {
    let receiver = Receiver::start().await;
    let (v1, v1a) = (secret(7, 32), private_key(8));
    let body = "{\"ü\":[1.0,\"\u{1f600}\"]}\n".as_bytes();
    let url = receiver.url("a");
    let made = signed(&url, &[&v1, &exposed(&v1a)], body, Millis(epoch_ms()));
    let request = Request {
        url: url.parse().unwrap(),
        headers: made.headers.into_iter().collect(),
        body: &made.body,
        timeout_ms: 5_000,
    };
    let outcome =
        HttpSender::new(EgressPolicy::parse(true, "any", "127.0.0.0/8", "").unwrap(), []).post(&request).await;
    let seen = receiver.seen("a").pop().unwrap_or_else(|| panic!("{outcome:?}"));
    let arrived = Signed { headers: seen.headers.iter().cloned().collect(), body: seen.body.clone() };
    let checks = [
        Check::new("as it arrived", Way::Library, &v1, &arrived, true),
        Check::new("a wrong secret", Way::Library, &secret(1, 32), &arrived, false),
        Check::new("as it arrived", Way::Bytes, &v1, &arrived, true),
        Check::new("as it arrived", Way::V1a, &public(&v1a), &arrived, true),
    ];
    rust(&checks);
    python(&checks);
    node(&checks);
}
