//! A world in memory for the tests of the commands: a registry with versions, a queue, an operator function that answers
//! what a test tells it to, and a clock that moves when somebody waits.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::rc::Rc;

use domain::id::EndpointKey;
use domain::registry::{Registration, RootKeys, SecretEntry};
use domain::time::Millis;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use testkit::clock::VirtualClock;
use zeroize::Zeroizing;

use crate::doctor::Parts;
use crate::exit::{Exit, Failure};
use crate::outside::{Caller, Inspect, Intake, Operator, Registry, Stored, Sweeper, World};
use crate::session::Io;
use crate::stack::Target;

/// 2026-12-01T12:00:00Z
pub(crate) const NOW: Millis = Millis(1_796_126_400_000);

type Answers = Box<dyn Fn(&Value) -> Value>;
type Meanwhile = Box<dyn FnOnce(&mut BTreeMap<EndpointKey, Value>)>;

/// What the commands find and leave behind.
pub(crate) struct State {
    /// The stored form of each registration.
    pub(crate) registry: RefCell<BTreeMap<EndpointKey, Value>>,
    pub(crate) roots: RefCell<Value>,
    pub(crate) writes: Cell<usize>,
    /// Happens right before the next write.
    pub(crate) meanwhile: RefCell<Vec<Meanwhile>>,
    pub(crate) sent: RefCell<Vec<(String, String)>>,
    pub(crate) asked: RefCell<Vec<Value>>,
    answers: RefCell<Answers>,
    /// What the doctor finds.
    pub(crate) parts: RefCell<Parts>,
    keys: Cell<u8>,
    pub(crate) connected: RefCell<Option<Target>>,
    /// Every call fails like this.
    pub(crate) down: RefCell<Option<String>>,
}

/// The world; clones share it.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) state: Rc<State>,
    pub(crate) clock: VirtualClock,
}

/// What a run left on its streams.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The one document on standard output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl Fake {
    pub(crate) fn new() -> Self {
        let state = State {
            registry: RefCell::default(),
            roots: RefCell::default(),
            writes: Cell::new(0),
            meanwhile: RefCell::default(),
            sent: RefCell::default(),
            asked: RefCell::default(),
            answers: RefCell::new(Box::new(active)),
            parts: RefCell::default(),
            keys: Cell::new(0),
            connected: RefCell::default(),
            down: RefCell::default(),
        };
        Self { state: Rc::new(state), clock: VirtualClock::new(NOW, 1) }
    }

    /// What the operator function answers.
    pub(crate) fn answers(&self, answers: impl Fn(&Value) -> Value + 'static) {
        *self.state.answers.borrow_mut() = Box::new(answers);
    }

    /// Right before the next write, somebody else does this.
    pub(crate) fn meanwhile(&self, change: impl FnOnce(&mut BTreeMap<EndpointKey, Value>) + 'static) {
        self.state.meanwhile.borrow_mut().push(Box::new(change));
    }

    /// Puts a registration there.
    pub(crate) fn has(&self, id: &str, stored: Value) {
        self.state.registry.borrow_mut().insert(EndpointKey::registered(id).unwrap(), stored);
    }

    /// What is stored of an endpoint.
    pub(crate) fn stored(&self, id: &str) -> Value {
        self.state.registry.borrow().get(&EndpointKey::registered(id).unwrap()).cloned().unwrap_or_default()
    }

    /// Runs a command line without a terminal.
    pub(crate) fn run(&self, line: &str) -> Ran {
        self.run_with(line, b"", false)
    }

    /// Runs a command line; words are divided by blanks, `'` keeps them together.
    pub(crate) fn run_with(&self, line: &str, input: &[u8], terminal: bool) -> Ran {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let environment = |name: &str| match name {
            "USER" => Some("ada".to_owned()),
            "TOKEN" | "PARTNER_A_TOKEN" => Some("Bearer s3cr3t".to_owned()),
            _ => None,
        };
        let words = std::iter::once("redeliver".to_owned()).chain(words(line)).map(Into::into).collect();
        let io = Io {
            stdin: &mut BufReader::new(input),
            stdout: &mut out,
            stderr: &mut err,
            asks: terminal,
            shows: false,
            width: None,
        };
        let exit = futures_util::FutureExt::now_or_never(crate::run_in(self, words, &environment, io));
        let exit = exit.expect("nothing in this world makes anybody wait");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { exit, out: text(out), err: text(err) }
    }

    fn up(&self) -> Result<(), Failure> {
        self.state.down.borrow().as_ref().map_or(Ok(()), |text| match text.as_str() {
            "operator_function" => Err(Failure::new(Exit::Own, text, "the operator function failed")),
            text => Err(Failure::of_aws("reading the endpoints table", text)),
        })
    }
}

/// Words of a command line, as a shell would divide them.
pub(crate) fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if c == open => quote = None,
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn active(action: &Value) -> Value {
    match action["action"].as_str() {
        Some("endpoint") => {
            let state = action["set"].as_str().unwrap_or("active");
            json!({"ok": true, "endpoint": {"endpoint": action["endpoint"], "state": state, "since": 0, "because": "", "releasing": false}, "released": 0})
        }
        Some("list") => json!({"ok": true, "items": [], "cursor": null}),
        _ => json!({"ok": false, "error": {"code": "not_found", "message": "there is none"}}),
    }
}

impl World for Fake {
    type Outside = Self;
    type Clock = VirtualClock;

    fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    fn random_key(&self) -> Zeroizing<[u8; 32]> {
        self.state.keys.set(self.state.keys.get() + 1);
        Zeroizing::new([self.state.keys.get(); 32])
    }

    fn zone(&self) -> TimeZone {
        TimeZone::UTC
    }

    async fn connect(&self, target: &Target) -> Result<Self, Failure> {
        *self.state.connected.borrow_mut() = Some(target.clone());
        Ok(self.clone())
    }
}

impl Registry for Fake {
    async fn registration(&self, id: &EndpointKey) -> Result<Option<Stored>, Failure> {
        self.up()?;
        Ok(self.state.registry.borrow().get(id).map(|stored| Registration::read(stored.clone())))
    }

    async fn registrations(&self) -> Result<Vec<(EndpointKey, Stored)>, Failure> {
        self.up()?;
        let all = self.state.registry.borrow();
        Ok(all.iter().map(|(id, stored)| (id.clone(), Registration::read(stored.clone()))).collect())
    }

    async fn replace(&self, id: &EndpointKey, expected: u64, new: &Registration) -> Result<bool, Failure> {
        self.up()?;
        let stored = new.to_stored().map_err(|problems| Failure::unwritable(&problems))?;
        let meanwhile = self.state.meanwhile.borrow_mut().pop();
        let mut all = self.state.registry.borrow_mut();
        if let Some(change) = meanwhile {
            change(&mut all);
        }
        let version = all.get(id).and_then(|stored| stored["version"].as_u64());
        // The condition of the table: absent for 0, else the very version.
        if version != (expected > 0).then_some(expected) {
            return Ok(false);
        }
        all.insert(id.clone(), stored);
        self.state.writes.set(self.state.writes.get() + 1);
        Ok(true)
    }

    async fn root_keys(&self) -> Result<RootKeys, Failure> {
        self.up()?;
        let stored = self.state.roots.borrow().clone();
        Ok(if stored.is_null() { RootKeys::default() } else { RootKeys::from_json(stored) })
    }

    async fn replace_root_keys(&self, expected: u64, keys: &[SecretEntry]) -> Result<bool, Failure> {
        self.up()?;
        let mut roots = self.state.roots.borrow_mut();
        if roots["version"].as_u64() != (expected > 0).then_some(expected) {
            return Ok(false);
        }
        *roots = RootKeys::to_stored(keys, expected + 1).map_err(|problems| Failure::unwritable(&problems))?;
        Ok(true)
    }
}

impl Intake for Fake {
    async fn send(&self, body: &str, group: &str) -> Result<String, Failure> {
        self.up()?;
        self.state.sent.borrow_mut().push((body.to_owned(), group.to_owned()));
        Ok("sqs-1".to_owned())
    }
}

impl Operator for Fake {
    async fn ask(&self, action: Value) -> Result<Value, Failure> {
        self.up()?;
        let answer = (self.state.answers.borrow())(&action);
        self.state.asked.borrow_mut().push(action);
        Ok(answer)
    }
}

impl Sweeper for Fake {
    /// The sweep is asked like the operator function; what a run holds tells them apart.
    async fn sweep(&self, run: Value) -> Result<Value, Failure> {
        self.ask(run).await
    }
}

impl Inspect for Fake {
    async fn parts(&self) -> Parts {
        self.state.parts.borrow().clone()
    }
}

impl Caller for Fake {
    async fn name(&self) -> Option<String> {
        None
    }
}
