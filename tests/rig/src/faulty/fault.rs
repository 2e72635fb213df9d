//! Which fault a call meets, and what its answer then is.

use serde_json::{Map, Value, json};

use super::Weather;
use super::http::Message;
use crate::chance::Chance;

/// Longer than the 1.5 s that the functions wait for one answer.
const TOO_LONG: (u64, u64) = (1_600, 3_500);
/// Of a thousand calls in flaky weather, so many go wrong.
const FLAKY: u64 = 150;

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Refused, and nothing was done.
    Refused(Refusal),
    /// Done, and then refused.
    RefusedAfterEffect(Refusal),
    /// The connection breaks before anything was done.
    LostCall,
    /// It was done, and the connection breaks.
    LostAnswer,
    /// Nothing is done, and nothing is said, for so many milliseconds.
    Silence(u64),
    /// It was done, and nothing is said.
    SilenceAfterEffect(u64),
    /// It is done after so many milliseconds, when nobody waits for it any more.
    Straggler(u64),
    /// The answer comes late, and in time.
    Slow(u64),
    /// A batch is done in part.
    Halved,
}

impl Fault {
    pub fn name(&self) -> Option<String> {
        Some(match self {
            Self::None => return None,
            Self::Refused(refusal) => refusal.code.to_owned(),
            Self::RefusedAfterEffect(refusal) => format!("{} after its effect", refusal.code),
            Self::LostCall => "lost".to_owned(),
            Self::LostAnswer => "answer lost".to_owned(),
            Self::Silence(_) => "timeout".to_owned(),
            Self::SilenceAfterEffect(_) => "timeout after its effect".to_owned(),
            Self::Straggler(_) => "late effect".to_owned(),
            Self::Slow(_) => "slow".to_owned(),
            Self::Halved => "in part".to_owned(),
        })
    }
}

/// An error answer of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: u16,
    code: &'static str,
}

const INTERNAL: Refusal = Refusal { status: 500, code: "InternalServerError" };
const UNAVAILABLE: Refusal = Refusal { status: 503, code: "ServiceUnavailable" };
const QUEUE_THROTTLES: &[Refusal] =
    &[Refusal { status: 400, code: "RequestThrottled" }, Refusal { status: 403, code: "ThrottlingException" }];
const TABLE_THROTTLES: &[Refusal] = &[
    Refusal { status: 400, code: "ProvisionedThroughputExceededException" },
    Refusal { status: 400, code: "ThrottlingException" },
    Refusal { status: 400, code: "RequestLimitExceeded" },
];
/// Only what writes can conflict.
const CONFLICT: Refusal = Refusal { status: 400, code: "TransactionConflictException" };

impl Refusal {
    pub fn answer(&self) -> Message {
        let body = json!({"__type": format!("com.amazonaws#{}", self.code), "message": "a fault of the test"});
        Message::answer(self.status, &body)
    }
}

/// Whose operation it is.
fn is_of_queue(operation: &str) -> bool {
    operation.contains("Message") || operation.contains("Queue")
}

/// Decides what happens to a call.
pub fn choose(weather: Weather, operation: &str, chance: &mut Chance) -> Fault {
    let queue = is_of_queue(operation);
    match weather {
        Weather::Clear => Fault::None,
        Weather::TableDown if !queue => outage(chance),
        Weather::QueueDown if queue => outage(chance),
        Weather::TableDown | Weather::QueueDown => Fault::None,
        Weather::Flaky if !chance.per_mille(FLAKY) => Fault::None,
        Weather::Flaky => flaky(operation, queue, chance),
    }
}

fn too_long(chance: &mut Chance) -> u64 {
    chance.between(TOO_LONG.0, TOO_LONG.1)
}

/// Nothing gets through, and the caller learns that in one way or another.
fn outage(chance: &mut Chance) -> Fault {
    match chance.below(10) {
        0..5 => Fault::Refused(UNAVAILABLE),
        5..7 => Fault::Refused(INTERNAL),
        7..9 => Fault::LostCall,
        _ => Fault::Silence(too_long(chance)),
    }
}

fn flaky(operation: &str, queue: bool, chance: &mut Chance) -> Fault {
    if matches!(operation, "BatchGetItem" | "SendMessageBatch") && chance.per_mille(600) {
        return Fault::Halved;
    }
    let refusal = |chance: &mut Chance| match chance.below(10) {
        0..2 => INTERNAL,
        2..4 => UNAVAILABLE,
        4 if matches!(operation, "PutItem" | "UpdateItem") => CONFLICT,
        _ => *chance.pick(if queue { QUEUE_THROTTLES } else { TABLE_THROTTLES }).expect("not empty"),
    };
    match chance.below(100) {
        0..35 => Fault::Refused(refusal(chance)),
        35..45 => Fault::RefusedAfterEffect(INTERNAL),
        45..55 => Fault::LostCall,
        55..70 => Fault::LostAnswer,
        70..75 => Fault::Silence(too_long(chance)),
        75..83 => Fault::SilenceAfterEffect(too_long(chance)),
        83..88 => Fault::Straggler(too_long(chance)),
        _ => Fault::Slow(chance.between(100, 1_200)),
    }
}

/// What was taken out of a batch, to be reported in its answer.
#[derive(Clone, Debug, PartialEq)]
pub enum LeftOut {
    /// Entries that SQS did not take.
    Entries(Vec<Value>),
    /// Keys that DynamoDB did not get to, by table.
    Keys(Map<String, Value>),
}

/// Takes some entries or keys out of a batch call. The call is gone when nothing is left of it.
pub fn halve(call: &Message, chance: &mut Chance) -> (Option<Message>, LeftOut) {
    let mut body = call.json();
    if call.operation() == "SendMessageBatch" {
        let entries = body["Entries"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let (out, kept): (Vec<Value>, Vec<Value>) = entries.into_iter().partition(|_| chance.per_mille(400));
        let failed = out.iter().map(|entry| {
            // Mostly SQS is to blame, so that repeating helps; sometimes it says that the entry is.
            let (sender, code) =
                if chance.per_mille(700) { (false, "InternalError") } else { (true, "InvalidMessageContents") };
            json!({"Id": entry["Id"], "SenderFault": sender, "Code": code, "Message": "a fault of the test"})
        });
        let left_out = LeftOut::Entries(failed.collect());
        let nothing = kept.is_empty();
        body["Entries"] = Value::Array(kept);
        return ((!nothing).then(|| call.with(&body)), left_out);
    }
    let mut left_out = Map::new();
    let mut kept = 0;
    for (table, request) in body["RequestItems"].as_object_mut().into_iter().flatten() {
        let keys = request["Keys"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let (out, stay): (Vec<Value>, Vec<Value>) = keys.into_iter().partition(|_| chance.per_mille(400));
        kept += stay.len();
        if !out.is_empty() {
            let mut missed = request.clone();
            missed["Keys"] = Value::Array(out);
            left_out.insert(table.clone(), missed);
        }
        request["Keys"] = Value::Array(stay);
    }
    ((kept > 0).then(|| call.with(&body)), LeftOut::Keys(left_out))
}

impl LeftOut {
    /// The answer to the whole call, from the answer to what was left of it.
    pub fn complete(self, answer: Option<Message>) -> Message {
        let answer = answer.unwrap_or_else(|| Message::answer(200, &json!({})));
        let mut body = answer.json();
        match self {
            Self::Entries(failed) => {
                if body.get("Successful").is_none() {
                    body["Successful"] = json!([]);
                }
                let mut all = body["Failed"].as_array().cloned().unwrap_or_default();
                all.extend(failed);
                body["Failed"] = Value::Array(all);
            }
            Self::Keys(keys) => {
                if body.get("Responses").is_none() {
                    body["Responses"] = json!({});
                }
                body["UnprocessedKeys"] = Value::Object(keys);
            }
        }
        answer.with(&body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_the_one_leaves_the_other_alone_and_lets_nothing_through() {
        for n in 0..200 {
            let chosen = |weather, operation| choose(weather, operation, &mut Chance::new(n));
            assert_eq!(chosen(Weather::TableDown, "SendMessageBatch"), Fault::None);
            assert_eq!(chosen(Weather::QueueDown, "UpdateItem"), Fault::None);
            assert_eq!(chosen(Weather::Clear, "UpdateItem"), Fault::None);
            for fault in [chosen(Weather::TableDown, "PutItem"), chosen(Weather::QueueDown, "GetQueueAttributes")] {
                assert!(matches!(fault, Fault::Refused(_) | Fault::LostCall | Fault::Silence(_)), "{fault:?}");
            }
        }
    }

    #[test]
    fn flaky_weather_has_every_fault() {
        let mut names = std::collections::BTreeSet::new();
        for n in 0..20_000 {
            names.extend(choose(Weather::Flaky, "UpdateItem", &mut Chance::new(n)).name());
            names.extend(choose(Weather::Flaky, "SendMessageBatch", &mut Chance::new(n)).name());
        }
        for name in [
            "TransactionConflictException",
            "ProvisionedThroughputExceededException",
            "ThrottlingException",
            "RequestThrottled",
            "InternalServerError after its effect",
            "lost",
            "answer lost",
            "timeout",
            "timeout after its effect",
            "late effect",
            "slow",
            "in part",
        ] {
            assert!(names.contains(name), "{name} of {names:?}");
        }
    }

    fn call(operation: &str, body: &Value) -> Message {
        Message::request(operation, body)
    }

    #[test]
    fn what_is_left_out_of_a_batch_is_reported_and_the_rest_is_done() {
        let entries: Vec<Value> = (0..10).map(|n| json!({"Id": n.to_string(), "MessageBody": "x"})).collect();
        let (kept, left_out) = halve(&call("SendMessageBatch", &json!({"Entries": entries})), &mut Chance::new(3));
        let kept = kept.expect("something is left").json();
        let done: Vec<Value> = kept["Entries"].as_array().unwrap().iter().map(|e| json!({"Id": e["Id"]})).collect();
        let answer = left_out.complete(Some(Message::answer(200, &json!({"Successful": done})))).json();
        let of = |list: &str| answer[list].as_array().unwrap().len();
        assert!(of("Failed") > 0 && of("Successful") > 0 && of("Failed") + of("Successful") == 10, "{answer}");
        let keys: Vec<Value> = (0..10).map(|n| json!({"pk": {"S": n.to_string()}})).collect();
        let body = json!({"RequestItems": {"t": {"Keys": keys, "ConsistentRead": true}}});
        let (kept, left_out) = halve(&call("BatchGetItem", &body), &mut Chance::new(3));
        let kept = kept.expect("something is left").json();
        let answer = left_out.complete(None).json();
        let left = &answer["UnprocessedKeys"]["t"];
        let both = kept["RequestItems"]["t"]["Keys"].as_array().unwrap().len() + left["Keys"].as_array().unwrap().len();
        assert_eq!((both, &left["ConsistentRead"]), (10, &json!(true)));
    }
}
