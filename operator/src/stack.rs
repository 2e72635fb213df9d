//! Which stack: a name in CloudFormation, or the description of the local one. The only place that knows how a stack
//! describes itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::exit::{Exit, Failure};

/// The description of the local stack, relative to the project's folder.
pub const LOCAL: &str = ".local/stack.json";
/// The name of the stack, where nothing else is said.
pub const DEFAULT: &str = "redeliver";

/// Where the stack is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Outputs of a CloudFormation stack.
    Named(String),
    /// A file, as the local stack writes it.
    File(PathBuf),
}

/// Which stack, and as whom.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it is described.
    pub source: Source,
    /// A profile of the AWS configuration.
    pub profile: Option<String>,
    /// A region.
    pub region: Option<String>,
    /// The caller chose credentials by the environment or a profile.
    pub own_credentials: bool,
}

impl Source {
    /// What was asked for, else the variable, else a local stack that is up, else the default name.
    pub fn of(asked: Option<&str>, variable: Option<&str>, local: bool) -> Self {
        match asked.or(variable).map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) if text.contains(['/', '\\']) || text.ends_with(".json") => Self::File(PathBuf::from(text)),
            Some(name) => Self::Named(name.to_owned()),
            None if local => Self::File(PathBuf::from(LOCAL)),
            None => Self::Named(DEFAULT.to_owned()),
        }
    }
}

/// The names of a stack's parts that the commands need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The intake queue.
    pub intake_queue_url: String,
    /// The endpoints table.
    pub endpoints_table: String,
    /// The operator function.
    pub operator_function: String,
    /// The URL of the operator function.
    pub operator_url: String,
    /// The sweep function.
    pub sweep_function: String,
    /// The function that sends.
    pub deliver_function: String,
    /// The function that sends wake-ups.
    pub schedule_function: String,
    /// The retry queue.
    pub retry_queue_url: String,
    /// Transport DLQ of the intake queue.
    pub intake_dlq_url: String,
    /// Transport DLQ of the retry queue.
    pub retry_dlq_url: String,
    /// The deliveries table.
    pub deliveries_table: String,
    /// The rule of the arm run.
    pub arm_rule: String,
    /// The rule of the reconcile run.
    pub reconcile_rule: String,
    /// Where AWS is, if it is not AWS.
    pub endpoint_url: Option<String>,
    /// The region that the description names.
    pub region: Option<String>,
}

impl Names {
    /// From the outputs of a CloudFormation stack.
    pub fn from_outputs(stack: &str, outputs: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let output = |name: &str| {
            outputs.get(name).cloned().ok_or_else(|| {
                let message =
                    format!("stack {stack:?} has no output {name}: it is no Redeliver stack, or of another version");
                Failure::new(Exit::Unreachable, "not_redeliver", message)
            })
        };
        Ok(Self {
            intake_queue_url: output("IntakeQueueUrl")?,
            endpoints_table: output("EndpointsTableName")?,
            operator_function: output("RedriveApproveFunctionName")?,
            operator_url: output("OperatorUrl")?,
            sweep_function: output("DlqSweepFunctionName")?,
            deliver_function: output("DeliverFunctionName")?,
            schedule_function: output("ScheduleRetryFunctionName")?,
            retry_queue_url: output("RetryQueueUrl")?,
            intake_dlq_url: output("IntakeDlqUrl")?,
            retry_dlq_url: output("RetryDlqUrl")?,
            deliveries_table: output("DeliveriesTableName")?,
            arm_rule: output("ArmRuleName")?,
            reconcile_rule: output("ReconcileRuleName")?,
            endpoint_url: None,
            region: None,
        })
    }

    /// From the file that the local stack writes.
    pub fn from_file(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            let message =
                format!("the stack's description {} cannot be read: {e}; `make up` writes it", path.display());
            Failure::new(Exit::Unreachable, "stack_not_found", message)
        })?;
        Self::from_description(&text)
            .map_err(|what| Failure::invalid(format!("the stack's description {} {what}", path.display())))
    }

    fn from_description(text: &str) -> Result<Self, String> {
        let description: Value = serde_json::from_str(text).map_err(|e| format!("is not JSON: {e}"))?;
        let word = |pointer: &str| {
            let text = description.pointer(pointer).and_then(Value::as_str).map(ToOwned::to_owned);
            text.ok_or_else(|| format!("lacks {}", pointer.trim_start_matches('/').replace('/', ".")))
        };
        Ok(Self {
            intake_queue_url: word("/intake_queue_url")?,
            endpoints_table: word("/endpoints_table")?,
            operator_function: word("/functions/redrive_approve")?,
            operator_url: word("/operator_url")?,
            sweep_function: word("/functions/dlq_sweep")?,
            deliver_function: word("/functions/deliver")?,
            schedule_function: word("/functions/schedule_retry")?,
            retry_queue_url: word("/retry_queue_url")?,
            intake_dlq_url: word("/intake_dlq_url")?,
            retry_dlq_url: word("/retry_dlq_url")?,
            deliveries_table: word("/deliveries_table")?,
            arm_rule: word("/rules/arm")?,
            reconcile_rule: word("/rules/reconcile")?,
            endpoint_url: word("/endpoint_url").ok(),
            region: word("/region").ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_before_the_variable_and_the_local_stack() {
        let file = |path: &str| Source::File(PathBuf::from(path));
        for (asked, variable, local, expected) in [
            (Some("hooks"), Some("other"), true, Source::Named("hooks".to_owned())),
            (None, Some("/a/stack.json"), true, file("/a/stack.json")),
            (None, Some(""), true, file(LOCAL)),
            (None, None, false, Source::Named(DEFAULT.to_owned())),
            (Some("stack.json"), None, false, file("stack.json")),
        ] {
            assert_eq!(Source::of(asked, variable, local), expected);
        }
    }

    #[test]
    fn a_description_that_lacks_something_says_what() {
        let lacks = |text: &str| Names::from_description(text).unwrap_err();
        assert!(lacks("{").contains("not JSON"));
        assert_eq!(lacks(r#"{"intake_queue_url": "q", "endpoints_table": "t"}"#), "lacks functions.redrive_approve");
        let outputs = BTreeMap::from([("IntakeQueueUrl".to_owned(), "q".to_owned())]);
        assert!(Names::from_outputs("x", &outputs).unwrap_err().message.contains("EndpointsTableName"));
    }

    #[test]
    fn the_template_and_the_local_stack_describe_everything_that_is_needed() {
        let root = |path: &str| std::fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let template = root("template.yaml");
        let outputs = template.split("\nOutputs:\n").nth(1).unwrap().lines();
        let names = outputs.filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'));
        let outputs: BTreeMap<String, String> = names.map(|name| (name.to_owned(), name.to_owned())).collect();
        let from_outputs = Names::from_outputs("x", &outputs).unwrap();
        // The local stack writes its file from the same outputs: `"key": outputs["Name"]`.
        let (mut description, mut functions) = (serde_json::Map::new(), serde_json::Map::new());
        for line in root("local/stack.py").lines() {
            let Some((key, rest)) = line.trim().split_once(": outputs[\"") else { continue };
            let (key, output) = (key.trim_matches('"').to_owned(), rest.split('"').next().unwrap().into());
            if line.starts_with("            ") {
                functions.insert(key, output)
            } else {
                description.insert(key, output)
            };
        }
        let rules = "\"rules\": {\"arm\": outputs[\"ArmRuleName\"], \"reconcile\": outputs[\"ReconcileRuleName\"]}";
        assert!(root("local/stack.py").contains(rules));
        let rules = [("arm", "ArmRuleName"), ("reconcile", "ReconcileRuleName")];
        let rules = rules.map(|(key, output)| (key.to_owned(), Value::from(output)));
        description.insert("rules".to_owned(), Value::Object(rules.into_iter().collect()));
        // An emulator has URLs of its own.
        description.insert("operator_url".to_owned(), "OperatorUrl".into());
        description.insert("functions".to_owned(), Value::Object(functions));
        let from_file = Names::from_description(&Value::Object(description).to_string()).unwrap();
        assert_eq!(from_file, from_outputs);
    }
}
