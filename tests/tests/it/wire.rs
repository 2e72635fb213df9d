//! Requests on the wire: the real HTTP client against a receiver that misbehaves. Cases of public reports carry their id.

use std::time::{Duration, Instant};

use domain::egress::EgressPolicy;
use domain::outcome::{Answer, Class, Outcome, Phase, AnswerRules, classify};
use domain::ports::Sender;
use domain::request::Request;
use sender::http::HttpSender;
use url::Url;

use crate::receiver::{Receiver, Reply};

fn sender() -> HttpSender {
    HttpSender::new(EgressPolicy::parse(true, "any", "127.0.0.0/8").unwrap())
}

async fn post(url: &str, body: &[u8], timeout_ms: i64) -> Outcome {
    let headers = vec![("webhook-id".to_owned(), "e".to_owned()), ("x-tenant".to_owned(), "7 \t~".to_owned())];
    sender().post(&Request { url: Url::parse(url).unwrap(), headers, body, timeout_ms }).await
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Answered(answer) => answer,
        other => panic!("{other:?}"),
    }
}

fn class(outcome: &Outcome) -> Class {
    classify(outcome, None, &AnswerRules::default())
}

#[tokio::test]
async fn the_bytes_and_headers_arrive_exactly() {
    let receiver = Receiver::start().await;
    let body: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    assert_eq!(answer(post(&receiver.url("a"), &body, 5_000).await).status, 200);
    assert_eq!(answer(post(&receiver.url("a"), b"", 5_000).await).status, 200);
    let seen = receiver.seen("a");
    assert_eq!(
        (&seen[0].body, seen[0].header("content-length"), seen[0].header("x-tenant")),
        (&body, Some("70000"), Some("7 \t~"))
    );
    assert_eq!((seen[1].body.len(), seen[1].header("content-length")), (0, Some("0")));
    for absent in ["transfer-encoding", "accept-encoding", "cookie", "authorization"] {
        assert_eq!(seen[0].header(absent), None, "{absent}");
    }
}

#[tokio::test]
async fn wh_o_06_a_redirect_is_an_answer_and_is_not_followed() {
    let receiver = Receiver::start().await;
    for status in [301, 302, 303, 307, 308] {
        let url = receiver.script("from", [Reply::with(status, "location: /login\r\n", "")]);
        let outcome = post(&url, b"{}", 5_000).await;
        assert_eq!((class(&outcome), answer(outcome).status), (Class::Permanent, status));
    }
    assert!(receiver.seen("login").is_empty());
}

#[tokio::test]
async fn wh_o_07_a_complete_2xx_head_is_an_acceptance_whatever_the_body_does() {
    let receiver = Receiver::start().await;
    let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    for (name, reply, broken) in [
        ("empty", bytes("HTTP/1.1 200 OK\r\n\r\n"), false),
        ("chunked", bytes("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab"), true),
        ("short", bytes("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc"), true),
        ("gzip", bytes("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"), false),
        (
            "silent",
            Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_vec(), Duration::from_secs(30)),
            true,
        ),
        (
            "drip",
            Reply::Drip(b"HTTP/1.1 202 OK\r\ncontent-length: 90000\r\n\r\n".to_vec(), Duration::from_millis(5)),
            true,
        ),
        ("no content", bytes("HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc"), false),
        (
            "interim",
            bytes(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            ),
            false,
        ),
    ] {
        let url = receiver.script("a", [reply]);
        let started = Instant::now();
        let outcome = post(&url, b"{}", 2_000).await;
        assert_eq!(class(&outcome), Class::Accepted, "{name}: {outcome:?}");
        assert_eq!(answer(outcome).body_broken, broken, "{name}");
        assert!(started.elapsed() < Duration::from_millis(2_500), "{name}");
    }
}

#[tokio::test]
async fn wh_o_08_an_endless_answer_is_cut_in_bytes_and_in_time() {
    let receiver = Receiver::start().await;
    let big = Reply::with(500, "", &"<html>".repeat(400_000));
    let outcome = answer(post(&receiver.script("big", [big]), b"{}", 5_000).await);
    assert_eq!((outcome.status, outcome.excerpt.len()), (500, 1022 / 6 * 6 + 4));
    let drip = Reply::Drip(b"HTTP/1.1 500 X\r\ncontent-length: 90000\r\n\r\n".to_vec(), Duration::from_millis(5));
    let started = Instant::now();
    assert_eq!(answer(post(&receiver.script("drip", [drip]), b"{}", 1_000).await).status, 500);
    assert!(started.elapsed() < Duration::from_millis(1_500));
}

#[tokio::test]
async fn wh_o_09_bytes_that_are_no_text_do_no_harm() {
    let receiver = Receiver::start().await;
    let head = b"HTTP/1.1 503 X\r\nretry-after: 12\r\nx-note: caf\xe9\r\ncontent-length: 2\r\n\r\n\xff\0".to_vec();
    let got = answer(post(&receiver.script("a", [Reply::Bytes(head)]), b"{}", 2_000).await);
    assert_eq!((got.retry_after.as_deref(), got.excerpt.as_str()), (Some(b"12".as_slice()), "\\xff\\x00"));
    let two = Reply::with(503, "retry-after: 1\r\nretry-after: 2\r\n", "");
    assert_eq!(answer(post(&receiver.script("a", [two]), b"{}", 2_000).await).retry_after, None);
}

#[tokio::test]
async fn wh_o_10_no_connection_is_used_twice_and_a_lost_answer_is_unknown() {
    let receiver = Receiver::start().await;
    let keep = Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec(), Duration::from_secs(5));
    let url = receiver.script("a", [keep, Reply::Close]);
    let sender = sender();
    let request = || Request { url: Url::parse(&url).unwrap(), headers: vec![], body: b"{}", timeout_ms: 2_000 };
    assert_eq!(class(&sender.post(&request()).await), Class::Accepted);
    let lost = sender.post(&request()).await;
    assert_eq!(class(&lost), Class::Unknown, "{lost:?}");
    let seen = receiver.seen("a");
    assert_eq!(seen.len(), 2, "one request per attempt");
    assert_ne!(seen[0].port, seen[1].port);
}

#[tokio::test]
async fn wh_o_11_without_an_answer_the_phase_and_a_word_are_known() {
    let receiver = Receiver::start().await;
    let silent = post(&receiver.script("a", [Reply::silence()]), b"{}", 300).await;
    assert_eq!(silent, Outcome::Failed { phase: Phase::Sent, detail: "timeout".to_owned() });
    let empty_body = post(&receiver.script("a", [Reply::silence()]), b"", 300).await;
    assert_eq!(empty_body, Outcome::Failed { phase: Phase::Sent, detail: "timeout".to_owned() });
    let unused = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let refused = post(&format!("http://127.0.0.1:{unused}/"), b"{}", 2_000).await;
    assert_eq!(refused, Outcome::Failed { phase: Phase::Connect, detail: "refused".to_owned() });
    let plain = post(&receiver.url("a").replace("http:", "https:"), b"{}", 2_000).await;
    assert!(matches!(&plain, Outcome::Failed { phase: Phase::Connect, .. }), "{plain:?}");
    assert_eq!(class(&plain), Class::Transient);
    let nowhere = post("http://does-not-exist.invalid/", b"{}", 2_000).await;
    assert_eq!(nowhere, Outcome::Failed { phase: Phase::Connect, detail: "dns".to_owned() });
}

#[tokio::test]
async fn wh_o_02_an_address_in_any_spelling_and_a_name_are_judged_before_dialling() {
    let receiver = Receiver::start().await;
    let strict = HttpSender::new(EgressPolicy::parse(true, "any", "").unwrap());
    for host in
        ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "0", "[::ffff:7f00:1]", "127.0.0.1.", "localhost", "LOCALHOST."]
    {
        let url = Url::parse(&format!("http://{host}:{}/a", receiver.port)).unwrap();
        let outcome = strict.post(&Request { url, headers: vec![], body: b"{}", timeout_ms: 2_000 }).await;
        assert!(matches!(outcome, Outcome::Blocked { .. }), "{host}: {outcome:?}");
    }
    assert!(receiver.seen("a").is_empty());
}

#[tokio::test]
async fn wh_o_37_no_outcome_repeats_a_part_of_the_url() {
    for url in [
        "http://127.0.0.1:1/T000/tok3n?k=s3cr3t",
        "http://no.invalid/T000/tok3n?k=s3cr3t",
        "https://10.0.0.1/T000/tok3n?k=s3cr3t",
    ] {
        let text = format!("{:?}", post(url, b"{}", 1_000).await);
        assert!(!text.contains("tok3n") && !text.contains("s3cr3t"), "{text}");
    }
}
