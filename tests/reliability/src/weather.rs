//! What the platform does by chance, outside of our calls: messages that come twice, late or in another order, processes
//! that are killed, relays that stall, clocks that differ. All zero: the platform behaves.

/// In a million, unless it says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// Messages are handed out in any order, in batches of any size.
    pub reorder: bool,
    /// A message is handed out while somebody works on it.
    pub duplicate: u32,
    /// A message appears late.
    pub late_message: u32,
    /// The acknowledgement of a batch's message is lost.
    pub lost_ack: u32,
    /// A change of the stream is never relayed.
    pub dropped_change: u32,
    /// A change of the stream is relayed twice, the second time later.
    pub doubled_change: u32,
    /// A change of the stream is relayed after minutes.
    pub late_change: u32,
    /// An invocation is killed at some moment.
    pub kill: u32,
    /// A sweep is started twice.
    pub doubled_sweep: u32,
    /// A sweep is not started.
    pub missed_sweep: u32,
    /// A worker's clock jumps before a batch.
    pub clock_jump: u32,
    /// Clocks are off by so many milliseconds at most.
    pub skew_ms: i64,
}
