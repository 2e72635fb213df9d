//! What has to fit in a stack. Each rule is silent about parts that could not be read.

use std::collections::BTreeMap;

use domain::settings::{INTAKE_MAX_RECEIVES, RETRY_MAX_RECEIVES, Reader};
use serde_json::{Value, json};

use super::{Finding, Function, Mapping, Parts, Queue, Rule, Table};

/// A queue's visibility timeout is so many times the timeout of its function, as Lambda asks for.
const VISIBILITY_FACTOR: i64 = 6;
const DAY_SECONDS: i64 = 86_400;
const DEPLOY: &str = "deploy the template again, so that every part has the same parameters";

struct Findings(Vec<Finding>);

impl Findings {
    fn rule(&mut self, holds: bool, what: impl Into<String>, fix: impl Into<String>) {
        if !holds {
            self.0.push(Finding { what: what.into(), fix: fix.into() });
        }
    }
}

/// Everything that is wrong.
pub(super) fn check(parts: &Parts) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    if let Some(deliver) = &parts.deliver {
        times(&mut findings, deliver, parts);
    }
    environments(&mut findings, parts);
    let queues = [
        ("intake", &parts.intake, &parts.intake_dlq, INTAKE_MAX_RECEIVES),
        ("retry", &parts.retry, &parts.retry_dlq, RETRY_MAX_RECEIVES),
    ];
    for (name, queue, dlq, max_receives) in queues {
        if let Some(queue) = queue {
            dead_letters(&mut findings, name, queue, dlq.as_ref(), i64::from(max_receives));
            if let Some(mappings) = &parts.deliver_mappings {
                mapped(&mut findings, &format!("the {name} queue"), "deliver", &queue.arn, mappings);
            }
        }
        if let (Some(dlq), Some(sweep)) = (dlq, &parts.sweep) {
            findings.rule(
                dlq.visibility_seconds > sweep.timeout_seconds,
                format!("a message of the {name} DLQ comes back after {} s, while a sweep may run {} s: it would meet it twice", dlq.visibility_seconds, sweep.timeout_seconds),
                "set the visibility timeout of the DLQ above the timeout of dlq-sweep",
            );
        }
    }
    if let Some(table) = &parts.deliveries {
        stream(&mut findings, table, parts.schedule_mappings.as_deref());
    }
    if let Some(auth) = &parts.url_auth {
        findings.rule(
            auth == "AWS_IAM",
            format!("the URL of the operator function has the auth type {auth}: anybody may decide"),
            "set FunctionUrlConfig.AuthType to AWS_IAM at once, and look at `redeliver audit`",
        );
    }
    if let (Some(latest), Some(alias)) = (&parts.operator, &parts.operator_alias) {
        findings.rule(
            latest.variables == alias.variables,
            "the alias `live` of the operator function runs with other settings than the function: its URL decides by old ones",
            "publish a version and move the alias to it; a deploy of the template does both",
        );
    }
    if let Some(may_imitate) = parts.may_imitate {
        findings.rule(
            !may_imitate,
            "you may invoke the alias `live` of the operator function past its URL: a plain invoke can imitate the URL call of somebody else, and its decision would count as verified",
            "grant lambda:InvokeFunction on the alias only under the condition lambda:InvokedViaFunctionUrl, to administrators too by a Deny without it; plain invokes go to the function without the alias (README, Permissions)",
        );
    }
    roles(&mut findings, parts);
    for (run, rule) in [("arm", &parts.arm_rule), ("reconcile", &parts.reconcile_rule)] {
        if let Some(rule) = rule {
            scheduled(&mut findings, run, rule, parts.sweep.as_ref());
        }
    }
    findings.0
}

/// The functions, by the names of the design.
fn functions(parts: &Parts) -> [(&'static str, &Option<Function>); 4] {
    [
        ("deliver", &parts.deliver),
        ("schedule-retry", &parts.schedule),
        ("dlq-sweep", &parts.sweep),
        ("redrive-approve", &parts.operator),
    ]
}

/// Each function has a role of its own; what a role allows is not looked at.
fn roles(findings: &mut Findings, parts: &Parts) {
    let mut by_role: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, function) in functions(parts) {
        if let Some(function) = function {
            by_role.entry(&function.role).or_default().push(name);
        }
    }
    for names in by_role.values() {
        findings.rule(
            names.len() == 1,
            format!("{} run with the same role: each may do what only the other needs", names.join(" and ")),
            "give each its own role back; a deploy of the template does",
        );
    }
}

fn scheduled(findings: &mut Findings, run: &str, rule: &Rule, sweep: Option<&Function>) {
    let missing = if run == "arm" {
        "waits of more than 15 minutes are found by the reconcile run only, and late"
    } else {
        "lost wake-ups, expired attempts and the transport DLQs are repaired by nobody"
    };
    findings.rule(
        rule.state.starts_with("ENABLED"),
        format!("the rule of the {run} run is {}: {missing}", rule.state),
        "enable it: `aws events enable-rule`, unless somebody switched it off for a reason",
    );
    let Some(sweep) = sweep else { return };
    findings.rule(
        rule.targets
            .iter()
            .any(|target| target.strip_prefix(&sweep.arn).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))),
        format!("the rule of the {run} run does not start dlq-sweep: {missing}"),
        "give it its target back; a deploy of the template does",
    );
}

fn number(function: &Function, name: &str) -> Option<i64> {
    function.variables.get(name)?.trim().parse().ok()
}

fn times(findings: &mut Findings, deliver: &Function, parts: &Parts) {
    let lookup = |name: &str| deliver.variables.get(name).cloned();
    let mut reader = Reader::new(&lookup);
    reader.timing();
    reader.retention();
    let problems = reader.finish(()).err().map(|invalid| invalid.0).unwrap_or_default();
    for problem in problems {
        findings.rule(false, format!("deliver: {problem}"), "correct the parameter, and deploy the template again");
    }
    let timeout = deliver.timeout_seconds;
    if let Some(believed) = number(deliver, "FUNCTION_TIMEOUT_SECONDS") {
        findings.rule(
            believed == timeout,
            format!(
                "deliver believes to have {believed} s (FUNCTION_TIMEOUT_SECONDS), and is stopped after {timeout} s"
            ),
            DEPLOY,
        );
    }
    for (name, queue) in [("intake", &parts.intake), ("retry", &parts.retry)] {
        let Some(visibility) = queue.as_ref().map(|queue| queue.visibility_seconds) else { continue };
        if let Some(believed) = number(deliver, "VISIBILITY_TIMEOUT_SECONDS") {
            findings.rule(
                believed == visibility,
                format!("the visibility timeout of the {name} queue is {visibility} s, deliver believes {believed} s (VISIBILITY_TIMEOUT_SECONDS)"),
                DEPLOY,
            );
        }
        findings.rule(
            visibility >= VISIBILITY_FACTOR * timeout,
            format!("the visibility timeout of the {name} queue is {visibility} s, less than {VISIBILITY_FACTOR} times the {timeout} s of deliver: messages come back while Lambda still holds them"),
            format!("set VisibilityTimeoutSeconds to {} at least", VISIBILITY_FACTOR * timeout),
        );
    }
    if let (Some(record), Some(intake), Some(dlq)) =
        (number(deliver, "RECORD_RETENTION_DAYS"), &parts.intake, &parts.intake_dlq)
    {
        let copies = (intake.retention_seconds + dlq.retention_seconds + DAY_SECONDS - 1) / DAY_SECONDS;
        findings.rule(
            record >= copies,
            format!("a copy of a message can lie in intake queue and DLQ for {copies} days, its record is kept {record}: a late copy would be sent again"),
            format!("set RecordRetentionDays to {copies} at least"),
        );
    }
}

/// A variable that several functions have says the same to each.
fn environments(findings: &mut Findings, parts: &Parts) {
    let mut values: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for (function, part) in functions(parts) {
        for (name, value) in part.iter().flat_map(|function| &function.variables) {
            values.entry(name).or_default().entry(value).or_default().push(function);
        }
    }
    for (name, by_value) in values {
        // The values stay here: not every one is for every eye.
        let camps: Vec<String> = by_value.values().map(|functions| functions.join(" and ")).collect();
        findings.rule(by_value.len() == 1, format!("{name} differs between {}", camps.join(", ")), DEPLOY);
    }
    if let (Some(deliver), Some(retry)) = (&parts.deliver, &parts.retry) {
        findings.rule(
            deliver.variables.get("RETRY_QUEUE_ARN") == Some(&retry.arn),
            "deliver takes another queue than the retry queue for its wake-ups (RETRY_QUEUE_ARN)",
            DEPLOY,
        );
    }
    if let (Some(deliver), Some(table)) = (&parts.deliver, &parts.deliveries) {
        findings.rule(
            deliver.variables.get("DELIVERIES_TABLE") == Some(&table.name),
            "deliver writes to another table than the deliveries table (DELIVERIES_TABLE)",
            DEPLOY,
        );
    }
}

fn dead_letters(findings: &mut Findings, name: &str, queue: &Queue, dlq: Option<&Queue>, max_receives: i64) {
    let Some((target, receives)) = &queue.dead_letters else {
        findings.rule(
            false,
            format!("the {name} queue has no DLQ: a message that cannot be processed comes back until it expires"),
            "give it its RedrivePolicy back; a deploy of the template does",
        );
        return;
    };
    findings.rule(
        *receives == max_receives,
        format!("maxReceiveCount of the {name} queue is {receives}, and not {max_receives}: a drained message is judged by a wrong budget"),
        format!("set it to {max_receives}; a deploy of the template does"),
    );
    let Some(dlq) = dlq else { return };
    findings.rule(
        *target == dlq.arn,
        format!("the {name} queue has another DLQ than the one that the sweep drains"),
        "point its RedrivePolicy to the DLQ of this stack; a deploy of the template does",
    );
    findings.rule(
        dlq.retention_seconds > queue.retention_seconds,
        format!("the {name} DLQ keeps messages {} s, its queue {} s: a DLQ counts from the first sending, so messages expire as they arrive", dlq.retention_seconds, queue.retention_seconds),
        "set the retention of the DLQ above that of its queue: 1209600 s",
    );
}

fn mapped(findings: &mut Findings, source: &str, function: &str, arn: &str, mappings: &[Mapping]) {
    let Some(mapping) = mappings.iter().find(|mapping| mapping.source_arn == arn) else {
        findings.rule(
            false,
            format!("{function} does not listen to {source}"),
            "create the event source mapping; a deploy of the template does",
        );
        return;
    };
    findings.rule(
        mapping.state == "Enabled",
        format!("the event source mapping of {source} to {function} is {}", mapping.state),
        "enable it: `aws lambda update-event-source-mapping --enabled`, unless somebody switched it off for a reason",
    );
    findings.rule(
        mapping.response_types.iter().any(|kind| kind == "ReportBatchItemFailures"),
        format!("{function} cannot report single failures of {source}: one bad message would repeat the whole batch"),
        "set FunctionResponseTypes to ReportBatchItemFailures; a deploy of the template does",
    );
}

fn stream(findings: &mut Findings, table: &Table, mappings: Option<&[Mapping]>) {
    let Some(arn) = &table.stream_arn else {
        findings.rule(
            false,
            "the deliveries table has no stream: no wake-up is sent, and retries wait for the reconcile run, which needs the stream too",
            "enable the stream with NEW_IMAGE; a deploy of the template does",
        );
        return;
    };
    let view = table.stream_view.as_deref().unwrap_or_default();
    findings.rule(
        matches!(view, "NEW_IMAGE" | "NEW_AND_OLD_IMAGES"),
        format!("the stream of the deliveries table shows {view}: schedule-retry needs the new image"),
        "replace the stream by one with NEW_IMAGE",
    );
    let Some(mappings) = mappings else { return };
    mapped(findings, "the stream of the deliveries table", "schedule-retry", arn, mappings);
    let Some(mapping) = mappings.iter().find(|mapping| mapping.source_arn == *arn) else { return };
    findings.rule(
        mapping.filters.is_empty() || mapping.filters.iter().any(|filter| lets_waiting_through(filter)),
        "the filter of the stream does not let every change to `waiting` through: wake-ups are missing",
        "give it the filter of the template",
    );
    findings.rule(
        !mapping.filters.is_empty(),
        "the stream has no filter: schedule-retry is invoked, and paid, for every change",
        "give it the filter of the template",
    );
    findings.rule(
        mapping.max_retries.is_some_and(|retries| retries >= 0),
        "the stream repeats a failing record until it expires: one bad record blocks its shard for a day",
        "bound MaximumRetryAttempts, to 10 as in the template",
    );
}

fn lets_waiting_through(filter: &str) -> bool {
    let Ok(filter) = serde_json::from_str::<Value>(filter) else { return false };
    let holds = |value: Option<&Value>, word: &str| {
        value.is_none_or(|words| words.as_array().is_some_and(|words| words.contains(&json!(word))))
    };
    let events = filter.get("eventName");
    holds(filter.pointer("/dynamodb/NewImage/state/S"), "waiting") && holds(events, "INSERT") && holds(events, "MODIFY")
}
