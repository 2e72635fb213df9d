//! Who calls, and how: a plain invoke carries the action itself; a function URL wraps it in an HTTP event.
//!
//! Only AWS can vouch for a caller. A plain invoke can carry any JSON, an imitation of a URL event included, so an identity
//! counts as verified only when the event has the IAM authorizer *and* the invoked ARN carries the URL's alias; operators
//! may invoke that alias through the URL only.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::plan::Who;
use serde_json::Value;

use crate::answer::Refusal;

/// A request, unwrapped.
#[derive(Debug)]
pub struct Call {
    /// The action.
    pub input: Value,
    /// It came through the function URL, so the answer has to be an HTTP response.
    pub http: bool,
    /// The principal that AWS vouches for.
    pub principal: Option<String>,
}

impl Call {
    /// Unwraps an event.
    pub fn read(event: Value, function_arn: &str, alias: &str) -> Result<Self, Refusal> {
        let Some(context) = event.get("requestContext").filter(|c| c.get("http").is_some()) else {
            return Ok(Self { input: event, http: false, principal: None });
        };
        let on_alias = function_arn.rsplit(':').next() == Some(alias);
        let principal = context.pointer("/authorizer/iam/userArn").and_then(Value::as_str);
        if context.pointer("/http/method").and_then(Value::as_str) != Some("POST") {
            return Err(Refusal::invalid("send the action as the body of a POST"));
        }
        let text = event.get("body").and_then(Value::as_str).unwrap_or_default();
        let bytes = if event.get("isBase64Encoded").and_then(Value::as_bool) == Some(true) {
            STANDARD.decode(text).map_err(|_| Refusal::invalid("the body is not base64"))?
        } else {
            text.as_bytes().to_vec()
        };
        let input =
            serde_json::from_slice(&bytes).map_err(|e| Refusal::invalid(format!("the body is not JSON: {e}")))?;
        Ok(Self { input, http: true, principal: principal.filter(|_| on_alias).map(ToOwned::to_owned) })
    }

    /// The caller, for the record: the verified principal, or the name that the request gave.
    pub fn who(&self, operator: Option<&str>) -> Who {
        match &self.principal {
            Some(principal) => Who { name: principal.clone(), verified: true },
            None => Who { name: operator.unwrap_or("unknown").chars().take(128).collect(), verified: false },
        }
    }
}

/// The part of a verified principal that tells people apart. Who assumes a role chooses the name of the session, so there
/// it is the role; but for roles of IAM Identity Center, where AWS sets that name to the user's.
pub fn person(principal: &str) -> &str {
    match principal.split_once(":assumed-role/") {
        Some((_, role)) if !role.starts_with("AWSReservedSSO_") => {
            principal.rsplit_once('/').map_or(principal, |(role, _)| role)
        }
        Some(_) | None => principal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const URL_ARN: &str = "arn:aws:lambda:eu-west-1:111122223333:function:approve:live";

    fn url_event(body: &str, base64: bool) -> Value {
        json!({
            "version": "2.0", "body": body, "isBase64Encoded": base64,
            "requestContext": {"http": {"method": "POST"}, "authorizer": {"iam": {"userArn": "arn:aws:iam::111122223333:user/ada"}}},
        })
    }

    #[test]
    fn a_plain_invoke_is_never_verified() {
        let call = Call::read(json!({"action": "list", "operator": "ada"}), URL_ARN, "live").unwrap();
        assert_eq!((call.http, call.who(Some("ada"))), (false, Who { name: "ada".into(), verified: false }));
        let imitation = Call::read(url_event("{}", false), URL_ARN.trim_end_matches(":live"), "live").unwrap();
        assert!(!imitation.who(Some("ada")).verified);
    }

    #[test]
    fn a_person_cannot_become_two_by_the_name_of_a_session() {
        let role = |role: &str, session: &str| format!("arn:aws:sts::111122223333:assumed-role/{role}/{session}");
        assert_eq!(person(&role("Oncall", "ada")), person(&role("Oncall", "bea")));
        assert_ne!(person(&role("Oncall", "ada")), person(&role("Leads", "ada")));
        let sso = "AWSReservedSSO_Oncall_0123456789abcdef";
        assert_ne!(person(&role(sso, "ada@example.com")), person(&role(sso, "bea@example.com")));
        let user = |name: &str| format!("arn:aws:iam::111122223333:user/{name}");
        assert_ne!(person(&user("ada")), person(&user("bea")));
    }

    #[test]
    fn a_call_through_the_url_is_verified_by_its_principal() {
        for event in [url_event(r#"{"a":1}"#, false), url_event("eyJhIjoxfQ==", true)] {
            let call = Call::read(event, URL_ARN, "live").unwrap();
            assert_eq!((call.http, &call.input), (true, &json!({"a": 1})));
            assert_eq!(
                call.who(Some("eve")),
                Who { name: "arn:aws:iam::111122223333:user/ada".into(), verified: true }
            );
        }
        assert!(Call::read(url_event("nope", false), URL_ARN, "live").unwrap_err().message.contains("JSON"));
    }
}
