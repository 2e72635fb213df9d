//! The options that mirror a definition, for `add` and `set`. They edit the JSON form; the domain judges the result.

use clap::Args;
use domain::definition::Definition;
use domain::fields::Problem;
use domain::retry::Waits;
use serde_json::{Map, Value, json};

use super::file::credential;
use crate::session::Environment;
use crate::when;

/// Options that mirror a definition.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Definition")]
pub(super) struct Options {
    /// For people
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Longest request, 1 to 30 seconds; what is above the deployment's RequestTimeoutSeconds counts as that
    #[arg(long, value_name = "SECONDS", value_parser = when::seconds)]
    pub timeout: Option<u32>,
    /// Attempts in all, the first included
    #[arg(long, value_name = "N", value_parser = when::whole::<u32>)]
    pub max_attempts: Option<u32>,
    /// The waits between attempts in seconds, such as 30,120,600
    #[arg(long, value_name = "LIST", value_parser = Waits::parse, conflicts_with = "backoff")]
    pub schedule: Option<Waits>,
    /// The waits by a rule, such as base:30,factor:4,cap:43200
    #[arg(long, value_name = "RULE", value_parser = Waits::parse)]
    pub backoff: Option<Waits>,
    /// Add up to so many percent to each wait
    #[arg(long, value_name = "PERCENT", value_parser = when::whole::<u32>)]
    pub jitter: Option<u32>,
    /// No attempt later than this after the first one
    #[arg(long, value_name = "DURATION", value_parser = when::seconds)]
    pub window: Option<u32>,
    /// The longest pause that Retry-After can ask for
    #[arg(long, value_name = "DURATION", value_parser = when::seconds)]
    pub hint_cap: Option<u32>,
    /// A status to retry, in place of those set so far; may be repeated
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = when::whole::<u16>)]
    pub retry_status: Vec<u16>,
    /// A status that is final, in place of those set so far; may be repeated
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = when::whole::<u16>)]
    pub permanent_status: Vec<u16>,
    /// A header of every request; may be repeated
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// A header whose value stands in a variable of the environment; may be repeated
    #[arg(long, value_name = "NAME=VARIABLE")]
    pub header_env: Vec<String>,
    /// A scheme to sign by, v1 or v1a; may be repeated
    #[arg(long, value_name = "SCHEME", value_delimiter = ',', value_parser = ["v1", "v1a"])]
    pub signature: Vec<String>,
    /// Do not sign
    #[arg(long, conflicts_with = "signature")]
    pub unsigned: bool,
    /// Let the receiver steer by a header of its answers
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub receiver_control: Option<bool>,
    /// The most attempts per second: kept, not enforced yet
    #[arg(long, value_name = "N", value_parser = when::whole::<u32>)]
    pub max_per_second: Option<u32>,
    /// The most attempts at once: kept, not enforced yet
    #[arg(long, value_name = "N", value_parser = when::whole::<u32>)]
    pub max_in_flight: Option<u32>,
}

const WAITS: [&str; 4] = ["schedule_seconds", "base_seconds", "factor", "cap_seconds"];

/// What `--unset` accepts, and which fields it takes away. Names of options are understood too.
const UNSET: &[(&str, &str)] = &[
    ("description", "description"),
    ("timeout", "timeout_seconds"),
    ("retry", "retry"),
    ("max-attempts", "retry.max_attempts"),
    ("jitter", "retry.jitter_percent"),
    ("window", "retry.window_seconds"),
    ("hint-cap", "retry.hint_cap_seconds"),
    ("retry-status", "retry_statuses"),
    ("permanent-status", "permanent_statuses"),
    ("header", "headers"),
    ("signature", "signatures"),
    ("receiver-control", "receiver_control"),
    ("max-per-second", "max_per_second"),
    ("max-in-flight", "max_in_flight"),
];

impl Options {
    /// The definition that results from a JSON form, or every problem.
    pub(super) fn define(
        &self,
        base: Value,
        url: Option<&str>,
        unset: &[String],
        environment: Environment<'_>,
    ) -> Result<Definition, Vec<String>> {
        let mut problems = Vec::new();
        let Value::Object(mut fields) = base else { return Err(vec!["the definition is no object".to_owned()]) };
        for name in unset {
            if let Err(problem) = take_away(&mut fields, name) {
                problems.push(problem);
            }
        }
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        let list = |list: &[u16]| (!list.is_empty()).then(|| json!(list));
        set("url", url.map(|url| json!(url)));
        set("description", self.description.as_ref().map(|text| json!(text)));
        set("timeout_seconds", self.timeout.map(|n| json!(n)));
        set("retry_statuses", list(&self.retry_status));
        set("permanent_statuses", list(&self.permanent_status));
        set("signatures", (!self.signature.is_empty()).then(|| json!(self.signature)));
        set("signatures", self.unsigned.then(|| json!([])));
        set("receiver_control", self.receiver_control.map(|flag| json!(flag)));
        set("max_per_second", self.max_per_second.map(|n| json!(n)));
        set("max_in_flight", self.max_in_flight.map(|n| json!(n)));
        self.set_retry(&mut fields);
        problems.extend(self.set_headers(&mut fields, environment));
        match Definition::from_json(Value::Object(fields)) {
            Ok(definition) if problems.is_empty() => Ok(definition),
            Ok(_) => Err(problems),
            Err(more) => Err(problems.into_iter().chain(more.iter().map(Problem::to_string)).collect()),
        }
    }

    fn set_retry(&self, fields: &mut Map<String, Value>) {
        let mut retry = fields.get("retry").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut set = |name: &str, value: Option<u32>| {
            if let Some(value) = value {
                retry.insert(name.to_owned(), json!(value));
            }
        };
        set("max_attempts", self.max_attempts);
        set("jitter_percent", self.jitter);
        set("window_seconds", self.window);
        set("hint_cap_seconds", self.hint_cap);
        if let Some(waits) = self.schedule.as_ref().or(self.backoff.as_ref()) {
            for name in WAITS {
                retry.remove(name);
            }
            match waits {
                Waits::List(list) => {
                    retry.insert("schedule_seconds".to_owned(), json!(list));
                }
                Waits::Exponential { base, factor, cap } => {
                    for (name, value) in [("base_seconds", base), ("factor", factor), ("cap_seconds", cap)] {
                        retry.insert(name.to_owned(), json!(value));
                    }
                }
            }
        }
        if !retry.is_empty() {
            fields.insert("retry".to_owned(), Value::Object(retry));
        }
    }

    fn set_headers(&self, fields: &mut Map<String, Value>, environment: Environment<'_>) -> Vec<String> {
        let mut headers = fields.get("headers").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut problems = Vec::new();
        for header in &self.header {
            let Some((name, value)) = header.split_once(':') else {
                problems.push("`--header` must be written as 'Name: value'".to_owned());
                continue;
            };
            let name = name.trim().to_ascii_lowercase();
            if ["authorization", "cookie"].contains(&name.as_str()) {
                problems.push(format!("`--header` {name}: credentials do not belong on a command line, where others can read them; use --header-env"));
                continue;
            }
            headers.insert(name, json!(value.trim()));
        }
        for header in &self.header_env {
            let Some((name, variable)) = header.split_once('=') else {
                problems.push("`--header-env` must be written as Name=VARIABLE".to_owned());
                continue;
            };
            match credential(environment, variable.trim()) {
                Some(value) => {
                    headers.insert(name.trim().to_ascii_lowercase(), json!(value));
                }
                None => problems.push(format!("`--header-env` {name}: the variable {variable} is not set, or empty")),
            }
        }
        if !headers.is_empty() {
            fields.insert("headers".to_owned(), Value::Object(headers));
        }
        problems
    }
}

fn take_away(fields: &mut Map<String, Value>, asked: &str) -> Result<(), String> {
    let name = asked.trim().to_ascii_lowercase();
    if ["schedule", "backoff"].contains(&name.as_str()) {
        if let Some(retry) = fields.get_mut("retry").and_then(Value::as_object_mut) {
            retry.retain(|field, _| !WAITS.contains(&field.as_str()));
        }
        return Ok(());
    }
    let path = UNSET.iter().find(|(option, field)| *option == name || *field == name).map(|(_, field)| *field);
    let path = match (path, name.strip_prefix("header.").or(name.strip_prefix("headers."))) {
        (Some(path), _) => path.to_owned(),
        (None, Some(header)) => format!("headers.{header}"),
        (None, None) => {
            let known: Vec<&str> = UNSET.iter().map(|(option, _)| *option).collect();
            return Err(format!("`--unset` {asked}: it takes {}, schedule, backoff, or header.NAME", known.join(", ")));
        }
    };
    match path.split_once('.') {
        Some((outer, inner)) => {
            if let Some(object) = fields.get_mut(outer).and_then(Value::as_object_mut) {
                object.remove(inner);
            }
        }
        None => {
            fields.remove(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Value {
        json!({
            "url": "https://h.example.test/", "description": "a", "timeout_seconds": 5, "signatures": ["v1"],
            "retry": {"max_attempts": 3, "schedule_seconds": [1, 2]}, "headers": {"x-a": "1", "authorization": "t"},
            "retry_statuses": [404], "max_in_flight": 2,
        })
    }

    fn defined(options: &Options, unset: &[&str]) -> Result<Value, Vec<String>> {
        let unset: Vec<String> = unset.iter().map(|name| (*name).to_owned()).collect();
        let environment = |name: &str| match name {
            "TOKEN" => Some("Bearer s3cr3t".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        options.define(base(), None, &unset, &environment).map(|definition| definition.to_json())
    }

    #[test]
    fn what_is_given_replaces_and_the_rest_stays() {
        assert_eq!(defined(&Options::default(), &[]), Ok(base()));
        let options = Options {
            description: Some("b".to_owned()),
            backoff: Some(Waits::parse("base:3,factor:2,cap:60").unwrap()),
            jitter: Some(5),
            retry_status: vec![409],
            header: vec!["X-B: 2".to_owned()],
            header_env: vec!["Authorization=TOKEN".to_owned()],
            unsigned: true,
            ..Options::default()
        };
        let new = defined(&options, &[]).unwrap();
        assert_eq!(
            new["retry"],
            json!({"max_attempts": 3, "base_seconds": 3, "factor": 2, "cap_seconds": 60, "jitter_percent": 5})
        );
        assert_eq!(new["headers"], json!({"x-a": "1", "x-b": "2", "authorization": "Bearer s3cr3t"}));
        assert_eq!(
            (&new["retry_statuses"], &new["signatures"], &new["description"]),
            (&json!([409]), &json!([]), &json!("b"))
        );
        assert_eq!(new["timeout_seconds"], 5);
    }

    #[test]
    fn unset_takes_away_by_the_name_of_the_option_or_of_the_field() {
        for (name, pointer) in [
            ("description", "/description"),
            ("timeout", "/timeout_seconds"),
            ("timeout_seconds", "/timeout_seconds"),
            ("schedule", "/retry/schedule_seconds"),
            ("max-attempts", "/retry/max_attempts"),
            ("header.X-A", "/headers/x-a"),
            ("headers.x-a", "/headers/x-a"),
            ("retry-status", "/retry_statuses"),
        ] {
            assert!(base().pointer(pointer).is_some(), "{pointer}");
            assert_eq!(defined(&Options::default(), &[name]).unwrap().pointer(pointer), None, "{name}");
        }
        let problems = defined(&Options::default(), &["url", "secrets"]).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn every_problem_is_told_and_no_value_is_repeated() {
        let options = Options {
            timeout: Some(99),
            jitter: Some(101),
            header: vec!["Authorization: s3cr3t".to_owned(), "s3cr3t".to_owned()],
            header_env: vec!["X-A=MISSING".to_owned(), "authorization=EMPTY".to_owned()],
            ..Options::default()
        };
        let problems = defined(&options, &[]).unwrap_err();
        let all = problems.join("\n");
        assert_eq!(problems.len(), 6, "{all}");
        assert!(
            all.contains("--header-env")
                && all.contains("MISSING")
                && all.contains("variable EMPTY")
                && all.contains("retry.jitter_percent"),
            "{all}"
        );
        assert!(!all.contains("s3cr3t"), "{all}");
    }
}
