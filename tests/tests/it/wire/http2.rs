//! HTTP/2 below the level of HTTP: frames by hand, inside real TLS.

use std::time::{Duration, Instant};

use domain::outcome::{Class, NOT_PROCESSED, Outcome, Phase};

use super::{Case, Played, answer, class, failed};
use crate::receiver::certificates::{self, Leaf};
use crate::receiver::raw::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, Step, fields, frame,
    head, settings,
};

const OK: &[(&str, &str)] = &[(":status", "200")];

async fn play(name: &'static str, body: &[u8], steps: Vec<Step>) -> Played {
    let tls = certificates::server(Leaf::Good, &["h2"]);
    Case { body: body.to_vec(), ..Case::tls(name, tls) }.play(steps).await
}

/// A request is read whole, and then this happens.
fn after(rest: Vec<Step>) -> Vec<Step> {
    [vec![settings(), Step::ReadH2], rest].concat()
}

fn reset(code: u32) -> Step {
    Step::Send(frame(RST_STREAM, 0, 1, &code.to_be_bytes()))
}

fn goaway(last: u32, code: u32) -> Step {
    Step::Send(frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()))
}

fn data(flags: u8, bytes: &[u8]) -> Step {
    Step::Send(frame(DATA, flags, 1, bytes))
}

#[tokio::test]
async fn a_head_is_an_answer_whatever_comes_after_it() {
    let long = "y".repeat(100_000);
    let continued = fields(&[(":status", "200"), ("x-long", &long)]);
    let mut in_parts = vec![Step::Send(frame(HEADERS, END_STREAM, 1, &continued[..16_000]))];
    for part in continued[16_000..].chunks(16_000) {
        in_parts.push(Step::Send(frame(CONTINUATION, 0, 1, part)));
    }
    in_parts.push(Step::Send(frame(CONTINUATION, END_HEADERS, 1, &[])));
    let many: Vec<(String, String)> = (0..1_000).map(|n| (format!("x-{n}"), n.to_string())).collect();
    let mut thousand = vec![(":status", "200")];
    thousand.extend(many.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    for (name, rest, broken) in [
        ("head only", vec![head(END_STREAM, OK), Step::Hold], false),
        ("head and body", vec![head(0, OK), data(END_STREAM, b"ok"), Step::Hold], false),
        ("trailers", vec![head(0, OK), data(0, b"ok"), head(END_STREAM, &[("x-trailer", "1")]), Step::Hold], false),
        ("close after it", vec![head(0, OK), data(0, b"o")], true),
        (
            "reset of the connection",
            vec![head(0, OK), data(0, b"o"), Step::Wait(Duration::from_millis(50)), Step::Reset],
            true,
        ),
        // "Enough, thank you" (RFC 9113 section 8.1).
        ("RST_STREAM no error", vec![head(0, OK), data(0, b"o"), reset(0), Step::Hold], false),
        ("RST_STREAM internal error", vec![head(0, OK), reset(2), Step::Hold], true),
        ("RST_STREAM refused", vec![head(0, OK), reset(7), Step::Hold], true),
        ("RST_STREAM cancel", vec![head(0, OK), reset(8), Step::Hold], true),
        ("RST_STREAM after the end", vec![head(END_STREAM, OK), reset(0), Step::Hold], false),
        ("GOAWAY after it", vec![head(0, OK), goaway(1, 0), data(END_STREAM, b"ok"), Step::Hold], false),
        ("GOAWAY before it", vec![goaway(1, 0), head(0, OK), data(END_STREAM, b"ok"), Step::Hold], false),
        ("GOAWAY in trouble after it", vec![head(0, OK), goaway(1, 2)], true),
        (
            "interim",
            vec![
                head(0, &[(":status", "100")]),
                head(0, &[(":status", "103"), ("link", "x")]),
                head(END_STREAM, OK),
                Step::Hold,
            ],
            false,
        ),
        (
            "a length that lies",
            vec![head(0, &[(":status", "200"), ("content-length", "9")]), data(END_STREAM, b"ok"), Step::Hold],
            true,
        ),
        ("a body after 204", vec![head(0, &[(":status", "204")]), data(END_STREAM, b"ok"), Step::Hold], false),
        ("silence after it", vec![head(0, OK), Step::Hold], true),
        ("a drip", vec![head(0, OK), Step::Forever(frame(DATA, 0, 1, b"x"), Duration::from_millis(5))], true),
        (
            "empty frames for ever",
            vec![head(0, OK), Step::Forever(frame(DATA, 0, 1, b""), Duration::from_millis(5))],
            true,
        ),
        (
            "many pings",
            vec![Step::Send(frame(PING, 0, 0, &[7; 8]).repeat(1_000)), head(END_STREAM, OK), Step::Hold],
            false,
        ),
        ("a long head in parts", [in_parts, vec![Step::Hold]].concat(), false),
        (
            "a thousand headers",
            vec![Step::Send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&thousand))), Step::Hold],
            false,
        ),
    ] {
        let started = Instant::now();
        let played = play(name, b"{}", after(rest)).await;
        assert_eq!(class(&played.outcome), Class::Accepted, "{name}: {:?}", played.outcome);
        assert_eq!(answer(played.outcome).body_broken, broken, "{name}");
        assert!(started.elapsed() < Duration::from_millis(1_000), "{name}: {:?}", started.elapsed());
        assert_eq!(played.receiver.requests(), 1, "{name}");
    }
}

#[tokio::test]
async fn an_answer_before_the_body_was_taken_is_an_answer() {
    for (name, rest) in [
        ("then no error", vec![head(END_STREAM, &[(":status", "413")]), reset(0), Step::Hold]),
        ("then nothing", vec![head(END_STREAM, &[(":status", "413")]), Step::Hold]),
        ("then close", vec![head(END_STREAM, &[(":status", "413")]), goaway(1, 0)]),
    ] {
        let played = play(name, &vec![b'x'; 1024 * 1024], [vec![settings(), Step::ReadH2Head], rest].concat()).await;
        assert!(matches!(&played.outcome, Outcome::Answered(a) if a.status == 413), "{name}: {:?}", played.outcome);
    }
}

#[tokio::test]
async fn without_a_head_the_receiver_may_have_the_request() {
    let endless = fields(&[("x-a", &"y".repeat(8_000))]);
    for (name, word, rest) in [
        ("silence", "timeout", vec![Step::Hold]),
        ("close", "closed", vec![Step::Half, Step::Hold]),
        ("reset", "reset", vec![Step::Reset]),
        ("GOAWAY", "closed", vec![goaway(0, 0)]),
        ("GOAWAY in trouble", "closed", vec![goaway(1, 2)]),
        ("RST_STREAM no error", "reset", vec![reset(0), Step::Hold]),
        ("RST_STREAM protocol error", "reset", vec![reset(1), Step::Hold]),
        ("RST_STREAM internal error", "reset", vec![reset(2), Step::Hold]),
        ("RST_STREAM cancel", "reset", vec![reset(8), Step::Hold]),
        ("RST_STREAM enhance your calm", "reset", vec![reset(11), Step::Hold]),
        ("RST_STREAM HTTP/1.1 required", "reset", vec![reset(13), Step::Hold]),
        (
            "interim for ever",
            "timeout",
            vec![Step::Forever(
                frame(HEADERS, END_HEADERS, 1, &fields(&[(":status", "103")])),
                Duration::from_millis(10),
            )],
        ),
        ("pings for ever", "timeout", vec![Step::Forever(frame(PING, 0, 0, &[7; 8]), Duration::from_millis(10))]),
        ("settings for ever", "timeout", vec![Step::Forever(frame(SETTINGS, 0, 0, &[]), Duration::from_millis(10))]),
        ("no status", "protocol", vec![head(END_STREAM, &[("x-a", "b")]), Step::Hold]),
        ("body before head", "protocol", vec![data(0, b"x"), Step::Hold]),
        ("no frames", "protocol", vec![Step::Send(b"HTTP/1.1 200 OK\r\n\r\n".repeat(4)), Step::Hold]),
        (
            "a head without end",
            "protocol",
            vec![
                Step::Send(frame(HEADERS, 0, 1, &fields(OK))),
                Step::Forever(frame(CONTINUATION, 0, 1, &endless), Duration::ZERO),
            ],
        ),
    ] {
        let played = play(name, b"{}", after(rest)).await;
        assert_eq!(played.outcome, failed(Phase::Sent, word), "{name}");
        assert_eq!(class(&played.outcome), Class::Unknown, "{name}");
        assert_eq!(played.receiver.requests(), 1, "{name}");
        assert!(played.receiver.sent() < 16 * 1024 * 1024, "{name}: {} bytes were taken", played.receiver.sent());
    }
}

#[tokio::test]
async fn a_refused_stream_was_not_processed_and_is_not_sent_again_within_the_attempt() {
    let played = play("refused", b"{}", after(vec![reset(7), Step::Hold])).await;
    assert_eq!(played.outcome, failed(Phase::Sent, NOT_PROCESSED));
    assert_eq!((class(&played.outcome), played.receiver.requests()), (Class::Transient, 1));
}

#[tokio::test]
async fn a_receiver_that_never_lets_the_request_begin_does_not_have_it() {
    // No concurrent stream is allowed: the request waits for its turn, and is never written.
    let none = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]);
    let played = play(
        "no streams",
        b"{}",
        vec![Step::ReadSome, Step::Send([none, frame(SETTINGS, 1, 0, &[])].concat()), Step::Hold],
    )
    .await;
    let seen = (class(&played.outcome), played.receiver.requests());
    // The client may write before it has read that it must not.
    assert!(seen == (Class::Transient, 0) || seen == (Class::Unknown, 1), "{seen:?}: {:?}", played.outcome);
}

#[tokio::test]
async fn silence_after_the_settings_or_a_window_that_never_opens_ends_with_the_attempt() {
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for (name, steps) in [
        ("settings and silence", vec![settings(), Step::Hold]),
        ("no window", vec![Step::Send([no_window, frame(SETTINGS, 1, 0, &[])].concat()), Step::ReadH2Head, Step::Hold]),
    ] {
        let played = play(name, &vec![b'x'; 1024 * 1024], steps).await;
        assert_eq!(played.outcome, failed(Phase::Sent, "timeout"), "{name}");
    }
}
