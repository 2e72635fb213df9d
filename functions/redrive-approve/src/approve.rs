//! `approve` and `status`: the decision, and how far it got. The redrive id is the idempotency key of the decision: the
//! same one again answers the same; of two people who approve, one does.

use domain::plan::{Approval, Plan, PlanState, Progress};
use domain::ports::{Clock, Deliveries, EndpointStates, Payloads, Plans};
use domain::release::Release;
use domain::time::Millis;
use serde_json::{Value, json};

use crate::action::{Approve, words};
use crate::answer::{Failure, Refusal};
use crate::caller::Call;
use crate::handler::Operator;

/// Left of an invocation for counting and answering, in milliseconds.
const ANSWER_MS: i64 = 15_000;

impl<D: Deliveries + Plans + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    /// Approves a plan and starts to release it.
    pub(crate) async fn approve(&self, action: &Approve, call: &Call, deadline: Millis) -> Result<Value, Failure> {
        words("reason", &action.reason)?;
        words("redrive_id", &action.redrive_id)?;
        loop {
            let plan = self.store.plan(&action.plan_id).await?.ok_or_else(|| no_plan(&action.plan_id))?;
            if plan.digest != action.digest {
                return Err(Refusal::new(
                    "digest_mismatch",
                    "the digest is not that of this plan: look at the proposal again",
                )
                .into());
            }
            let now = self.clock.now();
            match (&plan.approval, plan.state) {
                (Some(approval), _) if approval.redrive_id == action.redrive_id => break,
                (Some(approval), _) => {
                    let message = format!(
                        "already approved by {} at {} with redrive id {}",
                        approval.by.name,
                        Millis(approval.at),
                        approval.redrive_id
                    );
                    return Err(Refusal::new("conflict", message).into());
                }
                (None, PlanState::Proposed) if Millis(plan.expires_at) > now => {}
                (None, PlanState::Proposed | PlanState::Ramping | PlanState::Completed | PlanState::Expired) => {
                    return Err(Refusal::new("expired", "the proposal has expired: propose again").into());
                }
            }
            let bound = self.store.bind_redrive_id(&action.redrive_id, &plan.id, now).await?;
            if bound != plan.id {
                let message = format!(
                    "redrive id {} was used for plan {bound}: a new decision needs a new one",
                    action.redrive_id
                );
                return Err(Refusal::new("conflict", message).into());
            }
            let by = call.who(action.operator.as_deref());
            let approval = Approval {
                redrive_id: action.redrive_id.clone(),
                reason: action.reason.clone(),
                by: by.clone(),
                at: now.0,
            };
            let approved =
                Plan { state: PlanState::Ramping, approval: Some(approval), rev: plan.rev + 1, ..plan.clone() };
            // Lost: somebody else decided meanwhile. Look again.
            if self.store.save_plan(&plan, &approved).await? {
                tracing::info!(
                    plan.id = plan.id,
                    plan.count = plan.count,
                    operator = by.name,
                    operator.verified = by.verified,
                    redrive.id = action.redrive_id,
                    "plan approved"
                );
                break;
            }
        }
        self.status(&action.plan_id, deadline).await
    }

    /// Goes on with a plan as far as the time allows, and tells how far it is.
    pub(crate) async fn status(&self, plan_id: &str, deadline: Millis) -> Result<Value, Failure> {
        let release =
            Release { store: &self.store, payloads: &self.payloads, clock: &self.clock, retention: self.retention };
        let advanced = release.advance(plan_id, deadline.plus(-ANSWER_MS)).await?;
        let advanced = advanced.ok_or_else(|| no_plan(plan_id))?;
        Ok(json!({"ok": true, "plan": describe(&advanced.plan, advanced.progress)}))
    }
}

fn no_plan(id: &str) -> Refusal {
    Refusal::new("not_found", format!("there is no plan {id:?}"))
}

fn describe(plan: &Plan, progress: Progress) -> Value {
    json!({
        "plan_id": plan.id,
        "digest": plan.digest,
        "state": plan.state.name(),
        "count": plan.count,
        "rate_per_second": plan.rate_per_second,
        "filter": plan.filter,
        "note": plan.note,
        "proposed_by": plan.proposed_by,
        "created_at": Millis(plan.created_at).to_string(),
        "expires_at": Millis(plan.expires_at).to_string(),
        "approval": plan.approval,
        "released": progress.released,
        "delivered": progress.delivered,
        "failed": progress.failed,
        "skipped": progress.skipped,
        "remaining": progress.remaining,
    })
}
