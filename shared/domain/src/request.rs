//! What goes on the wire: one POST, its headers, and the bytes that came in.

use url::{Host, Url};

use crate::egress::name;
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
    if let Some(Host::Domain(name)) = url.host()
        && let Some(fault) = name::unusable(name)
    {
        return Err(fault.to_owned());
    }
    if url.fragment().is_some() {
        return Err("must not have a part after `#`: it is never sent".to_owned());
    }
    if url.as_str().len() > MAX_URL {
        return Err(format!("must have {MAX_URL} bytes at most, percent-encoded"));
    }
    Ok(url)
}

/// Of a URL only what may be logged.
pub(crate) fn origin_shown(url: &str) -> String {
    Url::parse(url).map_or_else(|_| "(no URL)".to_owned(), |url| url.origin().ascii_serialization())
}

/// A token of RFC 9110 section 5.6.2.
pub(crate) fn is_token(name: &str) -> bool {
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
    check_value(&lower, value)
}

/// Judges a value. White space around it would be cut off on the way, so the receiver would get another one.
fn check_value(name: &str, value: &str) -> Result<(), String> {
    if value.len() > MAX_HEADER_VALUE {
        return Err(format!("the value of {name} may have {MAX_HEADER_VALUE} bytes at most"));
    }
    if !value.bytes().all(|c| c == b'\t' || (b' '..=b'~').contains(&c)) {
        return Err(format!("the value of {name} may hold only printable ASCII, blanks and tabs"));
    }
    if is_padded(value) {
        return Err(format!("the value of {name} must not begin or end with a blank or tab"));
    }
    Ok(())
}

/// Whether a header value has white space at one of its ends.
pub(crate) fn is_padded(value: &str) -> bool {
    value.starts_with([' ', '\t']) || value.ends_with([' ', '\t'])
}

/// Judges a header of an endpoint's configuration: like that of a message, but it may carry credentials.
pub fn check_endpoint_header(name: &str, value: &str) -> Result<(), String> {
    match ["authorization", "cookie"].iter().find(|allowed| name.eq_ignore_ascii_case(allowed)) {
        Some(name) => check_value(name, value),
        None => check_header(name, value),
    }
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
    use crate::outcome::AnswerRules;
    use crate::retry::{RetryPolicy, Waits};
    use crate::transition::tests::in_flight;

    #[test]
    fn a_url_names_a_host_without_credentials_and_is_bounded_in_both_spellings() {
        let padded = |escaped: usize, bytes: usize| {
            let start = format!("https://h.example/{}", "é".repeat(escaped));
            format!("{start}{}", "x".repeat(bytes - start.len()))
        };
        // An é is two bytes, and six of its percent-encoding.
        for (url, fits) in [
            (padded(0, MAX_URL), true),
            (padded(0, MAX_URL + 1), false),
            (padded(200, MAX_URL - 800), true),
            (padded(200, MAX_URL - 799), false),
            ("https://user@h.example/".to_owned(), false),
            ("https://:password@h.example/".to_owned(), false),
        ] {
            assert_eq!(check_url(&url).is_ok(), fits, "{} bytes", url.len());
        }
    }

    #[test]
    fn the_value_of_a_header_is_bounded() {
        assert!(check_header("x-a", &"v".repeat(MAX_HEADER_VALUE)).is_ok());
        assert!(check_header("x-a", &"v".repeat(MAX_HEADER_VALUE + 1)).is_err());
    }

    #[test]
    fn a_header_of_the_endpoint_takes_the_place_of_that_of_the_message() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let payload = Payload {
            body: Vec::new(),
            content_type: "text/plain".to_owned(),
            headers: vec![header("x-a", "message"), header("x-b", "message")],
            url: None,
        };
        let policy = RetryPolicy {
            attempts: 1,
            waits: Waits::List(vec![1]),
            jitter_percent: 0,
            hint_cap_seconds: 1,
            window_seconds: None,
        };
        let endpoint = EndpointConfig {
            url: "https://h.example/".to_owned(),
            timeout_ms: 1_000,
            policy,
            headers: vec![header("x-a", "endpoint"), header("x-c", "endpoint")],
            rules: AnswerRules::default(),
            secrets: Vec::new(),
        };
        let request = build(&in_flight(1), &payload, &endpoint, Millis(0)).unwrap();
        let extra: Vec<_> = request.headers.into_iter().filter(|(name, _)| name.starts_with("x-")).collect();
        assert_eq!(extra, [header("x-b", "message"), header("x-a", "endpoint"), header("x-c", "endpoint")]);
    }

    #[test]
    fn wh_o_22_reserved_and_malformed_headers_are_refused() {
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
            ("x-a", " 1"),
            ("x-a", "1 "),
            ("x-a", "\t1"),
            ("x-a", "1\t"),
            ("x-a", " "),
        ] {
            assert!(check_header(name, value).is_err(), "{name}: {value}");
            assert!(
                check_endpoint_header("authorization", value).is_ok() == check_header("x-a", value).is_ok(),
                "{value:?}"
            );
        }
        assert!(check_header("X-Tenant", "7 \t~").is_ok() && check_header("x-a", "").is_ok());
        assert!(check_header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").is_ok());
    }

    /// The contract, written out: what is taken away here, somebody relies on being refused.
    #[test]
    fn every_reserved_name_and_prefix_is_refused_in_any_case() {
        const NAMES: &str = "host connection content-length transfer-encoding te trailer trailers upgrade expect keep-alive \
            proxy-authenticate proxy-authorization proxy-connection http2-settings forwarded via content-type \
            content-encoding content-language content-location content-range accept-encoding range age cache-control \
            clear-site-data expires pragma warning authorization cookie user-agent idempotency-key";
        const PREFIXES: &str = "webhook- redeliver- svix- x-amz- x-amzn- x-azure- x-fd- x-forwarded- x-gfe x-goog- x-google \
            x-svix- x-real-ip cf- sec- proxy-";
        let owned = |name: &str| [name.to_owned(), name.to_ascii_uppercase()];
        for name in NAMES.split_ascii_whitespace().flat_map(owned) {
            assert!(check_header(&name, "1").unwrap_err().contains("is reserved"), "{name}");
            let credentials = ["authorization", "cookie"].contains(&name.to_ascii_lowercase().as_str());
            assert_eq!(check_endpoint_header(&name, "1").is_ok(), credentials, "{name}");
            // Only the very name: neighbours are free.
            if !PREFIXES.split_ascii_whitespace().any(|prefix| name.to_ascii_lowercase().starts_with(prefix)) {
                assert!(
                    check_header(&format!("{name}x"), "1").is_ok() || name.eq_ignore_ascii_case("trailer"),
                    "{name}x"
                );
            }
        }
        for prefix in PREFIXES.split_ascii_whitespace().flat_map(owned) {
            for name in [prefix.clone(), format!("{prefix}x")] {
                assert!(check_header(&name, "1").is_err() && check_endpoint_header(&name, "1").is_err(), "{name}");
            }
            assert!(check_header(&format!("x{}", prefix), "1").is_ok(), "x{prefix}");
        }
        assert_eq!(
            (NAMES.split_ascii_whitespace().count(), PREFIXES.split_ascii_whitespace().count()),
            (RESERVED.len(), RESERVED_PREFIXES.len())
        );
    }

    #[test]
    fn sizes_of_a_header_and_a_url_end_where_the_contract_says() {
        let name = |length: usize| "x".repeat(length);
        assert!(
            check_header(&name(MAX_HEADER_NAME), "1").is_ok() && check_header(&name(MAX_HEADER_NAME + 1), "1").is_err()
        );
        let value = |length: usize| "v".repeat(length);
        assert!(check_header("x-a", &value(MAX_HEADER_VALUE)).is_ok());
        assert!(check_header("x-a", &value(MAX_HEADER_VALUE + 1)).is_err());
        let url = |length: usize| format!("https://h.example/{}", "p".repeat(length - "https://h.example/".len()));
        assert!(check_url(&url(MAX_URL)).is_ok() && check_url(&url(MAX_URL + 1)).is_err());
        // Two bytes of text become six on the wire.
        let grows = format!("https://h.example/{}", "é".repeat((MAX_URL - 18) / 6 + 1));
        assert!(grows.len() < MAX_URL && check_url(&grows).unwrap_err().contains("percent-encoded"));
    }

    #[test]
    fn a_url_that_could_never_be_dialled_is_refused_with_the_reason() {
        let label = |length: usize| "l".repeat(length);
        let long = |last: usize| [label(63), label(63), label(63), label(last)].join(".");
        for (host, part) in [
            ("*.example", "letters, digits"),
            ("a\"b.example", "letters, digits"),
            ("a!b.example", "letters, digits"),
            ("-a.example", "hyphen"),
            ("a-.example", "hyphen"),
            ("-a-.example", "hyphen"),
            ("a.-", "hyphen"),
            ("a..b", "empty"),
            (".a.example", "empty"),
            ("a.example..", "empty"),
            (&format!("{}.example", label(64)), "63"),
            (&long(62), "253"),
        ] {
            let refused = check_url(&format!("https://{host}/t0ken")).unwrap_err();
            assert!(refused.contains(part) && !refused.contains("t0ken"), "{host}: {refused}");
        }
        assert!(check_url("https://h.example/#t0ken").unwrap_err().contains("`#`"));
        for good in [
            "a.example",
            "a.example.",
            "A_b-c.example",
            "1a.example",
            "xn--mnchen-3ya.example",
            "münchen.example",
            "１２７．０．０．１",
            "127.0.0.1",
            "0x7f.1",
            "[2001:db8::1]",
            "_dmarc.a.example:8443",
            "localhost",
            &format!("{}.example", label(63)),
            &long(61),
            &format!("{}.", long(61)),
        ] {
            assert!(
                check_url(&format!("https://{good}/x?y")).is_ok(),
                "{good}: {:?}",
                check_url(&format!("https://{good}/x?y"))
            );
        }
    }
}
