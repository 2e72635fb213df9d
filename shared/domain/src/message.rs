//! The intake message (the public contract): what a producer puts on the queue, read strictly.
//!
//! A message that is not understood is never guessed at: it is refused with a reason and a sentence that says what to
//! do, and the caller keeps its raw bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::value::RawValue;

use crate::delivery::RejectedReason;
use crate::id::{DeliveryKey, EndpointKey, EventId, StateKey};
use crate::payload::Payload;
use crate::request::{check_header, check_url, is_padded};
use crate::time::Millis;

/// At most this many extra headers in a message.
pub const MAX_HEADERS: usize = 32;
/// At most this many bytes of extra header names and values together.
pub const MAX_HEADER_BYTES: usize = 8 * 1024;

/// The longest sentence that a refusal has, in characters.
pub const MAX_DETAIL_CHARS: usize = 300;

/// What the deployment allows in a message.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest body in bytes, after decoding.
    pub max_body_bytes: usize,
    /// Whether `url` may stand in place of `endpoint`.
    pub allow_inline_urls: bool,
}

/// A message that was understood.
#[derive(Clone, Debug)]
pub enum Intake {
    /// Deliver this.
    Webhook(Box<Message>),
    /// Do not deliver that any more.
    Cancel(CancelRequest),
}

/// One webhook to deliver.
#[derive(Clone, Debug)]
pub struct Message {
    /// Event and endpoint.
    pub key: DeliveryKey,
    /// Whose health it shares.
    pub state_key: StateKey,
    /// What to send.
    pub payload: Payload,
    /// The producer's own reference, shown to operators.
    pub correlation_id: Option<String>,
    /// Not before.
    pub deliver_at: Option<Millis>,
    /// Not after.
    pub deliver_by: Option<Millis>,
}

/// A producer's wish that a delivery does not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// Which delivery.
    pub key: DeliveryKey,
    /// Whose health it shares; needed for the tombstone of a cancel that comes first.
    pub state_key: StateKey,
    /// Why, in the producer's words.
    pub reason: String,
}

/// Why a message was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason on record.
    pub reason: RejectedReason,
    /// One sentence for a person: what is wrong and what to do.
    pub detail: String,
    /// The delivery that it would have been, when id and endpoint could be read.
    pub key: Option<DeliveryKey>,
}

impl Refusal {
    /// A refusal of a message whose id could not be read.
    pub fn new(reason: RejectedReason, detail: impl Into<String>) -> Self {
        // Bounded: it may name what the message calls its fields, and it is stored with the record.
        let detail: String = detail.into();
        Self { reason, detail: detail.chars().take(MAX_DETAIL_CHARS).collect(), key: None }
    }

    /// The same event id and endpoint came before with another payload.
    pub fn id_conflict(key: &DeliveryKey) -> Self {
        let detail = "this id and endpoint came before with another payload: use a new id for a new event";
        Self::new(RejectedReason::IdConflict, detail).of(key)
    }

    /// The same refusal, naming the delivery it would have been.
    #[must_use]
    pub fn of(mut self, key: &DeliveryKey) -> Self {
        self.key = Some(key.clone());
        self
    }
}

type Raw<'a> = Option<&'a RawValue>;

/// Keeps a field that is present as it stands in the source, `null` included.
fn present<'de, D: Deserializer<'de>>(d: D) -> Result<Raw<'de>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    endpoint: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    url: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    body: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    body_base64: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    json: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    content_type: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    headers: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    correlation_id: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    deliver_at: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    deliver_by: Raw<'a>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelWire<'a> {
    #[serde(borrow)]
    cancel: &'a RawValue,
    #[serde(borrow, default, deserialize_with = "present")]
    reason: Raw<'a>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelTarget<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    endpoint: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    url: Raw<'a>,
}

/// Reads one message body.
pub fn parse(raw: &str, limits: &Limits) -> Result<Intake, Refusal> {
    let unreadable = |e: &dyn std::fmt::Display| {
        Refusal::new(RejectedReason::Unreadable, format!("the message is not JSON: {e}; send one JSON object"))
    };
    serde_json::from_str::<IgnoredAny>(raw).map_err(|e| unreadable(&e))?;
    let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(raw)
        .map_err(|_| invalid("the message must be one JSON object, with fields such as `id`, `endpoint`, `body`"))?;
    if let Some(envelope) = foreign_envelope(&fields) {
        return Err(invalid(envelope));
    }
    let read = if fields.contains_key("cancel") { parse_cancel(raw, limits) } else { parse_webhook(raw, limits) };
    read.map_err(|detail| {
        let readable = |name: &str| fields.get(name).and_then(|v| serde_json::from_str::<String>(v.get()).ok());
        let mut refusal = match detail {
            Problem::Invalid(detail) => invalid(detail),
            Problem::TooLarge(detail) => Refusal::new(RejectedReason::TooLarge, detail),
        };
        let endpoint = readable("endpoint").and_then(|id| EndpointKey::registered(&id).ok());
        let endpoint = endpoint.or_else(|| Some(EndpointKey::inline(&url::Url::parse(&readable("url")?).ok()?)));
        let event = readable("id").and_then(|id| EventId::parse(&id).ok());
        refusal.key = event.zip(endpoint).map(|(event, endpoint)| DeliveryKey { event, endpoint });
        refusal
    })
}

enum Problem {
    Invalid(String),
    TooLarge(String),
}

impl From<String> for Problem {
    fn from(detail: String) -> Self {
        Self::Invalid(detail)
    }
}

fn invalid(detail: impl Into<String>) -> Refusal {
    Refusal::new(RejectedReason::Invalid, detail)
}

/// Messages that other services put on a queue: named, so that whoever wired them finds the switch.
fn foreign_envelope(fields: &BTreeMap<Cow<'_, str>, &RawValue>) -> Option<&'static str> {
    let has = |name: &str| fields.contains_key(name);
    if has("TopicArn") && has("MessageId") {
        Some("this is an SNS envelope: turn on raw message delivery for the subscription")
    } else if has("Event") && has("Bucket") || has("Records") {
        Some(
            "this is an S3 or other AWS event notification, no webhook: remove this queue from the bucket's notifications",
        )
    } else if has("detail-type") && has("detail") {
        Some("this is an EventBridge event: add an input transformer that makes a Redeliver message")
    } else {
        None
    }
}

fn parse_webhook(raw: &str, limits: &Limits) -> Result<Intake, Problem> {
    let wire: Wire<'_> = serde_json::from_str(raw).map_err(|e| e.to_string())?;
    let event = EventId::parse(
        &text("id", wire.id)?.ok_or("`id` is missing: choose one per event and keep it for ever".to_owned())?,
    )?;
    let (endpoint, state_key, url) = target(wire.endpoint, wire.url, limits)?;
    let (body, default_type) = body(&wire)?;
    if body.len() > limits.max_body_bytes {
        return Err(Problem::TooLarge(format!(
            "the body has {} bytes, the limit is {}: send a link to the data instead",
            body.len(),
            limits.max_body_bytes
        )));
    }
    let content_type = text("content_type", wire.content_type)?.unwrap_or_else(|| default_type.to_owned());
    if content_type.is_empty() || content_type.len() > 256 || !content_type.bytes().all(|c| (b' '..=b'~').contains(&c))
    {
        return Err("`content_type` must have 1 to 256 printable ASCII characters".to_owned().into());
    }
    if is_padded(&content_type) {
        return Err("`content_type` must not begin or end with a blank".to_owned().into());
    }
    let correlation_id = text("correlation_id", wire.correlation_id)?;
    if correlation_id.as_ref().is_some_and(|c| c.chars().count() > 128) {
        return Err("`correlation_id` must have at most 128 characters".to_owned().into());
    }
    let deliver_at = time("deliver_at", wire.deliver_at)?;
    let deliver_by = time("deliver_by", wire.deliver_by)?;
    if let (Some(at), Some(by)) = (deliver_at, deliver_by)
        && by <= at
    {
        return Err(format!("`deliver_by` ({by}) must come after `deliver_at` ({at})").into());
    }
    Ok(Intake::Webhook(Box::new(Message {
        key: DeliveryKey { event, endpoint },
        state_key,
        payload: Payload { body, content_type, headers: headers(wire.headers)?, url },
        correlation_id,
        deliver_at,
        deliver_by,
    })))
}

fn parse_cancel(raw: &str, limits: &Limits) -> Result<Intake, Problem> {
    let wire: CancelWire<'_> = serde_json::from_str(raw).map_err(|e| e.to_string())?;
    // A wrong type would be reported together with its value, which may be a secret.
    if !wire.cancel.get().starts_with('{') {
        return Err("`cancel` must be an object with `id` and `endpoint`".to_owned().into());
    }
    let target_of: CancelTarget<'_> = serde_json::from_str(wire.cancel.get()).map_err(|e| e.to_string())?;
    let event = EventId::parse(&text("cancel.id", target_of.id)?.ok_or("`cancel.id` is missing".to_owned())?)?;
    let (endpoint, state_key, _) = target(target_of.endpoint, target_of.url, limits)?;
    let reason: String = text("reason", wire.reason)?.unwrap_or_default().chars().take(256).collect();
    Ok(Intake::Cancel(CancelRequest { key: DeliveryKey { event, endpoint }, state_key, reason }))
}

fn target(endpoint: Raw<'_>, url: Raw<'_>, limits: &Limits) -> Result<(EndpointKey, StateKey, Option<String>), String> {
    match (text("endpoint", endpoint)?, text("url", url)?) {
        (Some(id), None) => {
            let key = EndpointKey::registered(&id)?;
            Ok((key.clone(), StateKey::registered(&key), None))
        }
        (None, Some(_)) if !limits.allow_inline_urls => {
            Err("`url` is not allowed here: name a registered `endpoint`, or deploy with AllowInlineUrls=true"
                .to_owned())
        }
        (None, Some(text)) => {
            let url = check_url(&text).map_err(|e| format!("`url` {e}"))?;
            Ok((EndpointKey::inline(&url), StateKey::inline(&url), Some(url.into())))
        }
        (Some(_), Some(_)) => Err("give `endpoint` or `url`, not both".to_owned()),
        (None, None) => Err("`endpoint` is missing (or `url`, where inline URLs are allowed)".to_owned()),
    }
}

fn body(wire: &Wire<'_>) -> Result<(Vec<u8>, &'static str), String> {
    const JSON: &str = "application/json";
    match (wire.body, wire.body_base64, wire.json) {
        (Some(_), None, None) => text("body", wire.body)
            .map(|t| (t.unwrap_or_default().into_bytes(), JSON))
            .map_err(|e| format!("{e}; for bytes that are no Unicode text use `body_base64`")),
        (None, Some(_), None) => {
            let encoded = text("body_base64", wire.body_base64)?.unwrap_or_default();
            let bytes = STANDARD.decode(encoded).map_err(|e| format!("`body_base64` is not standard base64: {e}"))?;
            Ok((bytes, "application/octet-stream"))
        }
        (None, None, Some(json)) => Ok((json.get().as_bytes().to_vec(), JSON)),
        (None, None, None) => {
            Err("there is nothing to send: give exactly one of `body`, `body_base64`, `json`".to_owned())
        }
        _ => Err("give exactly one of `body`, `body_base64`, `json`".to_owned()),
    }
}

fn headers(raw: Raw<'_>) -> Result<Vec<(String, String)>, String> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    let Pairs(pairs) =
        serde_json::from_str(raw.get()).map_err(|_| "`headers` must be an object of strings".to_owned())?;
    let mut seen = BTreeSet::new();
    let mut headers = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        check_header(&name, &value).map_err(|e| format!("`headers`: {e}"))?;
        let name = name.to_ascii_lowercase();
        if !seen.insert(name.clone()) {
            return Err(format!("`headers` has {name:?} twice"));
        }
        headers.push((name, value));
    }
    let bytes: usize = headers.iter().map(|(n, v)| n.len() + v.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Err(format!("`headers` may hold {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes at most"));
    }
    headers.sort();
    Ok(headers)
}

/// An object of strings in source order, duplicates included, so that they can be refused.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Pairs;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        d.deserialize_map(Visitor)
    }
}

fn text(name: &str, raw: Raw<'_>) -> Result<Option<String>, String> {
    let Some(raw) = raw else { return Ok(None) };
    if !raw.get().starts_with('"') {
        return Err(format!("`{name}` must be a string"));
    }
    serde_json::from_str(raw.get())
        .map(Some)
        .map_err(|_| format!("`{name}` is not valid Unicode text (a lone surrogate escape)"))
}

fn time(name: &str, raw: Raw<'_>) -> Result<Option<Millis>, String> {
    let Some(value) = text(name, raw)? else { return Ok(None) };
    match Millis::parse_rfc3339(&value) {
        Some(time) => Ok(Some(time)),
        None => Err(format!("`{name}` must be an RFC 3339 time with offset, such as 2026-12-01T10:00:00Z")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_body_bytes: 128, allow_inline_urls: true };

    fn webhook(raw: &str) -> Message {
        match parse(raw, &LIMITS) {
            Ok(Intake::Webhook(m)) => *m,
            other => panic!("{other:?}"),
        }
    }

    fn refused(raw: &str) -> (RejectedReason, String) {
        let refusal = parse(raw, &LIMITS).unwrap_err();
        (refusal.reason, refusal.detail)
    }

    #[test]
    fn the_bytes_of_json_are_kept_verbatim() {
        for json in [
            r#"{"w":136.0, "n":12345678901234567890123, "f":117.63331139400017, "a":"\u00e9"}"#,
            r#"{"b":1 , "a":1E400,"a":2}"#,
            r#""\ud800""#,
            "null",
            "[ 1,\n2 ]",
        ] {
            let message = webhook(&format!(r#"{{"id":"e","endpoint":"p","json": {json} }}"#));
            assert_eq!(String::from_utf8(message.payload.body).unwrap(), json);
            assert_eq!(message.payload.content_type, "application/json");
        }
    }

    #[test]
    fn body_is_text_and_body_base64_is_bytes() {
        assert_eq!(
            webhook(r#"{"id":"e","endpoint":"p","body":"a\u00e9\uffff"}"#).payload.body,
            "aé\u{ffff}".as_bytes()
        );
        let binary = webhook(r#"{"id":"e","endpoint":"p","body_base64":"AP8="}"#).payload;
        assert_eq!(
            (binary.body.as_slice(), binary.content_type.as_str()),
            ([0u8, 255].as_slice(), "application/octet-stream")
        );
        let (reason, detail) = refused(r#"{"id":"e","endpoint":"p","body":"\ud800"}"#);
        assert_eq!(reason, RejectedReason::Invalid);
        assert!(detail.contains("body_base64"), "{detail}");
    }

    #[test]
    fn what_is_not_ours_is_refused_with_a_reason_that_names_the_fault() {
        use RejectedReason::{Invalid, TooLarge, Unreadable};
        let long = format!(r#"{{"id":"e","endpoint":"p","body":"{}"}}"#, "x".repeat(129));
        for (raw, reason, part) in [
            ("hello", Unreadable, "not JSON"),
            ("", Unreadable, "not JSON"),
            ("{\"id\":\"e\"} x", Unreadable, "not JSON"),
            ("null", Invalid, "object"),
            ("[]", Invalid, "object"),
            (r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"b"}"#, Invalid, "S3"),
            (
                r#"{"Type":"Notification","MessageId":"1","TopicArn":"t","Message":"{}"}"#,
                Invalid,
                "raw message delivery",
            ),
            (r#"{"endpoint":"p","body":""}"#, Invalid, "`id` is missing"),
            (r#"{"id":null,"endpoint":"p","body":""}"#, Invalid, "`id` must be a string"),
            (r#"{"id":7,"endpoint":"p","body":""}"#, Invalid, "`id` must be a string"),
            (r#"{"id":"a.b","endpoint":"p","body":""}"#, Invalid, "dot"),
            (r#"{"id":"e","body":""}"#, Invalid, "`endpoint` is missing"),
            (r#"{"id":"e","endpoint":"p","url":"https://h.example","body":""}"#, Invalid, "not both"),
            (r#"{"id":"e","url":"ftp://h.example","body":""}"#, Invalid, "https"),
            (r#"{"id":"e","url":"https://u:p@h.example","body":""}"#, Invalid, "password"),
            (r#"{"id":"e","endpoint":"p"}"#, Invalid, "nothing to send"),
            (r#"{"id":"e","endpoint":"p","body":"","json":1}"#, Invalid, "exactly one"),
            (r#"{"id":"e","endpoint":"p","body":"","verison":2}"#, Invalid, "`verison`"),
            (r#"{"id":"e","id":"f","endpoint":"p","body":""}"#, Invalid, "duplicate"),
            (r#"{"id":"e","endpoint":"p","body":"","deliver_at":"tomorrow"}"#, Invalid, "RFC 3339"),
            (r#"{"id":"e","endpoint":"p","body":"","deliver_at":"2026-12-01T10:00:00"}"#, Invalid, "RFC 3339"),
            (
                r#"{"id":"e","endpoint":"p","body":"","deliver_at":"2026-12-01T10:00:00Z","deliver_by":"2026-12-01T10:00:00Z"}"#,
                Invalid,
                "after",
            ),
            (r#"{"id":"e","endpoint":"p","body":"","headers":{"Webhook-Id":"1"}}"#, Invalid, "webhook-id"),
            (r#"{"id":"e","endpoint":"p","body":"","headers":{"X-A":"1\r\nX-B: 2"}}"#, Invalid, "x-a"),
            (r#"{"id":"e","endpoint":"p","body":"","headers":{"X-A":"1","x-a":"2"}}"#, Invalid, "twice"),
            (r#"{"id":"e","endpoint":"p","body":"","headers":{"X-A":1}}"#, Invalid, "strings"),
            (r#"{"id":"e","endpoint":"p","body_base64":"A"}"#, Invalid, "base64"),
            (&long, TooLarge, "129 bytes"),
        ] {
            let (got, detail) = refused(raw);
            assert_eq!(got, reason, "{raw}: {detail}");
            assert!(detail.contains(part), "{raw}: {detail}");
        }
        let strict = Limits { allow_inline_urls: false, ..LIMITS };
        assert!(
            parse(r#"{"id":"e","url":"https://h.example","body":""}"#, &strict)
                .unwrap_err()
                .detail
                .contains("AllowInlineUrls")
        );
    }

    #[test]
    fn wh_o_22_no_event_data_gets_into_header_names_header_values_or_the_signed_text() {
        let message = |id: &str, headers: serde_json::Value| {
            parse(&serde_json::json!({"id": id, "endpoint": "p", "body": "", "headers": headers}).to_string(), &LIMITS)
        };
        for id in ["a.1700000000.x", "a\nX-Evil: 1", "a\r", "a b", "é", "a\u{0}"] {
            assert_eq!(message(id, serde_json::json!({})).unwrap_err().reason, RejectedReason::Invalid, "{id:?}");
        }
        for (name, value) in [
            ("Webhook-Signature", "v1,zzz"),
            ("WEBHOOK-ID", "f"),
            ("Host", "internal"),
            ("Content-Length", "3"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "close"),
            ("TE", "trailers"),
            ("Expect", "100-continue"),
            ("X-Name", "Z\r\nX-B: 1"),
            ("X-Name", "Z\nX-B: 1"),
            ("X-Name", "\u{0}"),
            ("bad name", "v"),
            ("x:y", "v"),
            ("x\r\ny", "v"),
            ("x-a", "\u{e9}"),
            ("x-a", " v"),
            ("x-a", "v\t"),
        ] {
            let refusal = message("e", serde_json::json!({name: value})).unwrap_err();
            assert_eq!((refusal.reason, refusal.key.is_some()), (RejectedReason::Invalid, true), "{name:?}: {value:?}");
        }
        assert!(message("A:z@0+=~-_", serde_json::json!({"X-Name": "a b"})).is_ok());
    }

    /// The largest that passes, and what is one more.
    #[test]
    fn every_size_of_a_message_ends_where_the_contract_says() {
        let with = |name: &str, value: serde_json::Value| {
            let mut message = serde_json::json!({"id": "e", "endpoint": "p", "body": ""});
            message[name] = value;
            parse(&message.to_string(), &LIMITS).map(drop).map_err(|refusal| refusal.reason)
        };
        let text = |length: usize| serde_json::json!("x".repeat(length));
        let many = |count: usize| {
            serde_json::Value::Object((0..count).map(|i| (format!("x-{i}"), serde_json::json!(""))).collect())
        };
        let filled = |bytes: usize| serde_json::json!({"x-a": "v".repeat(4_096), "x-b": "v".repeat(bytes - 4_096 - 6)});
        for (name, good, over) in [
            ("id", text(256), text(257)),
            ("endpoint", text(64), text(65)),
            ("content_type", text(256), text(257)),
            ("correlation_id", serde_json::json!("é".repeat(128)), serde_json::json!("é".repeat(129))),
            ("headers", many(MAX_HEADERS), many(MAX_HEADERS + 1)),
            ("headers", filled(MAX_HEADER_BYTES), filled(MAX_HEADER_BYTES + 1)),
            ("headers", serde_json::json!({"x": "v".repeat(4_096)}), serde_json::json!({"x": "v".repeat(4_097)})),
        ] {
            assert_eq!((with(name, good), with(name, over)), (Ok(()), Err(RejectedReason::Invalid)), "{name}");
        }
        assert_eq!((with("body", text(128)), with("body", text(129))), (Ok(()), Err(RejectedReason::TooLarge)));
        for (empty, reason) in [("id", "1 to 256"), ("endpoint", "1 to 64"), ("content_type", "1 to 256")] {
            let raw = serde_json::json!({"id": "e", "endpoint": "p", "body": ""}).to_string();
            let mut message: serde_json::Value = serde_json::from_str(&raw).unwrap();
            message[empty] = serde_json::json!("");
            assert!(parse(&message.to_string(), &LIMITS).unwrap_err().detail.contains(reason), "{empty}");
        }
        let url = |length: usize| format!("https://h.example/{}", "p".repeat(length - 18));
        let inline =
            |url: String| parse(&serde_json::json!({"id": "e", "url": url, "body": ""}).to_string(), &LIMITS).is_ok();
        assert_eq!((inline(url(2_048)), inline(url(2_049))), (true, false));
        for padded in [" text/plain", "text/plain ", " "] {
            assert!(with("content_type", serde_json::json!(padded)).is_err(), "{padded:?}");
        }
        for time in ["2026-12-01T10Z", "2026-12-01T10:00:00+01:00[Europe/Berlin]", "2026-12-01 10:00:00Z"] {
            assert_eq!(with("deliver_at", serde_json::json!(time)), Err(RejectedReason::Invalid), "{time}");
        }
    }

    #[test]
    fn half_an_envelope_is_not_taken_for_one() {
        for raw in [
            r#"{"TopicArn":"t"}"#,
            r#"{"MessageId":"1"}"#,
            r#"{"Event":"s3:TestEvent"}"#,
            r#"{"Bucket":"b"}"#,
            r#"{"detail-type":"t"}"#,
            r#"{"detail":{}}"#,
        ] {
            let (reason, detail) = refused(raw);
            let taken = ["SNS", "S3", "EventBridge"].iter().any(|service| detail.contains(service));
            assert!(reason == RejectedReason::Invalid && !taken, "{raw}: {detail}");
        }
    }

    #[test]
    fn a_refusal_names_the_delivery_when_it_can() {
        let refusal = parse(r#"{"id":"e1","endpoint":"p1","body":"","x":1}"#, &LIMITS).unwrap_err();
        assert_eq!(refusal.key, DeliveryKey::parse("e1", "p1").ok());
        let strict = Limits { allow_inline_urls: false, ..LIMITS };
        let url = "https://h.example/x";
        let raw = format!(r#"{{"id":"e1","url":"{url}","body":""}}"#);
        assert_eq!(parse(&raw, &strict).unwrap_err().key, Some(webhook(&raw).key), "an inline URL too");
        assert_eq!(parse(r#"{"id":"a.b","endpoint":"p1","body":""}"#, &LIMITS).unwrap_err().key, None);
    }

    #[test]
    fn a_refusal_repeats_no_values_and_is_bounded() {
        let secret = "https://h.example/T000/tok3n?k=s3cr3t";
        for raw in [
            format!(r#"{{"id":"e","endpoint":"{secret}","body":""}}"#),
            format!(r#"{{"id":"e","endpoint":"p","body":"","deliver_at":"{secret}"}}"#),
            format!(r#"{{"cancel":"{secret}"}}"#),
            format!(r#"{{"id":"{secret}","endpoint":"p","body":""}}"#),
            format!(r#"{{"id":"e","endpoint":"p","body":"","headers":"{secret}"}}"#),
        ] {
            let detail = parse(&raw, &LIMITS).unwrap_err().detail;
            assert!(!detail.contains("tok3n") && !detail.contains("s3cr3t"), "{raw}: {detail}");
        }
        let long = "x".repeat(500_000);
        let detail =
            parse(&format!(r#"{{"id":"e","endpoint":"p","body":"","{long}":1}}"#), &LIMITS).unwrap_err().detail;
        assert!(detail.len() <= MAX_DETAIL_CHARS);
    }

    #[test]
    fn a_cancel_names_a_delivery_by_endpoint_or_url() {
        let raw = r#"{"cancel":{"id":"e","url":"https://h.example/x"},"reason":"hold released"}"#;
        let Ok(Intake::Cancel(by_url)) = parse(raw, &LIMITS) else { panic!() };
        assert_eq!(by_url.key, webhook(r#"{"id":"e","url":"https://h.example/x","body":""}"#).key);
        assert_eq!(by_url.reason, "hold released");
        assert!(parse(r#"{"cancel":{"id":"e"}}"#, &LIMITS).is_err());
        assert!(parse(r#"{"cancel":{"id":"e","endpoint":"p"},"id":"e"}"#, &LIMITS).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(raw in ".{0,200}") {
            let _ = parse(&raw, &LIMITS);
        }

        #[test]
        fn any_text_body_comes_out_as_it_went_in(body in proptest::collection::vec(proptest::char::any(), 0..16)) {
            let body: String = body.into_iter().collect();
            let raw = serde_json::json!({"id": "e", "endpoint": "p", "body": body}).to_string();
            proptest::prop_assert_eq!(webhook(&raw).payload.body, body.into_bytes());
        }
    }
}
