//! `approve`, `abort` and `status`: the decision, its end, and how far it got. The redrive id is the idempotency key of the
//! decision: the same one again answers the same; of two people who approve, one does.

use domain::audit::{Decision, decision};
use domain::id::StateKey;
use domain::plan::{Approval, Plan, PlanState, Stop, Who};
use domain::ports::{Audit, Clock, Deliveries, EndpointStates, Payloads, Plans};
use domain::progress::{Progress, Tally};
use domain::release::Release;
use domain::summary::Summary;
use domain::time::Millis;
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::action::{Abort, Approve, PlansIn, words};
use crate::answer::{Failure, Refusal};
use crate::caller::{Call, person};
use crate::handler::Operator;

/// Left of an invocation for counting and answering, in milliseconds.
const ANSWER_MS: i64 = 15_000;
/// The most plans of a state in one answer.
const MAX_PLANS: usize = 100;
/// So many endpoints are shown with what became of their first attempts, those with the most failures first.
const SHOWN_ENDPOINTS: usize = 50;

impl<D: Deliveries + Plans + Audit + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    /// Approves a plan and starts to release it.
    pub(crate) async fn approve(&self, action: &Approve, call: &Call, deadline: Millis) -> Result<Value, Failure> {
        words("reason", &action.reason)?;
        words("redrive_id", &action.redrive_id)?;
        loop {
            let plan = self.store.plan(&action.plan_id, true).await?.ok_or_else(|| no_plan(&action.plan_id))?;
            if plan.digest != action.digest {
                return Err(Refusal::new(
                    "digest_mismatch",
                    "the digest is not that of this plan: look at the proposal again",
                )
                .into());
            }
            let now = self.clock.now();
            match (&plan.approval, plan.state_at(now)) {
                (Some(approval), _) if approval.redrive_id == action.redrive_id => break,
                (Some(approval), _) => return Err(already(approval).into()),
                (None, PlanState::Proposed) => {}
                (None, PlanState::Aborted) => {
                    return Err(Refusal::new("conflict", "the plan was aborted: propose again").into());
                }
                (None, PlanState::Expired) => {
                    return Err(Refusal::new("expired", "the proposal has expired: propose again").into());
                }
                (None, PlanState::Canary | PlanState::Ramping | PlanState::Completed) => {
                    return Err(Refusal::new("conflict", "the plan runs without an approval on record").into());
                }
            }
            let by = call.who(action.operator.as_deref());
            self.check_people(&plan.proposed_by, &by)?;
            let bound = self.store.bind_redrive_id(&action.redrive_id, &plan.id, now).await?;
            if bound != plan.id {
                let message = format!(
                    "redrive id {} was used for plan {bound}: a new decision needs a new one",
                    action.redrive_id
                );
                return Err(Refusal::new("conflict", message).into());
            }
            let approval = Approval {
                redrive_id: action.redrive_id.clone(),
                reason: action.reason.clone(),
                by: by.clone(),
                at: now.0,
            };
            let approved = plan.changed(|p| (p.state, p.approval) = (PlanState::Canary, Some(approval)));
            let details = json!({ "digest": plan.digest, "count": plan.count, "redrive_id": action.redrive_id });
            let decided = decision(now, &by, "approve", &plan.id, &action.reason, details);
            // Lost: somebody else decided meanwhile. Look again.
            if self.store.save_plan(&plan, &approved, Some(decided)).await? {
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

    /// The rule of two people, where the deployment asks for it.
    fn check_people(&self, proposer: &Who, approver: &Who) -> Result<(), Refusal> {
        let problem = if !self.two_people {
            return Ok(());
        } else if !approver.verified {
            "an approval must come through the function URL here, so that AWS vouches for the approver"
        } else if !proposer.verified {
            "the proposer of this plan is not verified: propose again through the function URL"
        } else if person(&proposer.name) == person(&approver.name) {
            "whoever proposed a plan may not approve it here: ask somebody else"
        } else {
            return Ok(());
        };
        Err(Refusal::new("forbidden", problem))
    }

    /// Stops a plan. What was not released stays as it is; what was released and not tried yet goes back.
    pub(crate) async fn abort(&self, action: &Abort, call: &Call, deadline: Millis) -> Result<Value, Failure> {
        words("reason", &action.reason)?;
        loop {
            let plan = self.store.plan(&action.plan_id, true).await?.ok_or_else(|| no_plan(&action.plan_id))?;
            let now = self.clock.now();
            let state = plan.state_at(now);
            match state {
                PlanState::Aborted => break,
                PlanState::Proposed | PlanState::Canary | PlanState::Ramping => {}
                PlanState::Completed | PlanState::Expired => {
                    let message = format!("too late: the plan is {}", state.name());
                    return Err(Refusal::new("conflict", message).into());
                }
            }
            let by = call.who(action.operator.as_deref());
            let decided: Decision =
                decision(now, &by, "abort", &plan.id, &action.reason, json!({ "digest": plan.digest }));
            let aborted = plan.aborted(by.clone(), &action.reason, now);
            if self.store.save_plan(&plan, &aborted, Some(decided)).await? {
                tracing::info!(plan.id = plan.id, operator = by.name, operator.verified = by.verified, "plan aborted");
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
        let now = self.clock.now();
        let mut plan = describe(&advanced.plan, now);
        tell_progress(&mut plan, &advanced.progress);
        tell_summary(&mut plan, &advanced.plan.summary);
        if advanced.plan.state_at(now) == PlanState::Proposed {
            plan["warnings"] = json!(self.warnings(&advanced.plan).await?);
        }
        Ok(json!({ "ok": true, "plan": plan }))
    }

    /// What to think of before a plan is approved: what was found when it was proposed, and how its endpoints are now.
    async fn warnings(&self, plan: &Plan) -> Result<Vec<String>, Failure> {
        let summary = &plan.summary;
        let keys: Vec<(StateKey, u32)> =
            summary.by_state_key.iter().map(|(key, count)| (StateKey::stored(key), *count)).collect();
        let keys: Vec<(&StateKey, u32)> = keys.iter().map(|(key, count)| (key, *count)).collect();
        let mut warnings = summary.warnings.clone();
        warnings.extend(self.endpoint_warnings(&keys, summary.state_keys as usize).await?);
        Ok(warnings)
    }

    /// Plans of a state, or of all, the newest first; without their progress, which costs a look at every delivery.
    pub(crate) async fn plans(&self, action: &PlansIn) -> Result<Value, Failure> {
        let limit = action.limit.unwrap_or(20);
        if limit == 0 || limit > MAX_PLANS {
            return Err(Refusal::invalid(format!("`limit` must be between 1 and {MAX_PLANS}")).into());
        }
        let wanted: Vec<PlanState> =
            PlanState::ALL.iter().copied().filter(|s| action.state.as_deref().is_none_or(|w| w == s.name())).collect();
        if wanted.is_empty() {
            let names: Vec<&str> = PlanState::ALL.iter().map(|s| s.name()).collect();
            return Err(Refusal::invalid(format!("`state` must be one of {}", names.join(", "))).into());
        }
        let now = self.clock.now();
        let mut plans = Vec::new();
        for state in wanted {
            // A proposal whose time is over stands among the proposals until somebody looks at it.
            let lanes: &[(PlanState, usize)] = match state {
                PlanState::Proposed => &[(PlanState::Proposed, MAX_PLANS)],
                PlanState::Expired => &[(PlanState::Proposed, MAX_PLANS), (PlanState::Expired, limit)],
                PlanState::Canary | PlanState::Ramping | PlanState::Completed | PlanState::Aborted => &[(state, limit)],
            };
            let mut found = Vec::new();
            for (lane, most) in lanes {
                let ids = self.store.plans_in(*lane, *most).await?;
                let read = try_join_all(ids.iter().map(|id| self.store.plan(id, true))).await?;
                // The index may be behind.
                found.extend(read.into_iter().flatten().filter(|plan| plan.state_at(now) == state));
            }
            found.sort_by_key(|plan| std::cmp::Reverse(plan.created_at));
            found.truncate(limit);
            plans.extend(found);
        }
        plans.sort_by_key(|plan| std::cmp::Reverse(plan.created_at));
        Ok(json!({ "ok": true, "plans": plans.iter().map(|plan| describe(plan, now)).collect::<Vec<_>>() }))
    }
}

fn no_plan(id: &str) -> Refusal {
    Refusal::new("not_found", format!("there is no plan {id:?}"))
}

fn already(approval: &Approval) -> Refusal {
    let message = format!(
        "already approved by {} at {} with redrive id {}",
        approval.by.name,
        Millis(approval.at),
        approval.redrive_id
    );
    Refusal::new("conflict", message)
}

fn describe(plan: &Plan, now: Millis) -> Value {
    let stopped = |why| plan.stopped.iter().filter(move |(_, stop)| **stop == why).map(|(endpoint, _)| endpoint);
    json!({
        "plan_id": plan.id,
        "digest": plan.digest,
        "state": plan.state_at(now).name(),
        "count": plan.count,
        "rate_per_second": plan.rate_per_second,
        "canary": plan.canary,
        "canaries": plan.canaries,
        "abort_failure_ratio": plan.abort_failure_ratio,
        "filter": plan.filter,
        "note": plan.note,
        "proposed_by": plan.proposed_by,
        "created_at": Millis(plan.created_at).to_string(),
        "expires_at": Millis(plan.expires_at).to_string(),
        "approval": plan.approval,
        "abort": plan.abort,
        "endpoints_failed": stopped(Stop::Failed).collect::<Vec<_>>(),
        "endpoints_no_verdict": stopped(Stop::NoVerdict).collect::<Vec<_>>(),
    })
}

fn tell_progress(plan: &mut Value, progress: &Progress) {
    for (name, count) in [
        ("released", progress.released),
        ("delivered", progress.delivered),
        ("failed", progress.failed),
        ("skipped", progress.skipped),
        ("remaining", progress.remaining),
        ("retrying", progress.retrying),
        ("cancelled", progress.cancelled),
        ("untried", progress.untried),
    ] {
        plan[name] = json!(count);
    }
    let mut tallies: Vec<_> = progress.tallies.iter().collect();
    tallies.sort_by_key(|(group, tally)| (std::cmp::Reverse(tally.refused), *group));
    let of_endpoint = |(group, tally): &(&String, &Tally)| {
        json!({
            "endpoint": group, "accepted": tally.accepted, "refused": tally.refused, "untried": tally.untried,
            "skipped": tally.skipped, "remaining": tally.ahead,
        })
    };
    plan["endpoints"] = json!(tallies.iter().take(SHOWN_ENDPOINTS).map(of_endpoint).collect::<Vec<_>>());
}

fn tell_summary(plan: &mut Value, summary: &Summary) {
    plan["by_endpoint"] = json!(summary.by_endpoint);
    plan["endpoint_count"] = json!(summary.endpoints);
    plan["by_reason"] = json!(summary.by_reason);
    plan["by_class"] = json!(summary.by_class);
    plan["oldest"] = json!(summary.oldest.map(|at| Millis(at).to_string()));
}
