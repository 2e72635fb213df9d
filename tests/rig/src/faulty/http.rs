//! Just enough HTTP/1.1 to carry calls of the AWS SDK: messages with a length, one after the other.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A request or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// First line and headers, without the empty line.
    head: String,
    pub body: Vec<u8>,
}

impl Message {
    /// An answer in the protocol of both services.
    pub fn answer(status: u16, body: &Value) -> Self {
        let head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/x-amz-json-1.0");
        Self { head, body: body.to_string().into_bytes() }
    }

    /// A call of an operation.
    #[cfg(test)]
    pub fn request(operation: &str, body: &Value) -> Self {
        let head = format!("POST / HTTP/1.1\r\nX-Amz-Target: Any.{operation}");
        Self { head, body: body.to_string().into_bytes() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// The operation that a request asks for, as `PutItem`.
    pub fn operation(&self) -> String {
        let target = self.header("x-amz-target").unwrap_or_default();
        target.rsplit('.').next().unwrap_or_default().to_owned()
    }

    pub fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The same with another body.
    pub fn with(&self, body: &Value) -> Self {
        Self { head: self.head.clone(), body: body.to_string().into_bytes() }
    }
}

/// Reads a message; `None` when the other side has ended before it.
pub async fn read(stream: &mut TcpStream) -> io::Result<Option<Message>> {
    let mut buffer = Vec::new();
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return if buffer.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut message = Message { head, body: buffer.split_off(end + 4) };
    if message.header("transfer-encoding").is_some() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message without a length"));
    }
    let length = message.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while message.body.len() < length {
        if stream.read_buf(&mut message.body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(message))
}

/// Writes a message with the length that its body has.
pub async fn write(stream: &mut TcpStream, message: &Message) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(message.head.len() + message.body.len() + 64);
    for line in message.head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length:")) {
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", message.body.len()).as_bytes());
    bytes.extend_from_slice(&message.body);
    stream.write_all(&bytes).await
}
