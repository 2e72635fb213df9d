//! The template against the code: what the functions are configured with by default must start them, and what the code
//! believes of the template must be true.

use std::collections::HashMap;

use domain::settings::{INTAKE_MAX_RECEIVES, MIN_RETENTION_DAYS, RETRY_MAX_RECEIVES};

fn template() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../template.yaml")).unwrap()
}

/// The default values of the parameters, read from their fixed layout.
fn defaults(text: &str) -> HashMap<String, String> {
    let parameters = text.split("\nParameters:\n").nth(1).unwrap().split("\nConditions:").next().unwrap();
    let mut name = String::new();
    let mut defaults = HashMap::new();
    for line in parameters.lines() {
        if let Some(key) = line.strip_prefix("  ").and_then(|l| l.strip_suffix(':')).filter(|l| !l.starts_with(' ')) {
            name = key.to_owned();
        } else if let Some(value) = line.trim().strip_prefix("Default:") {
            defaults.insert(name.clone(), value.trim().trim_matches(['"', '\'']).to_owned());
        }
    }
    defaults
}

/// The default value of a parameter.
pub fn default_of(parameter: &str) -> String {
    defaults(&template()).remove(parameter).unwrap_or_else(|| panic!("no parameter {parameter}"))
}

/// What a function's environment is by default: its variables, with references resolved, other values as a placeholder.
fn environment(text: &str, function: &str) -> HashMap<String, String> {
    let defaults = defaults(text);
    let resource = text.split(&format!("\n  {function}:\n")).nth(1).unwrap_or_else(|| panic!("no {function}"));
    let variables = resource.split("        Variables:\n").nth(1).unwrap();
    variables
        .lines()
        .map_while(|line| line.strip_prefix("          ").filter(|l| !l.starts_with(' ')))
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| {
            let resolved = value.strip_prefix("!Ref ").and_then(|parameter| defaults.get(parameter));
            (name.to_owned(), resolved.cloned().unwrap_or_else(|| value.trim_matches(['"', '\'']).to_owned()))
        })
        .collect()
}

#[test]
fn every_function_starts_with_the_defaults_of_the_template() {
    let text = template();
    let of = |function: &str| environment(&text, function);
    let (deliver, relay, sweep, approve) =
        (of("DeliverFunction"), of("ScheduleRetryFunction"), of("DlqSweepFunction"), of("RedriveApproveFunction"));
    deliver::config::Config::read(&|name| deliver.get(name).cloned()).unwrap();
    schedule_retry::config::Config::read(&|name| relay.get(name).cloned()).unwrap();
    dlq_sweep::config::Config::read(&|name| sweep.get(name).cloned()).unwrap();
    redrive_approve::config::Config::read(&|name| approve.get(name).cloned()).unwrap();
}

#[test]
fn the_template_is_as_the_code_believes() {
    let text = template();
    for (queue, receives) in [("IntakeQueue", INTAKE_MAX_RECEIVES), ("RetryQueue", RETRY_MAX_RECEIVES)] {
        let resource = text.split(&format!("\n  {queue}:\n")).nth(1).unwrap();
        let first = resource.split("maxReceiveCount: ").nth(1).unwrap().lines().next().unwrap();
        assert_eq!(first, receives.to_string(), "{queue}");
    }
    for retention in ["RecordRetentionDays", "PayloadRetentionDays"] {
        let parameter = text.split(&format!("\n  {retention}:\n")).nth(1).unwrap();
        let least = parameter.split("MinValue: ").nth(1).unwrap().lines().next().unwrap();
        assert_eq!(least, MIN_RETENTION_DAYS.to_string(), "{retention}");
    }
}

#[test]
fn a_panic_unwinds_in_the_release_build() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).unwrap();
    let profile = manifest.split("[profile.release]").nth(1).unwrap().split("\n[").next().unwrap();
    assert!(profile.contains("panic = \"unwind\""), "a panic would end the sandbox instead of one invocation");
}
