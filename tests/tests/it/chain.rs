//! The chain of decisions on the real client, when others write at the same moment or an answer is lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use domain::audit::{Decision, Head, decision};
use domain::plan::{Plan, PlanState, Who};
use domain::ports::{Audit, Plans};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::own_writes::table_at;
use crate::receiver::{Receiver, Reply};
use crate::world::START;

fn answer(status: u16, body: &Value) -> Reply {
    Reply::with(status, "content-type: application/x-amz-json-1.0\r\n", &body.to_string())
}

fn error(kind: &str) -> Value {
    json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{kind}"), "message": "not now"})
}

fn cancelled(reasons: &[&str]) -> Value {
    let mut cancelled = error("TransactionCanceledException");
    cancelled["CancellationReasons"] = reasons.iter().map(|code| json!({"Code": code})).collect();
    cancelled
}

fn cancel(subject: &str) -> Decision {
    decision(START, &Who { name: "ada".to_owned(), verified: true }, "cancel", subject, "why", json!({}))
}

fn plan() -> Plan {
    let stored = json!({
        "id": "plan_1", "digest": "d", "state": "proposed", "count": 1, "rate_per_second": 10, "canary": 10, "canaries": 1,
        "abort_failure_ratio": 0.2, "filter": {}, "note": "", "proposed_by": {"name": "ada", "verified": true},
        "created_at": START.0, "expires_at": START.plus(1_000).0, "next": 0, "rev": 1,
    });
    serde_json::from_value(stored).unwrap()
}

/// Items of a table that knows what the chain asks of it, and is otherwise empty.
type Items = Arc<Mutex<HashMap<String, Value>>>;

/// A table in memory, behind the protocol.
async fn memory() -> (Receiver, Items) {
    let (receiver, items) = (Receiver::start().await, Items::default());
    let shared = Arc::clone(&items);
    receiver.on("", move |seen, _| {
        let mut items = shared.lock().unwrap();
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let key = |item: &Value| format!("{} {}", item["pk"]["S"], item["sk"]["S"]);
        match seen.header("x-amz-target").unwrap() {
            "DynamoDB_20120810.GetItem" => {
                let found = items.get(&key(&body["Key"])).cloned();
                answer(200, &found.map_or_else(|| json!({}), |item| json!({"Item": item})))
            }
            "DynamoDB_20120810.TransactWriteItems" => {
                let puts: Vec<&Value> =
                    body["TransactItems"].as_array().unwrap().iter().map(|item| &item["Put"]).collect();
                let holds = |put: &&Value| {
                    let there = items.get(&key(&put["Item"]));
                    match put["ConditionExpression"].as_str() {
                        Some("seq = :seq") => {
                            there.is_some_and(|item| item["seq"] == put["ExpressionAttributeValues"][":seq"])
                        }
                        _ => there.is_none(),
                    }
                };
                let reasons: Vec<&str> =
                    puts.iter().map(|put| if holds(put) { "None" } else { "ConditionalCheckFailed" }).collect();
                if reasons.iter().any(|reason| *reason != "None") {
                    return answer(400, &cancelled(&reasons));
                }
                for put in puts {
                    items.insert(key(&put["Item"]), put["Item"].clone());
                }
                answer(200, &json!({}))
            }
            other => panic!("{other}"),
        }
    });
    (receiver, items)
}

#[tokio::test]
async fn twenty_decisions_at_once_all_find_their_place() {
    let (receiver, items) = memory().await;
    let table = table_at(&receiver);
    let decisions: Vec<Decision> = (0..20).map(|i| cancel(&format!("e{i} to p"))).collect();
    let written = join_all(decisions.iter().map(|decision| table.record(decision.clone()))).await;
    assert_eq!(written, vec![Ok(()); 20]);
    assert_eq!(table.head().await.unwrap().seq, 20);
    assert_eq!(items.lock().unwrap().len(), 21, "an entry each, and the head");
}

#[tokio::test]
async fn a_conflict_with_another_transaction_is_no_answer_about_the_plan() {
    let receiver = Receiver::start().await;
    let (conflict, nothing) = (cancelled(&["TransactionConflict", "None", "None"]), json!({}));
    // The head, the transaction, its entry; and again.
    receiver.script(
        "",
        [
            answer(200, &nothing),
            answer(400, &conflict),
            answer(200, &nothing),
            answer(200, &nothing),
            answer(200, &nothing),
        ],
    );
    let approved = plan().changed(|p| p.state = PlanState::Canary);
    let saved = table_at(&receiver).save_plan(&plan(), &approved, Some(cancel("plan_1"))).await;
    assert_eq!((saved, receiver.seen("").len()), (Ok(true), 5));
    let receiver = Receiver::start().await;
    let lost = cancelled(&["ConditionalCheckFailed", "None", "None"]);
    receiver.script("", [answer(200, &nothing), answer(400, &lost), answer(200, &nothing)]);
    let saved = table_at(&receiver).save_plan(&plan(), &approved, Some(cancel("plan_1"))).await;
    assert_eq!((saved, receiver.seen("").len()), (Ok(false), 3), "somebody decided before");
}

#[tokio::test]
async fn a_step_of_a_plan_that_meets_a_decision_is_lost_and_no_failure() {
    let receiver = Receiver::start().await;
    receiver.script("", [answer(400, &error("TransactionConflictException"))]);
    let next = plan().changed(|p| p.next = 1);
    assert_eq!(table_at(&receiver).save_plan(&plan(), &next, None).await, Ok(false));
}

#[tokio::test]
async fn a_decision_whose_answer_was_lost_is_known_as_our_own_though_others_came_after_it() {
    let ours = cancel("e to p").after(&Head::default());
    for (there, expected) in [(ours.clone(), true), (cancel("f to p").after(&Head::default()), false)] {
        let receiver = Receiver::start().await;
        let item = json!({"Item": {
            "pk": {"S": "AUDIT"}, "sk": {"S": ours.key()}, "doc": {"S": serde_json::to_string(&there).unwrap()},
        }});
        receiver.on("", move |seen, before| match seen.header("x-amz-target") {
            Some("DynamoDB_20120810.GetItem") if before > 0 => answer(200, &item),
            Some("DynamoDB_20120810.GetItem") => answer(200, &json!({})),
            _ => answer(500, &error("InternalServerError")),
        });
        assert_eq!(table_at(&receiver).record(cancel("e to p")).await.is_ok(), expected);
    }
}

#[tokio::test]
async fn the_newest_decisions_come_from_the_end_of_the_chain_in_their_order() {
    let mut head = Head::default();
    let chain = ["a", "b", "c"].map(|subject| {
        let entry = cancel(subject).after(&head);
        head = entry.head();
        entry
    });
    let item = |i: usize| {
        let doc = serde_json::to_string(&chain[i]).unwrap();
        json!({"pk": {"S": "AUDIT"}, "sk": {"S": chain[i].key()}, "doc": {"S": doc}})
    };
    let receiver = Receiver::start().await;
    let last = json!({"pk": {"S": "AUDIT"}, "sk": {"S": chain[1].key()}});
    receiver.script(
        "",
        [
            answer(200, &json!({"Items": [item(2), item(1)], "LastEvaluatedKey": last})),
            answer(200, &json!({"Items": [item(0)]})),
        ],
    );
    assert_eq!(table_at(&receiver).newest(3).await.unwrap(), chain);
    let asked: Vec<Value> = receiver.seen("").iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect();
    assert_eq!([&asked[0]["Limit"], &asked[1]["Limit"]], [3, 1]);
    assert!(asked.iter().all(|query| query["ScanIndexForward"] == false) && asked[1]["ExclusiveStartKey"] == last);
}
