//! What is kept of an answer, and what must never be kept.

use domain::hint;
use domain::outcome::{AnswerRules, Class, Directive, Outcome, classify};
use domain::time::{Millis, SECOND_MS};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex};

use super::{Case, answer, post};
use crate::receiver::raw::{Step, send};
use crate::receiver::{Receiver, Reply};

#[tokio::test]
async fn wh_o_09_bytes_that_are_no_text_do_no_harm() {
    let receiver = Receiver::start().await;
    let head =
        b"HTTP/1.1 503 X\r\nretry-after: 12\r\nx-note: caf\xe9\r\nserver: \xe9\x01\r\ncontent-length: 2\r\n\r\n\xff\0"
            .to_vec();
    let got = answer(post(&receiver.script("a", [Reply::Bytes(head)]), b"{}", 2_000).await);
    assert_eq!((got.retry_after.as_deref(), got.excerpt.as_str()), (Some(b"12".as_slice()), "\\xff\\x00"));
    let unreadable =
        Reply::Bytes(b"HTTP/1.1 503 X\r\nretry-after: \xe9\r\nserver: caf\xe9\r\ncontent-length: 0\r\n\r\n".to_vec());
    let got = answer(post(&receiver.script("a", [unreadable]), b"{}", 2_000).await);
    assert_eq!(got.retry_after.as_deref(), Some(b"\xe9".as_slice()));
    assert!(got.headers.contains(&("server".to_owned(), "caf\\xe9".to_owned())), "{:?}", got.headers);
    let two = Reply::with(503, "retry-after: 1\r\nretry-after: 2\r\n", "");
    assert_eq!(answer(post(&receiver.script("a", [two]), b"{}", 2_000).await).retry_after, None);
}

/// The wait that an answer with these header lines asks for, in seconds, at noon of 30 November 2026.
async fn wait(receiver: &Receiver, lines: &[u8]) -> Option<i64> {
    let head = [b"HTTP/1.1 503 X\r\n", lines, b"content-length: 0\r\n\r\n"].concat();
    let got = answer(post(&receiver.script("a", [Reply::Bytes(head)]), b"{}", 2_000).await);
    let now = Millis::parse_rfc3339("2026-11-30T12:00:00Z").unwrap();
    let until = hint::retry_after(&got, now, 6 * 3_600 * SECOND_MS);
    let class = classify(&Outcome::Answered(got), until, &AnswerRules::default());
    assert_eq!(class, if until.is_some() { Class::Throttled } else { Class::Transient });
    until.map(|until| until.since(now) / SECOND_MS)
}

#[tokio::test]
async fn wh_o_13_only_the_grammar_of_retry_after_is_a_hint() {
    let receiver = Receiver::start().await;
    for (lines, expected) in [
        ("retry-after: 7\r\n", Some(7)),
        ("Retry-After:   7  \r\n", Some(7)),
        ("retry-after:\t7\r\n", Some(7)),
        ("retry-after: 2015\r\n", Some(2_015)),
        ("retry-after: 999999999999999999999999\r\n", Some(21_600)),
        ("retry-after:\r\n  7\r\n", Some(7)),
        ("retry-after : 7\r\n", Some(7)),
        ("retry-after: -3\r\n", None),
        ("retry-after: +3\r\n", None),
        ("retry-after: 0\r\n", None),
        ("retry-after: 1.5\r\n", None),
        ("retry-after: 7, 7\r\n", None),
        ("retry-after: 7\r\nretry-after: 7\r\n", None),
        ("retry-after: \u{ff17}\r\n", None),
        ("retry-after: \u{667}\r\n", None),
        ("retry-after:\r\n", None),
        ("", None),
    ] {
        assert_eq!(wait(&receiver, lines.as_bytes()).await, expected, "{lines:?}");
    }
    assert_eq!(wait(&receiver, b"retry-after: \xe9\r\n").await, None);
}

#[tokio::test]
async fn wh_o_14_a_date_is_read_by_the_receivers_clock_unless_a_cache_or_nonsense_speaks() {
    let receiver = Receiver::start().await;
    for (lines, expected) in [
        ("Mon, 30 Nov 2026 12:05:00 GMT\r\n", Some(300)),
        ("Monday, 30-Nov-26 12:05:00 GMT\r\n", Some(300)),
        ("Mon Nov 30 12:05:00 2026\r\n", Some(300)),
        ("Fri, 31 Dec 9999 23:59:59 GMT\r\n", Some(21_600)),
        ("Mon, 30 Nov 2026 12:05:00 GMT\r\nDate: Mon, 30 Nov 2026 11:55:00 GMT\r\n", Some(600)),
        ("Mon, 30 Nov 2026 12:05:00 GMT\r\nDate: Mon, 30 Nov 2026 11:55:00 GMT\r\nAge: 0\r\n", Some(300)),
        ("Mon, 30 Nov 2026 12:05:00 GMT\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n", Some(300)),
        ("Mon, 30 Nov 2026 11:59:59 GMT\r\n", None),
        ("Mon, 30 Nov 2026 12:05:00 +0000\r\n", None),
        ("Tue, 30 Nov 2026 12:05:00 GMT\r\n", None),
    ] {
        assert_eq!(wait(&receiver, format!("retry-after: {lines}").as_bytes()).await, expected, "{lines:?}");
    }
}

#[tokio::test]
async fn the_headers_that_find_a_request_in_a_log_are_kept_and_no_others() {
    let receiver = Receiver::start().await;
    let long = "y".repeat(1_000);
    let lines = format!(
        "Server: nginx\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nRetry-After: 7\r\nAge: 3\r\n\
         Location: /login?tok3n=1\r\nX-Request-Id: {long}\r\nx-amzn-RequestId: a\r\nX-Amz-Cf-Id: b\r\nCF-Ray: c\r\n\
         X-Correlation-Id: d\r\ntraceparent: e\r\nVia: f\r\nSet-Cookie: s3cr3t\r\nX-Other: s3cr3t\r\nLink: s3cr3t\r\n"
    );
    let url = receiver.script("a", [Reply::with(503, &lines, "abc")]);
    let got = answer(post(&url, b"{}", 2_000).await);
    let origin = format!("http://127.0.0.1:{}", receiver.port);
    let kept: Vec<(&str, &str)> = got.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(
        kept,
        [
            ("server", "nginx"),
            ("date", "Mon, 30 Nov 2026 12:00:00 GMT"),
            ("content-type", "text/plain"),
            ("content-length", "3"),
            ("retry-after", "7"),
            ("location", origin.as_str()),
            ("x-request-id", &long[..128]),
            ("x-amzn-requestid", "a"),
            ("x-amz-cf-id", "b"),
            ("cf-ray", "c"),
            ("x-correlation-id", "d"),
            ("traceparent", "e"),
            ("via", "f"),
        ]
    );
    assert_eq!(got.age.as_deref(), Some(b"3".as_slice()));
    assert_eq!(got.date.as_deref(), Some(b"Mon, 30 Nov 2026 12:00:00 GMT".as_slice()));
}

#[tokio::test]
async fn of_a_location_only_the_origin_is_kept() {
    let receiver = Receiver::start().await;
    for (location, origin) in [
        ("https://a:s3cr3t@login.example:444/tok3n?k=s3cr3t#x", Some("https://login.example:444")),
        ("//other.example/tok3n", Some("http://other.example")),
        ("javascript:s3cr3t", None),
        ("data:,s3cr3t", None),
        ("http://[s3cr3t", None),
    ] {
        let url = receiver.script("a", [Reply::with(302, &format!("location: {location}\r\n"), "")]);
        let got = answer(post(&url, b"{}", 2_000).await);
        let kept = got.headers.iter().find(|(name, _)| name == "location").map(|(_, value)| value.as_str());
        assert_eq!(kept, origin, "{location}");
        assert!(!format!("{got:?}").contains("s3cr3t"), "{got:?}");
    }
}

#[tokio::test]
async fn the_body_is_known_by_its_length_its_digest_and_its_start() {
    let hex = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let receiver = Receiver::start().await;
    for body in ["a".to_owned(), "b".repeat(1_024), "c".repeat(5_000), "d".repeat(65_536)] {
        let got = answer(post(&receiver.script("a", [Reply::with(500, "", &body)]), b"{}", 2_000).await);
        assert_eq!((got.body_bytes, got.body_sha256), (body.len() as u64, Some(hex(body.as_bytes()))));
        assert_eq!(got.excerpt, body[..body.len().min(1_024)]);
    }
    let long = answer(post(&receiver.script("a", [Reply::with(500, "", &"e".repeat(70_000))]), b"{}", 2_000).await);
    assert_eq!(long.body_sha256, Some(hex("e".repeat(65_536).as_bytes())), "of what was read");
    let empty = answer(post(&receiver.script("a", [Reply::with(500, "", "")]), b"{}", 2_000).await);
    assert_eq!((empty.body_bytes, empty.body_sha256, empty.body_broken), (0, None, false));
}

#[tokio::test]
async fn what_was_read_before_the_time_was_over_is_kept() {
    for (status, timeout_ms) in [(500, 400), (200, 2_000)] {
        let steps = vec![Step::Read, send(&format!("HTTP/1.1 {status} X\r\ncontent-length: 9\r\n\r\nabc")), Step::Hold];
        let got = answer(Case { timeout_ms, ..Case::plain("cut") }.play(steps).await.outcome);
        assert_eq!((got.excerpt.as_str(), got.body_bytes, got.body_broken), ("abc", 3, true), "{status}");
        assert!(got.body_sha256.is_some_and(|digest| digest.starts_with("ba7816bf")), "{status}");
    }
}

#[tokio::test]
async fn a_directive_is_exactly_one_header_with_a_known_value() {
    let receiver = Receiver::start().await;
    for (lines, directive) in [
        ("webhook-delivery: abort-message\r\n", Some(Directive::AbortMessage)),
        ("Webhook-Delivery:  Disable \t\r\n", Some(Directive::Disable)),
        ("webhook-delivery: ABORT-MESSAGE\r\n", Some(Directive::AbortMessage)),
        ("webhook-delivery: disable\r\nwebhook-delivery: disable\r\n", None),
        ("webhook-delivery: disable\r\nwebhook-delivery: abort-message\r\n", None),
        ("webhook-delivery: disable, abort-message\r\n", None),
        ("webhook-delivery: disabled\r\n", None),
        ("webhook-delivery:\r\n", None),
        ("webhook-delivery: \"disable\"\r\n", None),
        ("x-webhook-delivery: disable\r\n", None),
        ("", None),
    ] {
        let got = answer(post(&receiver.script("a", [Reply::with(500, lines, "")]), b"{}", 2_000).await);
        assert_eq!(got.directive, directive, "{lines:?}");
    }
    let rules = AnswerRules { directives: true, ..AnswerRules::default() };
    let url = receiver.script("a", [Reply::with(200, "webhook-delivery: disable\r\n", "")]);
    let outcome = post(&url, b"{}", 2_000).await;
    assert_eq!((classify(&outcome, None, &rules), outcome.disables(&rules)), (Class::Accepted, true));
}

#[tokio::test]
async fn wh_o_37_no_outcome_repeats_a_part_of_the_url() {
    // The other failures are watched where they are played: see `Case::play`.
    for url in [
        "http://127.0.0.1:1/T000/tok3n?k=s3cr3t",
        "http://no.invalid/T000/tok3n?k=s3cr3t",
        "https://10.0.0.1/T000/tok3n?k=s3cr3t",
        "http://tok3n:s3cr3t@127.0.0.1/",
        "ftp://127.0.0.1/tok3n?k=s3cr3t",
        "http://tok3n/s3cr3t",
        "http://tok3n.internal/s3cr3t",
    ] {
        let text = format!("{:?}", post(url, b"{}", 1_000).await);
        assert!(!text.contains("tok3n") && !text.contains("s3cr3t"), "{text}");
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn wh_o_37_no_library_warns_with_a_part_of_the_url() {
    // The functions cap libraries at this level.
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let receiver = Receiver::start().await;
    let nonsense = Reply::Bytes(b"nonsense".to_vec());
    for reply in
        [Reply::status(500), Reply::with(302, "location: /tok3n\r\n", ""), Reply::Close, Reply::silence(), nonsense]
    {
        let url = receiver.script("tok3n?k=s3cr3t", [reply]);
        let outcome = post(&url, b"{}", 300).await;
        assert!(!matches!(outcome, Outcome::Blocked { .. }), "{outcome:?}");
    }
    for url in ["http://127.0.0.1:1/tok3n?k=s3cr3t", "http://a.invalid/tok3n?k=s3cr3t", "http://tok3n:s3cr3t@10.0.0.1/"]
    {
        post(url, b"{}", 300).await;
    }
    tracing::warn!("a line that is seen");
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("a line that is seen"));
    assert!(!text.contains("tok3n") && !text.contains("s3cr3t"), "{text}");
}
