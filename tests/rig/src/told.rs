//! The story of a delivery, as a record or `explain` tells it. Both are brought into one form, so that both are held
//! against what the receiver saw by the same rules.

use domain::outcome::Class;
use domain::record::{ABANDONED, Record};
use serde_json::Value;

/// A story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub state: String,
    pub reason: Option<String>,
    pub is_final: bool,
    /// Number of the last attempt.
    pub attempt: u32,
    pub generation: u32,
    /// Attempts used in this generation.
    pub used: u32,
    /// Attempts allowed in this generation, where the story says so.
    pub budget: Option<u32>,
    pub attempts: Vec<ToldAttempt>,
    /// No attempt was dropped from the history.
    pub whole: bool,
    /// The delivery as a whole says that the receiver may have it although nothing shows that it accepted.
    pub may_have_it: bool,
}

/// One attempt of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldAttempt {
    pub number: u32,
    pub started: i64,
    pub duration_ms: i64,
    pub class: String,
    pub status: Option<u16>,
    pub may_have_it: bool,
    pub abandoned: bool,
}

impl Told {
    pub fn of_record(record: &Record) -> Self {
        let attempts = record.attempts().map(|a| ToldAttempt {
            number: a.number,
            started: a.started.0,
            duration_ms: a.duration_ms,
            class: a.class.name().to_owned(),
            status: a.status,
            may_have_it: a.class == Class::Unknown,
            abandoned: a.detail.as_deref() == Some(ABANDONED),
        });
        Self {
            state: record.state.name().to_owned(),
            reason: record.state.reason().map(ToOwned::to_owned),
            is_final: record.state.is_final(),
            attempt: record.attempt,
            generation: record.generation,
            used: record.used(),
            budget: Some(record.budget),
            attempts: attempts.collect(),
            whole: record.history_dropped == 0,
            may_have_it: record.may_have_been_received() && record.state.name() != "delivered",
        }
    }

    /// From an answer of `explain`; `None` when it does not have the form that was promised.
    pub fn of_explain(answer: &Value) -> Option<Self> {
        let delivery = answer.get("delivery")?;
        let number = |value: &Value, name: &str| value[name].as_u64().and_then(|n| u32::try_from(n).ok());
        let attempts = answer["history"].as_array()?.iter().filter(|entry| entry.get("number").is_some());
        let attempts = attempts.map(|entry| {
            Some(ToldAttempt {
                number: number(entry, "number")?,
                started: entry["started"].as_i64()?,
                duration_ms: entry["duration_ms"].as_i64()?,
                class: entry["class"].as_str()?.to_owned(),
                status: number(entry, "status").and_then(|s| u16::try_from(s).ok()),
                may_have_it: entry["receiver_may_have_it"].as_bool()?,
                abandoned: entry["detail"] == ABANDONED,
            })
        });
        let state = delivery["state"].as_str()?.to_owned();
        let attempt = number(delivery, "attempt")?;
        Some(Self {
            is_final: matches!(state.as_str(), "delivered" | "dead_lettered" | "cancelled" | "rejected"),
            state,
            reason: delivery["reason"].as_str().map(ToOwned::to_owned),
            attempt,
            generation: number(delivery, "generation")?,
            used: attempt.checked_sub(number(delivery, "budget_from")?)?,
            budget: None,
            attempts: attempts.collect::<Option<_>>()?,
            whole: number(delivery, "history_dropped")? == 0,
            may_have_it: delivery["receiver_may_have_it"].as_bool()?,
        })
    }
}
