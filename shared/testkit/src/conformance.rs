//! What a table must do, whatever it is made of. Each check uses ids of its own, made from `prefix`, so that it can run on
//! a table that others use.

use std::collections::BTreeMap;

use domain::audit::{self, Decision as Decided, Entry, Head, decision};
use domain::decide::Decision;
use domain::delivery::{DeadReason, RejectedReason, State};
use domain::endpoint_state::{EndpointState, Status};
use domain::id::{DeliveryKey, StateKey, sha256_hex};
use domain::kept_answer::KeptAnswer;
use domain::message::Refusal;
use domain::outcome::{Class, Phase};
use domain::plan::{CHUNK, Frozen, Plan, PlanState, Stop, Who, digest};
use domain::ports::{
    Audit, Claimed, Created, Cursor, Deliveries, EndpointStates, ItemKey, Lane, Payloads, Plans, Range, Stored, Swapped,
};
use domain::record::Record;
use domain::reject::reject;
use domain::summary::Summary;
use domain::time::Millis;
use domain::transition::{self, Finished};

use crate::samples::{RETENTION, claimed, lease, message};

/// A point in time far enough ahead that the functions of a live stack leave its waits alone.
const T: Millis = Millis(4_000_000_000_000);

fn failed() -> Finished {
    Finished {
        class: Class::Unknown,
        phase: Phase::Sent,
        status: None,
        detail: Some("timeout".to_owned()),
        hint: Some(T.plus(9)),
        excerpt: Some("an excerpt".to_owned()),
        budget: 8,
    }
}

/// A record that waits for attempt 2, due at `T + 1000`.
fn waiting(id: &str) -> (Record, Record) {
    let first = claimed(&message(id), T);
    let due = T.plus(1_000);
    let next = transition::finish(&first, &failed(), Decision::Retry { due }, Some(T.plus(5)), RETENTION, T.plus(10));
    (first, next.expect("a failed attempt can be repeated"))
}

async fn stored(table: &impl Deliveries, key: &DeliveryKey) -> Record {
    table.get(key).await.expect("readable").expect("there")
}

/// All checks of the deliveries table.
///
/// # Panics
/// When the table does not conform.
pub async fn deliveries(table: &(impl Deliveries + Plans), prefix: &str) {
    a_record_comes_back_as_it_was_written(table, prefix).await;
    a_record_is_created_once(table, prefix).await;
    a_waiting_record_is_claimed_once_and_only_when_it_may_be(table, prefix).await;
    a_swap_names_state_attempt_and_revision(table, prefix).await;
    an_index_is_read_by_range_and_page(table, prefix).await;
    many_items_are_read_whatever_their_kind(table, prefix).await;
    a_rejected_message_counts_up(table, prefix).await;
    the_arm_cursor_only_moves_forward_and_others_go_back_too(table).await;
    a_plan_is_saved_by_its_revision(table, prefix).await;
    a_slot_is_booked_once_and_never_in_the_past(table, prefix).await;
}

async fn a_record_comes_back_as_it_was_written(table: &impl Deliveries, prefix: &str) {
    let (first, second) = waiting(&format!("{prefix}-round"));
    assert_eq!(table.create(&first).await, Ok(Created::New));
    assert_eq!(stored(table, &first.key).await, first);
    assert_eq!(table.swap(&first, &second).await, Ok(Swapped::Done));
    assert_eq!(stored(table, &first.key).await, second);
    let cancelled = transition::cancel(&second, "why", RETENTION, T.plus(20)).expect("a wait can be cancelled");
    assert_eq!(table.swap(&second, &cancelled).await, Ok(Swapped::Done));
    assert_eq!(stored(table, &first.key).await, cancelled);
}

async fn a_record_is_created_once(table: &impl Deliveries, prefix: &str) {
    let record = claimed(&message(&format!("{prefix}-once")), T);
    assert_eq!(table.create(&record).await, Ok(Created::New));
    // The very same write again is our own, repeated after its answer was lost.
    assert_eq!(table.create(&record).await, Ok(Created::New));
    let other = Record { lease: Some(lease("other", 2, T.plus(60_000))), ..record.clone() };
    assert_eq!(table.create(&other).await, Ok(Created::Exists(Box::new(record))));
}

async fn a_waiting_record_is_claimed_once_and_only_when_it_may_be(table: &impl Deliveries, prefix: &str) {
    let (first, second) = waiting(&format!("{prefix}-claim"));
    let second = Record { deliver_by: Some(T.plus(3_000)), ..second };
    let key = &first.key;
    let mine = lease("w", 3, T.plus(61_000));
    assert_eq!(table.claim(key, 1, &mine, T.plus(1_000)).await, Ok(Claimed::Refused(None)));
    assert_eq!(table.create(&second).await, Ok(Created::New));
    let refused = Ok(Claimed::Refused(Some(Box::new(second.clone()))));
    assert_eq!(table.claim(key, 1, &mine, T.plus(999)).await, refused, "before it is due");
    assert_eq!(table.claim(key, 0, &mine, T.plus(1_000)).await, refused, "for an earlier attempt");
    assert_eq!(table.claim(key, 2, &mine, T.plus(1_000)).await, refused, "for a later attempt");
    assert_eq!(table.claim(key, 1, &mine, T.plus(3_000)).await, refused, "after its deadline");
    let expected = transition::claim(&second, mine.clone(), T.plus(1_000)).expect("a wait can be claimed");
    assert_eq!(table.claim(key, 1, &mine, T.plus(1_000)).await, Ok(Claimed::Started(Box::new(expected.clone()))));
    assert_eq!(stored(table, key).await, expected);
    // Our own claim, repeated underneath us.
    assert_eq!(table.claim(key, 1, &mine, T.plus(1_000)).await, Ok(Claimed::Started(Box::new(expected.clone()))));
    let other = lease("v", 4, T.plus(61_000));
    assert_eq!(table.claim(key, 1, &other, T.plus(1_000)).await, Ok(Claimed::Refused(Some(Box::new(expected)))));
}

async fn a_swap_names_state_attempt_and_revision(table: &impl Deliveries, prefix: &str) {
    let (first, second) = waiting(&format!("{prefix}-swap"));
    assert_eq!(table.swap(&first, &second).await, Ok(Swapped::Lost(None)), "no record");
    assert_eq!(table.create(&first).await, Ok(Created::New));
    let lost = Ok(Swapped::Lost(Some(Box::new(first.clone()))));
    for stale in [
        Record { rev: first.rev + 1, ..first.clone() },
        Record { attempt: first.attempt + 1, ..first.clone() },
        Record { state: State::Delivered, ..first.clone() },
    ] {
        assert_eq!(table.swap(&stale, &second).await, lost);
    }
    assert_eq!(table.swap(&first, &second).await, Ok(Swapped::Done));
    assert_eq!(table.swap(&first, &second).await, Ok(Swapped::Done), "our own write, repeated");
    let touched = transition::touch(&second, true, T.plus(7));
    assert_eq!(table.swap(&second, &touched).await, Ok(Swapped::Done));
    assert_eq!(
        table.swap(&second, &transition::touch(&second, true, T.plus(8))).await,
        Ok(Swapped::Lost(Some(Box::new(touched))))
    );
}

async fn an_index_is_read_by_range_and_page(table: &impl Deliveries, prefix: &str) {
    // Far from all other checks: a minute of its own.
    let base = T.plus(1_000_000 + i64::from(prefix.bytes().map(u32::from).sum::<u32>()) * 60_000);
    let mut in_lane: Vec<(Millis, ItemKey)> = Vec::new();
    let mut shard = None;
    for i in 0..200 {
        let record = claimed(&message(&format!("{prefix}-index-{i}")), base);
        if record.key.shards().0 != *shard.get_or_insert(record.key.shards().0) {
            continue;
        }
        let at = base.plus(i64::from(i));
        let dead = Decision::Dead(DeadReason::Permanent);
        let next = transition::finish(&record, &failed(), dead, Some(base), RETENTION, at).expect("possible");
        table.create(&next).await.expect("writable");
        in_lane.push((at, ItemKey::of(&record.key)));
    }
    assert!(in_lane.len() > 4, "enough rows share a shard");
    let lane = Lane::Work("dead", shard.expect("there are records"));
    let whole = Range { lane: &lane, from: base, to: base.plus(1_000), after: None, limit: 1_000 };
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = table.rows(Range { after: after.as_ref(), limit: 2, ..whole.clone() }).await.expect("readable");
        assert!(page.rows.len() <= 2);
        found.extend(page.rows.iter().map(|r| (r.sort, r.at.clone())));
        after = page.rows.last().cloned().or(after);
        if !page.more {
            break;
        }
    }
    assert_eq!(found, in_lane);
    let narrow = Range { from: in_lane[1].0, to: in_lane[2].0, ..whole };
    assert_eq!(table.rows(narrow).await.expect("readable").rows.len(), 2);
}

async fn many_items_are_read_whatever_their_kind(table: &impl Deliveries, prefix: &str) {
    let record = claimed(&message(&format!("{prefix}-many")), T);
    table.create(&record).await.expect("writable");
    let key = ItemKey::of(&record.key);
    let missing = ItemKey { pk: format!("E#{prefix}-none"), sk: "D#p".to_owned() };
    let found = table.get_many(&[key.clone(), missing, key]).await.expect("readable");
    assert_eq!(found, [Stored::Delivery(Box::new(record.clone()))]);
    assert_eq!(table.of_event(&record.key.event).await, Ok(vec![record]));
}

async fn a_rejected_message_counts_up(table: &impl Deliveries, prefix: &str) {
    let payloads = crate::memory::MemoryPayloads::default();
    let raw = format!("{prefix} is no JSON");
    let refusal = || Refusal::new(RejectedReason::Unreadable, "why");
    let first = reject(table, &payloads, &raw, refusal(), None, RETENTION, T).await.expect("writable");
    let again = reject(table, &payloads, &raw, refusal(), None, RETENTION, T.plus(5)).await.expect("writable");
    assert_eq!((first.seen, again.seen), (1, 2));
    let key = ItemKey { pk: format!("R#{}", sha256_hex(raw.as_bytes())), sk: "R".to_owned() };
    match table.get_many(&[key]).await.expect("readable").as_slice() {
        [Stored::Rejected(there)] => assert_eq!((there.seen, there.since), (2, T)),
        other => panic!("{other:?}"),
    }
}

async fn the_arm_cursor_only_moves_forward_and_others_go_back_too(table: &impl Deliveries) {
    // A shard that no run uses.
    let (arm, overdue) = (Cursor::Arm(99), Cursor::Overdue(99));
    let start = table.cursor(arm).await.expect("readable").unwrap_or(T);
    for (cursor, end) in [(arm, start.plus(10)), (overdue, start.plus(5))] {
        table.set_cursor(cursor, start.plus(10)).await.expect("writable");
        table.set_cursor(cursor, start.plus(5)).await.expect("writable");
        assert_eq!(table.cursor(cursor).await, Ok(Some(end)), "{cursor:?}");
    }
}

async fn a_plan_is_saved_by_its_revision(table: &impl Plans, prefix: &str) {
    let list: Vec<Frozen> = (0..=CHUNK)
        .map(|i| Frozen {
            id: format!("{prefix}-{i}"),
            endpoint: "p".to_owned(),
            group: "p".to_owned(),
            attempt: 8,
            generation: 0,
        })
        .collect();
    let plan = Plan {
        id: format!("{prefix}-plan"),
        digest: digest(&list),
        state: PlanState::Proposed,
        count: u32::try_from(list.len()).expect("small"),
        rate_per_second: 10,
        canary: 10,
        canaries: 10,
        abort_failure_ratio: 0.2,
        filter: serde_json::json!({"endpoint": "p"}),
        summary: Summary { warnings: vec!["look".to_owned()], ..Summary::default() },
        note: String::new(),
        proposed_by: Who { name: "x".to_owned(), verified: false },
        created_at: T.0,
        expires_at: T.plus(1_000).0,
        approval: None,
        canaries_out_at: None,
        ramp_from: None,
        stopped: BTreeMap::from([("p".to_owned(), Stop::NoVerdict)]),
        abort: None,
        next: 0,
        rev: 1,
    };
    assert_eq!(table.plan(&plan.id, true).await, Ok(None));
    table.propose(&plan, &list, decided(prefix, "propose")).await.expect("writable");
    assert_eq!(table.plan(&plan.id, true).await, Ok(Some(plan.clone())));
    assert_eq!(table.chunk(&plan.id, 0).await.expect("readable").len(), CHUNK);
    assert_eq!(table.chunk(&plan.id, 1).await.expect("readable"), list[CHUNK..]);
    let ramping = Plan { state: PlanState::Ramping, rev: 2, ..plan.clone() };
    assert_eq!(table.save_plan(&plan, &ramping, None).await, Ok(true));
    assert_eq!(table.save_plan(&plan, &ramping, None).await, Ok(true), "our own write, repeated");
    assert_eq!(table.save_plan(&plan, &Plan { next: 5, ..ramping.clone() }, None).await, Ok(false));
    assert_eq!(table.plan(&plan.id, false).await, Ok(Some(ramping.clone())), "the writer sees its write");
    let listed = async |state| table.plans_in(state, 1_000).await.expect("readable").contains(&plan.id);
    assert!(listed(PlanState::Ramping).await && !listed(PlanState::Proposed).await);
    let done = Plan { state: PlanState::Completed, rev: 3, ..ramping.clone() };
    assert_eq!(table.save_plan(&plan, &done, Some(decided(prefix, "abort"))).await, Ok(false));
    assert_eq!(table.save_plan(&ramping, &done, Some(decided(prefix, "abort"))).await, Ok(true));
    assert!(listed(PlanState::Completed).await && !listed(PlanState::Ramping).await);
    assert_eq!(table.plans_in(PlanState::Completed, 1).await.expect("readable").len(), 1);
    assert_eq!(table.bind_redrive_id(&format!("{prefix}-r"), "a", T).await, Ok("a".to_owned()));
    assert_eq!(table.bind_redrive_id(&format!("{prefix}-r"), "b", T).await, Ok("a".to_owned()));
}

async fn a_slot_is_booked_once_and_never_in_the_past(table: &impl Plans, prefix: &str) {
    let id = format!("{prefix}-meter");
    // A booking that was repeated underneath us takes two slots: one goes unused.
    let mut last = T.plus(-250);
    for _ in 0..4 {
        let slot = table.book(&id, 4, T).await.expect("writable");
        assert!(slot.since(last) >= 250, "{slot} after {last}");
        last = slot;
    }
    assert!(last.since(T) <= 2_000, "{last}");
    let later = table.book(&id, 4, T.plus(60_000)).await.expect("writable");
    assert!(later.since(T) >= 60_000, "what nobody took is gone");
    assert!(table.book(&id, 4, T).await.expect("writable").since(later) >= 250);
}

fn decided(prefix: &str, action: &str) -> Decided {
    let by = Who { name: "x".to_owned(), verified: false };
    decision(T, &by, action, format!("{prefix}-plan"), "a reason", serde_json::json!({"count": 1}))
}

/// Decisions form a chain, whoever writes them.
///
/// # Panics
/// When the table does not conform.
pub async fn decisions(table: &(impl Audit + Plans), prefix: &str) {
    let before = table.head().await.expect("readable");
    table.record(decided(prefix, "cancel")).await.expect("writable");
    table.record(decided(prefix, "endpoint")).await.expect("writable");
    let after = table.head().await.expect("readable");
    assert!(after.seq >= before.seq + 2, "others may write in between");
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let (page, more) = table.entries(&cursor, 3).await.expect("readable");
        assert!(page.len() <= 3);
        cursor = page.last().map_or(cursor, Entry::key);
        all.extend(page);
        if !more {
            break;
        }
    }
    for limit in [1, 2] {
        assert_eq!(
            table.newest(limit).await.expect("readable"),
            all[all.len() - limit..],
            "the last {limit}, in order"
        );
    }
    all.sort_by_key(|entry| entry.seq);
    let head = all.last().map(Entry::head).unwrap_or_default();
    assert_eq!(audit::verify(&Head::default(), &all, &head).expect("the chain holds"), head.seq);
    let ours: Vec<&str> = all
        .iter()
        .filter(|entry| entry.seq > before.seq && entry.decision.subject == format!("{prefix}-plan"))
        .map(|entry| entry.decision.action.as_str())
        .collect();
    assert_eq!(ours, ["cancel", "endpoint"]);
}

/// All checks of the payloads table.
///
/// # Panics
/// When the table does not conform.
pub async fn payloads(table: &impl Payloads, prefix: &str) {
    let message = message(&format!("{prefix}-payload"));
    let far = T;
    assert_eq!(table.load(&message.key).await, Ok(vec![]));
    assert_eq!(table.extend(&message.key, &message.payload.hash(), far).await, Ok(false));
    table.keep(&message.key, &message.payload, far).await.expect("writable");
    table.keep(&message.key, &message.payload, far).await.expect("writable");
    assert_eq!(table.load(&message.key).await, Ok(vec![message.payload.clone()]));
    assert_eq!(table.extend(&message.key, &message.payload.hash(), far.plus(1_000)).await, Ok(true));
    let mut binary = message.payload.clone();
    (binary.body, binary.url) = ((0..=255).collect(), Some("https://h.example/x".to_owned()));
    table.keep(&message.key, &binary, far).await.expect("writable");
    let both = table.load(&message.key).await.expect("readable");
    assert!(both.len() == 2 && both.contains(&binary) && both.contains(&message.payload));
    table.keep_raw(&format!("{prefix}-raw"), &"x".repeat(1_000_000), far).await.expect("writable");
    table.keep_raw(&format!("{prefix}-empty"), "", far).await.expect("writable");
}

/// A dead letter is listed under its endpoint and leaves that list with its redrive.
///
/// # Panics
/// When the table does not conform.
pub async fn endpoint_lists(table: &impl Deliveries, prefix: &str) {
    let first = claimed(&message(&format!("{prefix}-dead")), T);
    table.create(&first).await.expect("writable");
    let dead = transition::finish(&first, &failed(), Decision::Dead(DeadReason::Permanent), Some(T), RETENTION, T)
        .expect("possible");
    assert_eq!(table.swap(&first, &dead).await, Ok(Swapped::Done));
    let lane = Lane::Endpoint("dead_lettered", dead.state_key.clone(), dead.key.shards().1);
    let listed = async || {
        let range = Range { lane: &lane, from: T, to: T, after: None, limit: 100 };
        table.rows(range).await.expect("readable").rows.iter().any(|r| r.at == ItemKey::of(&dead.key))
    };
    assert!(listed().await);
    let back = transition::release(&dead, "plan", T.plus(9), T, RETENTION, T).expect("possible");
    assert_eq!(table.swap(&dead, &back).await, Ok(Swapped::Done));
    assert!(!listed().await);
}

/// The operational state of an endpoint is written only over what was read, and a resumed endpoint is found until its
/// release is over.
///
/// # Panics
/// When the table does not conform.
pub async fn endpoint_states(table: &impl EndpointStates, prefix: &str) {
    let key = StateKey::stored(&format!("{prefix}-endpoint"));
    let untouched = EndpointState::untouched(&key);
    assert_eq!(table.endpoint_state(&key, true).await, Ok(untouched.clone()));
    let paused = untouched.set(Status::Paused, "operator a", T);
    assert_eq!(table.save_endpoint_state(&untouched, &paused).await, Ok(true));
    assert_eq!(table.save_endpoint_state(&untouched, &paused).await, Ok(true), "our own write, repeated");
    assert_eq!(table.endpoint_state(&key, false).await, Ok(paused.clone()), "the writer sees its write");
    let late = untouched.set(Status::Disabled, "somebody else", T);
    assert_eq!(table.save_endpoint_state(&untouched, &late).await, Ok(false));
    let listed = async || table.resumed_endpoints().await.expect("readable").contains(&key);
    assert!(!listed().await);
    let resumed = paused.set(Status::Active, "operator a", T);
    assert_eq!(table.save_endpoint_state(&paused, &resumed).await, Ok(true));
    assert!(listed().await);
    let more = resumed.released_more(7);
    assert_eq!(table.save_endpoint_state(&resumed, &more).await, Ok(true));
    assert_eq!(table.endpoint_state(&key, true).await, Ok(more.clone()));
    let over = more.settled(T.plus(3_600_000)).expect("nothing came for an hour");
    assert_eq!(table.save_endpoint_state(&more, &over).await, Ok(true));
    assert!(!listed().await);
}

/// The last failed answer is kept beside its delivery, and no older one replaces it.
///
/// # Panics
/// When the table does not conform.
pub async fn kept_answers(table: &impl Deliveries, prefix: &str) {
    let record = claimed(&message(&format!("{prefix}-answer")), T);
    assert_eq!(table.kept_answer(&record.key).await, Ok(None));
    let answer = |attempt, excerpt: &str| KeptAnswer {
        attempt,
        at: T,
        status: 500,
        headers: vec![("date".to_owned(), "then".to_owned()), ("server".to_owned(), "x".to_owned())],
        excerpt: excerpt.to_owned(),
        body_bytes: 7,
        body_sha256: (!excerpt.is_empty()).then(|| "ab".to_owned()),
        body_broken: true,
    };
    for (given, kept) in
        [(answer(1, ""), answer(1, "")), (answer(3, "x"), answer(3, "x")), (answer(2, "y"), answer(3, "x"))]
    {
        table.keep_answer(&record.key, &given, T).await.expect("writable");
        assert_eq!(table.kept_answer(&record.key).await, Ok(Some(kept)));
    }
    assert_eq!(table.of_event(&record.key.event).await, Ok(vec![]), "an answer is no delivery");
}
