//! What an operator does, through the real function.

use std::time::{Duration, Instant};

use domain::delivery::{DeadReason, State};
use domain::record::Entry;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use super::{Stack, shared};
use crate::receiver::Reply;

#[tokio::test]
async fn a_redrive_of_25_is_released_once_however_often_it_is_approved() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let url = stack.receiver.script("broken", [Reply::status(400)]);
    let ids: Vec<String> = (0..25).map(|i| stack.id(&format!("redrive{i}"))).collect();
    futures_util::future::join_all(ids.iter().map(|id| stack.send(id, &url))).await;
    for id in &ids {
        stack.wait_state(id, &url, 30, State::DeadLettered(DeadReason::Permanent)).await;
    }
    stack.receiver.script("broken", [Reply::status(200)]);
    let propose = json!({"action": "propose", "filter": {"ids": ids}, "operator": "ada", "rate_per_second": 10, "note": "repaired"});
    let proposed = stack.operator(propose).await;
    assert_eq!((&proposed["count"], &proposed["by_reason"]["permanent"]), (&json!(25), &json!(25)));
    let approve = |redrive: &str| {
        json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": redrive,
               "reason": "repaired", "operator": "ada"})
    };
    let redrive = stack.id("redrive");
    let both = futures_util::future::join(stack.operator(approve(&redrive)), stack.operator(approve(&redrive))).await;
    for answer in [both.0, both.1] {
        assert_eq!((&answer["ok"], &answer["plan"]["skipped"]), (&json!(true), &json!(0)), "{answer}");
        assert_eq!((&answer["plan"]["state"], &answer["plan"]["released"]), (&json!("canary"), &json!(10)), "{answer}");
    }
    assert_eq!(stack.operator(approve("another")).await["error"]["code"], "conflict");
    stack.plan_over(&proposed, "completed").await;
    for id in &ids {
        let record = stack.wait_state(id, &url, 30, State::Delivered).await;
        assert_eq!((record.generation, record.attempt), (1, 2));
        let released = |e: &Entry| matches!(e, Entry::Released { plan, .. } if proposed["plan_id"] == plan.as_str());
        assert!(record.history.len() == 3 && released(&record.history[1]), "{:?}", record.history);
    }
    let seen = stack.receiver.seen("broken");
    for id in &ids {
        assert_eq!(seen.iter().filter(|s| s.id() == id).count(), 2, "{id}: once before and once after");
    }
    let plan = stack.plan_over(&proposed, "completed").await;
    let counts = ["released", "delivered", "failed", "skipped", "remaining"].map(|n| plan[n].as_u64().unwrap());
    assert_eq!((plan["state"].as_str(), counts), (Some("completed"), [25, 25, 0, 0, 0]));
}

impl Stack {
    /// Asks for the status of a plan, which pushes it on, until it is over.
    async fn plan_over(&self, proposed: &Value, state: &str) -> Value {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let plan = self.operator(json!({"action": "status", "plan_id": proposed["plan_id"]})).await["plan"].clone();
            if plan["state"] == state {
                return plan;
            }
            assert!(Instant::now() < end, "not {state} after a minute: {plan}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Dead letters of one endpoint: their ids.
    async fn dead_letters(&self, path: &str, count: usize) -> (Vec<String>, String) {
        let url = self.receiver.script(path, [Reply::status(400)]);
        let ids: Vec<String> = (0..count).map(|i| self.id(&format!("{path}{i}"))).collect();
        futures_util::future::join_all(ids.iter().map(|id| self.send(id, &url))).await;
        for id in &ids {
            self.wait_state(id, &url, 30, State::DeadLettered(DeadReason::Permanent)).await;
        }
        (ids, url)
    }
}

#[tokio::test]
async fn a_canary_that_fails_aborts_its_plan_and_the_rest_stays_a_dead_letter() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (ids, url) = stack.dead_letters("hopeless", 25).await;
    let proposed = stack.operator(json!({"action": "propose", "filter": {"ids": ids}, "operator": "ada"})).await;
    let redrive = stack.id("redrive");
    let approve = json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": redrive, "reason": "hope", "operator": "ada"});
    assert_eq!(stack.operator(approve).await["ok"], true);
    let plan = stack.plan_over(&proposed, "aborted").await;
    assert_eq!((&plan["abort"]["by"]["name"], &plan["remaining"]), (&json!("redeliver"), &json!(15)), "{plan}");
    let mut generations = Vec::new();
    for id in &ids {
        generations.push(stack.find(id, &url).await.unwrap().generation);
    }
    assert_eq!(generations.iter().filter(|g| **g == 0).count(), 15, "untouched");
    assert!(stack.receiver.seen("hopeless").len() <= 35);
}

#[tokio::test]
async fn an_abort_in_the_middle_of_a_ramp_takes_back_what_was_not_tried() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let (ids, url) = stack.dead_letters("aborted", 40).await;
    stack.receiver.script("aborted", [Reply::status(200)]);
    let propose =
        json!({"action": "propose", "filter": {"ids": ids}, "operator": "ada", "rate_per_second": 2, "canary": 2});
    let proposed = stack.operator(propose).await;
    let redrive = stack.id("redrive");
    let approve = json!({"action": "approve", "plan_id": proposed["plan_id"], "digest": proposed["digest"], "redrive_id": redrive, "reason": "fixed", "operator": "ada"});
    assert_eq!(stack.operator(approve).await["ok"], true);
    stack.plan_over(&proposed, "ramping").await;
    stack.receiver.wait_for("aborted", 40 + 5, Duration::from_secs(30)).await;
    let abort =
        json!({"action": "abort", "plan_id": proposed["plan_id"], "reason": "wrong partner", "operator": "bea"});
    assert_eq!(stack.operator(abort).await["plan"]["state"], "aborted");
    // The function may have read the plan up to five seconds before.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let sent = stack.receiver.seen("aborted").len();
    let end = Instant::now() + Duration::from_secs(60);
    let mut back = 0;
    while back + sent - 40 < 40 {
        assert!(Instant::now() < end, "{back} went back, {} were sent", sent - 40);
        tokio::time::sleep(Duration::from_millis(500)).await;
        back = 0;
        for id in &ids {
            let record = stack.find(id, &url).await.unwrap();
            back += usize::from(record.state == State::DeadLettered(DeadReason::Permanent) && record.plan.is_none());
        }
    }
    assert_eq!(stack.receiver.seen("aborted").len(), sent, "nothing more was sent");
    let audit = stack.operator(json!({"action": "audit", "limit": 500})).await;
    let ours = |e: &&Value| e["subject"] == proposed["plan_id"];
    let actions: Vec<&str> =
        audit["entries"].as_array().unwrap().iter().filter(ours).filter_map(|e| e["action"].as_str()).collect();
    assert_eq!(actions, ["propose", "approve", "abort"]);
}

#[tokio::test]
async fn the_function_url_speaks_the_same_json() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let url = Url::parse(&stack.name("operator_url")).unwrap();
    let post = async |body: &str| -> (u16, Value) {
        // The emulator wants a signature to be there, and does not check it; AWS does.
        let signature =
            "AWS4-HMAC-SHA256 Credential=test/20261201/us-east-1/lambda/aws4_request, SignedHeaders=host, Signature=00";
        let (host, path) = (url.authority(), url.path());
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: {signature}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(host).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let json = &answer[answer.find("\r\n\r\n").unwrap()..];
        (status, serde_json::from_str(&json[json.find('{').unwrap()..=json.rfind('}').unwrap()]).unwrap())
    };
    let (status, answer) = post(r#"{"action":"explain","id":"there_is_none"}"#).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("not_found")));
    let (status, answer) = post(r#"{"action":"list","state":"dead_lettered","limit":1}"#).await;
    assert_eq!((status, &answer["ok"]), (200, &json!(true)));
    let (status, answer) = post("no JSON").await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid")));
}

#[tokio::test]
async fn an_event_with_several_endpoints_has_to_be_named() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let id = stack.id("fan_out");
    let urls = [stack.receiver.script("one", [Reply::status(200)]), stack.receiver.script("two", [Reply::status(200)])];
    for url in &urls {
        stack.send(&id, url).await;
        stack.wait_state(&id, url, 10, State::Delivered).await;
    }
    let answer = stack.operator(json!({"action": "explain", "id": id})).await;
    assert_eq!(
        (&answer["error"]["code"], answer["error"]["endpoints"].as_array().map(Vec::len)),
        (&json!("ambiguous"), Some(2))
    );
    let answer = stack
        .operator(
            json!({"action": "cancel", "id": id, "endpoint": Stack::endpoint(&urls[0]).as_str(), "reason": "late"}),
        )
        .await;
    assert_eq!(answer["error"]["code"], "conflict");
}

#[tokio::test]
async fn no_log_line_and_no_record_holds_a_path_a_payload_or_a_header() {
    let _shared = shared().await;
    let stack = Stack::connect().await;
    let marks = ["t0kenInPath", "s3cretInQuery", "p4yloadText", "h3aderValue"];
    let [path, query, body, header] = marks;
    let send = async |id: &str, url: &str| {
        stack.send_raw(&json!({"id": id, "url": url, "body": body, "headers": {"x-key": header}}).to_string()).await;
    };
    let base = stack.receiver.script(path, [Reply::status(500), Reply::Close, Reply::with(400, "", "no")]);
    let unused = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let urls = [
        base.clone(),
        format!("http://127.0.0.1:{unused}/{path}?k={query}"),
        format!("http://10.0.0.1/{path}?k={query}"),
        format!("http://no.invalid/{path}?k={query}"),
    ];
    for (i, url) in urls.iter().enumerate() {
        send(&stack.id(&format!("leak{i}")), url).await;
    }
    stack.send_raw(&json!({"id": stack.id("leak"), "endpoint": base, "body": body}).to_string()).await;
    let dead = State::DeadLettered(DeadReason::Permanent);
    let id = stack.id("leak_done");
    send(&id, &base).await;
    stack.wait_state(&id, &base, 40, dead).await;
    let lines = stack.log("attempt").len() + stack.log("message rejected").len();
    assert!(lines > 4, "there is something to look at");
    let log = std::fs::read_to_string(stack.log_path()).unwrap();
    for mark in marks {
        let line = log.lines().find(|line| line.contains(mark));
        assert_eq!(line, None, "{mark} is in the log");
    }
    let mut start = None;
    loop {
        let scan = stack.dynamodb.scan().table_name(stack.name("deliveries_table")).set_exclusive_start_key(start);
        let page = scan.send().await.unwrap();
        for item in page.items() {
            let text = format!("{item:?}");
            assert!(!marks.iter().any(|mark| text.contains(mark)), "{text}");
        }
        start = page.last_evaluated_key;
        if start.as_ref().is_none_or(std::collections::HashMap::is_empty) {
            break;
        }
    }
}
