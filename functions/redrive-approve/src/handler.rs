//! The shape of an operator's call: unwrap, read, act, answer.

use domain::audit::decision;
use domain::cancel::{self, Cancelled};
use domain::id::{DeliveryKey, StateKey};
use domain::message::CancelRequest;
use domain::ports::{Audit, Clock, Deliveries, EndpointStates, Payloads, Plans};
use domain::settings::Retention;
use domain::time::Millis;
use serde_json::{Value, json};

use crate::action::{Action, Cancel, words};
use crate::answer::{Failure, Refusal};
use crate::caller::Call;

/// The function with its ports.
pub struct Operator<D, P, C> {
    /// Deliveries and plans.
    pub store: D,
    /// To keep payloads longer; they cannot be read here.
    pub payloads: P,
    /// Time and chance.
    pub clock: C,
    /// How long things are kept.
    pub retention: Retention,
    /// The alias that carries the function URL.
    pub alias: String,
    /// Whoever proposed a plan may not approve it, and both must be verified.
    pub two_people: bool,
}

/// The circumstances of a call.
pub struct Invocation<'a> {
    /// When it ends.
    pub deadline: Millis,
    /// The ARN that was invoked.
    pub function_arn: &'a str,
}

impl<D: Deliveries + Plans + Audit + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    /// Handles a call. An error is our own trouble: nothing was decided by it, and repeating is safe.
    pub async fn handle(&self, event: Value, invocation: &Invocation<'_>) -> Result<Value, String> {
        let via_url = event.pointer("/requestContext/http").is_some();
        let (answer, status) = match self.act(event, invocation).await {
            Ok(answer) => (answer, 200),
            Err(Failure::Refused(refusal)) => {
                let status = refusal.status();
                (refusal.into_value(), status)
            }
            Err(Failure::Store(error)) => return Err(error.to_string()),
        };
        if via_url {
            return Ok(json!({
                "statusCode": status,
                "headers": {"content-type": "application/json"},
                "body": answer.to_string(),
            }));
        }
        Ok(answer)
    }

    async fn act(&self, event: Value, invocation: &Invocation<'_>) -> Result<Value, Failure> {
        let call = Call::read(event, invocation.function_arn, &self.alias)?;
        match Action::read(call.input.clone())? {
            Action::List(list) => self.list(&list).await,
            Action::Explain(explain) => self.explain(&explain).await,
            Action::Propose(propose) => self.propose(&propose, &call, invocation.deadline).await,
            Action::Approve(approve) => self.approve(&approve, &call, invocation.deadline).await,
            Action::Abort(abort) => self.abort(&abort, &call, invocation.deadline).await,
            Action::Status(status) => self.status(&status.plan_id, invocation.deadline).await,
            Action::Plans(plans) => self.plans(&plans).await,
            Action::Audit(audit) => self.audit(&audit).await,
            Action::Cancel(cancel) => self.cancel(&cancel, &call).await,
            Action::Endpoint(endpoint) => self.endpoint(&endpoint, &call, invocation.deadline).await,
        }
    }

    async fn cancel(&self, action: &Cancel, call: &Call) -> Result<Value, Failure> {
        words("reason", &action.reason)?;
        let key = DeliveryKey::parse(&action.id, &action.endpoint).map_err(Refusal::invalid)?;
        let who = call.who(action.operator.as_deref());
        let because =
            format!("operator {}{}: {}", who.name, if who.verified { "" } else { " (unverified)" }, action.reason);
        // What is over already, or cancelled already, is no decision.
        let foreseen = self.store.get(&key).await?.as_ref().and_then(cancel::foreseen);
        let done = match foreseen {
            Some(done) => done,
            None => {
                let state_key = StateKey::stored(key.endpoint.as_str());
                let request = CancelRequest { key, state_key, reason: action.reason.clone() };
                let subject = format!("{} to {}", action.id, action.endpoint);
                // Before it takes effect: a cancel that nobody wrote down would be worse than one that was written down twice.
                let decision = decision(self.clock.now(), &who, "cancel", subject, &action.reason, json!({}));
                self.store.record(decision).await?;
                cancel::cancel(&self.store, &request, &because, None, self.retention, self.clock.now()).await?
            }
        };
        tracing::info!(delivery.id = action.id, endpoint.key = action.endpoint, operator = who.name, operator.verified = who.verified, cancel.result = ?done, "cancel");
        let (result, message) = match done {
            Cancelled::Done => ("cancelled", "it will not be sent"),
            Cancelled::Tombstone => ("tombstone", "no such delivery yet; if its message comes, it will be suppressed"),
            Cancelled::Requested => {
                ("requested", "an attempt is in flight; it is cancelled unless that attempt is accepted")
            }
            Cancelled::TooLate(state) => {
                return Err(Refusal::new("conflict", format!("too late: the delivery is {state}"))
                    .with("state", json!(state.name()))
                    .into());
            }
        };
        Ok(json!({"ok": true, "result": result, "message": message}))
    }
}
