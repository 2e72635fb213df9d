//! What goes on the wire: one POST, its headers, and the bytes that came in.

use url::Url;

use crate::endpoint::EndpointConfig;
use crate::payload::Payload;
use crate::record::Record;
use crate::time::Millis;

/// One HTTP request.
pub struct Request<'a> {
    /// Where to; not judged yet.
    pub url: Url,
    /// All headers but those that HTTP itself needs.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: &'a [u8],
    /// Longest duration in milliseconds.
    pub timeout_ms: i64,
}

/// The longest URL, in bytes.
pub const MAX_URL: usize = 2048;
/// The longest header name, in bytes.
pub const MAX_HEADER_NAME: usize = 128;
/// The longest header value, in bytes.
pub const MAX_HEADER_VALUE: usize = 4096;

/// Header names that nobody may set: those that frame or route the request, those that describe the body we send, those
/// that only mean something to a cache or a proxy, those that carry credentials, and our own.
const RESERVED: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "trailers",
    "upgrade",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "http2-settings",
    "forwarded",
    "via",
    "content-type",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "accept-encoding",
    "range",
    "age",
    "cache-control",
    "clear-site-data",
    "expires",
    "pragma",
    "warning",
    "authorization",
    "cookie",
    "user-agent",
    "idempotency-key",
];

/// The beginnings of such names. Those of clouds and their proxies are trusted by what stands behind them.
const RESERVED_PREFIXES: &[&str] = &[
    "webhook-",
    "redeliver-",
    "svix-",
    "x-amz-",
    "x-amzn-",
    "x-azure-",
    "x-fd-",
    "x-forwarded-",
    "x-gfe",
    "x-goog-",
    "x-google",
    "x-svix-",
    "x-real-ip",
    "cf-",
    "sec-",
    "proxy-",
];

/// Judges the form of a URL, in a message or in a definition. Where it may point is judged when it is dialled.
pub fn check_url(text: &str) -> Result<Url, String> {
    if text.len() > MAX_URL {
        return Err(format!("must have {MAX_URL} bytes at most"));
    }
    // The parser forgives white space and control characters; who wrote them did not mean them.
    if text.bytes().any(|c| c.is_ascii_control() || c == b' ') {
        return Err("must not hold blanks or control characters".to_owned());
    }
    let url = Url::parse(text).map_err(|e| format!("is not a URL: {e}; write https://host/path"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("must be an https URL with a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user name or password: they leak into logs; use a header".to_owned());
    }
    if url.port() == Some(0) {
        return Err("must not use port 0".to_owned());
    }
    if url.as_str().len() > MAX_URL {
        return Err(format!("must have {MAX_URL} bytes at most, percent-encoded"));
    }
    Ok(url)
}

/// A token of RFC 9110 section 5.6.2.
fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_HEADER_NAME
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c))
}

/// Judges an extra header of a message.
pub fn check_header(name: &str, value: &str) -> Result<(), String> {
    if !is_token(name) {
        let start: String = name.chars().take(MAX_HEADER_NAME).collect();
        return Err(format!("{start:?} is no header name"));
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) || RESERVED_PREFIXES.iter().any(|p| lower.starts_with(p)) {
        return Err(format!("{lower} is reserved and cannot be set"));
    }
    if value.len() > MAX_HEADER_VALUE {
        return Err(format!("the value of {lower} may have {MAX_HEADER_VALUE} bytes at most"));
    }
    if !value.bytes().all(|c| c == b'\t' || (b' '..=b'~').contains(&c)) {
        return Err(format!("the value of {lower} may hold only printable ASCII, blanks and tabs"));
    }
    Ok(())
}

/// Judges a header of an endpoint's configuration: like that of a message, but it may carry credentials.
pub fn check_endpoint_header(name: &str, value: &str) -> Result<(), String> {
    if ["authorization", "cookie"].iter().any(|allowed| name.eq_ignore_ascii_case(allowed)) {
        return check_header("x-credentials", value).map_err(|_| format!("the value of {name} cannot be sent"));
    }
    check_header(name, value)
}

/// Builds the request of the attempt that the record has in flight. `now` becomes `webhook-timestamp`: the time of this
/// attempt, signed afresh (Standard Webhooks, "Webhook metadata"). An error is a fault of stored data.
pub fn build<'a>(
    record: &Record,
    payload: &'a Payload,
    endpoint: &EndpointConfig,
    now: Millis,
) -> Result<Request<'a>, String> {
    // The parser's message may repeat parts of the URL, which may hold a token.
    let url = Url::parse(&endpoint.url).map_err(|_| "the URL cannot be parsed".to_owned())?;
    let id = record.key.event.as_str();
    let timestamp = now.seconds();
    let mut headers: Vec<(String, String)> = Vec::with_capacity(8 + payload.headers.len());
    let mut set = |name: &str, value: String| headers.push((name.to_owned(), value));
    set("content-type", payload.content_type.clone());
    set("user-agent", concat!("redeliver/", env!("CARGO_PKG_VERSION")).to_owned());
    set("webhook-id", id.to_owned());
    set("webhook-timestamp", timestamp.to_string());
    set("idempotency-key", id.to_owned());
    set("redeliver-attempt", record.attempt.to_string());
    if !endpoint.secrets.is_empty() {
        let signatures: Vec<String> = endpoint.secrets.iter().map(|s| s.sign(id, timestamp, &payload.body)).collect();
        set("webhook-signature", signatures.join(" "));
    }
    // The endpoint's own headers win over those of the message.
    let of_message = payload.headers.iter().filter(|(name, _)| !endpoint.headers.iter().any(|(n, _)| n == name));
    for (name, value) in of_message.chain(&endpoint.headers) {
        headers.push((name.clone(), value.clone()));
    }
    Ok(Request { url, headers, body: &payload.body, timeout_ms: endpoint.timeout_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_malformed_headers_are_refused() {
        for (name, value) in [
            ("Host", "internal"),
            ("content-length", "3"),
            ("Webhook-Signature", "v1,zzz"),
            ("REDELIVER-ATTEMPT", "1"),
            ("Authorization", "x"),
            ("bad name", "v"),
            ("", "v"),
            ("x:y", "v"),
            ("x-a", "Z\r\nX-B: 1"),
            ("x-a", "\0"),
            ("x-a", "é"),
        ] {
            assert!(check_header(name, value).is_err(), "{name}: {value}");
        }
        assert!(check_header("X-Tenant", "7 \t~").is_ok());
        assert!(check_header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").is_ok());
    }
}
