//! A queue like SQS, in virtual time: at least once, with delays, visibility and receive counts.

use std::cell::RefCell;
use std::rc::Rc;

use domain::ports::{Clock, DeadQueue, Received, StoreError};
use domain::time::Millis;

use crate::clock::VirtualClock;

#[derive(Clone, Debug)]
struct Message {
    received: Received,
    visible_at: Millis,
}

/// A queue. Clones share their messages.
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    messages: Rc<RefCell<Vec<Message>>>,
    sent: Rc<RefCell<u32>>,
    clock: VirtualClock,
    visibility_ms: i64,
}

impl MemoryQueue {
    /// An empty queue with a visibility timeout.
    pub fn new(clock: VirtualClock, visibility_ms: i64) -> Self {
        Self { messages: Rc::default(), sent: Rc::default(), clock, visibility_ms }
    }

    /// Puts a message on it that appears after `delay_seconds`; returns its id.
    pub fn send(&self, body: &str, delay_seconds: u16) -> String {
        let mut sent = self.sent.borrow_mut();
        *sent += 1;
        let message_id = format!("m{:04}", *sent);
        let now = self.clock.now();
        self.messages.borrow_mut().push(Message {
            received: Received {
                receipt: message_id.clone(),
                message_id: message_id.clone(),
                body: body.to_owned(),
                receives: 0,
                sent_at: now,
                sender: Some("producer".to_owned()),
            },
            visible_at: now.plus(i64::from(delay_seconds) * 1000),
        });
        message_id
    }

    /// Takes up to ten messages that are visible now.
    pub fn take(&self) -> Vec<Received> {
        let now = self.clock.now();
        let mut messages = self.messages.borrow_mut();
        let visible = messages.iter_mut().filter(|m| m.visible_at <= now).take(10);
        visible
            .map(|m| {
                m.visible_at = now.plus(self.visibility_ms);
                m.received.receives += 1;
                m.received.clone()
            })
            .collect()
    }

    /// Deletes a message.
    pub fn remove(&self, message_id: &str) {
        self.messages.borrow_mut().retain(|m| m.received.message_id != message_id);
    }

    /// Loses the messages with such a body.
    pub fn remove_if(&self, lost: impl Fn(&str) -> bool) {
        self.messages.borrow_mut().retain(|m| !lost(&m.received.body));
    }

    /// Loses all its messages.
    pub fn clear(&self) {
        self.messages.borrow_mut().clear();
    }

    /// Makes its messages look as if they had been received so often.
    pub fn set_receives(&self, receives: u32) {
        for message in self.messages.borrow_mut().iter_mut() {
            message.received.receives = receives;
        }
    }

    /// When the next message becomes visible.
    pub fn next_visible(&self) -> Option<Millis> {
        self.messages.borrow().iter().map(|m| m.visible_at).min()
    }

    /// How many messages it holds, visible or not.
    pub fn len(&self) -> usize {
        self.messages.borrow().len()
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
        Ok(self.messages.borrow().iter().filter(|m| m.visible_at <= now).count() as u64)
    }
}
