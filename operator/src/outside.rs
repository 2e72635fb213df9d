//! The outside, as the commands see it: small traits, so that every command runs on fakes. `aws` implements them.

use domain::id::EndpointKey;
use domain::ports::Clock;
use domain::registry::{Registration, RootKeys, SecretEntry, Unreadable};
use jiff::tz::TimeZone;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::doctor::Parts;
use crate::exit::Failure;
use crate::stack::Target;

/// What is stored under an id: a registration, or what is left of one that cannot be read.
pub type Stored = Result<Registration, Unreadable>;

/// The endpoints table.
pub trait Registry {
    /// One registration.
    async fn registration(&self, id: &EndpointKey) -> Result<Option<Stored>, Failure>;
    /// All of them, in order of their ids.
    async fn registrations(&self) -> Result<Vec<(EndpointKey, Stored)>, Failure>;
    /// Writes one in place of a version; false when somebody was faster.
    async fn replace(&self, id: &EndpointKey, expected: u64, new: &Registration) -> Result<bool, Failure>;
    /// The root keys of inline URLs.
    async fn root_keys(&self) -> Result<RootKeys, Failure>;
    /// Writes the root keys in place of a version; false when somebody was faster.
    async fn replace_root_keys(&self, expected: u64, keys: &[SecretEntry]) -> Result<bool, Failure>;
}

/// The intake queue.
pub trait Intake {
    /// Puts a message on it, and returns the id that SQS gave it.
    async fn send(&self, body: &str, group: &str) -> Result<String, Failure>;
}

/// The operator function.
pub trait Operator {
    /// An action and its answer, whatever the answer is.
    async fn ask(&self, action: Value) -> Result<Value, Failure>;
}

/// The sweep function.
pub trait Sweeper {
    /// A run, and its evidence.
    async fn sweep(&self, run: Value) -> Result<Value, Failure>;
}

/// The parts of the stack, as AWS describes them.
pub trait Inspect {
    /// All that can be read.
    async fn parts(&self) -> Parts;
}

/// Who is at the keyboard.
pub trait Caller {
    /// The name that AWS knows the credentials by.
    async fn name(&self) -> Option<String>;
}

/// All of it.
pub trait Outside: Registry + Intake + Operator + Sweeper + Inspect + Caller {}

impl<T: Registry + Intake + Operator + Sweeper + Inspect + Caller> Outside for T {}

/// Time, chance, and the way to the outside. Connecting comes last: a command that needs no stack never asks for one.
pub trait World {
    /// What it connects to.
    type Outside: Outside;
    /// Its clock.
    type Clock: Clock;
    /// Time.
    fn clock(&self) -> &Self::Clock;
    /// Chance, for keys.
    fn random_key(&self) -> Zeroizing<[u8; 32]>;
    /// The zone that times are shown in.
    fn zone(&self) -> TimeZone;
    /// Finds the stack and connects to it.
    async fn connect(&self, target: &Target) -> Result<Self::Outside, Failure>;
}
