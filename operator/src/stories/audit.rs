use std::rc::Rc;

use domain::audit::{Entry, Head, decision};
use domain::plan::Who;
use domain::time::Millis;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::fakes::{Fake, NOW};

/// A chain as the operator function would write it.
fn chain(count: i64) -> Vec<Value> {
    let mut head = Head::default();
    let written = (0..count).map(|i| {
        let by = Who { name: if i % 2 == 0 { "ada" } else { "bea" }.to_owned(), verified: i % 2 == 1 };
        let action = if i % 2 == 0 { "propose" } else { "approve" };
        let at = Millis(NOW.0 - (count - i) * 60_000);
        let entry: Entry =
            decision(at, &by, action, format!("plan_{}", i / 2), "INC-512", json!({"count": i})).after(&head);
        head = entry.head();
        json!(entry)
    });
    written.collect()
}

fn key(entry: &Value) -> String {
    format!("{:020}#{:012}", entry["at"].as_i64().unwrap(), entry["seq"].as_u64().unwrap())
}

/// Answers `audit` with pages of three, in the order of the table. The head is that of `chain`.
fn serve(fake: &Fake, chain: &[Value], shown: Vec<Value>) {
    let head =
        chain.last().map_or_else(|| json!({"seq": 0, "hash": ""}), |e| json!({"seq": e["seq"], "hash": e["hash"]}));
    let mut shown = shown;
    shown.sort_by_key(key);
    let shown = Rc::new(shown);
    fake.answers(move |action| {
        assert_eq!(action["action"], "audit");
        if action["newest"] == json!(true) {
            let limit = usize::try_from(action["limit"].as_u64().unwrap()).unwrap();
            return json!({"ok": true, "entries": shown[shown.len().saturating_sub(limit)..], "cursor": null, "head": head});
        }
        assert_eq!(action["limit"], 500);
        let from = match (action["cursor"].as_str(), action["after"].as_str()) {
            (Some(cursor), _) => cursor.to_owned(),
            (None, Some(after)) => format!("{:020}", Millis::parse_rfc3339(after).unwrap().0),
            (None, None) => String::new(),
        };
        let rest: Vec<&Value> = shown.iter().filter(|entry| key(entry) > from).collect();
        let page = &rest[..rest.len().min(3)];
        let cursor = page.last().filter(|_| rest.len() > 3).map(|entry| key(entry));
        json!({"ok": true, "entries": page, "cursor": cursor, "head": head})
    });
}

#[test]
fn decisions_are_listed_in_their_order_the_newest_ones() {
    let (fake, chain) = (Fake::new(), chain(8));
    serve(&fake, &chain, chain.clone());
    insta::assert_snapshot!("audit", fake.run("audit --limit 4").out);
    assert_eq!(
        fake.state.asked.borrow().as_slice(),
        [json!({"action": "audit", "newest": true, "limit": 4})],
        "one page, however long the chain is"
    );
    assert!(fake.run("audit --limit 600").out.contains("INC-512"), "more than a page: all of it is read");
    let document = fake.run("audit --after 2m --json").json();
    let seqs: Vec<&Value> = document["entries"].as_array().unwrap().iter().map(|entry| &entry["seq"]).collect();
    assert_eq!((seqs, &document["older"]), (vec![&json!(7), &json!(8)], &json!(0)));
    assert_eq!(fake.run("audit --after yesterday").exit, Exit::Usage);
    let none = Fake::new();
    serve(&none, &[], vec![]);
    assert_eq!(none.run("audit").out, "No decision is on record there.\n");
}

#[test]
fn a_whole_chain_holds_over_all_its_pages() {
    let (fake, chain) = (Fake::new(), chain(8));
    serve(&fake, &chain, chain.clone());
    let ran = fake.run("audit verify");
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (
            Exit::Done,
            format!(
                "The chain holds: 8 decisions, none changed, left out or put in.\nIts end is 8:{}\n",
                chain[7]["hash"].as_str().unwrap()
            )
            .as_str()
        )
    );
    assert_eq!(fake.state.asked.borrow().len(), 3, "three pages");
}

#[test]
fn an_entry_that_was_changed_left_out_or_put_in_is_named() {
    let chain = chain(8);
    let broken = |change: &dyn Fn(&mut Vec<Value>)| {
        let (fake, mut shown) = (Fake::new(), chain.clone());
        change(&mut shown);
        serve(&fake, &chain, shown);
        let ran = fake.run("audit verify");
        assert_eq!(ran.exit, Exit::No, "{ran:?}");
        ran.out
    };
    let changed = broken(&|entries| entries[4]["reason"] = json!("other"));
    insta::assert_snapshot!("audit_broken", changed);
    assert!(broken(&|entries| drop(entries.remove(4))).contains("entry 6 follows entry 4"));
    assert!(broken(&|entries| drop(entries.pop())).contains("head says 8"));
    assert!(
        broken(&|entries| entries[4] = json!({"seq": 5, "at": entries[4]["at"]})).contains("entry 5 cannot be read")
    );
    // Behind the head, where an entry that was just written would be too.
    let forged = broken(&|entries| {
        let mut forged = entries[7].clone();
        (forged["seq"], forged["at"]) = (json!(9), json!(NOW.0));
        entries.push(forged);
    });
    assert!(forged.contains("entry 9 does not continue entry 8"), "{forged}");
}

#[test]
fn an_end_that_was_noted_earlier_must_still_be_there() {
    let written = chain(8);
    let noted = |entry: &Value| format!("{}:{}", entry["seq"], entry["hash"].as_str().unwrap());
    let verify = |entries: &[Value], head: &str| {
        let fake = Fake::new();
        serve(&fake, entries, entries.to_vec());
        fake.run(&format!("audit verify --head {head}"))
    };
    for entry in [&written[4], &written[7]] {
        let ran = verify(&written, &noted(entry));
        assert!(ran.exit == Exit::Done && ran.out.contains("the end that was noted is among them"), "{ran:?}");
    }
    // Rewritten as a whole, which the chain alone does not show.
    let rewritten = chain(9)[..8].to_vec();
    let ran = verify(&rewritten, &noted(&written[4]));
    assert!(ran.exit == Exit::No && ran.out.contains("entry 5 is not the one that was noted"), "{ran:?}");
    let shorter = verify(&written[..3], &noted(&written[4]));
    assert!(shorter.exit == Exit::No && shorter.out.contains("ends at entry 3, before entry 5"), "{shorter:?}");
    assert_eq!(verify(&[], &noted(&written[4])).exit, Exit::No, "all of it is gone");
    for wrong in ["5", "5:abc", &format!("0:{}", "0".repeat(64)), &format!("x:{}", "0".repeat(64))] {
        assert_eq!(verify(&written, wrong).exit, Exit::Usage, "{wrong}");
    }
}

#[test]
fn decisions_that_are_written_meanwhile_break_nothing() {
    let chain = chain(8);
    let fake = Fake::new();
    serve(&fake, &chain[..6], chain.clone());
    assert_eq!(fake.run("audit verify --json").json()["entries"], 8);
    // Two decisions of one moment, by clocks that differ: the table has them the other way round.
    let fake = Fake::new();
    let mut head = Head::default();
    let swapped: Vec<Value> = [2_000, 1_000]
        .map(|at| {
            let entry = decision(Millis(at), &Who::itself(), "abort", "plan_1", "", json!({})).after(&head);
            head = entry.head();
            json!(entry)
        })
        .to_vec();
    serve(&fake, &swapped, swapped.clone());
    assert_eq!(fake.run("audit verify").exit, Exit::Done);
}
