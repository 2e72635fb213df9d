//! The relay against a queue that fails for single entries: the real SQS client, a scripted answer.

use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use domain::ports::Clock;
use domain::time::Millis;
use platform::lambda::StreamEvent;
use platform::sqs::WakeUps;
use schedule_retry::handler::handle;
use schedule_retry::schedule_retry::{Relay, relay};
use serde_json::{Value, json};
use testkit::clock::VirtualClock;
use testkit::samples::{RETENTION, claimed, message};

use crate::items::image;
use crate::receiver::{Receiver, Reply};
use crate::world::START;
use domain::decide::Decision;
use domain::outcome::{Class, Phase};
use domain::record::Record;
use domain::transition::{Finished, finish};

fn waiting(id: &str, due: Millis) -> Record {
    let finished = Finished {
        class: Class::Transient,
        phase: Phase::Head,
        status: Some(500),
        detail: None,
        hint: None,
        excerpt: None,
        budget: 8,
    };
    finish(&claimed(&message(id), START), &finished, Decision::Retry { due }, Some(due), RETENTION, START).unwrap()
}

fn batch(images: &[Value]) -> StreamEvent {
    let records: Vec<Value> = images
        .iter()
        .enumerate()
        .map(|(i, image)| json!({"eventName": "MODIFY", "dynamodb": {"SequenceNumber": format!("{i}00"), "NewImage": image}}))
        .collect();
    serde_json::from_value(json!({ "Records": records })).unwrap()
}

fn wake_ups(url: &str) -> WakeUps {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(url)
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .retry_config(aws_sdk_sqs::config::retry::RetryConfig::disabled())
        .build();
    WakeUps::new(aws_sdk_sqs::Client::from_conf(config), format!("{url}/000000000000/retry"))
}

#[test]
fn a_change_to_waiting_becomes_a_wake_up_with_its_own_delay_or_is_left_to_the_sweep() {
    let clock = VirtualClock::new(START, 1);
    let of = |image: Value| relay(&batch(&[image]).records[0], &clock);
    match of(image(&waiting("e", START.plus(30_001)))) {
        Relay::Send(sent, delay) => {
            assert_eq!(
                (sent.wake_up.id.as_str(), sent.wake_up.attempt, sent.wake_up.due),
                ("e", 2, START.plus(30_001).0)
            );
            assert_eq!((sent.group.as_str(), delay.seconds()), ("p", 31));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(of(image(&waiting("e", START.plus(900_001)))), Relay::LeaveToArm(_)));
    assert_eq!(of(image(&claimed(&message("e"), START))), Relay::Ignore);
    assert_eq!(of(json!({"pk": {"S": "PLAN#x"}, "doc": {"S": "{}"}})), Relay::Ignore);
    assert!(matches!(of(json!({"state": {"S": "waiting"}})), Relay::Unreadable(_)));
}

#[tokio::test]
async fn entries_that_were_not_sent_are_repeated_and_one_that_sqs_refuses_is_not() {
    let receiver = Receiver::start().await;
    let answer = json!({
        "Successful": [{"Id": "0", "MessageId": "m", "MD5OfMessageBody": "0"}],
        "Failed": [
            {"Id": "1", "SenderFault": true, "Code": "InvalidMessageContents"},
            {"Id": "2", "SenderFault": false, "Code": "ServiceUnavailable"},
        ],
    });
    let headers = "content-type: application/x-amz-json-1.0\r\n";
    receiver.script("", [Reply::with(200, headers, &answer.to_string())]);
    let clock = VirtualClock::new(START, 1);
    let due = clock.now().plus(2_000);
    let images: Vec<Value> = ["a", "b", "c"].iter().map(|id| image(&waiting(id, due))).collect();
    // A change that is not for the relay does not shift the sequence numbers of the others.
    let images = [vec![image(&claimed(&message("z"), START))], images].concat();
    let failed = handle(&batch(&images), &wake_ups(receiver.url("").trim_end_matches('/')), &clock).await;
    assert_eq!(serde_json::to_value(&failed).unwrap(), json!({"batchItemFailures": [{"itemIdentifier": "300"}]}));
    let sent: Value = serde_json::from_slice(&receiver.seen("")[0].body).unwrap();
    let entry = &sent["Entries"][1];
    assert_eq!((&entry["DelaySeconds"], &entry["MessageGroupId"]), (&json!(2), &json!("p")));
    let body: Value = serde_json::from_str(entry["MessageBody"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({"id": "b", "endpoint": "p", "attempt": 2, "due": due.0}));
}

#[tokio::test]
async fn when_the_whole_call_fails_everything_is_repeated() {
    let receiver = Receiver::start().await;
    receiver.script("", [Reply::status(500)]);
    let clock = VirtualClock::new(START, 1);
    let images: Vec<Value> = (0..12).map(|i| image(&waiting(&format!("e{i}"), START))).collect();
    let failed = handle(&batch(&images), &wake_ups(receiver.url("").trim_end_matches('/')), &clock).await;
    assert_eq!((failed.failures.len(), receiver.seen("").len()), (12, 2), "two batches of at most ten");
}
