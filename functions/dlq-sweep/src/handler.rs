//! The shape of a run: which one, in which mode, and its evidence.

use domain::ports::{Clock, DeadQueue, Deliveries, EndpointStates, Payloads, Plans, StoreError};
use domain::time::Millis;
use serde_json::Value;

use crate::config::Settings;
use crate::evidence::Evidence;

/// Left of an invocation for writing the evidence, in milliseconds.
const EVIDENCE_MS: i64 = 2_000;

/// How busy a queue is.
pub trait Depth {
    /// Messages ready to be received.
    async fn visible(&self) -> Result<u64, StoreError>;
}

impl Depth for platform::sqs::Queue {
    async fn visible(&self) -> Result<u64, StoreError> {
        platform::sqs::Queue::visible(self).await
    }
}

/// The queues that the sweep looks at.
pub struct Queues<I, R, Q> {
    /// Transport DLQ of the intake queue.
    pub intake_dlq: I,
    /// Transport DLQ of the retry queue.
    pub retry_dlq: R,
    /// The retry queue.
    pub retry: Q,
}

/// The function with its ports.
pub struct Sweep<D, P, I, R, Q, C> {
    /// Deliveries and plans.
    pub deliveries: D,
    /// Payloads.
    pub payloads: P,
    /// Queues.
    pub queues: Queues<I, R, Q>,
    /// Time.
    pub clock: C,
    /// Settings.
    pub settings: Settings,
}

/// A run in progress.
pub struct Run {
    /// True when it may write.
    pub act: bool,
    /// When it must stop.
    pub until: Millis,
    /// So many waits may be brought back into the retry queue.
    pub rearms_left: u64,
    /// What it has done so far.
    pub evidence: Evidence,
}

impl<D: Deliveries + Plans + EndpointStates, P: Payloads, I: DeadQueue, R: DeadQueue, Q: Depth, C: Clock>
    Sweep<D, P, I, R, Q, C>
{
    /// Handles an invocation: `{"run":"reconcile|arm","mode":"act|observe"}`; anything without these fields, such as a
    /// plain scheduled event, means reconcile and act.
    pub async fn handle(&self, input: &Value, deadline: Millis, run_id: &str) -> Result<Evidence, String> {
        let started = self.clock.now();
        let run = word(input, "run", &["reconcile", "arm"])?;
        let mode = word(input, "mode", &["act", "observe"])?;
        let mut state = Run {
            act: mode == "act",
            until: deadline.plus(-EVIDENCE_MS),
            rearms_left: 0,
            evidence: Evidence { run, mode, run_id: run_id.to_owned(), ..Evidence::default() },
        };
        match run {
            "arm" => self.arm(&mut state).await,
            _ => self.reconcile(&mut state).await,
        }
        let mut evidence = state.evidence;
        evidence.duration_ms = self.clock.now().since(started);
        let line = serde_json::to_string(&evidence).map_err(|e| e.to_string())?;
        if evidence.errors.is_empty() {
            tracing::info!(sweep = line, "sweep");
        } else {
            tracing::error!(sweep = line, "sweep with failed steps");
        }
        Ok(evidence)
    }
}

fn word(input: &Value, name: &str, allowed: &[&'static str]) -> Result<&'static str, String> {
    match input.get(name) {
        None | Some(Value::Null) => Ok(allowed[0]),
        Some(value) => allowed
            .iter()
            .copied()
            .find(|word| value.as_str() == Some(word))
            .ok_or_else(|| format!("`{name}` must be one of {}, not {value}", allowed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_without_words_means_reconcile_and_act() {
        let scheduled = serde_json::json!({"source": "aws.events", "detail": {}});
        assert_eq!(word(&scheduled, "run", &["reconcile", "arm"]), Ok("reconcile"));
        let wrong = serde_json::json!({"run": "armm"});
        assert!(word(&wrong, "run", &["reconcile", "arm"]).unwrap_err().contains("armm"));
    }
}
