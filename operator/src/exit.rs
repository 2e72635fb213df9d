//! How a command ends: the exit codes, and failures with a code that scripts can read and a sentence for a person. No
//! failure repeats a secret, the path of a URL, or an SDK's dump of itself; the dump is kept for `--verbose`.

use domain::fields::Problem;
use domain::ports::StoreError;
use serde_json::{Map, Value, json};

/// The exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// The answer is no.
    No = 1,
    /// Wrong usage, or input that is not valid.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// Somebody was faster, the state does not allow it, or nobody agreed.
    Conflict = 4,
    /// No permission, or no credentials.
    Denied = 5,
    /// AWS or the stack cannot be reached.
    Unreachable = 6,
    /// Our own trouble.
    Own = 7,
}

/// The exit codes, as `--help` shows them.
pub const HELP: &str = "Exit codes:
  0  done
  1  the answer is no: an invalid signature, a failed test, an aborted plan, a broken chain of decisions
  2  wrong usage, or input that is not valid
  3  not found
  4  a conflict, or nobody agreed
  5  no permission, or no credentials
  6  AWS or the stack cannot be reached
  7  our own trouble";

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// For scripts.
    pub code: String,
    /// For people: what is wrong and what to do.
    pub message: String,
    /// What the SDK said, for `--verbose`.
    pub detail: Option<String>,
    /// More fields of the error.
    pub more: Map<String, Value>,
}

impl Failure {
    /// A failure.
    pub fn new(exit: Exit, code: &str, message: impl Into<String>) -> Self {
        Self { exit, code: code.to_owned(), message: message.into(), detail: None, more: Map::new() }
    }

    /// Input that is not valid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "invalid", message)
    }

    /// Several problems of one input, each on a line of its own.
    pub fn problems(intro: &str, problems: &[String]) -> Self {
        let lines: String = problems.iter().map(|problem| format!("\n  {problem}")).collect();
        Self::invalid(format!("{intro}{lines}")).with("problems", json!(problems))
    }

    /// What was about to be written could not be read again.
    pub fn unwritable(problems: &[Problem]) -> Self {
        let intro = "what was about to be written could not be read again, so nothing was written:";
        Self { exit: Exit::Own, ..Self::problems(intro, &lines("", problems)) }
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, "not_found", message)
    }

    /// Somebody was faster, or the state does not allow it.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Exit::Conflict, "conflict", message)
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// The error that an action of the operator function answered, if it did.
    pub fn of_answer(answer: Value) -> Result<Value, Self> {
        if answer.get("ok").and_then(Value::as_bool) == Some(true) {
            return Ok(answer);
        }
        let error = answer.get("error").cloned().unwrap_or_default();
        let word = |name: &str| error.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let Some(code) = word("code") else {
            let message = "the operator function gave an answer that this version does not understand";
            return Err(Self { detail: Some(answer.to_string()), ..Self::new(Exit::Own, "answer", message) });
        };
        let exit = match code.as_str() {
            "not_found" => Exit::NotFound,
            "conflict" | "digest_mismatch" | "expired" => Exit::Conflict,
            "forbidden" => Exit::Denied,
            _ => Exit::Usage,
        };
        let mut failure = Self::new(exit, &code, word("message").unwrap_or_default());
        if let Value::Object(mut fields) = error {
            fields.remove("code");
            fields.remove("message");
            failure.more = fields;
        }
        Err(failure)
    }

    /// What AWS, or the way to it, said: sorted by what a person has to do. `what` says what was tried.
    pub fn of_aws(what: &str, text: &str) -> Self {
        // The SDK ends its chain with a dump of everything, in which any word may stand.
        let dumps =
            ["(ServiceError(", "(DispatchFailure(", "(TimeoutError(", "(ConstructionFailure(", "(ResponseError("];
        let end = dumps.iter().filter_map(|dump| text.find(dump)).min().unwrap_or(text.len());
        let says = |words: &[&str]| words.iter().any(|word| text[..end].contains(word));
        let sentence = sentence(text).map(|s| format!(" ({s})")).unwrap_or_default();
        let failure = if says(&["AccessDenied", "UnauthorizedOperation", "not authorized to perform"]) {
            Self::new(
                Exit::Denied,
                "no_permission",
                format!("{what}: no permission{sentence}; ask for it, or choose another --profile"),
            )
        } else if says(&[
            "ExpiredToken",
            "InvalidClientTokenId",
            "UnrecognizedClient",
            "InvalidSignature",
            "SignatureDoesNotMatch",
            "CredentialsNotLoaded",
            "ProviderError",
            "InvalidConfiguration(",
            "no providers in chain",
            "failed to load credentials",
            "loading credentials",
        ]) {
            Self::new(
                Exit::Denied,
                "no_credentials",
                format!(
                    "{what}: no credentials that AWS accepts; sign in (for example `aws sso login`), or choose a --profile"
                ),
            )
        } else if says(&["Missing Region", "MissingRegion", "region must be set"]) {
            Self::new(
                Exit::Unreachable,
                "no_region",
                format!("{what}: no region is set; give --region, or set AWS_REGION"),
            )
        } else if text.contains("does not exist") && says(&["ValidationError", "ValidationException"]) {
            Self::new(
                Exit::Unreachable,
                "stack_not_found",
                format!(
                    "{what}: there is no such stack in this account and region; check --stack, --region and --profile"
                ),
            )
        } else if says(&["ResourceNotFound", "NonExistentQueue", "QueueDoesNotExist", "Function not found"]) {
            Self::new(
                Exit::Unreachable,
                "missing",
                format!("{what}: a part of the stack is missing{sentence}; check --stack, --region and --profile"),
            )
        } else if says(&["Throttling", "TooManyRequests", "RequestLimitExceeded", "ThroughputExceeded"]) {
            Self::new(Exit::Unreachable, "throttled", format!("{what}: AWS asks to slow down; try again"))
        } else if says(&["dispatch failure", "DispatchFailure", "timeout", "timed out", "TimeoutError"]) {
            Self::new(
                Exit::Unreachable,
                "unreachable",
                format!(
                    "{what}: no connection; check the network and --region; for the local stack, `make up` starts it"
                ),
            )
        } else {
            Self::new(Exit::Own, "aws", format!("{what}: AWS refused{sentence}; --verbose shows all that it said"))
        };
        Self { detail: Some(text.to_owned()), ..failure }
    }

    /// As one JSON document.
    pub fn to_json(&self, verbose: bool) -> Value {
        let mut error = self.more.clone();
        error.insert("code".to_owned(), json!(self.code));
        error.insert("message".to_owned(), json!(self.message));
        if let Some(detail) = self.detail.as_ref().filter(|_| verbose) {
            error.insert("detail".to_owned(), json!(detail));
        }
        json!({ "ok": false, "error": error })
    }
}

/// The sentence that AWS wrote for people, out of an error's chain.
fn sentence(text: &str) -> Option<String> {
    let start = ["message: Some(\"", "message: \""].iter().find_map(|mark| Some(text.find(mark)? + mark.len()))?;
    let said = &text[start..start + text[start..].find('"')?];
    (!said.is_empty()).then(|| said.chars().take(300).collect())
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(text) => {
                let what = text.split(':').next().unwrap_or_default().to_owned();
                Self::of_aws(&what, &text)
            }
            StoreError::Corrupt(what) => {
                Self::new(Exit::Own, "unreadable", format!("the store holds something unreadable: {what}"))
            }
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Own, "io", format!("reading or writing failed: {error}"))
    }
}

/// Problems of fields as lines, with what they belong to.
pub fn lines(of: &str, problems: &[Problem]) -> Vec<String> {
    problems
        .iter()
        .map(|problem| if of.is_empty() { problem.to_string() } else { format!("{of}: {problem}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_aws_says_is_sorted_by_what_a_person_has_to_do() {
        for (text, exit, code) in [
            (
                r#"service error: AccessDeniedException (message: "User: arn is not authorized to perform: dynamodb:GetItem")"#,
                Exit::Denied,
                "no_permission",
            ),
            ("dispatch failure: other: the credential provider: CredentialsNotLoaded", Exit::Denied, "no_credentials"),
            ("ExpiredTokenException", Exit::Denied, "no_credentials"),
            ("ValidationError: Stack with id redeliver does not exist", Exit::Unreachable, "stack_not_found"),
            ("ResourceNotFoundException: Requested resource not found", Exit::Unreachable, "missing"),
            ("dispatch failure: io error: connection refused", Exit::Unreachable, "unreachable"),
            ("ThrottlingException", Exit::Unreachable, "throttled"),
            ("Invalid Configuration: Missing Region", Exit::Unreachable, "no_region"),
            ("SomethingElse (ServiceError(ServiceError { AccessDenied timeout }))", Exit::Own, "aws"),
        ] {
            let failure = Failure::of_aws("reading the table", text);
            assert_eq!((failure.exit, failure.code.as_str()), (exit, code), "{text}");
            assert!(failure.message.starts_with("reading the table: "), "{}", failure.message);
            assert!(failure.to_json(false)["error"].get("detail").is_none(), "the dump is for --verbose");
            assert_eq!(failure.to_json(true)["error"]["detail"], text);
        }
        let denied = Failure::of_aws("x", r#"AccessDenied { message: Some("User: ada may not") }"#);
        assert!(denied.message.contains("(User: ada may not)"), "{}", denied.message);
    }

    #[test]
    fn an_error_of_the_operator_function_keeps_its_code_and_fields() {
        let failure = |code: &str| {
            Failure::of_answer(json!({"ok": false, "error": {"code": code, "message": "m", "state": "x"}})).unwrap_err()
        };
        for (code, exit) in [
            ("not_found", Exit::NotFound),
            ("conflict", Exit::Conflict),
            ("invalid", Exit::Usage),
            ("forbidden", Exit::Denied),
        ] {
            let failure = failure(code);
            assert_eq!((failure.exit, failure.code.as_str(), &failure.more["state"]), (exit, code, &json!("x")));
        }
        assert_eq!(Failure::of_answer(json!(null)).unwrap_err().exit, Exit::Own);
        assert!(Failure::of_answer(json!({"ok": true})).is_ok());
    }
}
