//! Answers: `{"ok":true, …}` or `{"ok":false,"error":{"code":…,"message":…}}`.

use domain::ports::StoreError;
use serde_json::{Map, Value, json};

/// An action that was not carried out, for a reason that the operator can act on.
#[derive(Debug)]
pub struct Refusal {
    /// One of the codes of the contract.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub message: String,
    /// More fields of the error.
    pub more: Map<String, Value>,
}

impl Refusal {
    /// A refusal with a code.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), more: Map::new() }
    }

    /// A fault of the request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new("invalid", message)
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// The HTTP status of this refusal.
    pub fn status(&self) -> u16 {
        match self.code {
            "not_found" => 404,
            "ambiguous" | "conflict" | "digest_mismatch" => 409,
            "expired" => 410,
            "too_many" => 413,
            "forbidden" => 403,
            _ => 400,
        }
    }

    /// As an answer.
    pub fn into_value(self) -> Value {
        let mut error = self.more;
        error.insert("code".to_owned(), json!(self.code));
        error.insert("message".to_owned(), json!(self.message));
        json!({ "ok": false, "error": error })
    }
}

/// Why an action gave no answer.
#[derive(Debug)]
pub enum Failure {
    /// Not carried out, and why.
    Refused(Refusal),
    /// Our own trouble; repeating is safe.
    Store(StoreError),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
