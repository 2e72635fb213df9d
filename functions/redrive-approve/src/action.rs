//! What an operator can ask for: one JSON object with an `action`. Unknown fields are refused by name.

use domain::time::Millis;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answer::Refusal;

/// An action.
#[derive(Debug)]
pub enum Action {
    /// Deliveries in a state.
    List(List),
    /// The story of one delivery.
    Explain(Explain),
    /// Select deliveries for a release.
    Propose(Propose),
    /// Decide for a plan.
    Approve(Approve),
    /// Stop a plan.
    Abort(Abort),
    /// How far a plan is.
    Status(Status),
    /// Plans in a state.
    Plans(PlansIn),
    /// Who decided what.
    Audit(Audit),
    /// Do not deliver it.
    Cancel(Cancel),
    /// Pause, resume or give up an endpoint.
    Endpoint(Endpoint),
}

/// `list`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// `waiting`, `held`, `dead_lettered` or `rejected`.
    pub state: String,
    /// Only this endpoint.
    pub endpoint: Option<String>,
    /// Only this reason.
    pub reason: Option<String>,
    /// At most so many, 50 unless told.
    pub limit: Option<usize>,
    /// Go on after an earlier page.
    pub cursor: Option<String>,
}

/// `explain`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// Event id.
    pub id: String,
    /// Endpoint key; needed when the event has several.
    pub endpoint: Option<String>,
}

/// `propose`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Propose {
    /// Which deliveries.
    pub filter: Filter,
    /// Releases per second, 10 unless told.
    pub rate_per_second: Option<u32>,
    /// Deliveries of each endpoint that are tried first, 10 unless told.
    pub canary: Option<u32>,
    /// Stop an endpoint when more of its first attempts fail, 0.2 unless told.
    pub abort_failure_ratio: Option<f64>,
    /// Who asks.
    pub operator: Option<String>,
    /// Why.
    pub note: Option<String>,
}

/// A selection.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// `dead_lettered`, also when absent, `held`, or with `ids` `delivered`, to send them again.
    pub state: Option<String>,
    /// Only this endpoint.
    pub endpoint: Option<String>,
    /// Only this reason.
    pub reason: Option<String>,
    /// Only when the last attempt counted as this.
    pub class: Option<String>,
    /// Only when the last attempt was answered with this status.
    pub status: Option<u16>,
    /// In that state since this time or later.
    pub after: Option<String>,
    /// In that state since before this time.
    pub before: Option<String>,
    /// Only these events.
    pub ids: Option<Vec<String>>,
}

/// `approve`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// Which plan.
    pub plan_id: String,
    /// Its digest, as proposed.
    pub digest: String,
    /// The caller's idempotency key of this decision.
    pub redrive_id: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub operator: Option<String>,
}

/// `status`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// Which plan.
    pub plan_id: String,
}

/// `abort`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// Which plan.
    pub plan_id: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub operator: Option<String>,
}

/// `plans`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlansIn {
    /// Only this state.
    pub state: Option<String>,
    /// At most so many of each state, 20 unless told.
    pub limit: Option<usize>,
}

/// `audit`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// From this time on.
    pub after: Option<String>,
    /// At most so many, 50 unless told.
    pub limit: Option<usize>,
    /// Go on after an earlier page.
    pub cursor: Option<String>,
    /// The last ones instead.
    #[serde(default)]
    pub newest: bool,
}

/// `cancel`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// Event id.
    pub id: String,
    /// Endpoint key.
    pub endpoint: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub operator: Option<String>,
}

/// `endpoint`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Endpoint id, or the state key of an origin that was paused before.
    pub endpoint: Option<String>,
    /// An inline URL: its origin is meant, with every other URL of it.
    pub url: Option<String>,
    /// `paused`, `active` or `disabled`; absent: only look.
    pub set: Option<String>,
    /// Why; needed with `set`.
    pub reason: Option<String>,
    /// Who.
    pub operator: Option<String>,
}

const ACTIONS: &str = "list, explain, propose, approve, abort, status, plans, cancel, endpoint, audit";

impl Action {
    /// Reads an action.
    pub fn read(input: Value) -> Result<Self, Refusal> {
        let Value::Object(mut fields) = input else {
            return Err(Refusal::invalid(format!("an action is one JSON object with an `action` of: {ACTIONS}")));
        };
        let action = match fields.remove("action") {
            Some(Value::String(action)) => action,
            _ => return Err(Refusal::invalid(format!("`action` is missing: it is one of {ACTIONS}"))),
        };
        match action.as_str() {
            "list" => fields_of(fields).map(Self::List),
            "explain" => fields_of(fields).map(Self::Explain),
            "propose" => fields_of(fields).map(Self::Propose),
            "approve" => fields_of(fields).map(Self::Approve),
            "status" => fields_of(fields).map(Self::Status),
            "cancel" => fields_of(fields).map(Self::Cancel),
            "endpoint" => fields_of(fields).map(Self::Endpoint),
            "abort" => fields_of(fields).map(Self::Abort),
            "plans" => fields_of(fields).map(Self::Plans),
            "audit" => fields_of(fields).map(Self::Audit),
            _ => Err(Refusal::invalid(format!("unknown action {action:?}: it is one of {ACTIONS}"))),
        }
    }
}

fn fields_of<T: for<'de> Deserialize<'de>>(fields: Map<String, Value>) -> Result<T, Refusal> {
    serde_json::from_value(Value::Object(fields)).map_err(|e| Refusal::invalid(e.to_string()))
}

/// Reads an optional RFC 3339 time.
pub fn time(name: &str, value: Option<&str>) -> Result<Option<Millis>, Refusal> {
    let Some(text) = value else { return Ok(None) };
    match Millis::parse_rfc3339(text) {
        Some(time) => Ok(Some(time)),
        None => Err(Refusal::invalid(format!("`{name}` must be an RFC 3339 time with offset, not {text:?}"))),
    }
}

/// A text that says something, of at most 256 characters.
pub fn words(name: &str, text: &str) -> Result<(), Refusal> {
    if text.trim().is_empty() || text.chars().count() > 256 {
        return Err(Refusal::invalid(format!("`{name}` must have 1 to 256 characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_actions_are_named() {
        for (input, part) in [
            (json!([]), "JSON object"),
            (json!({}), "`action` is missing"),
            (json!({"action": "lst"}), "\"lst\""),
            (json!({"action": "abort", "plan_id": "x"}), "reason"),
            (json!({"action": "plans", "stat": "x"}), "stat"),
            (json!({"action": "list"}), "state"),
            (json!({"action": "list", "state": "waiting", "endpont": "x"}), "endpont"),
            (json!({"action": "approve", "plan_id": "p", "digest": "d", "reason": "r"}), "redrive_id"),
        ] {
            let refusal = Action::read(input).unwrap_err();
            assert!(refusal.code == "invalid" && refusal.message.contains(part), "{refusal:?}");
        }
    }
}
