//! What the endpoints table says of the endpoints of a plan. The operator function may not read it, because it holds
//! secrets; who asks here may, or may not: then that is said, and nothing fails because of it.

use domain::id::EndpointKey;
use domain::summary::ENDPOINTS;
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::outside::Registry;

/// Adds to the warnings of a plan, or of a proposal, what is wrong with its largest endpoints.
pub(super) async fn warn<O: Registry>(outside: &O, plan: &mut Value) {
    let mut largest: Vec<(String, u64)> = plan["by_endpoint"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, count)| (name.clone(), count.as_u64().unwrap_or_default()))
        .collect();
    largest.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    largest.truncate(ENDPOINTS);
    let mut warnings = plan["warnings"].as_array().cloned().unwrap_or_default();
    for (name, count) in largest {
        let Ok(key) = EndpointKey::registered(&name) else { continue };
        let wrong = match outside.registration(&key).await {
            Ok(Some(Ok(registration))) if registration.removed_at.is_none() => continue,
            Ok(Some(Ok(_))) => "is removed",
            Ok(Some(Err(_))) => "has a definition that cannot be used",
            Ok(None) => "is not registered",
            Err(failure) => {
                let why = if failure.exit == Exit::Denied { "no permission" } else { "it cannot be read" };
                warnings.push(json!(format!("whether its endpoints are registered was not looked at: {why}")));
                break;
            }
        };
        warnings.push(json!(format!("endpoint {key} {wrong}: {count} deliveries would be held at once")));
    }
    plan["warnings"] = json!(warnings);
}
