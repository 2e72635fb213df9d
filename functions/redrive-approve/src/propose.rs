//! `propose`: freezes a selection of dead letters, or of held deliveries, into a plan, for somebody to look at and approve.

use std::collections::{BTreeMap, BTreeSet};

use domain::audit::decision;
use domain::delivery::{HeldReason, State};
use domain::id::{EventId, StateKey, hex};
use domain::outcome::Class;
use domain::plan::{Frozen, MAX_DELIVERIES, MAX_ENDPOINTS, PROPOSAL_MS, Plan, PlanState, canaries_first, digest};
use domain::ports::{Audit, Clock, Deliveries, EndpointStates, ItemKey, Payloads, Plans, StoreError, Stored};
use domain::record::Record;
use domain::summary::{self, Summary, largest};
use domain::time::{DAY_MS, Millis, SECOND_MS};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use crate::action::{Filter, Propose, time, words};
use crate::answer::{Failure, Refusal};
use crate::caller::Call;
use crate::handler::Operator;
use crate::scan::Scan;

/// Deliveries of each endpoint that are tried first, unless the proposal says otherwise.
const CANARY: u32 = 10;
/// An endpoint is stopped when more of its first attempts fail, unless the proposal says otherwise.
const ABORT_FAILURE_RATIO: f64 = 0.2;
/// So many endpoints are asked whether they take deliveries.
const LOOKED_AT: usize = 100;
const HOUR_MS: i64 = 3_600 * SECOND_MS;
const WEEK_MS: i64 = 7 * DAY_MS;
/// Items read at once.
const PAGE: usize = 500;
/// Events read at once, when they are named.
const IDS_AT_ONCE: usize = 25;
/// Left of an invocation for storing the plan, in milliseconds.
const STORE_MS: i64 = 10_000;

impl<D: Deliveries + Plans + Audit + EndpointStates, P: Payloads, C: Clock> Operator<D, P, C> {
    /// Proposes a plan.
    pub(crate) async fn propose(&self, action: &Propose, call: &Call, deadline: Millis) -> Result<Value, Failure> {
        let rate = action.rate_per_second.unwrap_or(10);
        if !(1..=1000).contains(&rate) {
            return Err(Refusal::invalid("`rate_per_second` must be between 1 and 1000").into());
        }
        let canary = action.canary.unwrap_or(CANARY);
        if !(1..=1000).contains(&canary) {
            return Err(Refusal::invalid("`canary` must be between 1 and 1000").into());
        }
        let ratio = action.abort_failure_ratio.unwrap_or(ABORT_FAILURE_RATIO);
        if !(0.0..=1.0).contains(&ratio) {
            return Err(Refusal::invalid("`abort_failure_ratio` must be between 0 and 1").into());
        }
        if let Some(note) = &action.note {
            words("note", note)?;
        }
        let proposer = call.who(action.operator.as_deref());
        if self.two_people && !proposer.verified {
            let message = "a proposal must come through the function URL here, so that AWS vouches for the proposer: nobody could approve this one";
            return Err(Refusal::new("forbidden", message).into());
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
            return Err(too_slow(&action.filter, count).into());
        }
        let state = chosen_state(&action.filter)?;
        if count == 0 {
            return Err(Refusal::new("not_found", format!("no {state} delivery matches the filter")).into());
        }
        let now = self.clock.now();
        let summary = selection.summary(now);
        let keys: Vec<(&StateKey, u32)> = selection.by_state_key.iter().map(|(key, count)| (key, *count)).collect();
        let mut warnings = summary.warnings.clone();
        warnings.extend(self.endpoint_warnings(&keys, keys.len()).await?);
        let (list, canaries, larger) = canaries_first(selection.oldest_first(), canary);
        if larger > MAX_ENDPOINTS {
            let message = format!(
                "{larger} endpoints have more than {canary} deliveries each, a plan can watch over {MAX_ENDPOINTS}: narrow the filter, or take a larger canary"
            );
            return Err(Refusal::new("too_many", message).with("count", json!(larger)).into());
        }
        let nonce: Vec<u8> = (0..2).flat_map(|_| self.clock.nonce().to_be_bytes()).collect();
        let plan = Plan {
            id: format!("plan_{}_{}", now.seconds(), hex(&nonce)),
            digest: digest(&list),
            state: PlanState::Proposed,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            rate_per_second: rate,
            canary,
            canaries,
            abort_failure_ratio: ratio,
            filter: filter_on_record(&call.input),
            summary,
            note: action.note.clone().unwrap_or_default(),
            proposed_by: proposer,
            created_at: now.0,
            expires_at: now.plus(PROPOSAL_MS).0,
            approval: None,
            canaries_out_at: None,
            ramp_from: None,
            stopped: BTreeMap::new(),
            abort: None,
            next: 0,
            rev: 1,
        };
        let details = json!({ "digest": plan.digest, "count": plan.count, "filter": plan.filter });
        let decided = decision(now, &plan.proposed_by, "propose", &plan.id, &plan.note, details);
        self.store.propose(&plan, &list, decided).await?;
        tracing::info!(
            plan.id = plan.id,
            plan.count = plan.count,
            operator = plan.proposed_by.name,
            operator.verified = plan.proposed_by.verified,
            "plan proposed"
        );
        Ok(json!({
            "ok": true,
            "plan_id": plan.id,
            "digest": plan.digest,
            "count": plan.count,
            "canaries": plan.canaries,
            "by_endpoint": selection.by_endpoint,
            "by_reason": selection.by_reason,
            "by_class": selection.by_class,
            "by_age": selection.by_age(now),
            "oldest_age_seconds": selection.oldest.map_or(0, |t| now.since(t) / SECOND_MS),
            "warnings": warnings,
            "expires_at": Millis(plan.expires_at).to_string(),
            "forecast_seconds": plan.count.div_ceil(rate),
        }))
    }

    /// What stands in the way at the endpoints themselves, at this moment: `keys` with their counts, of so many.
    pub(crate) async fn endpoint_warnings(&self, keys: &[(&StateKey, u32)], of: usize) -> Result<Vec<String>, Failure> {
        let looked_at = &keys[..keys.len().min(LOOKED_AT)];
        let states = looked_at.iter().map(|(key, _)| self.store.endpoint_state(key, true));
        let mut warnings = Vec::new();
        for (state, (key, count)) in try_join_all(states).await?.iter().zip(looked_at) {
            if let Some(reason) = state.status.holds() {
                warnings.push(format!(
                    "endpoint {key} is still {}: {count} deliveries would be held again at once ({})",
                    reason.name(),
                    state.because
                ));
            }
        }
        if of > looked_at.len() {
            warnings.push(format!("only {} of {of} endpoints were looked at", looked_at.len()));
        }
        Ok(warnings)
    }

    /// The deliveries of these events, to that endpoint or to all.
    async fn of_events(&self, events: &[EventId], endpoint: Option<&str>) -> Result<Vec<Record>, StoreError> {
        let Some(endpoint) = endpoint else {
            let found = try_join_all(events.iter().map(|event| self.store.of_event(event))).await?;
            return Ok(found.into_iter().flatten().collect());
        };
        let keys: Vec<ItemKey> = events.iter().map(|event| ItemKey::delivery(event.as_str(), endpoint)).collect();
        let found = self.store.get_many(&keys).await?;
        let mut records: Vec<Record> = found.into_iter().filter_map(Stored::into_delivery).collect();
        records.sort_by(|a, b| a.key.event.as_str().cmp(b.key.event.as_str()));
        Ok(records)
    }

    async fn select(&self, filter: &Filter, until: Millis) -> Result<Selection, Failure> {
        let state = chosen_state(filter)?;
        let (after, before) =
            (time("filter.after", filter.after.as_deref())?, time("filter.before", filter.before.as_deref())?);
        let class = match filter.class.as_deref() {
            None => None,
            Some(name) => Some(Class::from_name(name).ok_or_else(|| {
                let names: Vec<&str> = Class::ALL.iter().map(|c| c.name()).collect();
                Refusal::invalid(format!("`filter.class` must be one of {}", names.join(", ")))
            })?),
        };
        let matches = |r: &Record| {
            r.state.name() == state
                && filter.endpoint.as_deref().is_none_or(|e| r.key.endpoint.as_str() == e)
                && filter.reason.as_deref().is_none_or(|reason| r.state.reason() == Some(reason))
                && class.is_none_or(|c| r.attempts().next_back().is_some_and(|a| a.class == c))
                && filter.status.is_none_or(|status| r.attempts().next_back().is_some_and(|a| a.status == Some(status)))
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
            let events = ids.iter().map(|id| EventId::parse(id)).collect::<Result<BTreeSet<_>, _>>();
            let events: Vec<EventId> = events.map_err(Refusal::invalid)?.into_iter().collect();
            for some in events.chunks(IDS_AT_ONCE) {
                if self.clock.now() >= until {
                    selection.complete = false;
                    return Ok(selection);
                }
                let mut found = self.of_events(some, filter.endpoint.as_deref()).await?;
                found.retain(|record| matches(record));
                let matched: BTreeSet<&EventId> = found.iter().map(|record| &record.key.event).collect();
                selection.unmatched += some.len() - matched.len();
                found.iter().for_each(|record| selection.add(record));
            }
            return Ok(selection);
        }
        if state == "delivered" {
            return Err(Refusal::invalid("delivered deliveries are sent again by `ids` only: name the events").into());
        }
        let mut scan = Scan::new(state, filter.endpoint.as_deref())?.between(after, before);
        while !scan.is_done() {
            if self.clock.now() >= until {
                selection.complete = false;
                break;
            }
            let found = scan.next(&self.store, PAGE).await?.into_iter().filter_map(Stored::into_delivery);
            found.filter(matches).for_each(|record| selection.add(&record));
        }
        Ok(selection)
    }
}

/// What to do when the time of a call was too short for the selection.
fn too_slow(filter: &Filter, read: usize) -> Refusal {
    let message = match &filter.ids {
        Some(ids) => format!(
            "only {read} deliveries of {} ids could be read in the time of one call: give fewer ids, in several proposals, or name their endpoint",
            ids.len()
        ),
        None => format!(
            "{read} deliveries matched when the time of one call was over: narrow the filter, for example by endpoint or time"
        ),
    };
    Refusal::invalid(message)
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
        Some("delivered") => Ok("delivered"),
        Some(other) => {
            Err(Refusal::invalid(format!("`filter.state` must be dead_lettered, held or delivered, not {other:?}")))
        }
    }
}

/// What was found. Beyond the limit it only counts.
#[derive(Default)]
struct Selection {
    /// With the time since when each is in its state.
    list: Vec<(Millis, Frozen)>,
    beyond: usize,
    complete: bool,
    by_endpoint: BTreeMap<String, u32>,
    by_state_key: BTreeMap<StateKey, u32>,
    by_reason: BTreeMap<&'static str, u32>,
    by_class: BTreeMap<&'static str, u32>,
    oldest: Option<Millis>,
    may_have_it: u32,
    deadlines: Vec<Millis>,
    payload_ends: Vec<Millis>,
    payload_lost: u32,
    removed: u32,
    misconfigured: u32,
    /// Events that were named and have no delivery that matches.
    unmatched: usize,
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
        self.list.push((record.since, Frozen::of(record)));
        *self.by_endpoint.entry(record.key.endpoint.to_string()).or_default() += 1;
        *self.by_state_key.entry(record.state_key.clone()).or_default() += 1;
        *self.by_reason.entry(record.state.reason().unwrap_or_default()).or_default() += 1;
        let class = record.attempts().next_back().map_or("untried", |a| a.class.name());
        *self.by_class.entry(class).or_default() += 1;
        self.oldest = Some(self.oldest.map_or(record.since, |t| t.min(record.since)));
        self.may_have_it += u32::from(record.may_have_been_received());
        self.deadlines.extend(record.deliver_by);
        self.removed += u32::from(record.state == State::Held(HeldReason::Removed));
        self.misconfigured += u32::from(record.state == State::Held(HeldReason::Misconfigured));
        match record.payload_kept_until {
            Some(until) => self.payload_ends.push(until),
            None => self.payload_lost += 1,
        }
    }

    /// The list, oldest first.
    fn oldest_first(&self) -> Vec<Frozen> {
        let mut list: Vec<&(Millis, Frozen)> = self.list.iter().collect();
        list.sort_by(|(a, x), (b, y)| (a, &x.id, &x.endpoint).cmp(&(b, &y.id, &y.endpoint)));
        list.into_iter().map(|(_, frozen)| frozen.clone()).collect()
    }

    /// How many have been there for less than an hour, a day, a week, or longer.
    fn by_age(&self, now: Millis) -> BTreeMap<&'static str, u32> {
        let mut ages: BTreeMap<&'static str, u32> = BTreeMap::new();
        for (since, _) in &self.list {
            let name = match now.since(*since) {
                ..HOUR_MS => "under_1h",
                HOUR_MS..DAY_MS => "under_1d",
                DAY_MS..WEEK_MS => "under_7d",
                WEEK_MS.. => "older",
            };
            *ages.entry(name).or_default() += 1;
        }
        ages
    }

    /// What whoever approves the plan will see of it.
    fn summary(&self, now: Millis) -> Summary {
        Summary {
            by_endpoint: largest(&self.by_endpoint, summary::ENDPOINTS),
            endpoints: u32::try_from(self.by_endpoint.len()).unwrap_or(u32::MAX),
            by_state_key: largest(&self.by_state_key, summary::ENDPOINTS),
            state_keys: u32::try_from(self.by_state_key.len()).unwrap_or(u32::MAX),
            by_reason: largest(&self.by_reason, usize::MAX),
            by_class: largest(&self.by_class, usize::MAX),
            oldest: self.oldest.map(|t| t.0),
            warnings: self.warnings(now),
        }
    }

    /// A proposal is good for a day, so what ends within a day can end before it is approved.
    fn warnings(&self, now: Millis) -> Vec<String> {
        let over = |times: &[Millis]| times.iter().filter(|end| **end <= now).count();
        let ending = |times: &[Millis]| times.iter().filter(|end| **end > now && end.since(now) < DAY_MS).count();
        let warning = |count: usize, what: &str| (count > 0).then(|| format!("{count} {what}"));
        let count = |count: u32| count as usize;
        [
            warning(self.unmatched, "of the ids have no delivery that matches, and are left out"),
            warning(count(self.may_have_it), "may have been received already: an attempt ended without an answer"),
            warning(over(&self.deadlines), "have passed their deliver_by and would be dead-lettered again"),
            warning(ending(&self.deadlines), "have a deliver_by within the next 24 hours"),
            warning(over(&self.payload_ends), "have a payload whose time is over: it may be gone, then they are skipped"),
            warning(ending(&self.payload_ends), "have a payload that is kept for less than 24 hours"),
            warning(count(self.payload_lost), "have no payload and will be skipped"),
            warning(count(self.removed), "are held because their endpoint was removed: they are held again, unless it was restored"),
            warning(count(self.misconfigured), "are held because the definition of their endpoint cannot be used: they are held again, unless it was repaired"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
