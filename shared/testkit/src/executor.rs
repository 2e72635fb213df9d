//! Many tasks in virtual time, on one thread: who goes next is chosen from outside, and a task can be killed at any await
//! point. Its memory goes, what it wrote stays: leases and messages are left as a dead process leaves them.
//!
//! A task stops at [`Point`]s only. A point that can go is *ready*; whoever drives the executor picks one. When nothing is
//! ready, time moves on to the next timer. The same choices always make the same run.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use domain::ports::Clock;
use domain::time::Millis;

use crate::clock::VirtualClock;

mod point;
#[cfg(test)]
mod tests;

pub use point::{Point, WorkerClock};

/// A task, in the order in which they were spawned.
pub type TaskId = usize;

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ran to its end.
    Done,
    /// It was killed.
    Killed,
}

/// The executor. Clones share their tasks.
#[derive(Clone)]
pub struct Executor {
    inner: Rc<Inner>,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Inner {
    clock: VirtualClock,
    tasks: RefCell<HashMap<TaskId, Option<Task>>>,
    spawned: Cell<TaskId>,
    points: RefCell<HashMap<u64, PointState>>,
    /// Points made so far.
    made: Cell<u64>,
    ready: RefCell<Vec<u64>>,
    timers: RefCell<BinaryHeap<Reverse<(i64, u64, Alarm)>>>,
    current: Cell<Option<TaskId>>,
    doomed: Cell<bool>,
    ended: RefCell<Vec<(TaskId, End)>>,
}

struct PointState {
    task: TaskId,
    waker: Waker,
    granted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Point(u64),
    Kill(TaskId),
}

impl Executor {
    /// An executor without tasks.
    pub fn new(clock: VirtualClock) -> Self {
        Self {
            inner: Rc::new(Inner {
                clock,
                tasks: RefCell::default(),
                spawned: Cell::new(0),
                points: RefCell::default(),
                made: Cell::new(0),
                ready: RefCell::default(),
                timers: RefCell::default(),
                current: Cell::new(None),
                doomed: Cell::new(false),
                ended: RefCell::default(),
            }),
        }
    }

    /// Its time.
    pub fn now(&self) -> Millis {
        self.inner.clock.now()
    }

    /// Adds a task. It begins when it is picked.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> TaskId {
        let id = self.inner.spawned.get();
        self.inner.spawned.set(id + 1);
        let start = self.at(id, None);
        let task = async move {
            start.await;
            future.await;
        };
        self.inner.tasks.borrow_mut().insert(id, Some(Box::pin(task)));
        // The first poll only registers the start.
        self.poll(id);
        id
    }

    /// A point of the running task that is ready at once.
    pub fn point(&self) -> Point {
        self.at(self.running(), None)
    }

    /// A point of the running task that is ready in so many milliseconds.
    pub fn after(&self, ms: i64) -> Point {
        self.at(self.running(), (ms > 0).then(|| self.now().plus(ms)))
    }

    fn at(&self, task: TaskId, from: Option<Millis>) -> Point {
        Point { inner: Rc::clone(&self.inner), task, from, id: None }
    }

    /// The task that is running.
    ///
    /// # Panics
    /// Outside of all tasks.
    pub fn running(&self) -> TaskId {
        self.inner.current.get().expect("only a task waits at a point")
    }

    /// Ends the running task at this point, as a killed process ends.
    pub async fn die(&self) {
        self.inner.doomed.set(true);
        std::future::pending().await
    }

    /// Kills a task now.
    pub fn kill(&self, task: TaskId) {
        let future = self.inner.tasks.borrow_mut().remove(&task);
        if future.is_some() {
            self.inner.ended.borrow_mut().push((task, End::Killed));
        }
        // Dropped only here: its points go with it, and they look at the executor.
        drop(future);
    }

    /// Kills a task at that time, if it still runs.
    pub fn kill_at(&self, task: TaskId, at: Millis) {
        self.timer(at, Alarm::Kill(task));
    }

    fn timer(&self, at: Millis, alarm: Alarm) {
        self.inner.timers.borrow_mut().push(Reverse((at.0, self.inner.next(), alarm)));
    }

    /// How many points are ready.
    pub fn ready(&self) -> usize {
        let points = self.inner.points.borrow();
        let mut ready = self.inner.ready.borrow_mut();
        ready.retain(|id| points.contains_key(id));
        ready.len()
    }

    /// The task of ready point number `index`.
    pub fn task_of(&self, index: usize) -> TaskId {
        self.inner.points.borrow()[&self.inner.ready.borrow()[index]].task
    }

    /// Lets ready point number `index` go, and runs its task to the next point.
    pub fn go(&self, index: usize) {
        let id = self.inner.ready.borrow_mut().remove(index);
        let (task, waker) = {
            let mut points = self.inner.points.borrow_mut();
            let Some(point) = points.get_mut(&id) else { return };
            point.granted = true;
            (point.task, point.waker.clone())
        };
        waker.wake();
        self.poll(task);
    }

    fn poll(&self, id: TaskId) {
        let Some(mut task) = self.inner.tasks.borrow_mut().get_mut(&id).and_then(Option::take) else { return };
        let outer = self.inner.current.replace(Some(id));
        let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.inner.current.set(outer);
        let end = match polled {
            _ if self.inner.doomed.take() => Some(End::Killed),
            Poll::Ready(()) => Some(End::Done),
            Poll::Pending => None,
        };
        match end {
            Some(end) => {
                self.inner.tasks.borrow_mut().remove(&id);
                self.inner.ended.borrow_mut().push((id, end));
                drop(task);
            }
            None => {
                self.inner.tasks.borrow_mut().insert(id, Some(task));
            }
        }
    }

    /// When the next timer rings.
    pub fn next_timer(&self) -> Option<Millis> {
        let points = self.inner.points.borrow();
        let mut timers = self.inner.timers.borrow_mut();
        while let Some(Reverse((at, _, alarm))) = timers.peek() {
            let alive = match alarm {
                Alarm::Point(id) => points.contains_key(id),
                Alarm::Kill(task) => self.inner.tasks.borrow().contains_key(task),
            };
            if alive {
                return Some(Millis(*at));
            }
            timers.pop();
        }
        None
    }

    /// Moves time on, not backwards; what rings on the way becomes ready, or is killed.
    pub fn advance_to(&self, to: Millis) {
        loop {
            let next = self.next_timer().filter(|at| *at <= to);
            let Some(at) = next else { break };
            self.inner.clock.advance(at.since(self.now()).max(0));
            let alarm = self.inner.timers.borrow_mut().pop();
            match alarm {
                Some(Reverse((_, _, Alarm::Point(id)))) => self.inner.ready.borrow_mut().push(id),
                Some(Reverse((_, _, Alarm::Kill(task)))) => self.kill(task),
                None => break,
            }
        }
        self.inner.clock.advance(to.since(self.now()).max(0));
    }

    /// The tasks that ended since the last call.
    pub fn ended(&self) -> Vec<(TaskId, End)> {
        std::mem::take(&mut self.inner.ended.borrow_mut())
    }

    /// How many tasks are alive.
    pub fn alive(&self) -> usize {
        self.inner.tasks.borrow().len()
    }

    /// Runs until no task is left or all wait for ever; `choose` picks from that many ready points.
    pub fn run(&self, mut choose: impl FnMut(usize) -> usize) {
        loop {
            match self.ready() {
                0 => match self.next_timer() {
                    Some(at) => self.advance_to(at),
                    None => return,
                },
                ready => self.go(choose(ready)),
            }
        }
    }
}

impl Inner {
    fn next(&self) -> u64 {
        self.made.set(self.made.get() + 1);
        self.made.get()
    }
}
