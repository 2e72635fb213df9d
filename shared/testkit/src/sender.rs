//! An endpoint that follows a script.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use domain::outcome::{Answer, Outcome};
use domain::ports::Sender;
use domain::request::Request;

/// What a request looked like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where it went.
    pub url: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: Vec<u8>,
}

impl Seen {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// Answers requests from a script; when it is used up, with 200.
#[derive(Clone, Debug, Default)]
pub struct ScriptedSender {
    script: Rc<RefCell<VecDeque<Outcome>>>,
    always: Rc<RefCell<Vec<(String, Outcome)>>>,
    seen: Rc<RefCell<Vec<Seen>>>,
}

impl ScriptedSender {
    /// Will answer with these, in order.
    pub fn then(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.script.borrow_mut().extend(outcomes);
    }

    /// Will always answer with this where the host begins so.
    pub fn at(&self, host: &str, outcome: Outcome) {
        self.always.borrow_mut().push((host.to_owned(), outcome));
    }

    /// What came so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.borrow().clone()
    }
}

/// An answer with a status and nothing else.
pub fn status(status: u16) -> Outcome {
    Outcome::Answered(Answer { status, ..Answer::default() })
}

impl Sender for ScriptedSender {
    async fn post(&self, request: &Request<'_>) -> Outcome {
        self.seen.borrow_mut().push(Seen {
            url: request.url.to_string(),
            headers: request.headers.clone(),
            body: request.body.to_vec(),
        });
        let host = request.url.host_str().unwrap_or_default();
        if let Some((_, outcome)) = self.always.borrow().iter().find(|(begins, _)| host.starts_with(begins)) {
            return outcome.clone();
        }
        self.script.borrow_mut().pop_front().unwrap_or_else(|| status(200))
    }
}
