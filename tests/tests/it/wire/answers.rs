//! A complete head is an answer: nothing else that comes or fails to come changes what it says.

use std::time::{Duration, Instant};

use domain::outcome::{Answer, Class, Outcome, Phase};

use proptest::prelude::*;

use super::{Case, answer, class, post};
use crate::receiver::certificates::{self, Leaf};
use crate::receiver::raw::{Step, send};
use crate::receiver::{Receiver, Reply};

/// Plays an answer and reads it.
async fn answered(name: &'static str, steps: Vec<Step>) -> Answer {
    answer(Case::plain(name).play([vec![Step::Read], steps].concat()).await.outcome)
}

#[tokio::test]
async fn wh_o_06_a_redirect_is_an_answer_and_is_not_followed() {
    let receiver = Receiver::start().await;
    for status in [300, 301, 302, 303, 304, 307, 308] {
        let location = format!("location: {}\r\n", receiver.url("login?tok3n=1"));
        let url = receiver.script("from", [Reply::with(status, &location, "")]);
        let outcome = post(&url, b"{}", 5_000).await;
        assert_eq!(class(&outcome), Class::Permanent, "{status}");
        let got = answer(outcome);
        assert_eq!(got.status, status);
        let origin = ("location".to_owned(), format!("http://127.0.0.1:{}", receiver.port));
        assert!(got.headers.contains(&origin), "{:?}", got.headers);
    }
    assert!(receiver.seen("login").is_empty());
}

#[tokio::test]
async fn wh_o_07_a_complete_2xx_head_is_an_acceptance_whatever_the_body_does() {
    let pause = Duration::from_millis(5);
    let head = "HTTP/1.1 200 OK\r\n";
    let text = |rest: &str| vec![send(&format!("{head}{rest}"))];
    let then = |rest: &str, step: Step| vec![send(&format!("{head}{rest}")), step];
    let many: String = (0..1_000).map(|n| format!("x-{n}: {n}\r\n")).collect();
    let huge = format!("x-huge: {}\r\n\r\n", "y".repeat(200_000));
    for (name, steps, broken) in [
        ("no length", text("\r\n"), false),
        ("no reason", vec![send("HTTP/1.1 200\r\n\r\n")], false),
        ("HTTP/1.0", vec![send("HTTP/1.0 200 OK\r\n\r\nabc")], false),
        (
            "HTTP/1.0, kept alive",
            vec![send("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nabc")],
            false,
        ),
        ("any 2xx", vec![send("HTTP/1.1 299 X\r\ncontent-length: 0\r\n\r\n")], false),
        ("line feeds only", vec![send("HTTP/1.1 200 OK\ncontent-length: 0\n\n")], false),
        (
            "reason of odd bytes",
            vec![Step::Send(b"HTTP/1.1 200 \xe9t\xe9\r\ncontent-length: 0\r\n\r\n".to_vec())],
            false,
        ),
        ("chunks", text("transfer-encoding: chunked\r\n\r\n3;ext=\"a;b\"\r\nabc\r\n0\r\nx-trailer: 1\r\n\r\n"), false),
        ("cut chunk", text("transfer-encoding: chunked\r\n\r\n5\r\nab"), true),
        ("chunk of no size", text("transfer-encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n"), true),
        ("chunk of any size", text("transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nab"), true),
        ("broken trailer", text("transfer-encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n"), true),
        ("another transfer coding", text("transfer-encoding: gzip\r\n\r\nabc"), false),
        (
            "a length and chunks",
            text("content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
            false,
        ),
        ("the same length twice", text("content-length: 3\r\ncontent-length: 3\r\n\r\nabc"), false),
        ("too short", text("content-length: 100\r\n\r\nabc"), true),
        ("too long", text("content-length: 3\r\n\r\nabcdef"), false),
        ("an enormous length", text("content-length: 9223372036854775807\r\n\r\nabc"), true),
        ("no gzip", text("content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc"), false),
        ("silent", then("content-length: 9\r\n\r\n", Step::Hold), true),
        ("drip", then("content-length: 90000\r\n\r\n", Step::Forever(b"x".to_vec(), pause)), true),
        ("endless", then("\r\n", Step::Forever(vec![b'x'; 16_384], Duration::ZERO)), true),
        (
            "endless chunks",
            then("transfer-encoding: chunked\r\n\r\n", Step::Forever(b"1\r\nx\r\n".repeat(1_000), Duration::ZERO)),
            true,
        ),
        (
            "reset",
            vec![send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"), Step::Wait(pause * 10), Step::Reset],
            true,
        ),
        ("half-closed", then("content-length: 2\r\n\r\nok", Step::Half), false),
        ("204 with a body", vec![send("HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc")], false),
        ("205 with a body", vec![send("HTTP/1.1 205 Reset Content\r\ncontent-length: 3\r\n\r\nabc")], false),
        ("a second answer", text("content-length: 0\r\n\r\nHTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n"), false),
        (
            "interim",
            vec![send(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 X\r\n\r\nHTTP/1.1 103 X\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            )],
            false,
        ),
        (
            "much interim",
            vec![send(&format!("{}HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n".repeat(5_000)))],
            false,
        ),
        ("a thousand headers", text(&format!("{many}\r\n")), false),
        ("a huge header", text(&huge), false),
        ("a line without a colon", text("nonsense\r\ncontent-length: 0\r\n\r\n"), false),
        ("a name with a blank", text("bad name: x\r\ncontent-length: 0\r\n\r\n"), false),
        ("a blank before the colon", text("server : x\r\ncontent-length: 0\r\n\r\n"), false),
        ("an empty name", text(": x\r\ncontent-length: 0\r\n\r\n"), false),
        ("a folded line", text("x-a: 1\r\n  2\r\n\t3\r\ncontent-length: 0\r\n\r\n"), false),
        (
            "odd bytes in a value",
            vec![Step::Send(b"HTTP/1.1 200 OK\r\nx-note: caf\xe9 \xff\r\ncontent-length: 0\r\n\r\n".to_vec())],
            false,
        ),
        (
            "odd bytes in a name",
            vec![Step::Send(b"HTTP/1.1 200 OK\r\nx-\xe9: 1\r\ncontent-length: 0\r\n\r\n".to_vec())],
            false,
        ),
        (
            "byte by byte",
            "HTTP/1.1 200 OK\r\nx: y\r\n\r\n".bytes().flat_map(|b| [Step::Send(vec![b]), Step::Wait(pause)]).collect(),
            false,
        ),
    ] {
        let started = Instant::now();
        let case = Case { timeout_ms: 4_000, ..Case::plain(name) };
        let played = case.play([vec![Step::Read], steps].concat()).await;
        assert_eq!(class(&played.outcome), Class::Accepted, "{name}: {:?}", played.outcome);
        let got = answer(played.outcome);
        assert_eq!(got.body_broken, broken, "{name}");
        assert_eq!(got.phase(), if broken { Phase::Head } else { Phase::Body }, "{name}");
        // The body of an acceptance is given half a second.
        assert!(started.elapsed() < Duration::from_millis(3_000), "{name}: {:?}", started.elapsed());
        assert!(played.receiver.sent() < 16 * 1024 * 1024, "{name}: {} bytes were taken", played.receiver.sent());
    }
}

#[tokio::test]
async fn wh_o_07_the_body_of_an_acceptance_may_break_inside_tls_too() {
    let tls = certificates::server(Leaf::Good, &["http/1.1"]);
    for (name, step) in [("close", None), ("reset", Some(Step::Reset)), ("silence", Some(Step::Hold))] {
        let mut steps = vec![
            Step::Read,
            send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"),
            Step::Wait(Duration::from_millis(50)),
        ];
        steps.extend(step);
        let played = Case::tls(name, tls.clone()).play(steps).await;
        assert_eq!(class(&played.outcome), Class::Accepted, "{name}: {:?}", played.outcome);
        assert_eq!((answer(played.outcome).excerpt.as_str()), "abc", "{name}");
    }
}

#[tokio::test]
async fn wh_o_08_an_endless_answer_is_cut_in_bytes_and_in_time() {
    let receiver = Receiver::start().await;
    let big = Reply::with(500, "", &"<html>".repeat(400_000));
    let outcome = answer(post(&receiver.script("big", [big]), b"{}", 5_000).await);
    assert_eq!((outcome.status, outcome.excerpt.len()), (500, 1022 / 6 * 6 + 4));
    assert_eq!((outcome.body_bytes, outcome.body_broken), (65_536, true));
    let drip = Reply::Drip(b"HTTP/1.1 500 X\r\ncontent-length: 90000\r\n\r\n".to_vec(), Duration::from_millis(5));
    let started = Instant::now();
    assert_eq!(answer(post(&receiver.script("drip", [drip]), b"{}", 1_000).await).status, 500);
    assert!(started.elapsed() < Duration::from_millis(1_500));
    let steps = vec![send("HTTP/1.1 500 X\r\n\r\n"), Step::Forever(vec![b'x'; 16_384], Duration::ZERO)];
    assert_eq!(answered("endless", steps).await.body_bytes, 65_536);
    let exactly = Reply::with(500, "", &"x".repeat(65_536));
    let outcome = answer(post(&receiver.script("exactly", [exactly]), b"{}", 5_000).await);
    assert_eq!((outcome.body_bytes, outcome.body_broken), (65_536, false));
}

#[tokio::test]
async fn wh_o_08_a_compressed_body_is_not_inflated() {
    // 40 bytes that would be a megabyte of blanks are 40 bytes.
    let mut bomb =
        b"HTTP/1.1 500 X\r\ncontent-encoding: gzip\r\ncontent-length: 40\r\n\r\n\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    bomb.extend([0xed; 30]);
    let got = answered("bomb", vec![Step::Send(bomb)]).await;
    assert_eq!((got.body_bytes, got.body_broken, &got.excerpt[..8]), (40, false, "\\x1f\\x8b"));
}

#[tokio::test]
async fn wh_o_12_every_status_that_can_be_sent_is_an_answer_with_one_class() {
    for (line, status, expected) in [
        ("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade", 101, Class::Permanent),
        ("HTTP/1.1 400 X", 400, Class::Permanent),
        ("HTTP/1.1 401 X", 401, Class::Permanent),
        ("HTTP/1.1 404", 404, Class::Permanent),
        ("HTTP/1.1 408 X", 408, Class::Transient),
        ("HTTP/1.1 410 X", 410, Class::Gone),
        ("HTTP/1.1 413 X", 413, Class::Permanent),
        ("HTTP/1.1 421 X", 421, Class::Transient),
        ("HTTP/1.1 422 X", 422, Class::Permanent),
        ("HTTP/1.1 425 X", 425, Class::Transient),
        ("HTTP/1.1 429 X", 429, Class::Throttled),
        ("HTTP/1.0 500 X", 500, Class::Transient),
        ("HTTP/1.1 503 X", 503, Class::Transient),
        ("HTTP/1.1 600 X", 600, Class::Transient),
        ("HTTP/1.1 999 X", 999, Class::Transient),
    ] {
        let started = Instant::now();
        let played = Case::plain(line).play(vec![Step::Read, send(&format!("{line}\r\n\r\n"))]).await;
        assert_eq!(class(&played.outcome), expected, "{line}: {:?}", played.outcome);
        assert_eq!(answer(played.outcome).status, status);
        assert!(started.elapsed() < Duration::from_millis(900), "{line}");
    }
}

#[tokio::test]
async fn an_answer_before_the_body_was_read_is_an_answer() {
    for (status, expected) in
        [(401, Class::Permanent), (413, Class::Permanent), (200, Class::Accepted), (503, Class::Transient)]
    {
        for (how, end) in
            [("close", None), ("half", Some(Step::Half)), ("reset", Some(Step::Reset)), ("hold", Some(Step::Hold))]
        {
            for tls in [None, Some(certificates::server(Leaf::Good, &["http/1.1"]))] {
                let mut steps = vec![
                    Step::ReadHead,
                    send(&format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")),
                ];
                if how == "reset" {
                    // Otherwise the reset may overtake the answer in the receiver's own kernel.
                    steps.push(Step::Wait(Duration::from_millis(50)));
                }
                steps.extend(end.clone());
                let scheme = if tls.is_some() { "https" } else { "http" };
                let case = Case { body: vec![b'x'; 1024 * 1024], tls, scheme, ..Case::plain(how) };
                let outcome = case.play(steps).await.outcome;
                assert_eq!(class(&outcome), expected, "{status} then {how}, {scheme}: {outcome:?}");
                assert!(matches!(&outcome, Outcome::Answered(a) if a.status == status), "{outcome:?}");
            }
        }
    }
}

/// Pieces that answers are made of, whole and broken.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::sample::select(vec![
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.0 503 X\r\n",
        "HTTP/1.1 100 C\r\n\r\n",
        "HTTP/1.1 ",
        "HTTP/",
        "410",
        " ",
        "\r\n",
        "\n",
        "\r",
        "content-length: ",
        "3\r\n",
        "-1\r\n",
        "transfer-encoding: chunked\r\n",
        "retry-after: ",
        "webhook-delivery: ",
        "disable\r\n",
        "location: ",
        "//x/\r\n",
        "connection: close\r\n",
        "upgrade: x\r\n",
        ":",
        "x-a: b\r\n",
        "\t",
        "\0",
        "0\r\n\r\n",
        "5;x\r\nabcde\r\n",
    ]);
    prop_oneof![4 => text.prop_map(|t| t.as_bytes().to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..20)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_bytes_come_back_are_an_answer_or_an_unknown_outcome(
        start in prop_oneof![Just(""), Just("HTTP/1.1 200 OK\r\n"), Just("HTTP/1.1 503 X\r\n")],
        rest in prop::collection::vec(pieces(), 0..12),
    ) {
        let bytes = [start.as_bytes().to_vec(), rest.concat()].concat();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = runtime.block_on(async {
            Case::plain("any bytes").play(vec![Step::Read, Step::Send(bytes), Step::Half, Step::Hold]).await.outcome
        });
        match outcome {
            Outcome::Answered(answer) => prop_assert!((100..=999).contains(&answer.status)),
            Outcome::Failed { phase, detail } => {
                prop_assert_eq!(phase, Phase::Sent);
                prop_assert!(["protocol", "closed", "reset"].contains(&detail.as_str()), "{}", detail);
            }
            Outcome::Blocked { detail } => prop_assert!(false, "{}", detail),
        }
    }
}
