//! No answer: how far the attempt came, and why it ended, in one word.

use std::time::{Duration, Instant};

use domain::outcome::{Class, Phase};

use super::{Case, class, failed, post};
use crate::receiver::raw::{Step, send};
use crate::receiver::{Receiver, Reply};

#[tokio::test]
async fn wh_o_11_without_an_answer_the_phase_and_a_word_are_known() {
    let receiver = Receiver::start().await;
    let silent = post(&receiver.script("a", [Reply::silence()]), b"{}", 300).await;
    assert_eq!(silent, failed(Phase::Sent, "timeout"));
    let empty_body = post(&receiver.script("a", [Reply::silence()]), b"", 300).await;
    assert_eq!(empty_body, failed(Phase::Sent, "timeout"));
    let unused = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    for (scheme, body) in [("http", b"{}" as &[u8]), ("https", b"{}"), ("http", b"")] {
        let refused = post(&format!("{scheme}://127.0.0.1:{unused}/"), body, 2_000).await;
        assert_eq!((class(&refused), refused), (Class::Transient, failed(Phase::Connect, "refused")), "{scheme}");
    }
    let nowhere = post("http://does-not-exist.invalid/", b"{}", 2_000).await;
    assert_eq!((class(&nowhere), nowhere), (Class::Transient, failed(Phase::Dns, "dns")));
}

#[tokio::test]
async fn a_connection_that_never_stands_ends_at_the_limit_for_connecting_or_with_the_attempt() {
    // A listener whose queue is full takes no further connection.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(address)).await
    {
        waiting.push(stream);
    }
    for (timeout_ms, at_least, at_most) in [(10_000, 2_900, 6_000), (300, 250, 1_500)] {
        let started = Instant::now();
        let outcome = post(&format!("http://{address}/"), b"{}", timeout_ms).await;
        assert_eq!((class(&outcome), outcome), (Class::Transient, failed(Phase::Connect, "timeout")));
        let took = started.elapsed();
        assert!((Duration::from_millis(at_least)..Duration::from_millis(at_most)).contains(&took), "{took:?}");
    }
}

#[tokio::test]
async fn a_receiver_that_breaks_off_before_its_head_is_complete_may_have_the_request() {
    let second = Duration::from_secs(1);
    let endless_head =
        Step::Forever(b"x-filler: 0123456789012345678901234567890123456789\r\n".to_vec(), Duration::ZERO);
    for (name, word, steps) in [
        ("close without an answer", "closed", vec![Step::Read]),
        ("half-close without an answer", "closed", vec![Step::Read, Step::Half, Step::Hold]),
        ("reset after the request", "reset", vec![Step::Read, Step::Reset]),
        ("reset after its head", "reset", vec![Step::ReadHead, Step::Reset]),
        ("close in the head", "closed", vec![Step::Read, send("HTTP/1.1 200 OK\r\nserver: x")]),
        (
            "reset in the head",
            "reset",
            vec![Step::Read, send("HTTP/1.1 200 OK\r\n"), Step::Wait(second / 10), Step::Reset],
        ),
        ("silence", "timeout", vec![Step::Read, Step::Hold]),
        ("silence in the head", "timeout", vec![Step::Read, send("HTTP/1.1 200 OK\r\n"), Step::Hold]),
        (
            "a head byte by byte",
            "timeout",
            vec![Step::Read, send("HTTP/1.1 200 OK\r\nx: "), Step::Forever(b"y".to_vec(), second / 50)],
        ),
        ("an endless head", "protocol", vec![Step::Read, send("HTTP/1.1 200 OK\r\n"), endless_head]),
        (
            "an endless line",
            "protocol",
            vec![Step::Read, send("HTTP/1.1 200 OK\r\nx: "), Step::Forever(vec![b'y'; 4096], Duration::ZERO)],
        ),
        (
            "an endless status line",
            "protocol",
            vec![Step::Read, send("HTTP/1.1 200 "), Step::Forever(vec![b'y'; 4096], Duration::ZERO)],
        ),
        (
            "interim answers for ever",
            "timeout",
            vec![Step::Read, Step::Forever(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".to_vec(), second / 100)],
        ),
        ("interim and then nothing", "timeout", vec![Step::Read, send("HTTP/1.1 102 Processing\r\n\r\n"), Step::Hold]),
        ("no HTTP", "protocol", vec![Step::Read, send("SSH-2.0-OpenSSH_9.6\r\n\r\n")]),
        ("HTTP/0.9", "protocol", vec![Step::Read, send("<html>hello</html>")]),
        ("a status of two digits", "protocol", vec![Step::Read, send("HTTP/1.1 20 X\r\n\r\n")]),
        ("a status of letters", "protocol", vec![Step::Read, send("HTTP/1.1 OK\r\n\r\n")]),
        ("HTTP/2 where HTTP/1.1 was spoken", "protocol", vec![Step::Read, send("HTTP/2 200 OK\r\n\r\n")]),
        // RFC 9112 section 6.3 forbids to use such an answer.
        (
            "two lengths",
            "protocol",
            vec![Step::Read, send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc")],
        ),
        // The client's parser gives up on this byte, wherever it stands.
        ("a NUL in a header", "protocol", vec![Step::Read, send("HTTP/1.1 200 OK\r\nx-a: a\0b\r\n\r\n")]),
        (
            "a length beyond all numbers",
            "protocol",
            vec![Step::Read, send("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n")],
        ),
        ("a negative length", "protocol", vec![Step::Read, send("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n")]),
    ] {
        let played = Case::plain(name).play(steps).await;
        assert_eq!(played.outcome, failed(Phase::Sent, word), "{name}");
        assert_eq!(class(&played.outcome), Class::Unknown, "{name}");
        assert_eq!(played.receiver.requests(), 1, "{name}");
        // The kernel's buffers on both sides hold some megabytes of what the client never took.
        assert!(played.receiver.sent() < 16 * 1024 * 1024, "{name}: {} bytes were taken", played.receiver.sent());
    }
}

#[tokio::test]
async fn a_reset_right_after_the_connection_stood_says_whether_writing_had_begun() {
    let body = vec![b'x'; 4 * 1024 * 1024];
    let played = Case { body: body.clone(), ..Case::plain("reset") }.play(vec![Step::Reset]).await;
    // Which of the two it is depends on who is faster; both are true when they are said.
    let early = (Class::Transient, failed(Phase::Connect, "reset"));
    let late = (Class::Unknown, failed(Phase::Sent, "reset"));
    let seen = (class(&played.outcome), played.outcome);
    assert!(seen == early || seen == late, "{seen:?}");
    let played = Case { body, ..Case::plain("reset") }.play(vec![Step::ReadSome, Step::Reset]).await;
    assert_eq!((class(&played.outcome), played.outcome), late);
}

#[tokio::test]
async fn a_body_that_is_never_taken_ends_with_the_attempt() {
    let case = Case { body: vec![b'x'; 32 * 1024 * 1024], timeout_ms: 500, ..Case::plain("never read") };
    let played = case.play(vec![Step::ReadHead, Step::Wait(Duration::from_secs(5))]).await;
    assert_eq!(played.outcome, failed(Phase::Sent, "timeout"));
}
