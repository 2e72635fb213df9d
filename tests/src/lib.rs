//! What must hold for whatever strangers send: one function for each place where their bytes are read. It takes bytes, makes
//! an input of them, and panics when something does not hold. The fuzzer (`fuzz/`) looks for such bytes;
//! `tests/it/seeds.rs` runs the same functions over its seeds and over generated ones, so that they never rot.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::wildcard_enum_match_arm,
    reason = "a test stops at the first surprise"
)]

mod answer;
mod answer_http2;
mod definition;
mod egress;
mod message;
mod retry_after;
mod signature;

pub use answer::answer;
pub use answer_http2::answer_http2;
pub use definition::definition;
pub use egress::{edges, egress};
pub use message::message;
pub use retry_after::retry_after;
pub use signature::signature;

/// A function over bytes from outside.
pub type Target = fn(&[u8]);

/// All of them, by the names of the fuzz targets.
pub const TARGETS: &[(&str, Target)] = &[
    ("answer", answer),
    ("answer_http2", answer_http2),
    ("definition", definition),
    ("egress", egress),
    ("message", message),
    ("retry_after", retry_after),
    ("signature", signature),
];

/// What a fuzzer's values are marked with where no refusal may repeat them: 24 characters, so that base64 stays base64.
const MARK: &str = "s3cr3tTok3ns3cr3tTok3nAA";

/// The same JSON with the mark at the end of every text that is a value; names stay.
fn marked(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) => Value::String(text + MARK),
        Value::Array(values) => Value::Array(values.into_iter().map(marked).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(name, value)| (name, marked(value))).collect()),
        other => other,
    }
}

/// Whether a text repeats the mark, or half of it, in any case.
fn repeats_the_mark(text: &str) -> bool {
    text.to_ascii_lowercase().contains(&MARK[..12].to_ascii_lowercase())
}
