//! The real binaries on the local stack: what was promised, seen from outside.

mod attempts;
mod cli;
mod conformance;
mod crashes;
mod duplicates;
mod endpoints;
mod lateness;
mod operators;
mod waits;

use std::ops::Deref;

use domain::id::EndpointKey;
pub use rig::processes::kill_sender;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How late a retry can be here, in milliseconds: its delay is rounded up to the second, and the emulator's queue poller
/// sleeps up to a second when it is idle. On AWS a waiting poll ends as soon as a message becomes visible.
pub const LATE_MS: i64 = 2_500;

/// Tests share the stack; one that looks at whole queues, or breaks something, has it for itself.
static QUIET: RwLock<()> = RwLock::const_new(());

pub async fn shared() -> RwLockReadGuard<'static, ()> {
    QUIET.read().await
}

pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    QUIET.write().await
}

/// The stack, to which the tests here add what only they need.
pub struct Stack(rig::stack::Stack);

impl Deref for Stack {
    type Target = rig::stack::Stack;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Stack {
    pub async fn connect() -> Self {
        Self(rig::stack::Stack::connect().await)
    }

    pub fn endpoint(url: &str) -> EndpointKey {
        rig::stack::Stack::endpoint(url)
    }
}
