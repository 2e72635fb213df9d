//! Holds the story of a delivery against what its receiver saw. Nothing here knows how the functions work: the rules are
//! the promises. A record that tells of fewer requests than came, or of another answer than was given, is a fault, as is a
//! duplicate that the story does not explain.

use crate::ledger::Request;
use crate::load::Sent;
use crate::told::{Told, ToldAttempt};

/// What is wrong with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// No record, or a record that says "delivered" where the receiver never said yes.
    Lost,
    /// Not final although everything has settled.
    Stuck,
    /// More attempts than the budget allows.
    OverBudget,
    /// Another event id, or other bytes.
    Changed,
    /// A duplicate without a reason, or an attempt that was more than one request.
    Duplicate,
    /// The story and the receiver contradict each other.
    Untrue,
}

/// What is to be said about one delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub faults: Vec<(Fault, String)>,
    /// Requests that came although the receiver may have acted on an earlier one, each explained by an attempt whose outcome
    /// nobody could know.
    pub ambiguous: usize,
}

impl Verdict {
    fn fault(&mut self, fault: Fault, text: impl Into<String>) {
        self.faults.push((fault, text.into()));
    }
}

/// Looks at one delivery.
pub fn delivery(sent: &Sent, told: Option<&Told>, requests: &[Request]) -> Verdict {
    let mut verdict = Verdict::default();
    for request in requests {
        if request.body_hash != sent.body_hash || !request.same_key {
            verdict.fault(Fault::Changed, format!("attempt {} carried other bytes or another key", request.attempt));
        }
    }
    let Some(told) = told else {
        verdict.fault(Fault::Lost, "there is no record");
        return verdict;
    };
    if !told.is_final {
        verdict.fault(Fault::Stuck, format!("it is {} after {} attempts", told.state, told.attempt));
    }
    if told.budget.is_some_and(|budget| told.used > budget) {
        verdict.fault(Fault::OverBudget, format!("{} attempts of {:?}", told.used, told.budget));
    }
    if told.state == "delivered" && !requests.iter().any(Request::accepted) {
        verdict.fault(Fault::Lost, "it is delivered, but its receiver never said yes");
    }
    duplicates(told, requests, &mut verdict);
    story(told, requests, &mut verdict);
    verdict
}

fn of(told: &Told, number: u32) -> Option<&ToldAttempt> {
    told.attempts.iter().find(|a| a.number == number)
}

/// One request per attempt; and a receiver that may have acted on one request gets another only where the story says that
/// nobody could know.
fn duplicates(told: &Told, requests: &[Request], verdict: &mut Verdict) {
    for (i, request) in requests.iter().enumerate() {
        if requests[..i].iter().any(|r| r.attempt == request.attempt) {
            verdict.fault(Fault::Duplicate, format!("attempt {} came more than once", request.attempt));
        }
        if request.attempt == 0 || request.attempt > told.attempt {
            verdict.fault(Fault::Duplicate, format!("attempt {} came and is on no record", request.attempt));
        }
    }
    let took: Vec<&Request> = requests.iter().filter(|r| r.took()).collect();
    let known = took.iter().filter(|r| of(told, r.attempt).is_none_or(|a| !a.may_have_it)).count();
    if known > 1 {
        verdict.fault(Fault::Duplicate, format!("{known} requests were accepted, and the record knew of each"));
    }
    // After an acceptance that was on record no attempt may have started.
    let accepted =
        told.attempts.iter().filter(|a| a.class == "accepted").map(|a| (a.number, a.started + a.duration_ms));
    for (number, at) in accepted {
        if let Some(later) = told.attempts.iter().find(|a| a.number > number && a.started > at) {
            verdict.fault(Fault::Duplicate, format!("attempt {} started after {number} was accepted", later.number));
        }
    }
    verdict.ambiguous = took.len().saturating_sub(known.max(1));
}

/// What is told of each attempt, against what its receiver knows of it.
fn story(told: &Told, requests: &[Request], verdict: &mut Verdict) {
    let numbers: Vec<u32> = told.attempts.iter().map(|a| a.number).collect();
    let settled = if told.state == "in_flight" { told.attempt.saturating_sub(1) } else { told.attempt };
    if told.whole && numbers != (1..=settled).collect::<Vec<_>>() {
        verdict.fault(Fault::Untrue, format!("{} attempts, but the history has {numbers:?}", told.attempt));
    }
    if told.attempts.windows(2).any(|pair| pair[0].started > pair[1].started) {
        verdict.fault(Fault::Untrue, "the attempts are not in the order of time");
    }
    for attempt in &told.attempts {
        let request = requests.iter().find(|r| r.attempt == attempt.number);
        if let Some(text) = contradiction(attempt, request) {
            verdict.fault(Fault::Untrue, format!("attempt {}: {text}", attempt.number));
        }
    }
    let nobody_knows = told.attempts.iter().any(|a| a.may_have_it);
    if told.state != "delivered" && told.may_have_it != nobody_knows {
        verdict.fault(Fault::Untrue, "whether the receiver may have it is told in two ways");
    }
    if told.state != "delivered" && requests.iter().any(Request::took) && !told.may_have_it && told.is_final {
        verdict.fault(Fault::Untrue, "its receiver may have acted on it, and the story denies that");
    }
}

/// What one attempt and its request say against each other.
fn contradiction(attempt: &ToldAttempt, request: Option<&Request>) -> Option<String> {
    match (attempt.status, request) {
        (Some(status), None) => Some(format!("told as {status}, but nothing came")),
        (Some(status), Some(request)) => {
            let end = attempt.started + attempt.duration_ms;
            if request.answer != Some(status) {
                Some(format!("told as {status}, but the answer was {:?}", request.answer))
            } else if request.accepted() != (attempt.class == "accepted") {
                Some(format!("an answer of {status} is told as {}", attempt.class))
            } else if !(attempt.started..=end).contains(&request.at) {
                Some(format!(
                    "it came at {}, and is told to have been made from {} to {end}",
                    request.at, attempt.started
                ))
            } else {
                None
            }
        }
        (None, Some(_)) if !attempt.may_have_it => {
            Some(format!("the receiver read it to its end, and it is told as {}", attempt.class))
        }
        (None, Some(request)) if request.at < attempt.started => Some("it came before it was started".to_owned()),
        (None, _) if attempt.class == "accepted" => Some("accepted without a status".to_owned()),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::Temper;
    use domain::id::DeliveryKey;

    fn sent() -> Sent {
        Sent { key: DeliveryKey::parse("e", "ep").unwrap(), temper: Temper::Good, body_hash: "h".to_owned() }
    }

    fn request(attempt: u32, answer: Option<u16>) -> Request {
        Request { attempt, at: 1_000 * i64::from(attempt) + 50, body_hash: "h".to_owned(), same_key: true, answer }
    }

    fn attempt(number: u32, class: &str, status: Option<u16>) -> ToldAttempt {
        ToldAttempt {
            number,
            started: 1_000 * i64::from(number),
            duration_ms: 100,
            class: class.to_owned(),
            status,
            may_have_it: class == "unknown",
            abandoned: false,
        }
    }

    fn told(state: &str, attempts: Vec<ToldAttempt>) -> Told {
        let number = attempts.len() as u32;
        Told {
            state: state.to_owned(),
            reason: None,
            is_final: !matches!(state, "waiting" | "in_flight" | "held"),
            attempt: number,
            generation: 0,
            used: number,
            budget: Some(3),
            may_have_it: state != "delivered" && attempts.iter().any(|a| a.may_have_it),
            attempts,
            whole: true,
        }
    }

    fn faults(told: &Told, requests: &[Request]) -> Vec<Fault> {
        let mut faults: Vec<Fault> = delivery(&sent(), Some(told), requests).faults.into_iter().map(|f| f.0).collect();
        faults.sort();
        faults.dedup();
        faults
    }

    #[test]
    fn what_went_well_is_well() {
        let failed_once =
            told("delivered", vec![attempt(1, "transient", Some(500)), attempt(2, "accepted", Some(200))]);
        assert_eq!(faults(&failed_once, &[request(1, Some(500)), request(2, Some(200))]), []);
        let never_came = told("dead_lettered", vec![attempt(1, "transient", None), attempt(2, "permanent", Some(400))]);
        assert_eq!(faults(&never_came, &[request(2, Some(400))]), []);
    }

    #[test]
    fn a_delivery_without_a_record_or_without_a_yes_is_lost() {
        assert_eq!(delivery(&sent(), None, &[]).faults[0].0, Fault::Lost);
        let delivered = told("delivered", vec![attempt(1, "accepted", Some(200))]);
        assert!(faults(&delivered, &[]).contains(&Fault::Lost));
    }

    #[test]
    fn one_that_is_not_final_is_stuck_and_one_beyond_its_budget_is_told() {
        let waiting = told("waiting", vec![attempt(1, "transient", None)]);
        assert_eq!(faults(&waiting, &[]), [Fault::Stuck]);
        let four = told("dead_lettered", (1..=4).map(|n| attempt(n, "transient", None)).collect());
        assert_eq!(faults(&four, &[]), [Fault::OverBudget]);
    }

    #[test]
    fn other_bytes_are_changed() {
        let delivered = told("delivered", vec![attempt(1, "accepted", Some(200))]);
        let other = Request { body_hash: "other".to_owned(), ..request(1, Some(200)) };
        assert_eq!(faults(&delivered, &[other]), [Fault::Changed]);
        let other = Request { same_key: false, ..request(1, Some(200)) };
        assert_eq!(faults(&delivered, &[other]), [Fault::Changed]);
    }

    #[test]
    fn a_duplicate_is_explained_by_an_attempt_of_which_nobody_could_know_and_by_nothing_else() {
        let explained = told("delivered", vec![attempt(1, "unknown", None), attempt(2, "accepted", Some(200))]);
        let both = [request(1, Some(200)), request(2, Some(200))];
        assert_eq!(delivery(&sent(), Some(&explained), &both), Verdict { faults: vec![], ambiguous: 1 });
        let silent = [request(1, None), request(2, Some(200))];
        assert_eq!(delivery(&sent(), Some(&explained), &silent).ambiguous, 1);
        let known = told("delivered", vec![attempt(1, "accepted", Some(200)), attempt(2, "accepted", Some(200))]);
        assert_eq!(faults(&known, &both), [Fault::Duplicate]);
        let went_on = told("delivered", vec![attempt(1, "accepted", Some(200)), attempt(2, "transient", Some(500))]);
        assert_eq!(faults(&went_on, &[request(1, Some(200)), request(2, Some(500))]), [Fault::Duplicate]);
        let denied = told("delivered", vec![attempt(1, "transient", None), attempt(2, "accepted", Some(200))]);
        assert_eq!(faults(&denied, &both), [Fault::Duplicate, Fault::Untrue]);
    }

    #[test]
    fn two_requests_of_one_attempt_and_one_without_an_attempt_are_duplicates() {
        let delivered = told("delivered", vec![attempt(1, "accepted", Some(200))]);
        assert_eq!(
            faults(&delivered, &[request(1, Some(500)), request(1, Some(200))]),
            [Fault::Duplicate, Fault::Untrue]
        );
        let mut later = request(2, Some(500));
        later.at = 5_000;
        assert_eq!(faults(&delivered, &[request(1, Some(200)), later]), [Fault::Duplicate]);
    }

    #[test]
    fn a_story_that_the_receiver_would_not_tell_is_untrue() {
        let dead = |attempts| told("dead_lettered", attempts);
        let untrue = |told: &Told, requests: &[Request]| assert_eq!(faults(told, requests), [Fault::Untrue]);
        untrue(&dead(vec![attempt(1, "transient", Some(500))]), &[request(1, Some(503))]);
        untrue(&dead(vec![attempt(1, "transient", Some(500))]), &[]);
        untrue(&dead(vec![attempt(1, "transient", None)]), &[request(1, Some(500))]);
        untrue(&dead(vec![attempt(2, "transient", None)]), &[]);
        let mut early = request(1, Some(500));
        early.at = 999;
        untrue(&dead(vec![attempt(1, "transient", Some(500))]), &[early]);
        let mut denies = dead(vec![attempt(1, "unknown", None)]);
        denies.may_have_it = false;
        untrue(&denies, &[request(1, None)]);
        untrue(&denies, &[]);
        let other_class = contradiction(&attempt(1, "transient", Some(200)), Some(&request(1, Some(200))));
        assert!(other_class.is_some_and(|text| text.contains("told as transient")));
        let backwards = Told {
            attempts: vec![
                ToldAttempt { started: 9_000, ..attempt(1, "transient", None) },
                attempt(2, "transient", None),
            ],
            ..dead(vec![attempt(1, "transient", None), attempt(2, "transient", None)])
        };
        untrue(&backwards, &[]);
    }
}
