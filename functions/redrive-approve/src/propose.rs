//! `propose`: freezes a selection of dead letters, or of held deliveries, into a plan, for somebody to look at and approve.

use std::collections::BTreeMap;

use domain::id::{EventId, hex};
use domain::plan::{Frozen, MAX_DELIVERIES, PROPOSAL_MS, Plan, PlanState, digest};
use domain::ports::{Clock, Deliveries, EndpointStates, Payloads, Plans, Stored};
use domain::record::Record;
use domain::time::{DAY_MS, Millis, SECOND_MS};
use serde_json::{Value, json};

use crate::action::{Filter, Propose, time, words};
use crate::answer::{Failure, Refusal};
use crate::caller::Call;
use crate::handler::Operator;
use crate::scan::Scan;

/// Items read at once.
const PAGE: usize = 500;
/// Left of an invocation for storing the plan, in milliseconds.
const STORE_MS: i64 = 10_000;

impl<D: Deliveries + Plans + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    /// Proposes a plan.
    pub(crate) async fn propose(&self, action: &Propose, call: &Call, deadline: Millis) -> Result<Value, Failure> {
        let rate = action.rate_per_second.unwrap_or(10);
        if !(1..=1000).contains(&rate) {
            return Err(Refusal::invalid("`rate_per_second` must be between 1 and 1000").into());
        }
        if action.abort_failure_ratio.is_some_and(|r| !(0.0..=1.0).contains(&r)) {
            return Err(Refusal::invalid("`abort_failure_ratio` must be between 0 and 1").into());
        }
        if let Some(note) = &action.note {
            words("note", note)?;
        }
        let selection = self.select(&action.filter, deadline.plus(-STORE_MS)).await?;
        let count = selection.count();
        if count > MAX_DELIVERIES {
            let more = if selection.complete { "" } else { "at least " };
            let message = format!(
                "{more}{count} deliveries match, a plan holds {MAX_DELIVERIES} at most: narrow the filter, for example by endpoint or time"
            );
            return Err(Refusal::new("too_many", message).with("count", json!(count)).into());
        }
        if !selection.complete {
            return Err(Refusal::invalid("the selection did not fit into the time of one call: narrow the filter, for example by endpoint or time").into());
        }
        let state = chosen_state(&action.filter)?;
        if count == 0 {
            return Err(Refusal::new("not_found", format!("no {state} delivery matches the filter")).into());
        }
        let now = self.clock.now();
        let nonce: Vec<u8> = (0..2).flat_map(|_| self.clock.nonce().to_be_bytes()).collect();
        let plan = Plan {
            id: format!("plan_{}_{}", now.seconds(), hex(&nonce)),
            digest: digest(&selection.list),
            state: PlanState::Proposed,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            rate_per_second: rate,
            filter: filter_on_record(&call.input),
            note: action.note.clone().unwrap_or_default(),
            proposed_by: call.who(action.operator.as_deref()),
            created_at: now.0,
            expires_at: now.plus(PROPOSAL_MS).0,
            approval: None,
            next: 0,
            rev: 1,
        };
        self.store.propose(&plan, &selection.list).await?;
        tracing::info!(
            plan.id = plan.id,
            plan.count = plan.count,
            operator = plan.proposed_by.name,
            operator.verified = plan.proposed_by.verified,
            "plan proposed"
        );
        let mut warnings = selection.warnings(now);
        if action.canary.is_some() || action.abort_failure_ratio.is_some() {
            warnings.push(
                "canary and abort are not available in this version: an approval releases all deliveries at the rate"
                    .to_owned(),
            );
        }
        Ok(json!({
            "ok": true,
            "plan_id": plan.id,
            "digest": plan.digest,
            "count": plan.count,
            "by_endpoint": selection.by_endpoint,
            "by_reason": selection.by_reason,
            "oldest_age_seconds": selection.oldest.map_or(0, |t| now.since(t) / SECOND_MS),
            "warnings": warnings,
            "expires_at": Millis(plan.expires_at).to_string(),
            "forecast_seconds": plan.count.div_ceil(rate),
        }))
    }

    async fn select(&self, filter: &Filter, until: Millis) -> Result<Selection, Failure> {
        let state = chosen_state(filter)?;
        let (after, before) =
            (time("filter.after", filter.after.as_deref())?, time("filter.before", filter.before.as_deref())?);
        let matches = |r: &Record| {
            r.state.name() == state
                && filter.endpoint.as_deref().is_none_or(|e| r.key.endpoint.as_str() == e)
                && filter.reason.as_deref().is_none_or(|reason| r.state.reason() == Some(reason))
                && after.is_none_or(|t| r.since >= t)
                && before.is_none_or(|t| r.since < t)
        };
        let mut selection = Selection { complete: true, ..Selection::default() };
        if let Some(ids) = &filter.ids {
            if ids.len() > MAX_DELIVERIES {
                return Err(Refusal::new("too_many", format!("`ids` may hold {MAX_DELIVERIES} at most"))
                    .with("count", json!(ids.len()))
                    .into());
            }
            let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
            for id in distinct {
                if self.clock.now() >= until {
                    selection.complete = false;
                    return Ok(selection);
                }
                let event = EventId::parse(id).map_err(Refusal::invalid)?;
                for record in self.store.of_event(&event).await?.iter().filter(|r| matches(r)) {
                    selection.add(record);
                }
            }
            return Ok(selection);
        }
        let mut scan = Scan::new(state, filter.endpoint.as_deref())?.between(after, before);
        while !scan.is_done() {
            if self.clock.now() >= until {
                selection.complete = false;
                break;
            }
            for stored in scan.next(&self.store, PAGE).await? {
                if let Stored::Delivery(record) = stored
                    && matches(&record)
                {
                    selection.add(&record);
                }
            }
        }
        Ok(selection)
    }
}

/// The filter as it was asked, for the record. A list of ids can be long; the digest covers it, so its length is enough.
fn filter_on_record(input: &Value) -> Value {
    let mut filter = input.get("filter").cloned().unwrap_or_default();
    if let Some(ids) = filter.get_mut("ids") {
        *ids = json!(ids.as_array().map_or(0, Vec::len));
    }
    filter
}

/// The state that a filter selects from.
fn chosen_state(filter: &Filter) -> Result<&'static str, Refusal> {
    match filter.state.as_deref() {
        None | Some("dead_lettered") => Ok("dead_lettered"),
        Some("held") => Ok("held"),
        Some(other) => Err(Refusal::invalid(format!("`filter.state` must be dead_lettered or held, not {other:?}"))),
    }
}

/// What was found. Beyond the limit it only counts.
#[derive(Default)]
struct Selection {
    list: Vec<Frozen>,
    beyond: usize,
    complete: bool,
    by_endpoint: BTreeMap<String, u32>,
    by_reason: BTreeMap<&'static str, u32>,
    oldest: Option<Millis>,
    may_have_it: u32,
    deadline_passed: Vec<Millis>,
    payload_ends: Vec<Millis>,
    payload_lost: u32,
}

impl Selection {
    const fn count(&self) -> usize {
        self.list.len() + self.beyond
    }

    fn add(&mut self, record: &Record) {
        if self.list.len() == MAX_DELIVERIES {
            self.beyond += 1;
            return;
        }
        self.list.push(Frozen::of(record));
        *self.by_endpoint.entry(record.key.endpoint.to_string()).or_default() += 1;
        *self.by_reason.entry(record.state.reason().unwrap_or_default()).or_default() += 1;
        self.oldest = Some(self.oldest.map_or(record.since, |t| t.min(record.since)));
        self.may_have_it += u32::from(record.may_have_been_received());
        self.deadline_passed.extend(record.deliver_by);
        match record.payload_kept_until {
            Some(until) => self.payload_ends.push(until),
            None => self.payload_lost += 1,
        }
    }

    fn warnings(&self, now: Millis) -> Vec<String> {
        let mut warnings = Vec::new();
        let late = self.deadline_passed.iter().filter(|by| **by <= now).count();
        let ending = self.payload_ends.iter().filter(|until| until.since(now) < DAY_MS).count();
        if self.may_have_it > 0 {
            warnings.push(format!(
                "{} may have been received already: an attempt ended without an answer",
                self.may_have_it
            ));
        }
        if late > 0 {
            warnings.push(format!("{late} have passed their deliver_by and would be dead-lettered again"));
        }
        if ending > 0 {
            warnings.push(format!("the payload of {ending} is kept for less than a day"));
        }
        if self.payload_lost > 0 {
            warnings.push(format!("{} have no payload and will be skipped", self.payload_lost));
        }
        warnings
    }
}
