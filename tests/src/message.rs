//! The intake message.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::message::{Intake, Limits, MAX_DETAIL_CHARS, Refusal, parse};
use serde_json::Value;

use crate::{marked, repeats_the_mark};

const LIMITS: Limits = Limits { max_body_bytes: 256, allow_inline_urls: true };

/// An accepted message says what its source says; a refusal is short and repeats no value.
pub fn message(data: &[u8]) {
    let raw = String::from_utf8_lossy(data);
    let parsed = parse(&raw, &LIMITS);
    let source = serde_json::from_str::<Value>(&raw);
    match &parsed {
        Err(refusal) => bounded(refusal),
        Ok(Intake::Cancel(cancel)) => {
            let source = source.as_ref().expect("a cancel is JSON");
            assert_eq!(source["cancel"]["id"], cancel.key.event.as_str());
            assert_eq!(cancel.key.endpoint.is_inline(), source["cancel"].get("url").is_some());
        }
        Ok(Intake::Webhook(message)) => {
            assert!(message.payload.body.len() <= LIMITS.max_body_bytes);
            assert_eq!(message.payload.url.is_some(), message.key.endpoint.is_inline());
            // What nests too deep or counts too far for a tree of values is no oracle.
            if let Ok(source) = &source {
                assert_eq!(source["id"], message.key.event.as_str());
                same_body(&raw, source, &message.payload.body);
            }
        }
    }
    if let Ok(source) = source
        && !repeats_the_mark(&raw)
        && let Err(refusal) = parse(&marked(source).to_string(), &LIMITS)
    {
        bounded(&refusal);
        assert!(!repeats_the_mark(&refusal.detail), "{}", refusal.detail);
    }
}

fn bounded(refusal: &Refusal) {
    let length = refusal.detail.chars().count();
    assert!((1..=MAX_DETAIL_CHARS).contains(&length), "{}", refusal.detail);
}

fn same_body(raw: &str, source: &Value, body: &[u8]) {
    let given = (source.get("body"), source.get("body_base64"), source.get("json"));
    match given {
        (Some(Value::String(text)), None, None) => assert_eq!(text.as_bytes(), body),
        (None, Some(Value::String(text)), None) => assert_eq!(*text, STANDARD.encode(body)),
        (None, None, Some(json)) => {
            let text = std::str::from_utf8(body).expect("JSON is text");
            assert!(raw.contains(text), "the bytes of the source are kept");
            assert_eq!(*json, serde_json::from_str::<Value>(text).expect("it was JSON in the source"));
        }
        other => panic!("accepted with {other:?}"),
    }
}
