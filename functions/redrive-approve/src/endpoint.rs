//! `endpoint`: whether an endpoint takes deliveries. A pause or a give-up bites at the next claim; making it active releases
//! what was held, as far as this call's time allows, and the sweep goes on with the rest.

use domain::audit::decision;
use domain::endpoint_state::{EndpointState, Status};
use domain::id::{EndpointKey, StateKey};
use domain::ports::{Audit, Clock, Deliveries, EndpointStates, Payloads, Plans};
use domain::request::check_url;
use domain::resume::Resume;
use domain::time::{Millis, SECOND_MS};
use serde_json::{Value, json};

use crate::action::{Endpoint, words};
use crate::answer::{Failure, Refusal};
use crate::caller::Call;
use crate::handler::Operator;

/// So often a state that changes at the same moment is read again.
const TRIES: usize = 5;
/// Left for the answer, in milliseconds.
const MARGIN_MS: i64 = 2 * SECOND_MS;

impl<D: Deliveries + Plans + Audit + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    pub(crate) async fn endpoint(&self, action: &Endpoint, call: &Call, deadline: Millis) -> Result<Value, Failure> {
        let key = meant(action)?;
        let state = self.store.endpoint_state(&key, true).await?;
        // A key looks the same whether it was made of a URL or of an origin; a pause of the first would hold nothing.
        if action.url.is_none() && key.is_inline() && state.rev == 0 {
            let message = "nothing was ever set under this key. A state belongs to the origin of inline URLs, not to one \
                           URL: give the URL itself as `url` (--url)";
            return Err(Refusal::new("not_found", message).into());
        }
        let Some(set) = &action.set else {
            return Ok(json!({"ok": true, "endpoint": shown(&state), "released": 0}));
        };
        let status = Status::from_name(set)
            .ok_or_else(|| Refusal::invalid(format!("`set` must be paused, active or disabled, not {set:?}")))?;
        let reason = action.reason.as_deref().unwrap_or_default();
        words("reason", reason)?;
        let who = call.who(action.operator.as_deref());
        let unverified = if who.verified { "" } else { " (unverified)" };
        let because = format!("operator {}{unverified}: {reason}", who.name);
        let details = json!({ "set": status.name() });
        let decision = decision(self.clock.now(), &who, "endpoint", key.as_str(), reason, details);
        self.store.record(decision).await?;
        let state = self.set(&key, status, &because).await?;
        tracing::info!(endpoint.key = %key, endpoint.status = status.name(), operator = who.name, operator.verified = who.verified, reason, "endpoint set");
        let mut released = 0;
        if status == Status::Active {
            let resume =
                Resume { store: &self.store, payloads: &self.payloads, clock: &self.clock, retention: self.retention };
            released = resume.advance(&key, deadline.plus(-MARGIN_MS)).await?;
        }
        Ok(json!({"ok": true, "endpoint": shown(&state), "released": released}))
    }

    /// Setting what is set already changes only who and why.
    async fn set(&self, key: &StateKey, status: Status, because: &str) -> Result<EndpointState, Failure> {
        for _ in 0..TRIES {
            let old = self.store.endpoint_state(key, true).await?;
            let new = old.set(status, because, self.clock.now());
            if self.store.save_endpoint_state(&old, &new).await? {
                return Ok(new);
            }
        }
        Err(Refusal::new("conflict", "the endpoint is being changed by others at this moment: try again").into())
    }
}

/// Whose state it is about.
fn meant(action: &Endpoint) -> Result<StateKey, Refusal> {
    match (&action.endpoint, &action.url) {
        (Some(id), None) => EndpointKey::parse(id).map(|key| StateKey::stored(key.as_str())).map_err(Refusal::invalid),
        (None, Some(url)) => {
            check_url(url).map(|url| StateKey::inline(&url)).map_err(|e| Refusal::invalid(format!("`url` {e}")))
        }
        (Some(_), Some(_)) | (None, None) => Err(Refusal::invalid("give `endpoint` or `url`, one of them")),
    }
}

fn shown(state: &EndpointState) -> Value {
    json!({
        "endpoint": state.key.as_str(),
        "state": state.status.name(),
        "since": state.since.0,
        "because": state.because,
        "releasing": state.released.is_some(),
    })
}
