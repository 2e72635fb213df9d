//! A receiver that plays a list of steps on every connection, in plain text or inside TLS, below the level of HTTP. It
//! counts connections, requests and the bytes that it got rid of.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// One step of what a receiver does.
#[derive(Clone, Debug)]
pub enum Step {
    /// Reads until something has come.
    ReadSome,
    /// Reads the head of an HTTP/1.1 request.
    ReadHead,
    /// Reads an HTTP/1.1 request with its body.
    Read,
    /// Reads an HTTP/2 request until its end.
    ReadH2,
    /// Reads the head of an HTTP/2 request.
    ReadH2Head,
    Send(Vec<u8>),
    /// Sends this again and again, with a pause, as long as somebody takes it.
    Forever(Vec<u8>, Duration),
    Wait(Duration),
    /// Ends our side, and reads on.
    Half,
    /// Ends the connection with a reset.
    Reset,
    /// Reads and answers nothing, until the peer goes away.
    Hold,
}

/// Sends a text.
pub fn send(text: &str) -> Step {
    Step::Send(text.as_bytes().to_vec())
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    resumed: AtomicUsize,
    sent: AtomicU64,
    received: Mutex<Vec<u8>>,
    server_name: Mutex<Option<String>>,
}

/// The receiver.
#[derive(Clone)]
pub struct Raw {
    pub port: u16,
    counts: Arc<Counts>,
}

impl Raw {
    /// Plays these steps on every connection; inside TLS when there is a configuration for it.
    pub async fn start(tls: Option<Arc<ServerConfig>>, steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a loopback port is free");
        let port = listener.local_addr().unwrap().port();
        let counts = Arc::new(Counts::default());
        let raw = Self { port, counts: Arc::clone(&counts) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counts.connections.fetch_add(1, Ordering::Relaxed);
                let (counts, tls, steps) = (Arc::clone(&counts), tls.clone(), steps.clone());
                tokio::spawn(async move {
                    // A sender that goes away in the middle is part of the tests.
                    let _ = connection(stream, tls, &steps, &counts).await;
                });
            }
        });
        raw
    }

    pub fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Handshakes that went on with an earlier session.
    pub fn resumed(&self) -> usize {
        self.counts.resumed.load(Ordering::Relaxed)
    }

    /// Bytes that were taken from us.
    pub fn sent(&self) -> u64 {
        self.counts.sent.load(Ordering::Relaxed)
    }

    /// Requests of which at least the head came.
    pub fn requests(&self) -> usize {
        let received = self.counts.received.lock().unwrap();
        if received.starts_with(PREFACE) {
            frames(&received).iter().filter(|(kind, ..)| *kind == HEADERS).count()
        } else {
            received.windows(6).filter(|w| w == b"POST /").count()
        }
    }

    /// All that came, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.counts.received.lock().unwrap()).into_owned()
    }

    /// The name that the client asked for in its handshake.
    pub fn server_name(&self) -> Option<String> {
        self.counts.server_name.lock().unwrap().clone()
    }
}

async fn connection(tcp: TcpStream, tls: Option<Arc<ServerConfig>>, steps: &[Step], counts: &Counts) -> io::Result<()> {
    match tls {
        None => play(tcp, steps, counts, |s| s).await,
        Some(config) => {
            let stream = TlsAcceptor::from(config).accept(tcp).await?;
            *counts.server_name.lock().unwrap() = stream.get_ref().1.server_name().map(ToOwned::to_owned);
            if stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
                counts.resumed.fetch_add(1, Ordering::Relaxed);
            }
            play(stream, steps, counts, |s| s.get_ref().0).await
        }
    }
}

async fn play<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    steps: &[Step],
    counts: &Counts,
    tcp: impl Fn(&S) -> &TcpStream,
) -> io::Result<()> {
    let mut from = 0;
    for step in steps {
        match step {
            Step::ReadSome => {
                read_until(&mut stream, counts, &mut from, |got| (!got.is_empty()).then_some(got.len())).await?
            }
            Step::ReadHead => read_until(&mut stream, counts, &mut from, head_end).await?,
            Step::Read => read_until(&mut stream, counts, &mut from, message_end).await?,
            Step::ReadH2Head => read_until(&mut stream, counts, &mut from, |got| h2_end(got, false)).await?,
            Step::ReadH2 => read_until(&mut stream, counts, &mut from, |got| h2_end(got, true)).await?,
            Step::Send(bytes) => write(&mut stream, counts, bytes).await?,
            Step::Forever(bytes, pause) => loop {
                write(&mut stream, counts, bytes).await?;
                if !pause.is_zero() {
                    tokio::time::sleep(*pause).await;
                }
            },
            Step::Wait(pause) => tokio::time::sleep(*pause).await,
            Step::Half => stream.shutdown().await?,
            Step::Reset => {
                tcp(&stream).set_zero_linger()?;
                return Ok(());
            }
            Step::Hold => read_until(&mut stream, counts, &mut from, |_| None).await?,
        }
    }
    stream.shutdown().await
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, counts: &Counts, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await?;
    counts.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// Reads until `end` finds the end of something in what came since the last such end.
async fn read_until<S: AsyncRead + Unpin>(
    stream: &mut S,
    counts: &Counts,
    from: &mut usize,
    end: impl Fn(&[u8]) -> Option<usize>,
) -> io::Result<()> {
    loop {
        if let Some(length) = end(&counts.received.lock().unwrap()[*from..]) {
            *from += length;
            return Ok(());
        }
        let mut some = vec![0; 16 * 1024];
        let length = stream.read(&mut some).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        counts.received.lock().unwrap().extend_from_slice(&some[..length]);
    }
}

fn head_end(got: &[u8]) -> Option<usize> {
    got.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}

fn message_end(got: &[u8]) -> Option<usize> {
    let head = head_end(got)?;
    let text = String::from_utf8_lossy(&got[..head]).to_ascii_lowercase();
    let length =
        text.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse::<usize>().ok()).unwrap_or(0);
    (got.len() >= head + length).then_some(head + length)
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Kind, flags, and the position after each whole frame.
fn frames(got: &[u8]) -> Vec<(u8, u8, usize)> {
    let mut found = Vec::new();
    let mut at = if got.starts_with(PREFACE) { PREFACE.len() } else { 0 };
    while let Some(head) = got.get(at..at + 9) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if got.len() < at + 9 + length {
            break;
        }
        at += 9 + length;
        found.push((head[3], head[4], at));
    }
    found
}

fn h2_end(got: &[u8], whole: bool) -> Option<usize> {
    frames(got).into_iter().find_map(|(kind, flags, end)| {
        let head = kind == HEADERS && (!whole || flags & END_STREAM != 0);
        (head || (kind == DATA && flags & END_STREAM != 0)).then_some(end)
    })
}

/// One frame of HTTP/2 (RFC 9113 section 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Header lines without any compression (RFC 7541 section 6.2.2).
pub fn fields(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let text = |text: &str| {
        // A length above 126 continues in groups of seven bits.
        let mut rest = text.len();
        let mut length = vec![];
        if rest < 127 {
            length.push(rest as u8);
        } else {
            length.push(127);
            rest -= 127;
            while rest >= 128 {
                length.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            length.push(rest as u8);
        }
        length.extend(text.as_bytes());
        length
    };
    for (name, value) in lines {
        bytes.push(0);
        bytes.extend(text(name));
        bytes.extend(text(value));
    }
    bytes
}

/// Our settings, and that theirs are taken.
pub fn settings() -> Step {
    Step::Send([frame(SETTINGS, 0, 0, &[]), frame(SETTINGS, 1, 0, &[])].concat())
}

/// A head on the first stream.
pub fn head(flags: u8, lines: &[(&str, &str)]) -> Step {
    Step::Send(frame(HEADERS, END_HEADERS | flags, 1, &fields(lines)))
}
