//! How late retries are: from their due time to the moment when the receiver has them.

use std::collections::HashMap;

use domain::delivery::State;
use domain::time::Millis;

use super::{LATE_MS, Stack, alone};
use crate::receiver::Reply;

const DELIVERIES: usize = 100;

#[tokio::test]
async fn two_hundred_retries_are_on_time() {
    let _alone = alone().await;
    let stack = Stack::connect().await;
    let mut urls = Vec::new();
    for i in 0..DELIVERIES {
        let url =
            stack.receiver.script(&format!("late{i}"), [Reply::status(500), Reply::status(500), Reply::status(200)]);
        let id = stack.id(&format!("late{i}"));
        stack.send(&id, &url).await;
        urls.push((id, url, i));
    }
    let mut posts = HashMap::new();
    for (id, url, i) in &urls {
        stack.wait_state(id, url, 60, State::Delivered).await;
        posts.insert(id.clone(), stack.receiver.seen(&format!("late{i}")));
    }
    // The line of an attempt says when it was claimed and how late that was; the receiver knows when the request came.
    let mut late = Vec::new();
    for line in stack.log("attempt") {
        let (Some(seen), Some(late_ms)) =
            (posts.get(line["delivery.id"].as_str().unwrap()), line["attempt.late_ms"].as_i64())
        else {
            continue;
        };
        let started = Millis::parse_rfc3339(line["attempt.started"].as_str().unwrap()).unwrap();
        let number = usize::try_from(line["attempt.number"].as_u64().unwrap()).unwrap();
        late.push(seen[number - 1].at - started.0 + late_ms);
    }
    late.sort_unstable();
    assert_eq!(late.len(), 2 * DELIVERIES);
    let at = |percent: usize| late[late.len() * percent / 100];
    println!(
        "due to POST, {} retries: min {} ms, p50 {} ms, p95 {} ms, max {} ms",
        late.len(),
        late[0],
        at(50),
        at(95),
        at(99)
    );
    assert!(late[0] >= 0, "no retry comes early");
    assert!(at(95) <= LATE_MS, "p95 is {} ms", at(95));
}
