//! `explain`: what happened to a delivery, and what happens next.

use std::collections::{BTreeMap, BTreeSet};

use domain::delivery::{DeadReason, HeldReason, State};
use domain::id::{DeliveryKey, EventId};
use domain::kept_answer::KeptAnswer;
use domain::outcome::Class;
use domain::plan::Plan;
use domain::ports::{Audit, Clock, Deliveries, EndpointStates, Payloads, Plans};
use domain::record::{Entry, Record};
use domain::time::Millis;
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};

use crate::action::Explain;
use crate::answer::{Failure, Refusal};
use crate::handler::Operator;

impl<D: Deliveries + Plans + Audit + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    /// Explains one delivery.
    pub(crate) async fn explain(&self, explain: &Explain) -> Result<Value, Failure> {
        let not_found = || {
            Refusal::new(
                "not_found",
                format!(
                    "there is no delivery of event {:?} here; `list` with state rejected shows messages that were not accepted",
                    explain.id
                ),
            )
        };
        let record = match &explain.endpoint {
            Some(endpoint) => {
                let key = DeliveryKey::parse(&explain.id, endpoint).map_err(Refusal::invalid)?;
                self.store.get(&key).await?.ok_or_else(not_found)?
            }
            None => {
                let event = EventId::parse(&explain.id).map_err(Refusal::invalid)?;
                let mut records = self.store.of_event(&event).await?;
                if records.len() > 1 {
                    let endpoints: Vec<&str> = records.iter().map(|r| r.key.endpoint.as_str()).collect();
                    let message =
                        format!("event {} goes to {} endpoints: name one with `endpoint`", explain.id, endpoints.len());
                    return Err(Refusal::new("ambiguous", message).with("endpoints", json!(endpoints)).into());
                }
                records.pop().ok_or_else(not_found)?
            }
        };
        let now = self.clock.now();
        let plans = self.plans_of(&record).await?;
        let history: Vec<Value> = record.history.iter().map(|e| entry(e, &plans)).collect();
        let answer = self.store.kept_answer(&record.key).await?;
        let taken_back = record.released_from.is_some()
            && record
                .plan
                .as_ref()
                .and_then(|id| plans.get(id))
                .is_some_and(|plan| plan.has_given_up(record.state_key.as_str()));
        let mut delivery = delivery(&record);
        if matches!(record.state, State::Held(HeldReason::Paused | HeldReason::Disabled)) {
            let because = self.store.endpoint_state(&record.state_key, true).await?.because;
            delivery["held_because"] = json!(because);
        }
        Ok(json!({
            "ok": true,
            "delivery": delivery,
            "history": history,
            "last_answer": answer.as_ref().map(last_answer),
            "next": next(&record, taken_back, now) + &redirect(&record, answer.as_ref()),
        }))
    }

    /// The plans that a record names.
    async fn plans_of(&self, record: &Record) -> Result<BTreeMap<String, Plan>, Failure> {
        let named = record.history.iter().filter_map(|entry| match entry {
            Entry::Released { plan, .. } | Entry::Recalled { plan, .. } => Some(plan),
            Entry::Attempt(_) => None,
        });
        let named: BTreeSet<&String> = named.chain(record.plan.as_ref()).collect();
        // Fresh: the last sentence depends on whether the plan was aborted.
        let found = try_join_all(named.iter().map(|id| self.store.plan(id, true))).await?;
        Ok(found.into_iter().flatten().map(|plan| (plan.id.clone(), plan)).collect())
    }
}

fn delivery(record: &Record) -> Value {
    let millis = |time: Option<Millis>| time.map(|t| t.0);
    json!({
        "id": record.key.event.as_str(),
        "endpoint": record.key.endpoint.as_str(),
        "state_key": record.state_key.as_str(),
        "state": record.state.name(),
        "reason": record.state.reason(),
        "since": record.since.0,
        "attempt": record.attempt,
        "generation": record.generation,
        "budget_from": record.budget_from,
        "attempts_left": record.budget.saturating_sub(record.used()),
        "due": millis(record.due),
        "lease_until": record.lease.as_ref().map(|l| l.until.0),
        "claim_id": record.lease.as_ref().map(|l| l.claim_id.as_str()),
        "armed_at": millis(record.armed_at),
        "rearms": record.rearms,
        "cancel_requested": record.cancel_requested,
        "accepted_late": record.accepted_late,
        "plan": record.plan,
        "payload_hash": record.payload.as_ref().map(|p| p.hash.as_str()),
        "payload_bytes": record.payload.as_ref().map(|p| p.bytes),
        "payload_kept_until": millis(record.payload_kept_until),
        "correlation_id": record.correlation_id,
        "accepted_at": record.accepted_at.0,
        "sender": record.sender,
        "deliver_by": millis(record.deliver_by),
        "completed_at": millis(record.completed_at),
        "expires_at": millis(record.expires_at),
        "excerpt": record.excerpt,
        "cancelled_because": record.cancelled_because,
        "history_dropped": record.history_dropped,
        "receiver_may_have_it": record.may_have_been_received() && record.state != State::Delivered,
    })
}

fn entry(entry: &Entry, plans: &BTreeMap<String, Plan>) -> Value {
    match entry {
        Entry::Attempt(attempt) => json!({
            "number": attempt.number,
            "started": attempt.started.0,
            "phase": attempt.phase.name(),
            "class": attempt.class.name(),
            "status": attempt.status,
            "duration_ms": attempt.duration_ms,
            "hint": attempt.hint.map(|h| h.0),
            "decision": attempt.decision.name(),
            "reason": attempt.decision.reason(),
            "detail": attempt.detail,
            "claim_id": attempt.claim_id.as_str(),
            "receiver_may_have_it": attempt.class == Class::Unknown,
        }),
        Entry::Released { at, plan, generation } => json!({
            "released_at": at.0,
            "plan": plan,
            "generation": generation,
            "approval": plans.get(plan).map(|plan| &plan.approval),
        }),
        Entry::Recalled { at, plan } => json!({
            "recalled_at": at.0,
            "plan": plan,
            "abort": plans.get(plan).map(|plan| &plan.abort),
        }),
    }
}

fn last_answer(answer: &KeptAnswer) -> Value {
    let headers: Map<String, Value> = answer.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "attempt": answer.attempt,
        "at": answer.at.0,
        "status": answer.status,
        "headers": headers,
        "excerpt": answer.excerpt,
        "body_bytes": answer.body_bytes,
        "body_sha256": answer.body_sha256,
        "body_broken": answer.body_broken,
    })
}

/// A redirect is not followed: what to do about it.
fn redirect(record: &Record, kept: Option<&KeptAnswer>) -> String {
    let Some(last) = record.attempts().next_back() else { return String::new() };
    if record.state == State::Delivered || !last.status.is_some_and(|status| (300..400).contains(&status)) {
        return String::new();
    }
    let kept = kept.filter(|kept| kept.attempt == last.number);
    let location = kept.and_then(|kept| kept.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location")));
    let to = location.map_or_else(|| "elsewhere".to_owned(), |(_, value)| format!("to {value}"));
    format!(" The receiver redirects {to}, and no redirect is followed: update the URL.")
}

/// One sentence on what will happen and when.
fn next(record: &Record, taken_back: bool, now: Millis) -> String {
    match record.state {
        State::InFlight => match &record.lease {
            Some(lease) if lease.until > now => {
                format!(
                    "Attempt {} is in flight; if its process died, it is taken over after {}.",
                    record.attempt, lease.until
                )
            }
            Some(_) | None => {
                format!("Attempt {} was abandoned; the next message or sweep takes it over.", record.attempt)
            }
        },
        State::Waiting(_) => {
            let due = record.due.unwrap_or(now);
            if taken_back {
                return format!("Its plan gave it up: it is taken back at its wake-up, due at {due}, and not sent.");
            }
            format!("Attempt {} is due at {due}.", record.attempt.saturating_add(1))
        }
        State::Held(reason) => {
            let held = match reason {
                HeldReason::Removed => {
                    "Nothing by itself: its endpoint was removed. Register it again, then set it active."
                }
                HeldReason::Misconfigured => {
                    "Nothing by itself: repair the definition of its endpoint, then set it active."
                }
                HeldReason::Paused => "Nothing while its endpoint is paused; setting it active releases it.",
                HeldReason::Disabled => "Nothing while its endpoint is disabled; setting it active releases it.",
                HeldReason::Breaker => "Nothing until its endpoint answers again.",
            };
            let end = record.deliver_by.map(|by| format!(" If it is still held at {by}, its deliver_by ends it."));
            held.to_owned() + &end.unwrap_or_default()
        }
        State::Delivered => "Nothing: the endpoint accepted it.".to_owned(),
        State::Cancelled => "Nothing: it was cancelled and will not be sent.".to_owned(),
        State::Rejected(_) => "Nothing: the message was not accepted.".to_owned(),
        State::DeadLettered(DeadReason::PayloadLost) => {
            "Nothing: its payload is gone, and no plan can bring it back. Send it again as a new event.".to_owned()
        }
        State::DeadLettered(DeadReason::Expired) => {
            "Nothing: its deadline passed, and a plan would only meet it again. Send it again as a new event."
                .to_owned()
        }
        State::DeadLettered(reason) => {
            let why = match reason {
                DeadReason::Exhausted => "all its attempts failed",
                DeadReason::Permanent => "the endpoint refused it for good",
                DeadReason::Gone => "the endpoint says that it is gone",
                DeadReason::Blocked => "the request was not allowed or could not be built",
                DeadReason::Crashed => "our own process died in several attempts",
                DeadReason::Expired => "its deadline passed",
                DeadReason::PayloadLost => "its payload is gone",
            };
            format!("Nothing by itself: {why}. Only an approved redrive plan brings it back.")
        }
    }
}
