//! The gates before a claim: where to, whether the endpoint is usable, whether there is time left.

use domain::delivery::HeldReason;
use domain::endpoint::{EndpointConfig, Found};
use domain::id::EndpointKey;
use domain::outcome::StatusOverrides;
use domain::ports::{Clock, Deliveries, Endpoints, Payloads, Sender, StoreError};
use domain::record::{ClaimId, Lease};
use domain::settings::FINISH_MARGIN_MS;

use crate::deliver::{Deliver, Job};

/// Where a delivery may go.
pub(crate) enum Target {
    Send(Box<EndpointConfig>),
    Hold(HeldReason),
    Unknown,
}

impl<D: Deliveries, P: Payloads, E: Endpoints, S: Sender, C: Clock> Deliver<D, P, E, S, C> {
    /// Where a delivery goes, by the registry or by its inline URL.
    pub(crate) async fn target(
        &self,
        endpoint: &EndpointKey,
        url: Option<&str>,
        fresh: bool,
    ) -> Result<Target, StoreError> {
        if endpoint.is_inline() {
            let config = |url: &str| EndpointConfig {
                url: url.to_owned(),
                timeout_ms: self.settings.defaults.timeout_ms,
                policy: self.settings.defaults.policy.clone(),
                headers: Vec::new(),
                overrides: StatusOverrides::default(),
                secrets: Vec::new(),
            };
            // Without its payload the URL is not known; the caller sees that the payload is gone.
            return Ok(Target::Send(Box::new(config(url.unwrap_or_default()))));
        }
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
