//! Which change of the stream becomes which wake-up.

use domain::ports::Clock;
use domain::record::Record;
use domain::wakeup::{Delay, Waiting};
use platform::dynamodb::item;
use platform::lambda::StreamRecord;

/// What a change asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Relay {
    /// Send this wake-up with this delay.
    Send(Waiting, Delay),
    /// SQS cannot wait that long: the sweep arms it when its time comes near.
    LeaveToArm(Box<Record>),
    /// Not a waiting delivery.
    Ignore,
    /// The image cannot be read. Repeating would not help; the sweep finds the record when it is overdue.
    Unreadable(String),
}

/// Reads one change of the stream.
pub fn relay(record: &StreamRecord, clock: &impl Clock) -> Relay {
    let image = record.change.image();
    if image.get("state").and_then(|v| v.as_s().ok()).is_none_or(|state| state != "waiting") {
        return Relay::Ignore;
    }
    let record = match item::decode(&image) {
        Ok(record) => record,
        Err(error) => return Relay::Unreadable(error.to_string()),
    };
    match Waiting::of(&record) {
        Some(waiting) => match waiting.delay(clock.now()) {
            Some(delay) => Relay::Send(waiting, delay),
            None => Relay::LeaveToArm(Box::new(record)),
        },
        None => Relay::Unreadable("a waiting record has no due time".to_owned()),
    }
}
