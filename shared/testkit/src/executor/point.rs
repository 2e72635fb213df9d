//! Where a task waits, and the clock by which it waits.

use std::cell::Cell;
use std::cmp::Reverse;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use domain::ports::Clock;
use domain::time::Millis;

use super::{Alarm, Executor, Inner, PointState, TaskId};

/// A place where a task waits until it is picked.
pub struct Point {
    pub(super) inner: Rc<Inner>,
    pub(super) task: TaskId,
    pub(super) from: Option<Millis>,
    pub(super) id: Option<u64>,
}

impl Future for Point {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(id) = self.id else {
            let id = self.inner.next();
            let state = PointState { task: self.task, waker: cx.waker().clone(), granted: false };
            self.inner.points.borrow_mut().insert(id, state);
            match self.from {
                None => self.inner.ready.borrow_mut().push(id),
                Some(at) => self.inner.timers.borrow_mut().push(Reverse((at.0, id, Alarm::Point(id)))),
            }
            self.id = Some(id);
            return Poll::Pending;
        };
        let mut points = self.inner.points.borrow_mut();
        match points.get_mut(&id) {
            Some(state) if !state.granted => {
                state.waker = cx.waker().clone();
                Poll::Pending
            }
            Some(_) | None => Poll::Ready(()),
        }
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.inner.points.borrow_mut().remove(&id);
        }
    }
}

/// The clock of one worker: the executor's time, as much off as its skew says.
#[derive(Clone)]
pub struct WorkerClock {
    executor: Executor,
    skew_ms: Rc<Cell<i64>>,
}

impl WorkerClock {
    /// A clock that is right.
    pub fn new(executor: Executor) -> Self {
        Self { executor, skew_ms: Rc::default() }
    }

    /// Sets how much it is ahead; it jumps.
    pub fn set_skew(&self, ms: i64) {
        self.skew_ms.set(ms);
    }
}

impl Clock for WorkerClock {
    fn now(&self) -> Millis {
        self.executor.now().plus(self.skew_ms.get())
    }

    fn random(&self) -> f64 {
        self.executor.inner.clock.random()
    }

    fn nonce(&self) -> u32 {
        self.executor.inner.clock.nonce()
    }

    async fn sleep_until(&self, until: Millis) {
        let ms = until.since(self.now());
        if ms > 0 {
            self.executor.after(ms).await;
        }
    }
}
