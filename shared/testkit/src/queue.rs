//! A queue like SQS, in virtual time: at least once, with delays, visibility and receive counts, and a dead letter queue for
//! what has been received too often.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use domain::ports::{Clock, DeadQueue, Received, StoreError};
use domain::time::Millis;

use crate::clock::VirtualClock;

/// A batch holds at most so many messages.
const BATCH: usize = 10;

#[derive(Debug, Default)]
struct Messages {
    /// By number, in the order in which they were sent.
    all: BTreeMap<u32, (Received, Millis)>,
    by_time: BTreeSet<(Millis, u32)>,
    numbers: BTreeMap<String, u32>,
}

impl Messages {
    fn put(&mut self, number: u32, message: Received, visible_at: Millis) {
        self.by_time.insert((visible_at, number));
        self.numbers.insert(message.message_id.clone(), number);
        self.all.insert(number, (message, visible_at));
    }

    fn remove(&mut self, number: u32) -> Option<Received> {
        let (message, visible_at) = self.all.remove(&number)?;
        self.by_time.remove(&(visible_at, number));
        self.numbers.remove(&message.message_id);
        Some(message)
    }
}

/// Where messages go that were received so often and never deleted.
type DeadLetters = Option<(u32, MemoryQueue)>;

/// A queue. Clones share their messages.
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    messages: Rc<RefCell<Messages>>,
    sent: Rc<Cell<u32>>,
    dead: Rc<RefCell<DeadLetters>>,
    clock: VirtualClock,
    visibility_ms: i64,
}

impl MemoryQueue {
    /// An empty queue with a visibility timeout.
    pub fn new(clock: VirtualClock, visibility_ms: i64) -> Self {
        Self { messages: Rc::default(), sent: Rc::default(), dead: Rc::default(), clock, visibility_ms }
    }

    /// Messages received `max_receives` times move to `dead` instead of being received again. SQS counts on there.
    #[must_use]
    pub fn with_dead_letters(self, max_receives: u32, dead: &Self) -> Self {
        *self.dead.borrow_mut() = Some((max_receives, dead.clone()));
        self
    }

    /// Puts a message on it that appears after `delay_seconds`; returns its id.
    pub fn send(&self, body: &str, delay_seconds: u16) -> String {
        self.send_after(body, i64::from(delay_seconds) * 1000)
    }

    /// The same, to the millisecond.
    pub fn send_after(&self, body: &str, delay_ms: i64) -> String {
        let number = self.number();
        let message_id = format!("m{number:04}");
        let now = self.clock.now();
        let message = Received {
            receipt: message_id.clone(),
            message_id: message_id.clone(),
            body: body.to_owned(),
            receives: 0,
            sent_at: now,
            sender: Some("producer".to_owned()),
        };
        self.messages.borrow_mut().put(number, message, now.plus(delay_ms));
        message_id
    }

    /// Puts a message on it that has been received so often elsewhere.
    pub fn send_received(&self, body: &str, receives: u32) {
        let message_id = self.send(body, 0);
        let mut messages = self.messages.borrow_mut();
        let number = messages.numbers.get(&message_id).copied();
        if let Some((message, _)) = number.and_then(|number| messages.all.get_mut(&number)) {
            message.receives = receives;
        }
    }

    fn number(&self) -> u32 {
        self.sent.set(self.sent.get() + 1);
        self.sent.get()
    }

    /// Takes up to ten messages that are visible now, in the order in which they were sent.
    pub fn take(&self) -> Vec<Received> {
        self.take_in_order(BATCH, |visible| visible.sort_unstable())
    }

    /// Takes up to `limit` messages that are visible now; `order` puts the numbers of those that are in some order.
    pub fn take_in_order(&self, limit: usize, order: impl FnOnce(&mut Vec<u32>)) -> Vec<Received> {
        let now = self.clock.now();
        let mut messages = self.messages.borrow_mut();
        let mut visible: Vec<u32> = messages.by_time.range(..=(now, u32::MAX)).map(|(_, number)| *number).collect();
        order(&mut visible);
        let mut batch = Vec::new();
        for number in visible {
            if batch.len() == limit {
                break;
            }
            let Some(mut message) = messages.remove(number) else { continue };
            if let Some((max_receives, dead)) = &*self.dead.borrow()
                && message.receives >= *max_receives
            {
                dead.messages.borrow_mut().put(dead.number(), message, now);
                continue;
            }
            message.receives += 1;
            batch.push(message.clone());
            messages.put(number, message, now.plus(self.visibility_ms));
        }
        batch
    }

    /// Deletes a message; one that is not there is deleted already.
    pub fn remove(&self, message_id: &str) {
        let mut messages = self.messages.borrow_mut();
        if let Some(number) = messages.numbers.get(message_id).copied() {
            messages.remove(number);
        }
    }

    /// Makes a message visible again at that time, whoever works on it: a copy that SQS delivers twice.
    pub fn show_at(&self, message_id: &str, at: Millis) {
        let mut messages = self.messages.borrow_mut();
        if let Some(number) = messages.numbers.get(message_id).copied()
            && let Some(message) = messages.remove(number)
        {
            messages.put(number, message, at);
        }
    }

    /// Loses all its messages.
    pub fn clear(&self) {
        *self.messages.borrow_mut() = Messages::default();
    }

    /// Makes its messages look as if they had been received so often.
    pub fn set_receives(&self, receives: u32) {
        for (message, _) in self.messages.borrow_mut().all.values_mut() {
            message.receives = receives;
        }
    }

    /// When the next message becomes visible.
    pub fn next_visible(&self) -> Option<Millis> {
        self.messages.borrow().by_time.first().map(|(at, _)| *at)
    }

    /// The messages it holds, visible or not.
    pub fn all(&self) -> Vec<Received> {
        self.messages.borrow().all.values().map(|(message, _)| message.clone()).collect()
    }

    /// How many messages it holds, visible or not.
    pub fn len(&self) -> usize {
        self.messages.borrow().all.len()
    }

    /// True when it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl DeadQueue for MemoryQueue {
    async fn receive(&self) -> Result<Vec<Received>, StoreError> {
        Ok(self.take())
    }

    async fn delete(&self, message: &Received) -> Result<(), StoreError> {
        self.remove(&message.receipt);
        Ok(())
    }

    async fn visible(&self) -> Result<u64, StoreError> {
        let now = self.clock.now();
        Ok(self.messages.borrow().by_time.range(..=(now, u32::MAX)).count() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_not_deleted_comes_back_and_at_last_goes_to_the_dead_letters() {
        let clock = VirtualClock::new(Millis(0), 1);
        let dead = MemoryQueue::new(clock.clone(), 1_000);
        let queue = MemoryQueue::new(clock.clone(), 1_000).with_dead_letters(2, &dead);
        queue.send("x", 1);
        assert!(queue.take().is_empty(), "its delay is not over");
        clock.advance(1_000);
        assert_eq!((queue.take()[0].receives, queue.take().len()), (1, 0), "hidden while somebody works on it");
        clock.advance(1_000);
        assert_eq!((queue.take()[0].receives, dead.len()), (2, 0));
        clock.advance(1_000);
        assert_eq!((queue.take().len(), queue.len()), (0, 0));
        assert_eq!((dead.take()[0].receives, dead.take().len()), (3, 0));
    }

    #[test]
    fn a_deleted_message_does_not_come_back_and_a_copy_may() {
        let clock = VirtualClock::new(Millis(0), 1);
        let queue = MemoryQueue::new(clock.clone(), 1_000);
        let ids: Vec<String> = (0..3).map(|_| queue.send("x", 0)).collect();
        queue.remove(&ids[1]);
        queue.remove(&ids[1]);
        let order: Vec<String> =
            queue.take_in_order(10, |numbers| numbers.reverse()).into_iter().map(|m| m.message_id).collect();
        assert_eq!(order, [ids[2].clone(), ids[0].clone()]);
        queue.show_at(&ids[0], Millis(0));
        assert_eq!(queue.take()[0].receives, 2);
    }
}
