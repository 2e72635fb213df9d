//! The egress guard in front of real sockets: what is judged is what is dialled.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use domain::egress::EgressPolicy;
use domain::outcome::{Class, Outcome, Phase};
use sender::http::HttpSender;
use sender::resolver::Lookup;

use super::{answer, class, failed, local, post, post_with};
use crate::receiver::Receiver;
use crate::receiver::certificates::{self, Leaf};
use crate::receiver::raw::{Raw, Step, send};

/// Answers lookups in turn with these addresses (the last one stays), and counts them.
fn scripted(answers: &[&[&str]]) -> (Lookup, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let answers: Vec<Vec<SocketAddr>> =
        answers.iter().map(|a| a.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 1)).collect()).collect();
    let counted = Arc::clone(&count);
    let lookup: Lookup = Arc::new(move |_, _| {
        let nth = counted.fetch_add(1, Ordering::Relaxed);
        let answer = answers[nth.min(answers.len() - 1)].clone();
        Box::pin(async move { Ok(answer) })
    });
    (lookup, count)
}

fn with(policy: EgressPolicy, lookup: Lookup) -> HttpSender {
    HttpSender::with_lookup(policy, [certificates::root()], lookup)
}

#[tokio::test]
async fn wh_o_01_an_answer_with_an_address_of_the_inside_in_any_layout_is_refused() {
    for ip in [
        "10.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "2002:a9fe:a9fe::1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::7f00:1",
        "2001::1",
        "fec0::1",
        "fd00:ec2::254",
        "2a00::5efe:10.0.0.1",
        "::ffff:0:10.0.0.1",
    ] {
        let (lookup, count) = scripted(&[&[ip]]);
        let policy = EgressPolicy::parse(false, "443", "", "").unwrap();
        let outcome = post_with(&with(policy, lookup), "https://hooks.example.test/h", b"{}", 1_000).await;
        let Outcome::Blocked { detail } = &outcome else { panic!("{ip}: {outcome:?}") };
        assert!(!detail.contains(ip) && !detail.contains("hooks"), "{detail}");
        assert_eq!((class(&outcome), count.load(Ordering::Relaxed)), (Class::Blocked, 1));
    }
}

#[tokio::test]
async fn wh_o_02_an_address_in_any_spelling_and_a_name_are_judged_before_dialling() {
    let receiver = Receiver::start().await;
    let strict = HttpSender::new(EgressPolicy::parse(true, "any", "", "").unwrap(), []);
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "127.1",
        "0",
        "[::ffff:7f00:1]",
        "127.0.0.1.",
        "localhost",
        "LOCALHOST.",
        "１２７．０．０．１",
        "127%2e0.0.1",
        "ⓛocalhost",
        "[::7f00:1]",
    ] {
        let url = format!("http://{host}:{}/a", receiver.port);
        let outcome = post_with(&strict, &url, b"{}", 2_000).await;
        assert!(matches!(outcome, Outcome::Blocked { .. }), "{host}: {outcome:?}");
    }
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn one_bad_address_among_good_ones_refuses_the_whole_answer() {
    let receiver = Raw::start(None, vec![Step::Read, send("HTTP/1.1 200 OK\r\n\r\n")]).await;
    let url = format!("http://hooks.example.test:{}/", receiver.port);
    for answer in [&["127.0.0.1", "10.0.0.1"] as &[&str], &["10.0.0.1", "127.0.0.1"], &["127.0.0.1", "::1", "fe80::1"]]
    {
        let (lookup, _) = scripted(&[answer]);
        let outcome = post_with(&with(local(), lookup), &url, b"{}", 1_000).await;
        assert!(matches!(outcome, Outcome::Blocked { .. }), "{answer:?}: {outcome:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn wh_o_03_a_name_is_resolved_once_per_attempt_and_the_judged_address_is_dialled() {
    let receiver = Raw::start(None, vec![Step::Read, send("HTTP/1.1 200 OK\r\n\r\n")]).await;
    let url = format!("http://hooks.example.test:{}/a", receiver.port);
    // The second answer would be refused: whoever asked twice within an attempt would see it.
    let (lookup, count) = scripted(&[&["127.0.0.1"], &["169.254.169.254"]]);
    let sender = with(local(), lookup);
    assert_eq!(class(&post_with(&sender, &url, b"{}", 1_000).await), Class::Accepted);
    assert_eq!((count.load(Ordering::Relaxed), receiver.connections()), (1, 1));
    // A later attempt asks again: a name that was rebound meanwhile is refused, whatever connection there was.
    let rebound = post_with(&sender, &url, b"{}", 1_000).await;
    assert!(matches!(rebound, Outcome::Blocked { .. }), "{rebound:?}");
    assert_eq!((count.load(Ordering::Relaxed), receiver.connections()), (2, 1));
}

#[tokio::test]
async fn attempts_that_run_at_once_dial_the_addresses_of_their_own_names() {
    let receivers = [Receiver::start().await, Receiver::start().await];
    let lookup: Lookup = Arc::new(|name, port| {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let last = if name.starts_with('a') { 1 } else { 2 };
            Ok(vec![SocketAddr::from(([127, 0, 0, last], port))])
        })
    });
    // Only 127.0.0.1 is allowed, so that the other name is refused in the middle of the first one's attempt.
    let sender = with(EgressPolicy::parse(true, "any", "127.0.0.1/32", "").unwrap(), lookup);
    let (a, b) = (
        format!("http://a.example.test:{}/x", receivers[0].port),
        format!("http://b.example.test:{}/x", receivers[1].port),
    );
    let (good, bad) = tokio::join!(post_with(&sender, &a, b"{}", 1_000), post_with(&sender, &b, b"{}", 1_000));
    assert_eq!((class(&good), class(&bad)), (Class::Accepted, Class::Blocked));
    assert_eq!((receivers[0].count(), receivers[1].count()), (1, 0));
}

#[tokio::test]
async fn the_original_name_is_kept_for_host_and_certificate_also_with_a_dot_at_its_end() {
    let tls = certificates::server(Leaf::Good, &["http/1.1"]);
    for (host, sni) in [
        ("hooks.example.test", "hooks.example.test"),
        ("hooks.example.test.", "hooks.example.test"),
        ("BÜCHER.example.test", "xn--bcher-kva.example.test"),
    ] {
        let receiver = Raw::start(Some(Arc::clone(&tls)), vec![Step::Read, send("HTTP/1.1 200 OK\r\n\r\n")]).await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let names = Arc::clone(&asked);
        let lookup: Lookup = Arc::new(move |name, _| {
            names.lock().unwrap().push(name);
            Box::pin(async { Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))]) })
        });
        let url = format!("https://{host}:{}/a", receiver.port);
        assert_eq!(answer(post_with(&with(local(), lookup), &url, b"{}", 2_000).await).status, 200, "{host}");
        let ascii = url::Url::parse(&url).unwrap().host_str().unwrap().to_owned();
        assert_eq!(receiver.server_name().as_deref(), Some(sni), "{host}");
        assert!(receiver.text().contains(&format!("host: {ascii}:{}\r\n", receiver.port)), "{}", receiver.text());
        assert_eq!(*asked.lock().unwrap(), [ascii]);
    }
}

#[tokio::test]
async fn wh_o_04_user_info_is_refused_and_not_repeated() {
    let receiver = Receiver::start().await;
    for url in [
        format!("http://name:s3cr3t@127.0.0.1:{}/a", receiver.port),
        format!("http://s3cr3t@127.0.0.1:{}/a", receiver.port),
        "https://hooks.example.test:s3cr3t@169.254.169.254/h".to_owned(),
        r"https:\\s3cr3t@127.0.0.1\h".to_owned(),
    ] {
        let outcome = post(&url, b"{}", 1_000).await;
        let Outcome::Blocked { detail } = outcome else { panic!("{url}: {outcome:?}") };
        assert!(!detail.contains("s3cr3t") && !detail.contains("127.0"), "{detail}");
    }
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn a_lookup_that_fails_or_finds_nothing_is_a_failed_attempt_in_the_phase_of_the_name() {
    let empty: Lookup = Arc::new(|_, _| Box::pin(async { Ok(Vec::new()) }));
    let failing: Lookup = Arc::new(|_, _| Box::pin(async { Err(std::io::Error::other("tok3n")) }));
    for lookup in [empty, failing] {
        let outcome = post_with(&with(local(), lookup), "http://hooks.example.test/", b"{}", 1_000).await;
        assert_eq!((class(&outcome), outcome), (Class::Transient, failed(Phase::Dns, "dns")));
    }
}

#[tokio::test]
async fn a_slow_lookup_ends_at_its_own_limit_or_with_the_attempt() {
    let slow: Lookup = Arc::new(|_, _| Box::pin(std::future::pending()));
    for (timeout_ms, at_least, at_most) in [(10_000, 1_900, 5_000), (300, 250, 1_500)] {
        let started = Instant::now();
        let outcome =
            post_with(&with(local(), Arc::clone(&slow)), "http://hooks.example.test/", b"{}", timeout_ms).await;
        assert_eq!((class(&outcome), outcome), (Class::Transient, failed(Phase::Dns, "dns_timeout")));
        let took = started.elapsed();
        assert!((Duration::from_millis(at_least)..Duration::from_millis(at_most)).contains(&took), "{took:?}");
    }
}

#[tokio::test]
async fn a_slow_lookup_leaves_the_whole_time_to_connect_its_own_limit() {
    // 1.5 s for the name and 2 s for the handshake: more than the limit of either, less than their sum.
    let tls = certificates::server(Leaf::Good, &["http/1.1"]);
    let inner = Raw::start(Some(tls), vec![Step::Read, send("HTTP/1.1 200 OK\r\n\r\n")]).await;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut outside, _) = listener.accept().await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut inside = tokio::net::TcpStream::connect(("127.0.0.1", inner.port)).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    });
    let lookup: Lookup = Arc::new(|_, _| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
        })
    });
    let url = format!("https://hooks.example.test:{port}/");
    assert_eq!(answer(post_with(&with(local(), lookup), &url, b"{}", 10_000).await).status, 200);
}

#[tokio::test]
async fn the_runtime_interface_is_out_of_reach_by_address_and_by_name() {
    let runtime = Receiver::start().await;
    let own = format!("127.0.0.1:{}", runtime.port);
    let policy = || {
        EgressPolicy::parse(true, "any", "0.0.0.0/0, ::/0", "runtime.example.test")
            .unwrap()
            .with_runtime_api(Some(&own))
            .unwrap()
    };
    let (lookup, _) = scripted(&[&["127.0.0.1"], &["::1"], &["0.0.0.0"], &["127.0.0.2"]]);
    let sender = with(policy(), lookup);
    for host in [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "[::]",
        "runtime.example.test",
        "runtime.example.test",
        "runtime.example.test",
        "runtime.example.test",
    ] {
        let outcome =
            post_with(&sender, &format!("http://{host}:{}/2018-06-01/runtime/init/error", runtime.port), b"{}", 1_000)
                .await;
        assert!(matches!(outcome, Outcome::Blocked { .. }), "{host}: {outcome:?}");
    }
    assert_eq!(runtime.count(), 0);
}
