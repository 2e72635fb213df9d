//! `schedule-retry`: the relay. The table's stream carries every change to `waiting`; this function turns each into a
//! wake-up on the retry queue. It is the only code that sends messages, and all that it does is send them.

pub mod config;
pub mod handler;
pub mod schedule_retry;
