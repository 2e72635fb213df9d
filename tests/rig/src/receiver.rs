//! A receiver on a real socket that records what comes in, byte for byte, and answers as it is told. It speaks just
//! enough HTTP/1.1 to be able to misbehave below the level of HTTP.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// One request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Milliseconds since the epoch, when its last byte had come.
    pub at: i64,
    /// Request line.
    pub line: String,
    /// Headers in order, names as they came.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The sender's port.
    pub port: u16,
}

impl Seen {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// `webhook-id`.
    pub fn id(&self) -> &str {
        self.header("webhook-id").unwrap_or_default()
    }
}

/// What to do with a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Send these bytes, then close.
    Bytes(Vec<u8>),
    /// Send these bytes, then nothing more, and keep the connection open for so long.
    Stall(Vec<u8>, Duration),
    /// Send these bytes one by one with a pause, for ever.
    Drip(Vec<u8>, Duration),
    /// Close without an answer.
    Close,
}

impl Reply {
    /// A plain answer.
    pub fn status(status: u16) -> Self {
        Self::with(status, "", "")
    }

    /// An answer with header lines (each ending in CRLF) and a body.
    pub fn with(status: u16, headers: &str, body: &str) -> Self {
        Self::Bytes(
            format!("HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).into_bytes(),
        )
    }

    /// Never answers.
    pub fn silence() -> Self {
        Self::Stall(Vec::new(), Duration::from_secs(60))
    }
}

type Behaviour = Box<dyn Fn(&Seen, usize) -> Reply + Send + Sync>;

#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    /// How many came on each path.
    counts: HashMap<String, usize>,
}

struct Shared {
    log: Mutex<Log>,
    behaviours: Mutex<HashMap<String, Behaviour>>,
    changed: Notify,
}

/// The receiver. Each path behaves on its own.
#[derive(Clone)]
pub struct Receiver {
    shared: Arc<Shared>,
    pub port: u16,
}

impl Receiver {
    /// Starts listening on a free port of the loopback address.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a loopback port is free");
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { log: Mutex::default(), behaviours: Mutex::default(), changed: Notify::new() });
        let of_task = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let shared = Arc::clone(&of_task);
                tokio::spawn(async move {
                    // A sender that goes away in the middle is part of the tests.
                    let _ = serve(stream, peer.port(), &shared).await;
                });
            }
        });
        Self { shared, port }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Sets how a path behaves: from the request and how many came before it on that path.
    pub fn on(&self, path: &str, behaviour: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> String {
        self.shared.behaviours.lock().unwrap().insert(format!("/{path}"), Box::new(behaviour));
        self.url(path)
    }

    /// Answers with these in turn; the last one stays.
    pub fn script(&self, path: &str, replies: impl IntoIterator<Item = Reply>) -> String {
        let replies: Vec<Reply> = replies.into_iter().collect();
        self.on(path, move |_, nth| replies[nth.min(replies.len() - 1)].clone())
    }

    /// What came on a path.
    pub fn seen(&self, path: &str) -> Vec<Seen> {
        let target = format!(" /{path} ");
        self.shared.log.lock().unwrap().seen.iter().filter(|s| s.line.contains(&target)).cloned().collect()
    }

    /// How many requests came on a path.
    pub fn came(&self, path: &str) -> usize {
        self.shared.log.lock().unwrap().counts.get(&format!("/{path}")).copied().unwrap_or_default()
    }

    /// How many requests came, on any path.
    pub fn count(&self) -> usize {
        self.shared.log.lock().unwrap().seen.len()
    }

    /// Waits until `count` requests have come on a path.
    pub async fn wait_for(&self, path: &str, count: usize, within: Duration) -> Vec<Seen> {
        let end = Instant::now() + within;
        loop {
            let changed = self.shared.changed.notified();
            let came = self.came(path);
            if came >= count {
                return self.seen(path);
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(tokio::time::timeout(left, changed).await.is_ok(), "{path}: {came} of {count} requests came");
        }
    }
}

pub fn epoch_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// Reads one request; nothing when the sender went away before its end.
pub async fn read_request(stream: &mut TcpStream, port: u16) -> std::io::Result<Option<Seen>> {
    let mut buffer = Vec::new();
    let (head, length) = loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(None);
        }
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            buffer.drain(..end + 4);
            let length = head
                .lines()
                .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length:").map(|v| v.trim().to_owned()));
            break (head, length.and_then(|l| l.parse::<usize>().ok()).unwrap_or(0));
        }
    };
    while buffer.len() < length {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(None);
        }
    }
    let mut lines = head.lines();
    let line = lines.next().unwrap_or_default().to_owned();
    let headers = lines.filter_map(|l| l.split_once(':')).map(|(n, v)| (n.to_owned(), v.trim().to_owned())).collect();
    Ok(Some(Seen { at: epoch_ms(), line, headers, body: buffer, port }))
}

async fn serve(mut stream: TcpStream, port: u16, shared: &Shared) -> std::io::Result<()> {
    let Some(seen) = read_request(&mut stream, port).await? else { return Ok(()) };
    let path = seen.line.split(' ').nth(1).unwrap_or_default().to_owned();
    let reply = {
        let mut log = shared.log.lock().unwrap();
        let count = log.counts.entry(path.clone()).or_default();
        let nth = *count;
        *count += 1;
        let behaviours = shared.behaviours.lock().unwrap();
        let reply = behaviours.get(&path).map_or_else(|| Reply::status(200), |b| b(&seen, nth));
        log.seen.push(seen);
        reply
    };
    shared.changed.notify_waiters();
    match reply {
        Reply::Bytes(bytes) => {
            stream.write_all(&bytes).await?;
            stream.shutdown().await
        }
        Reply::Stall(bytes, pause) => {
            stream.write_all(&bytes).await?;
            tokio::time::sleep(pause).await;
            Ok(())
        }
        Reply::Drip(bytes, pause) => loop {
            for byte in &bytes {
                stream.write_all(std::slice::from_ref(byte)).await?;
                tokio::time::sleep(pause).await;
            }
        },
        Reply::Close => Ok(()),
    }
}
