//! The gates before a claim: where to, whether the endpoint is usable, whether there is time left.

use domain::claim::EARLY_MS;
use domain::delivery::HeldReason;
use domain::endpoint::{EndpointConfig, Found};
use domain::id::{EndpointKey, StateKey};
use domain::outcome::AnswerRules;
use domain::ports::{Clock, Deliveries, EndpointStates, Endpoints, Payloads, Plans, Sender, StoreError};
use domain::record::{ClaimId, Lease};
use domain::settings::FINISH_MARGIN_MS;
use domain::signature::{Scheme, Secret};
use domain::time::{Millis, SECOND_MS};
use domain::wakeup::WakeUp;
use url::Url;

use crate::deliver::{Deliver, Job};

/// Where a delivery may go.
pub(crate) enum Target {
    Send(Box<EndpointConfig>),
    Hold(HeldReason),
    Unknown,
}

/// When a released delivery may be tried.
pub(crate) enum Pace {
    Now,
    /// Within the next two seconds: wait for it.
    At(Millis),
    /// Its plan goes too fast; this slot is booked for it.
    Later(Millis),
}

/// A booked slot is good for so many milliseconds: a lane that stood still for longer cannot burst.
const BOOKING_MS: i64 = 5 * SECOND_MS;

impl<D: Deliveries + EndpointStates + Plans, P: Payloads, E: Endpoints, S: Sender, C: Clock> Deliver<D, P, E, S, C> {
    /// Where a delivery goes, by the registry or by its inline URL, and whether its endpoint takes deliveries now.
    pub(crate) async fn target(
        &self,
        endpoint: &EndpointKey,
        url: Option<&str>,
        fresh: bool,
    ) -> Result<Target, StoreError> {
        let (target, state_key) = if endpoint.is_inline() {
            // Without its payload the URL is not known; the caller sees that the payload is gone.
            let Some(url) = url.and_then(|url| Url::parse(url).ok()) else {
                return Ok(Target::Send(Box::new(self.inline(String::new(), Vec::new()))));
            };
            let secrets = inline_secrets(&self.endpoints.inline_keys().await?, &url);
            let state_key = StateKey::inline(&url);
            (Target::Send(Box::new(self.inline(url.into(), secrets))), state_key)
        } else {
            (self.registered(endpoint, fresh).await?, StateKey::registered(endpoint))
        };
        if let Target::Send(_) = target {
            let mut state = self.deliveries.endpoint_state(&state_key, fresh).await?;
            if !fresh && state.status.holds().is_some() {
                // A verdict to hold is never taken from the cache.
                state = self.deliveries.endpoint_state(&state_key, true).await?;
            }
            if let Some(reason) = state.status.holds() {
                return Ok(Target::Hold(reason));
            }
        }
        Ok(target)
    }

    /// An inline URL has the policy of the deployment.
    fn inline(&self, url: String, secrets: Vec<Secret>) -> EndpointConfig {
        EndpointConfig {
            url,
            timeout_ms: self.settings.defaults.timeout_ms,
            policy: self.settings.defaults.policy.clone(),
            headers: Vec::new(),
            rules: AnswerRules::default(),
            secrets,
        }
    }

    async fn registered(&self, endpoint: &EndpointKey, fresh: bool) -> Result<Target, StoreError> {
        let mut found = self.endpoints.find(endpoint, fresh).await?;
        if !fresh && !matches!(found, Found::Config(_)) {
            // A verdict to hold or reject is never taken from the cache.
            found = self.endpoints.find(endpoint, true).await?;
        }
        Ok(match found {
            Found::Config(config) => Target::Send(config),
            Found::Removed => Target::Hold(HeldReason::Removed),
            Found::Misconfigured(why) => {
                tracing::error!(endpoint.key = %endpoint, why, "an endpoint's configuration cannot be used");
                Target::Hold(HeldReason::Misconfigured)
            }
            Found::Unknown => Target::Unknown,
        })
    }

    /// Whether a plan was aborted, or has given up this endpoint: what it released goes back, whatever else is true of it.
    pub(crate) async fn is_taken_back(
        &self,
        plan: &str,
        endpoint: &EndpointKey,
        url: Option<&str>,
    ) -> Result<bool, StoreError> {
        let known = self.deliveries.plan(plan, false).await?;
        let plan = match known {
            Some(plan) => Some(plan),
            // A plan that is gone decides nothing any more; a cache may only not know it yet.
            None => self.deliveries.plan(plan, true).await?,
        };
        let group = match url.and_then(|url| Url::parse(url).ok()) {
            Some(url) if endpoint.is_inline() => StateKey::inline(&url),
            Some(_) | None => StateKey::registered(endpoint),
        };
        Ok(plan.is_none_or(|plan| plan.has_given_up(group.as_str())))
    }

    /// When a delivery that a plan released may be tried, as fast as the plan goes.
    pub(crate) async fn pace(&self, plan: &str, wake_up: &WakeUp) -> Result<Pace, StoreError> {
        let now = self.clock.now();
        if wake_up.booked && now.since(Millis(wake_up.due)) <= BOOKING_MS {
            return Ok(Pace::Now);
        }
        let Some(known) = self.deliveries.plan(plan, false).await? else { return Ok(Pace::Now) };
        let slot = self.deliveries.book(plan, known.rate_per_second, now).await?;
        Ok(if slot.since(now) <= EARLY_MS { Pace::At(slot) } else { Pace::Later(slot) })
    }

    /// True when the longest request and the recording of its outcome fit into what is left of the invocation.
    pub(crate) fn time_left(&self, job: &Job<'_>, endpoint: &EndpointConfig) -> bool {
        job.deadline.since(self.clock.now()) > endpoint.timeout_ms + FINISH_MARGIN_MS
    }

    /// A new hold for this message.
    pub(crate) fn lease(&self, job: &Job<'_>) -> Lease {
        Lease {
            until: self.clock.now().plus(self.settings.timing.lease_ms),
            claim_id: ClaimId::new(&job.received.message_id, self.clock.nonce()),
        }
    }
}

/// Both schemes, because nobody registered which one the receiver reads; made from every active root key, as when a
/// registered endpoint's secret rotates.
fn inline_secrets(roots: &[Secret], url: &Url) -> Vec<Secret> {
    let origin = domain::id::origin(url);
    Scheme::ALL.iter().flat_map(|scheme| roots.iter().map(|root| root.for_origin(*scheme, &origin))).collect()
}
