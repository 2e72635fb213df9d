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

/// One request, one key, and whether they belong together.
#[derive(Clone)]
struct Check {
    name: String,
    way: Way,
    key: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    accepted: bool,
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

/// The headers and the body of a request to an endpoint with these secrets, the newest first.
fn signed(url: &str, secrets: &[String], body: &[u8], now: Millis) -> (BTreeMap<String, String>, Vec<u8>) {
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
    (request.headers.iter().cloned().collect(), request.body.to_vec())
}

const URL: &str = "https://hooks.example.test/in";

fn checks() -> Vec<Check> {
    let now = Millis(epoch_ms());
    let mut checks = Vec::new();
    let mut add = |name: &str, way, key: &str, (headers, body): (BTreeMap<String, String>, Vec<u8>), accepted| {
        checks.push(Check { name: name.to_owned(), way, key: key.to_owned(), headers, body, accepted });
    };

    let large = json!({"items": vec!["é \u{1f600} \\ \" <html>"; 11_000]}).to_string().into_bytes();
    assert!(large.len() > 200_000);
    let json = br#"{"w":136.0, "f":117.63331139400017}"#.to_vec();
    let texts = [("json", json.clone()), ("empty", Vec::new()), ("200 KB", large), ("text", "\u{feff}a\0\r\n".into())];
    let binary = [("every byte", (0..=255).collect()), ("cut text", vec![0xc3])];
    for length in [24, 32, 64] {
        let key = secret(7, length);
        for (name, body) in &texts {
            let request = signed(URL, std::slice::from_ref(&key), body, now);
            add(&format!("{name}, {length} bytes of secret"), Way::Library, &key, request.clone(), true);
            add(&format!("{name}, {length} bytes of secret, by hand"), Way::Bytes, &key, request, true);
        }
        for (name, body) in &binary {
            let request = signed(URL, std::slice::from_ref(&key), body, now);
            add(&format!("{name}, {length} bytes of secret"), Way::Bytes, &key, request.clone(), true);
            // Known of these libraries: a receiver of such bodies verifies by hand.
            add(&format!("{name}, which the library does not take"), Way::Library, &key, request, false);
        }
    }

    let [new, old, third] = [secret(1, 32), secret(2, 24), secret(3, 32)];
    let rotating = signed(URL, &[new.clone(), old.clone()], &json, now);
    for way in [Way::Library, Way::Bytes] {
        add("the new secret in a rotation", way, &new, rotating.clone(), true);
        add("the old secret in a rotation", way, &old, rotating.clone(), true);
        add("a third secret in a rotation", way, &third, rotating.clone(), false);
    }

    let (own, old_own, other) = (private_key(4), private_key(5), private_key(6));
    let exposed = |key: &Secret| key.expose().to_string();
    let both = signed(URL, &[new.clone(), exposed(&own)], &json, now);
    for way in [Way::Library, Way::Bytes] {
        add("v1 beside v1a", way, &new, both.clone(), true);
        add("a wrong v1 secret beside v1a", way, &third, both.clone(), false);
    }
    add("v1a beside v1", Way::V1a, &public(&own), both.clone(), true);
    add("a wrong public key", Way::V1a, &public(&other), both.clone(), false);
    add("v1a where only v1 is signed", Way::V1a, &public(&own), rotating, false);
    let rotated = signed(URL, &[new.clone(), exposed(&own), exposed(&old_own)], &binary[0].1, now);
    for key in [&own, &old_own] {
        add("either public key in a rotation", Way::V1a, &public(key), rotated.clone(), true);
    }

    let root = Secret::parse(&secret(9, 32)).expect("a root key");
    let [here, elsewhere] =
        ["https://a.example", "https://b.example"].map(|origin| exposed(&root.for_origin(Scheme::V1, origin)));
    let inline = signed("https://a.example/x", &[here.clone(), exposed(&root.for_origin(Scheme::V1a, ""))], &json, now);
    add("an inline origin's own secret", Way::Library, &here, inline.clone(), true);
    add("another inline origin's secret", Way::Library, &elsewhere, inline.clone(), false);
    add("the root of the inline secrets", Way::Library, &exposed(&root), inline.clone(), false);
    add("the inline public key", Way::V1a, &public(&root.for_origin(Scheme::V1a, "")), inline, true);

    for (way, key) in [(Way::Library, new.clone()), (Way::Bytes, new.clone()), (Way::V1a, public(&own))] {
        add("nothing changed", way, &key, both.clone(), true);
        let mut change = |what: &str, tamper: &dyn Fn(&mut BTreeMap<String, String>, &mut Vec<u8>)| {
            let (mut headers, mut body) = both.clone();
            tamper(&mut headers, &mut body);
            add(&format!("{what} changed"), way, &key, (headers, body), false);
        };
        change("the body", &|_, body| body[3] ^= 1);
        change("the end of the body", &|_, body| body.push(b' '));
        change("the id", &|headers, _| headers.get_mut("webhook-id").unwrap().push('x'));
        // By one second: still recent enough, so that it is the signature that does not fit.
        change("the timestamp", &|headers, _| {
            headers.insert("webhook-timestamp".to_owned(), (now.seconds() - 1).to_string());
        });
        change("every signature", &|headers, _| {
            let values: Vec<String> = headers["webhook-signature"]
                .split(' ')
                .map(|value| {
                    let (scheme, signature) = value.split_once(',').unwrap();
                    let mut bytes = STANDARD.decode(signature).unwrap();
                    bytes[0] ^= 1;
                    format!("{scheme},{}", STANDARD.encode(bytes))
                })
                .collect();
            headers.insert("webhook-signature".to_owned(), values.join(" "));
        });
        change("the scheme of every signature", &|headers, _| {
            let value = headers["webhook-signature"].replace("v1", "v2");
            headers.insert("webhook-signature".to_owned(), value);
        });
    }
    add(
        "ten minutes old",
        Way::Library,
        &new,
        signed(URL, std::slice::from_ref(&new), &json, now.plus(-600_000)),
        false,
    );
    checks
}

/// What the official Rust library says.
fn by_rust(check: &Check) -> String {
    let headers = check.headers.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect();
    match standardwebhooks::Webhook::new(&check.key).unwrap().verify(&check.body, &headers) {
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
            json!({"way": way, "key": check.key, "headers": check.headers, "body_base64": STANDARD.encode(&check.body)})
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
    let secrets = [v1.clone(), v1a.expose().to_string()];
    let sender = HttpSender::new(EgressPolicy::parse(true, "any", "127.0.0.0/8", "").unwrap(), []);
    let body = "{\"ü\":[1.0,\"\u{1f600}\"]}\n".as_bytes();
    let (headers, body) = signed(&receiver.url("a"), &secrets, body, Millis(epoch_ms()));
    let request = Request {
        url: receiver.url("a").parse().unwrap(),
        headers: headers.into_iter().collect(),
        body: &body,
        timeout_ms: 5_000,
    };
    let outcome = sender.post(&request).await;
    let seen = receiver.seen("a").pop().unwrap_or_else(|| panic!("{outcome:?}"));
    let headers: BTreeMap<String, String> = seen.headers.iter().cloned().collect();
    let arrived = |way, key: &str, accepted| Check {
        name: "what arrived".to_owned(),
        way,
        key: key.to_owned(),
        headers: headers.clone(),
        body: seen.body.clone(),
        accepted,
    };
    let checks = [
        arrived(Way::Library, &v1, true),
        arrived(Way::Library, &secret(1, 32), false),
        arrived(Way::Bytes, &v1, true),
        arrived(Way::V1a, &public(&v1a), true),
    ];
    rust(&checks);
    python(&checks);
    node(&checks);
}
