//! `redeliver doctor`: whether the parts of a stack fit each other. It reads what AWS says about them and changes nothing;
//! what has to fit is said by [`rules`], which know nothing of AWS.

mod look;
mod rules;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::outside::{Inspect, World};
use crate::session::{Paint, Session};

/// The parts, as far as they could be read. What could not be is missing here, and named in `unread`.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The function that sends.
    pub deliver: Option<Function>,
    /// The function that sends wake-ups.
    pub schedule: Option<Function>,
    /// The sweep.
    pub sweep: Option<Function>,
    /// The operator function.
    pub operator: Option<Function>,
    /// The operator function, as its alias runs it.
    pub operator_alias: Option<Function>,
    /// Who may use the URL of the operator function: `AWS_IAM` or `NONE`.
    pub url_auth: Option<String>,
    /// The caller may invoke the alias of that URL past the URL, and so imitate a call of somebody else.
    pub may_imitate: Option<bool>,
    /// The rule of the arm run.
    pub arm_rule: Option<Rule>,
    /// The rule of the reconcile run.
    pub reconcile_rule: Option<Rule>,
    /// Event source mappings of `deliver`.
    pub deliver_mappings: Option<Vec<Mapping>>,
    /// Event source mappings of `schedule-retry`.
    pub schedule_mappings: Option<Vec<Mapping>>,
    /// The intake queue.
    pub intake: Option<Queue>,
    /// The retry queue.
    pub retry: Option<Queue>,
    /// Transport DLQ of the intake queue.
    pub intake_dlq: Option<Queue>,
    /// Transport DLQ of the retry queue.
    pub retry_dlq: Option<Queue>,
    /// The deliveries table.
    pub deliveries: Option<Table>,
    /// What could not be read.
    pub unread: Vec<Failed>,
}

/// Something that could not be read, and how the command would have ended because of it.
#[derive(Clone, Debug)]
pub struct Failed {
    /// What was tried, and why it failed.
    pub message: String,
    /// An exit code.
    pub exit: Exit,
}

/// A function.
#[derive(Clone, Debug, Default)]
pub struct Function {
    /// Its ARN.
    pub arn: String,
    /// The role that it runs with.
    pub role: String,
    /// Its timeout.
    pub timeout_seconds: i64,
    /// Its environment.
    pub variables: BTreeMap<String, String>,
}

/// A rule that starts runs by a schedule.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// `ENABLED`, or something else.
    pub state: String,
    /// The ARNs of what it starts.
    pub targets: Vec<String>,
}

/// An event source mapping.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// The queue, or the stream.
    pub source_arn: String,
    /// `Enabled`, or something else.
    pub state: String,
    /// `ReportBatchItemFailures`, or nothing.
    pub response_types: Vec<String>,
    /// Patterns that records must match.
    pub filters: Vec<String>,
    /// Bounds of a stream's retries; below 0: none.
    pub max_retries: Option<i64>,
}

/// A queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Its ARN.
    pub arn: String,
    /// How long a message that was received stays away.
    pub visibility_seconds: i64,
    /// How long a message is kept.
    pub retention_seconds: i64,
    /// Its dead letter queue, and after how many receives.
    pub dead_letters: Option<(String, i64)>,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// The stream that is written now.
    pub stream_arn: Option<String>,
    /// What the stream shows.
    pub stream_view: Option<String>,
}

/// Something that is wrong, and how to repair it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// Looks, and says what is wrong.
pub async fn run<W: World>(session: &mut Session<'_, W>) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let parts = outside.parts().await;
    let findings = rules::check(&parts);
    let mut text = String::new();
    for Finding { what, fix } in &findings {
        text.push_str(&format!("{}: {what}\n  fix: {fix}\n", session.paint(Paint::Red, "wrong")));
    }
    for failed in &parts.unread {
        text.push_str(&format!("{}: {}\n", session.paint(Paint::Yellow, "not looked at"), failed.message));
    }
    // What nobody looked at is not sound, unless it cannot be looked at there at all.
    let unread = parts.unread.iter().find(|failed| failed.exit != Exit::Done);
    let exit = match (findings.is_empty(), unread) {
        (false, _) => Exit::No,
        (true, Some(failed)) => failed.exit,
        (true, None) => Exit::Done,
    };
    text.push_str(&match (findings.len(), parts.unread.len()) {
        (0, 0) => format!("{}: the parts of this stack fit each other.", session.paint(Paint::Green, "sound")),
        (wrong, unread) => format!("{wrong} wrong, {unread} not looked at."),
    });
    let shown: Vec<Value> = findings.iter().map(|finding| json!({"what": finding.what, "fix": finding.fix})).collect();
    let unread: Vec<&str> = parts.unread.iter().map(|failed| failed.message.as_str()).collect();
    session.answer(&json!({"ok": exit == Exit::Done, "findings": shown, "unread": unread}), &text)?;
    Ok(exit)
}
