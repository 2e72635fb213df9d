//! AWS, behind the traits of `outside`: the usual rules for environment, profiles and regions, one HTTP client, and the
//! stack's own names. Failures leave here sorted, never as an SDK's type.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_cloudformation::error::DisplayErrorContext;
use aws_sdk_lambda::primitives::Blob;
use domain::endpoint::Defaults;
use domain::id::EndpointKey;
use domain::registry::{Registration, RootKeys, SecretEntry};
use domain::retry::{RetryPolicy, Waits};
use jiff::tz::TimeZone;
use platform::clock::SystemClock;
use platform::dynamodb::EndpointTable;
use serde_json::Value;
use url::Url;
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure};
use crate::outside::{Caller, Intake, Operator, Registry, Stored, Sweeper, World};
use crate::stack::{Names, Source, Target};
use crate::url::OperatorUrl;

/// The real world.
pub struct Aws;

/// A stack on AWS, or on the emulator.
pub struct Stack {
    endpoints: EndpointTable,
    pub(crate) dynamodb: aws_sdk_dynamodb::Client,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) lambda: aws_sdk_lambda::Client,
    pub(crate) events: aws_sdk_eventbridge::Client,
    operator: OperatorUrl,
    /// None where nobody has a name: on the emulator.
    sts: Option<aws_sdk_sts::Client>,
    pub(crate) names: Names,
}

impl World for Aws {
    type Outside = Stack;
    type Clock = SystemClock;

    fn clock(&self) -> &SystemClock {
        &SystemClock
    }

    fn random_key(&self) -> Zeroizing<[u8; 32]> {
        platform::clock::random_key()
    }

    fn zone(&self) -> TimeZone {
        TimeZone::system()
    }

    async fn connect(&self, target: &Target) -> Result<Stack, Failure> {
        match &target.source {
            Source::File(path) => {
                let names = Names::from_file(path)?;
                let config = load(target, names.endpoint_url.as_deref(), names.region.as_deref()).await?;
                Stack::new(&config, names)
            }
            Source::Named(stack) => {
                let config = load(target, None, None).await?;
                let names = Names::from_outputs(stack, &outputs(&config, stack).await?)?;
                Stack::new(&config, names)
            }
        }
    }
}

async fn load(target: &Target, endpoint_url: Option<&str>, region: Option<&str>) -> Result<SdkConfig, Failure> {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(3))
        .operation_attempt_timeout(Duration::from_secs(15))
        .operation_timeout(Duration::from_secs(40))
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(platform::aws::http_client())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard());
    if let Some(profile) = &target.profile {
        loader = loader.profile_name(profile);
    }
    // What the caller asks for comes first, then what the description says, then the usual rules.
    if let Some(region) = target.region.as_deref().or(region) {
        loader = loader.region(Region::new(region.to_owned()));
    }
    if let Some(url) = endpoint_url {
        loader = loader.endpoint_url(url);
        if !target.own_credentials {
            let any = aws_sdk_sts::config::Credentials::new("test", "test", None, None, "local stack");
            loader = loader.credentials_provider(any);
        }
    }
    let config = loader.load().await;
    if config.region().is_none() {
        return Err(Failure::of_aws("looking for the stack", "Missing Region"));
    }
    Ok(config)
}

async fn outputs(config: &SdkConfig, stack: &str) -> Result<BTreeMap<String, String>, Failure> {
    let region = config.region().map(ToString::to_string).unwrap_or_default();
    let what = format!("looking for stack {stack:?} in {region}");
    let client = aws_sdk_cloudformation::Client::new(config);
    let answer = client.describe_stacks().stack_name(stack).send().await;
    let answer = answer.map_err(|e| Failure::of_aws(&what, &DisplayErrorContext(e).to_string()))?;
    let outputs = answer.stacks().first().map(|stack| stack.outputs()).unwrap_or_default();
    Ok(outputs.iter().filter_map(|o| Some((o.output_key()?.to_owned(), o.output_value()?.to_owned()))).collect())
}

impl Stack {
    fn new(config: &SdkConfig, names: Names) -> Result<Self, Failure> {
        // Registrations are read and written here, never resolved: what the deployment defaults to does not matter.
        let policy = RetryPolicy {
            attempts: 1,
            waits: Waits::List(vec![1]),
            jitter_percent: 0,
            hint_cap_seconds: 0,
            window_seconds: None,
        };
        let defaults = Defaults { policy, timeout_ms: 0 };
        let endpoints =
            EndpointTable::new(aws_sdk_dynamodb::Client::new(config), names.endpoints_table.clone(), defaults);
        let credentials = config.credentials_provider();
        let credentials =
            credentials.ok_or_else(|| Failure::of_aws("looking for the stack", "CredentialsNotLoaded"))?;
        let region = config.region().map(ToString::to_string).unwrap_or_default();
        let url = Url::parse(&names.operator_url).map_err(|e| {
            Failure::new(Exit::Unreachable, "not_redeliver", format!("the stack's operator URL is no URL: {e}"))
        })?;
        // A run may take as long as its function.
        let patient = TimeoutConfig::builder()
            .connect_timeout(Duration::from_secs(3))
            .operation_attempt_timeout(Duration::from_secs(70))
            .build();
        let lambda = aws_sdk_lambda::config::Builder::from(config).timeout_config(patient).build();
        Ok(Self {
            endpoints,
            operator: OperatorUrl::new(url, region, credentials),
            dynamodb: aws_sdk_dynamodb::Client::new(config),
            sqs: aws_sdk_sqs::Client::new(config),
            lambda: aws_sdk_lambda::Client::from_conf(lambda),
            events: aws_sdk_eventbridge::Client::new(config),
            sts: names.endpoint_url.is_none().then(|| aws_sdk_sts::Client::new(config)),
            names,
        })
    }
}

impl Registry for Stack {
    async fn registration(&self, id: &EndpointKey) -> Result<Option<Stored>, Failure> {
        Ok(self.endpoints.registration(id).await?)
    }

    async fn registrations(&self) -> Result<Vec<(EndpointKey, Stored)>, Failure> {
        Ok(self.endpoints.registrations().await?)
    }

    async fn replace(&self, id: &EndpointKey, expected: u64, new: &Registration) -> Result<bool, Failure> {
        new.to_stored().map_err(|problems| Failure::unwritable(&problems))?;
        Ok(self.endpoints.replace(id, expected, new).await?)
    }

    async fn root_keys(&self) -> Result<RootKeys, Failure> {
        Ok(self.endpoints.root_keys().await?)
    }

    async fn replace_root_keys(&self, expected: u64, keys: &[SecretEntry]) -> Result<bool, Failure> {
        Ok(self.endpoints.replace_root_keys(expected, keys).await?)
    }
}

impl Intake for Stack {
    async fn send(&self, body: &str, group: &str) -> Result<String, Failure> {
        let send = self.sqs.send_message().queue_url(&self.names.intake_queue_url).message_body(body);
        let answer = send.message_group_id(group).send().await;
        let answer =
            answer.map_err(|e| Failure::of_aws("sending to the intake queue", &DisplayErrorContext(e).to_string()))?;
        Ok(answer.message_id.unwrap_or_default())
    }
}

impl Operator for Stack {
    async fn ask(&self, action: Value) -> Result<Value, Failure> {
        self.operator.ask(&action).await
    }
}

impl Sweeper for Stack {
    async fn sweep(&self, run: Value) -> Result<Value, Failure> {
        let invoke = self.lambda.invoke().function_name(&self.names.sweep_function).payload(Blob::new(run.to_string()));
        let answer = invoke.send().await;
        let answer =
            answer.map_err(|e| Failure::of_aws("asking the sweep function", &DisplayErrorContext(e).to_string()))?;
        let text = answer.payload.map(Blob::into_inner).unwrap_or_default();
        let trouble = |message: &str| Failure {
            detail: Some(String::from_utf8_lossy(&text).into_owned()),
            ..Failure::new(Exit::Own, "sweep_function", format!("the sweep function {message}"))
        };
        if answer.function_error.is_some() {
            return Err(trouble("failed; its log says why, and repeating is safe"));
        }
        serde_json::from_slice(&text).map_err(|_| trouble("gave an answer that is no JSON"))
    }
}

impl Caller for Stack {
    async fn name(&self) -> Option<String> {
        let answer = self.sts.as_ref()?.get_caller_identity().send().await.ok()?;
        answer.arn().map(short_name)
    }
}

/// The part of a principal's ARN that people know it by.
fn short_name(arn: &str) -> String {
    let principal = arn.rsplit(':').next().unwrap_or(arn);
    let known = ["assumed-role/", "user/", "federated-user/"];
    known.iter().find_map(|prefix| principal.strip_prefix(prefix)).unwrap_or(principal).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_called_as_people_know_it() {
        for (arn, name) in [
            ("arn:aws:iam::111122223333:user/ada", "ada"),
            ("arn:aws:sts::111122223333:assumed-role/Oncall/ada", "Oncall/ada"),
            ("arn:aws:iam::111122223333:root", "root"),
        ] {
            assert_eq!(short_name(arn), name);
        }
    }
}
