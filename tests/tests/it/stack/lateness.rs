//! How late retries are: from their due time to the moment when the receiver has them.

use domain::delivery::State;

use super::{Stack, alone};
use crate::receiver::Reply;

const DELIVERIES: usize = 100;

#[tokio::test]
async fn two_hundred_retries_are_on_time() {
    let _alone = alone().await;
    let stack = Stack::connect().await;
    let mut urls = Vec::new();
    for i in 0..DELIVERIES {
        let url = stack.receiver.script(&format!("late{i}"), [Reply::status(500), Reply::status(500), Reply::status(200)]);
        let id = stack.id(&format!("late{i}"));
        stack.send(&id, &url).await;
        urls.push((id, url, i));
    }
    let mut late = Vec::new();
    for (id, url, i) in &urls {
        let record = stack.wait_state(id, url, 60, State::Delivered).await;
        let seen = stack.receiver.seen(&format!("late{i}"));
        // The due time of a retry is not kept once it is over; the earliest that it can have been is.
        for (attempt, (next, wait)) in record.attempts().zip(seen[1..].iter().zip([1_000, 2_000])) {
            let earliest = attempt.started.plus(attempt.duration_ms + wait);
            let jitter = wait * 15 / 100;
            late.push(next.at - earliest.0 - jitter);
        }
    }
    late.sort_unstable();
    assert_eq!(late.len(), 2 * DELIVERIES);
    let at = |percent: usize| late[late.len() * percent / 100];
    println!("lateness of {} retries after the latest due time: p50 {} ms, p95 {} ms, max {} ms", late.len(), at(50), at(95), late[late.len() - 1]);
    assert!(at(95) <= 2_000, "p95 is {} ms", at(95));
}
