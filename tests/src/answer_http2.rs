//! The same over HTTP/2: frames of a receiver.

use std::net::SocketAddr;
use std::sync::Arc;

use domain::egress::EgressPolicy;
use domain::outcome::Class;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sender::http::HttpSender;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

use crate::answer::{holds, outcome_of};

/// The receiver's settings, and that it has seen ours.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0];
/// Heads that accept: 200 by its place in the static table, and 204 spelt out, each as a whole; the last with the end of the
/// answer.
const ACCEPTING: &[&[u8]] = &[
    &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88],
    &[0, 0, 5, 1, 4, 0, 0, 0, 1, 0x08, 3, b'2', b'0', b'4'],
    &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88],
];
/// How the request ends: a frame with its body.
const END_OF_REQUEST: &[u8] = &[0, 0, 2, 0, 1, 0, 0, 0, 1, b'{', b'}'];

struct World {
    runtime: Runtime,
    sender: HttpSender,
    listener: TcpListener,
    tls: TlsAcceptor,
    address: SocketAddr,
}

thread_local! {
    static WORLD: World = {
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let chain = vec![signed.cert.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports them")
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key)
            .expect("the key belongs to the certificate");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).expect("a loopback port is free");
        let address = listener.local_addr().expect("it is bound");
        let policy = EgressPolicy::parse(false, "any", "127.0.0.0/8", "").expect("these are well-formed");
        World { runtime, sender: HttpSender::new(policy, chain), listener, tls: TlsAcceptor::from(Arc::new(config)), address }
    };
}

/// The first byte chooses a head that accepts to go before the rest, or none; with its highest bit set the receiver does not
/// even send its settings first.
pub fn answer_http2(data: &[u8]) {
    let (choice, rest) = data.split_first().map_or((u8::MAX, data), |(choice, rest)| (*choice, rest));
    let head = ACCEPTING.get(usize::from(choice)).copied();
    let mut bytes = if choice & 0x80 == 0 { SETTINGS.to_vec() } else { Vec::new() };
    bytes.extend_from_slice(head.unwrap_or_default());
    bytes.extend_from_slice(rest);
    let outcome = WORLD.with(|world| {
        let receive = async {
            let (stream, _) = world.listener.accept().await.expect("somebody connects");
            let mut stream = world.tls.accept(stream).await.expect("the certificate is trusted");
            let mut seen = Vec::new();
            while !seen.windows(END_OF_REQUEST.len()).any(|w| w == END_OF_REQUEST) {
                assert!(stream.read_buf(&mut seen).await.expect("the request comes") > 0, "the request is whole");
            }
            // The client may have seen enough and be gone.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            stream
        };
        let url = format!("https://{}/h", world.address);
        world.runtime.block_on(outcome_of(&world.sender, &url, receive))
    });
    let class = holds(&outcome);
    if head.is_some() {
        assert_eq!(class, Class::Accepted, "{outcome:?}");
    }
}
