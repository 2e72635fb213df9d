use domain::signature::{Scheme, Secret};
use serde_json::json;
use zeroize::Zeroizing;

use super::{SECRET, file, with_one};
use crate::exit::Exit;
use crate::fakes::{Fake, NOW};

fn signed(secret: &Secret, body: &[u8]) -> String {
    format!("--id e --timestamp {} --signature {}", NOW.seconds(), secret.sign("e", NOW.seconds(), body))
}

fn secret() -> Secret {
    Secret::parse(SECRET).unwrap()
}

#[test]
fn a_valid_signature_names_its_key_and_shows_none() {
    let fake = with_one();
    let body = file("valid", b"body");
    for (key, input) in [("--endpoint ep_a", ""), ("--secret-stdin", SECRET)] {
        let line = format!("verify {key} {} --body-file {body}", signed(&secret(), b"body"));
        let ran = fake.run_with(&line, input.as_bytes(), false);
        assert!(ran.exit == Exit::Done && ran.out.starts_with("valid: made with"), "{ran:?}");
        assert!(!ran.out.contains("whsec_"));
    }
    let ran = fake.run_with(&format!("verify --endpoint ep_a {}", signed(&secret(), b"body")), b"body", false);
    assert_eq!(ran.exit, Exit::Done, "the body comes from standard input: {ran:?}");
    insta::assert_snapshot!("verify_valid", ran.out);
}

#[test]
fn an_invalid_one_says_why() {
    let fake = with_one();
    let ran =
        fake.run_with(&format!("verify --endpoint ep_a {}", signed(&secret(), b"{\"a\":1}")), b"{\"a\": 1}\n", false);
    assert_eq!(ran.exit, Exit::No);
    insta::assert_snapshot!("verify_invalid", ran.out);
    let late = fake.run_with(
        &format!("verify --endpoint ep_a --at 2026-12-01T13:00:00Z {} --json", signed(&secret(), b"x")),
        b"x",
        false,
    );
    assert_eq!((late.exit, &late.json()["findings"][0]["fault"]), (Exit::No, &json!("timestamp_too_old")));
    let any = fake.run_with(&format!("verify --endpoint ep_a --no-tolerance {}", signed(&secret(), b"x")), b"x", false);
    assert_eq!(any.exit, Exit::Done);
}

#[test]
fn a_secret_of_another_endpoint_is_recognised() {
    let fake = with_one();
    let other = Secret::new(Scheme::V1, &Zeroizing::new([9; 32]));
    fake.has("ep_b", json!({"url": "https://b.example.test/", "secrets": [*other.expose()], "version": 1}));
    let ran = fake.run_with(&format!("verify --endpoint ep_a {} --json", signed(&other, b"x")), b"x", false);
    assert_eq!((ran.exit, &ran.json()["findings"][0]["fault"]), (Exit::No, &json!("other_endpoint")));
    assert!(ran.out.contains("ep_b"), "{}", ran.out);
}

#[test]
fn a_public_key_and_the_keys_of_an_origin_verify_too() {
    let fake = Fake::new();
    let pair = Secret::new(Scheme::V1a, &Zeroizing::new([7; 32]));
    let ran = fake.run_with(
        &format!("verify --public-key {} {}", pair.public_key().unwrap(), signed(&pair, b"x")),
        b"x",
        false,
    );
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    assert!(fake.state.connected.borrow().is_none(), "nobody else is asked");
    let line = |secret: &str| {
        format!("verify --url https://h.example.test/t0ken {}", signed(&Secret::parse(secret).unwrap(), b"x"))
    };
    assert_eq!(fake.run_with(&line(SECRET), b"x", false).exit, Exit::NotFound, "no root key was made yet");
    let keys = fake.run("endpoint keys --url https://h.example.test/ --json").json();
    assert_eq!(fake.run_with(&line(keys["keys"][0]["secret"].as_str().unwrap()), b"x", false).exit, Exit::Done);
    assert_eq!(fake.run_with(&line(SECRET), b"x", false).exit, Exit::No);
}

#[test]
fn headers_come_from_a_file_as_the_receiver_logged_them() {
    let fake = with_one();
    let at = NOW.seconds();
    let text = format!(
        "POST / HTTP/1.1\nHost: x\nWebhook-Id: e\nwebhook-timestamp:{at}\nWEBHOOK-SIGNATURE: v1,AAAA\nwebhook-signature: {}\n",
        secret().sign("e", at, b"x")
    );
    let headers = file("headers", text.as_bytes());
    let ran = fake.run_with(&format!("verify --endpoint ep_a --headers {headers}"), b"x", false);
    assert_eq!(ran.exit, Exit::Done, "{ran:?}");
    let ran = fake.run_with("verify --endpoint ep_a --id e", b"x", false);
    assert!(ran.exit == Exit::Usage && ran.err.contains("webhook-timestamp, webhook-signature"), "{ran:?}");
    assert_eq!(fake.run("verify --endpoint ep_x --id e --timestamp 1 --signature v1,x").exit, Exit::NotFound);
    assert_eq!(fake.run("verify --id e --timestamp 1 --signature v1,x").exit, Exit::Usage);
}
