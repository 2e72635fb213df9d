//! What goes out: the exact bytes, once, with nothing of the client's own.

use std::process::Command;

use domain::outcome::{Class, Outcome};
use domain::ports::Sender;
use domain::request::Request;
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::{answer, class, post, sender};
use crate::receiver::certificates::{self, Leaf};
use crate::receiver::{Receiver, Reply};
use std::time::Duration;

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
    for absent in ["transfer-encoding", "accept-encoding", "cookie", "authorization", "expect", "te"] {
        assert_eq!(seen[0].header(absent), None, "{absent}");
    }
    assert_eq!(seen[0].headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("host")).count(), 1);
}

#[tokio::test]
async fn over_http2_the_same_bytes_arrive_with_lower_case_names_and_the_host_once() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let body: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let receiver = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let tls = TlsAcceptor::from(certificates::server(Leaf::Good, &["h2"])).accept(tcp).await.unwrap();
        let mut connection = h2::server::handshake(tls).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let (parts, mut stream) = request.into_parts();
        let reading = async move {
            let mut body = Vec::new();
            while let Some(Ok(chunk)) = stream.data().await {
                stream.flow_control().release_capacity(chunk.len()).unwrap();
                body.extend_from_slice(&chunk);
            }
            let mut sent =
                respond.send_response(http::Response::builder().status(202).body(()).unwrap(), false).unwrap();
            sent.send_data(bytes::Bytes::from_static(b"ok"), true).unwrap();
            body
        };
        let reading = tokio::spawn(reading);
        while connection.accept().await.is_some() {}
        (parts, reading.await.unwrap())
    });
    let headers = vec![("X-Tenant".to_owned(), "7".to_owned()), ("webhook-id".to_owned(), "e".to_owned())];
    let url = Url::parse(&format!("https://127.0.0.1:{port}/p/a?b=%20c")).unwrap();
    let sender = sender();
    let got = answer(sender.post(&Request { url, headers, body: &body, timeout_ms: 5_000 }).await);
    assert_eq!((got.status, got.excerpt.as_str(), got.body_broken), (202, "ok", false));
    let (parts, received) = receiver.await.unwrap();
    assert!(received == body);
    assert_eq!(parts.uri.to_string(), format!("https://127.0.0.1:{port}/p/a?b=%20c"));
    assert_eq!((parts.method, parts.headers.get("host")), (http::Method::POST, None));
    // Upper-case names would have been refused as malformed; each header came once.
    assert_eq!(parts.headers.get_all("x-tenant").iter().collect::<Vec<_>>(), ["7"]);
    assert_eq!(parts.headers.get_all("content-length").iter().collect::<Vec<_>>(), ["70000"]);
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
async fn wh_o_05_what_can_never_be_sent_is_blocked_without_a_connection() {
    let receiver = Receiver::start().await;
    let sender = sender();
    for (name, value) in [("bad name", "v"), ("x-a", "Z\r\nX-B: 1"), ("x-a", "\0"), ("", "v")] {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let url = Url::parse(&receiver.url("a")).unwrap();
        let outcome = sender.post(&Request { url, headers, body: b"{}", timeout_ms: 1_000 }).await;
        assert!(matches!(outcome, Outcome::Blocked { .. }), "{name:?}: {outcome:?}");
        assert_eq!(class(&outcome), Class::Blocked);
    }
    assert!(receiver.seen("a").is_empty());
}

/// Set in the process that must not use the proxy; holds the receiver's URL.
const TARGET: &str = "REDELIVER_TEST_TARGET";

#[tokio::test]
async fn a_proxy_in_the_environment_is_ignored() {
    let (receiver, proxy) = (Receiver::start().await, Receiver::start().await);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "wire::request::posts_where_it_is_told", "--nocapture"]).env(TARGET, receiver.url("a"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        child.env(name, proxy.url(""));
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((receiver.seen("a").len(), proxy.count()), (1, 0));
}

#[tokio::test]
async fn posts_where_it_is_told() {
    // On its own it posts to a receiver of its own; as a child of the test above it posts where that says.
    let own = Receiver::start().await;
    let url = std::env::var(TARGET).unwrap_or_else(|_| own.url("a"));
    assert_eq!(answer(post(&url, b"{}", 2_000).await).status, 200);
}
