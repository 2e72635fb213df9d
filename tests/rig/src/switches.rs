//! What an operator can switch on the stack, and puts back afterwards: event source mappings, rules, the configuration of
//! functions. [`Switches::restore`] brings back what was found, whatever happened in between.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use aws_sdk_lambda::types::Environment;

use crate::stack::Stack;

/// Variables that only a run with a faulty way to AWS sets; found at the start, they are what an aborted run left behind.
pub const DETOURS: [&str; 2] = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_SQS"];

/// How the stack was found.
pub struct Switches {
    /// UUIDs of the mappings: intake, retry, stream.
    pub mappings: Vec<String>,
    /// Name of the reconcile rule.
    pub reconcile: String,
    functions: Vec<Function>,
}

struct Function {
    name: String,
    timeout: i32,
    variables: HashMap<String, String>,
}

impl Switches {
    /// Looks at the stack. Fails on one that is not as `make up` leaves it and cannot be put right from here.
    pub async fn find(stack: &Stack) -> Self {
        let mut functions = Vec::new();
        for role in ["deliver", "schedule_retry", "dlq_sweep"] {
            let name = stack.function(role);
            let found =
                stack.lambda.get_function_configuration().function_name(&name).send().await.expect("it is there");
            let mut variables = found.environment.and_then(|e| e.variables).unwrap_or_default();
            let seconds = |name: &str| variables.get(name).and_then(|v| v.parse().ok());
            let timeout = seconds("FUNCTION_TIMEOUT_SECONDS").filter(|_| role == "deliver").or(found.timeout);
            variables.retain(|variable, _| !DETOURS.contains(&variable.as_str()));
            functions.push(Function { name, timeout: timeout.expect("a function has a timeout"), variables });
        }
        let listed = stack.lambda.list_event_source_mappings().send().await.expect("listed");
        let ours =
            |f: &str| [stack.function("deliver"), stack.function("schedule_retry")].iter().any(|n| f.contains(n));
        let mappings = listed.event_source_mappings().iter().filter(|m| m.function_arn().is_some_and(ours));
        let mappings: Vec<String> = mappings.filter_map(|m| m.uuid().map(ToOwned::to_owned)).collect();
        assert_eq!(mappings.len(), 3, "deliver has two event sources, schedule-retry one");
        let reconcile = stack.description["rules"]["reconcile"].as_str().expect("part of the description").to_owned();
        Self { mappings, reconcile, functions }
    }

    pub async fn mapping(&self, stack: &Stack, uuid: &str, enabled: bool) {
        stack.lambda.update_event_source_mapping().uuid(uuid).enabled(enabled).send().await.expect("switched");
    }

    pub async fn rule(&self, stack: &Stack, enabled: bool) {
        if enabled {
            stack.events.enable_rule().name(&self.reconcile).send().await.expect("enabled");
        } else {
            stack.events.disable_rule().name(&self.reconcile).send().await.expect("disabled");
        }
    }

    /// Gives the emulator more patience with deliver than deliver believes: a frozen process then lives longer than its lease.
    pub async fn patience(&self, stack: &Stack, seconds: i32) {
        let deliver = &self.functions[0];
        stack
            .lambda
            .update_function_configuration()
            .function_name(&deliver.name)
            .timeout(seconds)
            .send()
            .await
            .expect("set");
    }

    /// Leads all calls of the functions to DynamoDB and SQS elsewhere; new processes take that way.
    pub async fn detour(&self, stack: &Stack, way: &str) {
        for function in &self.functions {
            let mut variables = function.variables.clone();
            variables.extend(DETOURS.map(|name| (name.to_owned(), way.to_owned())));
            function.configure(stack, variables).await;
        }
    }

    /// Everything as it was.
    pub async fn restore(&self, stack: &Stack) {
        for function in &self.functions {
            function.configure(stack, function.variables.clone()).await;
        }
        for mapping in &self.mappings {
            self.mapping(stack, mapping, true).await;
        }
        self.rule(stack, true).await;
    }
}

impl Function {
    async fn configure(&self, stack: &Stack, variables: HashMap<String, String>) {
        let environment = Environment::builder().set_variables(Some(variables)).build();
        let update = stack.lambda.update_function_configuration().function_name(&self.name);
        update.environment(environment).timeout(self.timeout).send().await.expect("configured");
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let now =
                stack.lambda.get_function_configuration().function_name(&self.name).send().await.expect("it is there");
            if now.last_update_status().is_none_or(|s| s.as_str() == "Successful") {
                return;
            }
            assert!(Instant::now() < end, "{} takes its configuration", self.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
