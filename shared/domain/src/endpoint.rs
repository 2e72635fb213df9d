//! A receiver: where its webhooks go and how.

use crate::fields::Problem;
use crate::outcome::AnswerRules;
use crate::request::origin_shown;
use crate::retry::RetryPolicy;
use crate::signature::Secret;

/// What is needed to send to an endpoint.
#[derive(Clone)]
pub struct EndpointConfig {
    /// Where to.
    pub url: String,
    /// Longest request in milliseconds, from name resolution to the end of the answer.
    pub timeout_ms: i64,
    /// When to try again.
    pub policy: RetryPolicy,
    /// Headers for every request; `authorization` is allowed here.
    pub headers: Vec<(String, String)>,
    /// Changes to the status table.
    pub rules: AnswerRules,
    /// Active signing secrets, by scheme and the newest first. Empty: not signed.
    pub secrets: Vec<Secret>,
}

impl std::fmt::Debug for EndpointConfig {
    /// Without the path of the URL and without values of headers: they may be credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("url", &origin_shown(&self.url))
            .field("timeout_ms", &self.timeout_ms)
            .field("policy", &self.policy)
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("rules", &self.rules)
            .field("secrets", &self.secrets)
            .finish()
    }
}

/// What an endpoint has where its definition says nothing; all that an inline URL has.
#[derive(Clone, Debug)]
pub struct Defaults {
    /// When to try again.
    pub policy: RetryPolicy,
    /// Longest request in milliseconds; no endpoint may ask for more.
    pub timeout_ms: i64,
}

/// What a look at the registry found.
#[derive(Clone, Debug)]
pub enum Found {
    /// A usable configuration.
    Config(Box<EndpointConfig>),
    /// It was removed: its deliveries are held.
    Removed,
    /// Its configuration cannot be used, for this reason: its deliveries are held.
    Misconfigured(String),
    /// There is no such endpoint.
    Unknown,
}

impl Found {
    /// A definition with problems; their sentences name fields and repeat no value.
    pub fn misconfigured(problems: &[Problem]) -> Self {
        Self::Misconfigured(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}
