//! Reads the parts from AWS. A part that cannot be read is left out and named; it does not hide the others.

use aws_sdk_lambda::error::DisplayErrorContext;
use aws_sdk_lambda::types::{EventSourceMappingConfiguration, InvocationType};
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::Value;

use super::{Failed, Function, Mapping, Parts, Queue, Rule, Table};
use crate::aws::Stack;
use crate::exit::{Exit, Failure};
use crate::outside::Inspect;

/// The alias that carries the URL of the operator function.
const ALIAS: &str = "live";

impl Inspect for Stack {
    async fn parts(&self) -> Parts {
        let names = &self.names;
        let mut unread = Vec::new();
        let mut keep = |failure: Failure| unread.push(Failed { message: failure.message, exit: failure.exit });
        Parts {
            deliver: self.function(&names.deliver_function, None).await.map_err(&mut keep).ok(),
            schedule: self.function(&names.schedule_function, None).await.map_err(&mut keep).ok(),
            sweep: self.function(&names.sweep_function, None).await.map_err(&mut keep).ok(),
            operator: self.function(&names.operator_function, None).await.map_err(&mut keep).ok(),
            operator_alias: self.function(&names.operator_function, Some(ALIAS)).await.map_err(&mut keep).ok(),
            url_auth: self.url_auth().await.map_err(&mut keep).ok(),
            may_imitate: self.may_imitate().await.map_err(&mut keep).ok(),
            arm_rule: self.rule("arm", &names.arm_rule).await.map_err(&mut keep).ok(),
            reconcile_rule: self.rule("reconcile", &names.reconcile_rule).await.map_err(&mut keep).ok(),
            deliver_mappings: self.mappings(&names.deliver_function).await.map_err(&mut keep).ok(),
            schedule_mappings: self.mappings(&names.schedule_function).await.map_err(&mut keep).ok(),
            intake: self.queue("intake queue", &names.intake_queue_url).await.map_err(&mut keep).ok(),
            retry: self.queue("retry queue", &names.retry_queue_url).await.map_err(&mut keep).ok(),
            intake_dlq: self.queue("intake DLQ", &names.intake_dlq_url).await.map_err(&mut keep).ok(),
            retry_dlq: self.queue("retry DLQ", &names.retry_dlq_url).await.map_err(&mut keep).ok(),
            deliveries: self.table().await.map_err(&mut keep).ok(),
            unread,
        }
    }
}

impl Stack {
    async fn function(&self, name: &str, alias: Option<&str>) -> Result<Function, Failure> {
        let read = self.lambda.get_function_configuration().function_name(name);
        let read = read.set_qualifier(alias.map(ToOwned::to_owned)).send().await;
        let what = format!("reading the configuration of {name}");
        let answer = read.map_err(|e| Failure::of_aws(&what, &DisplayErrorContext(e).to_string()))?;
        let variables = answer.environment().and_then(|environment| environment.variables());
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        Ok(Function {
            arn: text(answer.function_arn()),
            role: text(answer.role()),
            timeout_seconds: i64::from(answer.timeout().unwrap_or_default()),
            variables: variables.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())).collect(),
        })
    }

    async fn url_auth(&self) -> Result<String, Failure> {
        let read = self.lambda.get_function_url_config().function_name(&self.names.operator_function).qualifier(ALIAS);
        let answer = read.send().await.map_err(|e| {
            Failure::of_aws("reading the URL of the operator function", &DisplayErrorContext(e).to_string())
        })?;
        Ok(answer.auth_type().as_str().to_owned())
    }

    /// Whether this caller may invoke the alias of the URL past the URL. Nothing runs: AWS only judges the call.
    async fn may_imitate(&self) -> Result<bool, Failure> {
        let what = "whether a plain invoke of the alias `live` is denied";
        if self.names.endpoint_url.is_some() {
            let message = format!("{what}: there is nobody to deny it on the emulator");
            return Err(Failure::new(Exit::Done, "emulator", message));
        }
        let judged = self.lambda.invoke().function_name(&self.names.operator_function).qualifier(ALIAS);
        match judged.invocation_type(InvocationType::DryRun).send().await {
            Ok(_) => Ok(true),
            Err(error) => match Failure::of_aws(what, &DisplayErrorContext(error).to_string()) {
                denied if denied.code == "no_permission" => Ok(false),
                failure => Err(failure),
            },
        }
    }

    async fn rule(&self, run: &str, name: &str) -> Result<Rule, Failure> {
        let what = format!("reading the rule of the {run} run");
        let failed = |text: String| Failure::of_aws(&what, &text);
        let rule = self.events.describe_rule().name(name).send().await;
        let rule = rule.map_err(|e| failed(DisplayErrorContext(e).to_string()))?;
        let targets = self.events.list_targets_by_rule().rule(name).send().await;
        let targets = targets.map_err(|e| failed(DisplayErrorContext(e).to_string()))?;
        Ok(Rule {
            state: rule.state().map_or_else(String::new, |state| state.as_str().to_owned()),
            targets: targets.targets().iter().map(|target| target.arn().to_owned()).collect(),
        })
    }

    async fn mappings(&self, function: &str) -> Result<Vec<Mapping>, Failure> {
        let mut pages = self.lambda.list_event_source_mappings().function_name(function).into_paginator().send();
        let mut mappings = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|e| {
                let what = format!("listing the event sources of {function}");
                Failure::of_aws(&what, &DisplayErrorContext(e).to_string())
            })?;
            mappings.extend(page.event_source_mappings().iter().map(mapping));
        }
        Ok(mappings)
    }

    async fn queue(&self, what: &str, url: &str) -> Result<Queue, Failure> {
        let read = self.sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All).send().await;
        let answer =
            read.map_err(|e| Failure::of_aws(&format!("reading the {what}"), &DisplayErrorContext(e).to_string()))?;
        let text = |name: &QueueAttributeName| answer.attributes().and_then(|all| all.get(name)).cloned();
        let number = |name| text(&name).and_then(|text| text.parse().ok()).unwrap_or_default();
        let policy = text(&QueueAttributeName::RedrivePolicy);
        let policy = policy.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let dead_letters = policy.and_then(|policy| {
            // A number in JSON, or a text, as whoever wrote it liked.
            let receives = &policy["maxReceiveCount"];
            let receives = receives.as_i64().or_else(|| receives.as_str()?.parse().ok())?;
            Some((policy["deadLetterTargetArn"].as_str()?.to_owned(), receives))
        });
        Ok(Queue {
            arn: text(&QueueAttributeName::QueueArn).unwrap_or_default(),
            visibility_seconds: number(QueueAttributeName::VisibilityTimeout),
            retention_seconds: number(QueueAttributeName::MessageRetentionPeriod),
            dead_letters,
        })
    }

    async fn table(&self) -> Result<Table, Failure> {
        let name = &self.names.deliveries_table;
        let answer = self.dynamodb.describe_table().table_name(name).send().await.map_err(|e| {
            Failure::of_aws("reading the description of the deliveries table", &DisplayErrorContext(e).to_string())
        })?;
        let table = answer.table();
        let stream = table.and_then(|table| table.stream_specification()).filter(|stream| stream.stream_enabled());
        Ok(Table {
            name: name.clone(),
            stream_arn: stream.and_then(|_| table?.latest_stream_arn().map(ToOwned::to_owned)),
            stream_view: stream.and_then(|stream| Some(stream.stream_view_type()?.as_str().to_owned())),
        })
    }
}

fn mapping(mapping: &EventSourceMappingConfiguration) -> Mapping {
    let filters = mapping.filter_criteria().map(|criteria| criteria.filters()).unwrap_or_default();
    Mapping {
        source_arn: mapping.event_source_arn().unwrap_or_default().to_owned(),
        state: mapping.state().unwrap_or_default().to_owned(),
        response_types: mapping.function_response_types().iter().map(|kind| kind.as_str().to_owned()).collect(),
        filters: filters.iter().filter_map(|filter| filter.pattern().map(ToOwned::to_owned)).collect(),
        max_retries: mapping.maximum_retry_attempts().map(i64::from),
    }
}
