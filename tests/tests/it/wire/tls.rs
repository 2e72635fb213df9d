//! TLS that fails, and TLS that succeeds once and leaves nothing behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::outcome::{Class, Phase};
use sender::http::{HttpSender, parse_roots};

use super::{Case, answer, class, failed, local, post, post_with};
use crate::receiver::certificates::{self, Leaf};
use crate::receiver::raw::{Raw, Step, send};

fn ok() -> Vec<Step> {
    vec![Step::Read, send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")]
}

#[tokio::test]
async fn a_certificate_that_cannot_be_trusted_sends_nothing_and_says_what_is_wrong() {
    for (leaf, word) in [
        (Leaf::WrongName, "certificate_name_mismatch"),
        (Leaf::Expired, "certificate_expired"),
        (Leaf::NotYetValid, "certificate_not_valid_yet"),
        (Leaf::SelfSigned, "certificate_unknown_issuer"),
        (Leaf::UnknownAuthority, "certificate_unknown_issuer"),
    ] {
        for protocols in [&["http/1.1"] as &[&str], &["h2"]] {
            let played = Case::tls("certificate", certificates::server(leaf, protocols)).play(ok()).await;
            assert_eq!(played.outcome, failed(Phase::Tls, word), "{leaf:?}");
            assert_eq!((class(&played.outcome), played.receiver.requests()), (Class::Transient, 0), "{leaf:?}");
        }
    }
}

#[tokio::test]
async fn a_private_root_is_trusted_only_when_it_is_given() {
    let receiver = Raw::start(Some(certificates::server(Leaf::Good, &["http/1.1"])), ok()).await;
    let url = format!("https://127.0.0.1:{}/", receiver.port);
    let without = HttpSender::new(local(), []);
    assert_eq!(post_with(&without, &url, b"{}", 2_000).await, failed(Phase::Tls, "certificate_unknown_issuer"));
    let with = HttpSender::new(local(), parse_roots(&certificates::root_pem()).unwrap());
    assert_eq!(answer(post_with(&with, &url, b"{}", 2_000).await).status, 200);
}

#[tokio::test]
async fn a_handshake_that_fails_is_transient_and_in_its_own_phase() {
    let alert = Step::Send(vec![21, 3, 3, 0, 2, 2, 40]);
    for (name, word, steps) in [
        ("alert", "tls", vec![Step::ReadSome, alert]),
        ("plain http", "tls", vec![Step::ReadSome, send("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")]),
        ("noise", "tls", vec![Step::ReadSome, Step::Send(vec![0; 64])]),
        ("close", "closed", vec![Step::ReadSome]),
        ("reset", "reset", vec![Step::ReadSome, Step::Reset]),
        ("stall", "timeout", vec![Step::Hold]),
    ] {
        let played = Case { scheme: "https", ..Case::plain(name) }.play(steps).await;
        assert_eq!(played.outcome, failed(Phase::Tls, word), "{name}");
        assert_eq!((class(&played.outcome), played.receiver.requests()), (Class::Transient, 0), "{name}");
    }
}

#[tokio::test]
async fn a_stalled_handshake_ends_at_the_limit_for_connecting() {
    let receiver = Raw::start(None, vec![Step::Hold]).await;
    let started = Instant::now();
    let outcome = post(&format!("https://127.0.0.1:{}/", receiver.port), b"{}", 10_000).await;
    assert_eq!(outcome, failed(Phase::Tls, "timeout"));
    let took = started.elapsed();
    assert!((Duration::from_millis(2_900)..Duration::from_millis(6_000)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn silence_after_the_handshake_may_hide_that_the_request_was_taken() {
    for protocols in [&["http/1.1"] as &[&str], &[]] {
        let played = Case::tls("silence", certificates::server(Leaf::Good, protocols)).play(vec![Step::Hold]).await;
        assert_eq!(played.outcome, failed(Phase::Sent, "timeout"));
        assert_eq!(class(&played.outcome), Class::Unknown);
    }
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_certificate_of_ours_has_not_read_the_request() {
    let played =
        Case::tls("client certificate", certificates::server(Leaf::GoodButAsksForOne, &["http/1.1"])).play(ok()).await;
    assert_eq!(played.outcome, failed(Phase::Tls, "certificate_required"));
    assert_eq!((class(&played.outcome), played.receiver.requests()), (Class::Transient, 0));
}

#[tokio::test]
async fn no_session_is_resumed_so_every_attempt_checks_the_certificate() {
    let tls = certificates::server(Leaf::Good, &["http/1.1"]);
    let first = Raw::start(Some(Arc::clone(&tls)), ok()).await;
    let sender = HttpSender::new(local(), [certificates::root()]);
    for nth in 0..3 {
        assert_eq!(
            answer(post_with(&sender, &format!("https://127.0.0.1:{}/", first.port), b"{}", 2_000).await).status,
            200
        );
        assert_eq!((first.connections(), first.resumed()), (nth + 1, 0));
    }
}

#[tokio::test]
async fn an_answer_inside_tls_is_complete_without_a_goodbye() {
    // The raw receiver resets right after the body: no close_notify.
    let steps = vec![
        Step::Read,
        send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        Step::Wait(Duration::from_millis(50)),
        Step::Reset,
    ];
    let played = Case::tls("no goodbye", certificates::server(Leaf::Good, &["http/1.1"])).play(steps).await;
    let got = answer(played.outcome);
    assert_eq!((got.status, got.excerpt.as_str(), got.body_broken), (200, "ok", false));
}
