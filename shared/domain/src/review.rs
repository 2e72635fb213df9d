//! What an operator should know of a registration before somebody else finds out: sentences, not refusals.

use url::Url;

use crate::egress::EgressPolicy;
use crate::registry::Registration;
use crate::time::Millis;

/// What is worth a second look, at a time. No sentence repeats a path or query of the URL, or a secret.
pub fn warnings(registration: &Registration, now: Millis) -> Vec<String> {
    let mut warnings = Vec::new();
    let definition = &registration.definition;
    for scheme in registration.unsigned_schemes(now) {
        warnings.push(format!(
            "misconfigured, its deliveries are held: no active {scheme} secret; rotate it, or take {scheme} out of the signatures"
        ));
    }
    if definition.signatures.is_empty() {
        warnings.push("requests are not signed: the receiver cannot tell them from forged ones".to_owned());
    }
    if let Ok(url) = Url::parse(&definition.url) {
        if url.scheme() == "http" {
            warnings.push("the URL is plain http: everybody on the way can read and change the webhooks".to_owned());
        }
        // Every public receiver: what this refuses is refused unless the deployment lists it.
        let public = EgressPolicy::parse(true, "any", "", "");
        if let Some(why) = public.ok().and_then(|public| public.check_url(&url).err()) {
            warnings.push(format!("the deployment may refuse to send there: {why}"));
        }
    }
    if registration.version == 0 {
        warnings.push("written by hand, without a version: the next change gives it one".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn found(value: Value) -> Vec<String> {
        warnings(&Registration::from_json(value).unwrap(), Millis(0))
    }

    #[test]
    fn a_signed_public_https_endpoint_with_a_version_is_fine() {
        assert!(found(json!({"url": "https://h.example.test/", "secrets": [SECRET], "version": 1})).is_empty());
    }

    #[test]
    fn what_is_worth_a_second_look_is_said_without_the_url() {
        for (value, part) in [
            (json!({"url": "https://h.example.test/s3cr3t", "version": 1}), "no active v1 secret"),
            (json!({"url": "https://h.example.test/s3cr3t", "signatures": [], "version": 1}), "not signed"),
            (json!({"url": "http://h.example.test/s3cr3t", "secrets": [SECRET], "version": 1}), "plain http"),
            (json!({"url": "https://10.0.0.1/s3cr3t", "secrets": [SECRET], "version": 1}), "may refuse"),
            (json!({"url": "https://h.example.test/s3cr3t", "secrets": [SECRET]}), "without a version"),
        ] {
            let found = found(value.clone());
            assert_eq!(found.len(), 1, "{value}: {found:?}");
            assert!(found[0].contains(part) && !found[0].contains("s3cr3t"), "{value}: {found:?}");
        }
    }
}
