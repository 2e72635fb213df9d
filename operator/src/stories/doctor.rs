use crate::doctor::{Failed, Function, Mapping, Parts, Queue, Rule, Table};
use crate::exit::Exit;
use crate::fakes::Fake;

const FILTER: &str = r#"{"eventName": ["INSERT", "MODIFY"], "dynamodb": {"NewImage": {"state": {"S": ["waiting"]}}}}"#;

fn function(name: &str, timeout_seconds: i64, variables: &[(&str, &str)]) -> Option<Function> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Some(Function { arn: format!("arn:{name}"), role: format!("arn:role/{name}"), timeout_seconds, variables })
}

fn queue(name: &str, visibility_seconds: i64, days: i64, receives: Option<i64>) -> Option<Queue> {
    let dead_letters = receives.map(|receives| (format!("arn:{name}_dlq"), receives));
    Some(Queue { arn: format!("arn:{name}"), visibility_seconds, retention_seconds: days * 86_400, dead_letters })
}

fn mapping(source: &str) -> Mapping {
    Mapping {
        source_arn: source.to_owned(),
        state: "Enabled".to_owned(),
        response_types: vec!["ReportBatchItemFailures".to_owned()],
        filters: vec![],
        max_retries: None,
    }
}

fn rule(state: &str, target: &str) -> Option<Rule> {
    Some(Rule { state: state.to_owned(), targets: vec![target.to_owned()] })
}

/// A stack as the template makes it.
fn sound() -> Parts {
    let operator = function(
        "operator",
        60,
        &[("DELIVERIES_TABLE", "d"), ("RECORD_RETENTION_DAYS", "30"), ("OPERATOR_ALIAS", "live")],
    );
    Parts {
        deliver: function(
            "deliver",
            45,
            &[
                ("DELIVERIES_TABLE", "d"),
                ("RETRY_QUEUE_ARN", "arn:retry"),
                ("REQUEST_TIMEOUT_SECONDS", "10"),
                ("FUNCTION_TIMEOUT_SECONDS", "45"),
                ("LEASE_SECONDS", "60"),
                ("VISIBILITY_TIMEOUT_SECONDS", "270"),
                ("RECORD_RETENTION_DAYS", "30"),
                ("PAYLOAD_RETENTION_DAYS", "30"),
            ],
        ),
        schedule: function("schedule", 30, &[("RETRY_QUEUE_URL", "https://q/retry")]),
        sweep: function(
            "sweep",
            60,
            &[("DELIVERIES_TABLE", "d"), ("RETRY_QUEUE_URL", "https://q/retry"), ("LEASE_SECONDS", "60")],
        ),
        operator: operator.clone(),
        operator_alias: operator,
        url_auth: Some("AWS_IAM".to_owned()),
        may_imitate: Some(false),
        arm_rule: rule("ENABLED", "arn:sweep"),
        reconcile_rule: rule("ENABLED", "arn:sweep"),
        deliver_mappings: Some(vec![mapping("arn:intake"), mapping("arn:retry")]),
        schedule_mappings: Some(vec![Mapping {
            filters: vec![FILTER.to_owned()],
            max_retries: Some(10),
            ..mapping("arn:stream")
        }]),
        intake: queue("intake", 270, 4, Some(20)),
        retry: queue("retry", 270, 4, Some(5)),
        intake_dlq: queue("intake_dlq", 120, 14, None),
        retry_dlq: queue("retry_dlq", 120, 14, None),
        deliveries: Some(Table {
            name: "d".to_owned(),
            stream_arn: Some("arn:stream".to_owned()),
            stream_view: Some("NEW_IMAGE".to_owned()),
        }),
        unread: vec![],
    }
}

fn of(parts: Parts) -> Fake {
    let fake = Fake::new();
    *fake.state.parts.borrow_mut() = parts;
    fake
}

#[test]
fn a_stack_as_the_template_makes_it_is_sound() {
    let ran = of(sound()).run("doctor");
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "sound: the parts of this stack fit each other.\n"));
}

fn set(function: &mut Option<Function>, name: &str, value: &str) {
    function.as_mut().unwrap().variables.insert(name.to_owned(), value.to_owned());
}

type Break = fn(&mut Parts);

#[test]
fn each_rule_finds_what_breaks_it_and_nothing_else() {
    let cases: &[(&str, Break)] = &[
        ("LEASE_SECONDS must be longer", |p| {
            set(&mut p.deliver, "LEASE_SECONDS", "40");
            set(&mut p.sweep, "LEASE_SECONDS", "40");
        }),
        ("FUNCTION_TIMEOUT_SECONDS), and is stopped after 44 s", |p| p.deliver.as_mut().unwrap().timeout_seconds = 44),
        ("deliver believes 270 s", |p| p.intake.as_mut().unwrap().visibility_seconds = 280),
        ("PAYLOAD_RETENTION_DAYS (20) must be at least", |p| set(&mut p.deliver, "PAYLOAD_RETENTION_DAYS", "20")),
        ("for 31 days", |p| p.intake_dlq.as_mut().unwrap().retention_seconds = 27 * 86_400),
        ("LEASE_SECONDS differs between deliver, dlq-sweep", |p| set(&mut p.sweep, "LEASE_SECONDS", "61")),
        ("RETRY_QUEUE_ARN", |p| set(&mut p.deliver, "RETRY_QUEUE_ARN", "arn:other")),
        ("another table", |p| p.deliveries.as_mut().unwrap().name = "other".to_owned()),
        ("the retry queue has no DLQ", |p| p.retry.as_mut().unwrap().dead_letters = None),
        ("maxReceiveCount of the intake queue is 5", |p| {
            p.intake.as_mut().unwrap().dead_letters.as_mut().unwrap().1 = 5
        }),
        ("the retry queue has another DLQ", |p| p.retry_dlq.as_mut().unwrap().arn = "arn:other".to_owned()),
        ("messages expire as they arrive", |p| p.retry_dlq.as_mut().unwrap().retention_seconds = 4 * 86_400),
        ("it would meet it twice", |p| p.intake_dlq.as_mut().unwrap().visibility_seconds = 60),
        ("deliver does not listen to the retry queue", |p| drop(p.deliver_mappings.as_mut().unwrap().pop())),
        ("is Disabled", |p| p.deliver_mappings.as_mut().unwrap()[0].state = "Disabled".to_owned()),
        ("single failures", |p| p.schedule_mappings.as_mut().unwrap()[0].response_types.clear()),
        ("has no stream", |p| p.deliveries.as_mut().unwrap().stream_arn = None),
        ("shows KEYS_ONLY", |p| p.deliveries.as_mut().unwrap().stream_view = Some("KEYS_ONLY".to_owned())),
        ("wake-ups are missing", |p| {
            p.schedule_mappings.as_mut().unwrap()[0].filters[0] = FILTER.replace(", \"MODIFY\"", "")
        }),
        ("has no filter", |p| p.schedule_mappings.as_mut().unwrap()[0].filters.clear()),
        ("one bad record blocks", |p| p.schedule_mappings.as_mut().unwrap()[0].max_retries = Some(-1)),
        ("anybody may decide", |p| p.url_auth = Some("NONE".to_owned())),
        ("past its URL", |p| p.may_imitate = Some(true)),
        ("the arm run is DISABLED", |p| p.arm_rule = rule("DISABLED", "arn:sweep")),
        ("the reconcile run does not start dlq-sweep", |p| p.reconcile_rule = rule("ENABLED", "arn:sweeper")),
        ("deliver and dlq-sweep run with the same role", |p| {
            p.sweep.as_mut().unwrap().role = "arn:role/deliver".to_owned()
        }),
        ("runs with other settings", |p| set(&mut p.operator_alias, "RECORD_RETENTION_DAYS", "20")),
    ];
    for (part, breaks) in cases {
        let mut parts = sound();
        breaks(&mut parts);
        let ran = of(parts).run("doctor");
        assert!(ran.exit == Exit::No && ran.out.contains(part), "{part}: {}", ran.out);
        assert_eq!(
            (ran.out.matches("wrong: ").count(), ran.out.matches("fix: ").count()),
            (1, 1),
            "{part}: {}",
            ran.out
        );
    }
}

#[test]
fn a_short_visibility_is_told_with_what_it_has_to_be() {
    let mut parts = sound();
    for queue in [&mut parts.intake, &mut parts.retry] {
        queue.as_mut().unwrap().visibility_seconds = 200;
    }
    set(&mut parts.deliver, "VISIBILITY_TIMEOUT_SECONDS", "200");
    let ran = of(parts).run("doctor");
    assert_eq!(ran.exit, Exit::No);
    insta::assert_snapshot!("doctor", ran.out);
}

#[test]
fn what_could_not_be_read_is_named_and_is_not_called_sound() {
    let mut parts = sound();
    parts.deliveries = None;
    parts.unread.push(Failed { message: "reading the table: no permission".to_owned(), exit: Exit::Denied });
    let fake = of(parts);
    let ran = fake.run("doctor");
    assert!(ran.exit == Exit::Denied && ran.out.contains("not looked at: reading the table"), "{ran:?}");
    assert_eq!(fake.run("doctor --json").json()["unread"][0], "reading the table: no permission");
    let mut emulated = sound();
    emulated.may_imitate = None;
    emulated.unread.push(Failed { message: "nobody to deny it".to_owned(), exit: Exit::Done });
    let ran = of(emulated.clone()).run("doctor");
    assert!(ran.exit == Exit::Done && ran.out.contains("not looked at: nobody to deny it"), "{ran:?}");
    emulated.unread.push(Failed { message: "no permission".to_owned(), exit: Exit::Denied });
    assert_eq!(of(emulated).run("doctor").exit, Exit::Denied);
    let nothing = of(Parts::default()).run("doctor");
    assert_eq!(nothing.exit, Exit::Done, "every rule is silent about what is not there");
}
