//! What a run did, as its answer and as one log line: complete also when everything is zero.

use serde::Serialize;

/// The evidence of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Evidence {
    /// `arm` or `reconcile`.
    pub run: &'static str,
    /// `act` or `observe`.
    pub mode: &'static str,
    /// The invocation.
    pub run_id: String,
    /// How long it took, in milliseconds.
    pub duration_ms: i64,
    /// Rows of the due index looked at.
    pub examined: u64,
    /// Long waits brought into the queue.
    pub armed: u64,
    /// Overdue waits brought back into the queue.
    pub rearmed: u64,
    /// Expired attempts taken over.
    pub taken_over: u64,
    /// Overdue rows left alone because somebody works on them.
    pub skipped_owned: u64,
    /// Overdue rows left alone because the retry queue is busy.
    pub skipped_queued: u64,
    /// Rows that had moved on: the index was behind, or somebody was faster.
    pub skipped_moved: u64,
    /// Items that this version cannot read; they are left alone, and logged.
    pub unreadable: u64,
    /// Messages on the transport DLQs before they were drained.
    pub dlq_visible: u64,
    /// Messages of the transport DLQs turned into, or matched with, a record.
    pub drained: u64,
    /// Messages of the transport DLQs left there, because their delivery is being worked on.
    pub left_in_dlq: u64,
    /// Messages of the transport DLQs rejected.
    pub rejected: u64,
    /// Deliveries released by this run, for approved plans and for endpoints that were set active.
    pub released: u64,
    /// Held deliveries whose deadline had passed.
    pub expired: u64,
    /// Payloads kept longer.
    pub extended: u64,
    /// How much there is in each state.
    pub backlog: Backlog,
    /// The backlog is larger than what is counted in one run.
    pub backlog_capped: bool,
    /// Age of the oldest overdue wait in seconds; 0 when nothing is overdue.
    pub oldest_overdue_seconds: i64,
    /// Messages on the retry queue ready to be received.
    pub retry_queue_visible: u64,
    /// The arm cursors that were moved furthest and least, in milliseconds since the epoch.
    pub cursor_min: Option<i64>,
    /// See `cursor_min`.
    pub cursor_max: Option<i64>,
    /// Parts of the work that did not fit into this run and are left to the next.
    pub pages_left: u64,
    /// Steps that failed; the others were done all the same.
    pub errors: Vec<String>,
}

/// How much is where.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Backlog {
    /// Waiting, or in flight after the first attempt; the age is that of the most overdue one.
    pub waiting: Pile,
    /// Held.
    pub held: Pile,
    /// Dead letters.
    pub dead_lettered: Pile,
    /// Rejected messages.
    pub rejected: Pile,
}

/// How much, and how old.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Pile {
    /// How many.
    pub count: u64,
    /// Age of the oldest one in seconds; 0 when there is none, or when it lies in the future.
    pub oldest_seconds: i64,
}
