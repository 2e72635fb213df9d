//! `endpoint export`: the registry in the form of `apply`. No secret is in it; values of headers become references to
//! variables, because they may be credentials.

use clap::Args;
use domain::id::{EndpointKey, sha256_hex};
use serde_json::{Map, Value, json};

use super::file::Format;
use super::{existing, id};
use crate::exit::{Exit, Failure};
use crate::outside::{Registry, World};
use crate::session::Session;

/// `endpoint export`
#[derive(Debug, Args)]
pub struct Export {
    /// Only these endpoints; all that are not removed, if none is named
    #[arg(value_parser = id)]
    ids: Vec<EndpointKey>,
    /// toml or yaml
    #[arg(long, value_enum, default_value = "toml", hide_possible_values = true)]
    format: Format,
    /// Write the values of headers too
    #[arg(long)]
    header_values: bool,
}

pub(super) async fn export<W: World>(session: &mut Session<'_, W>, export: &Export) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let mut endpoints = Map::new();
    let mut variables = Vec::new();
    let mut wanted = Vec::new();
    if export.ids.is_empty() {
        for (id, stored) in outside.registrations().await? {
            match stored {
                Ok(registration) if registration.removed_at.is_none() => wanted.push((id, registration)),
                Ok(_) => {}
                Err(_) => session.note(&format!("{id} is left out: what is stored of it cannot be read")),
            }
        }
    } else {
        for id in &export.ids {
            wanted.push((id.clone(), existing(&outside, id).await?));
        }
    }
    for (id, registration) in wanted {
        let mut definition = registration.definition.to_json();
        if !export.header_values {
            hide(&id, &mut definition, &mut variables);
        }
        endpoints.insert(id.to_string(), definition);
    }
    if !variables.is_empty() {
        session.note(&format!(
            "Values of headers are left out; `apply` takes them from the variables {}.",
            variables.join(", ")
        ));
    }
    let text = export.format.write(endpoints.clone())?;
    session.answer(&json!({"ok": true, "endpoints": endpoints}), &text)?;
    Ok(Exit::Done)
}

fn hide(id: &EndpointKey, definition: &mut Value, variables: &mut Vec<String>) {
    let Some(headers) = definition.get_mut("headers").and_then(Value::as_object_mut) else { return };
    for (name, value) in headers {
        let variable = variable(id.as_str(), name);
        *value = json!({ "env": variable });
        variables.push(variable);
    }
}

/// The variable for one header of one endpoint. No two have the same, whatever else is exported: one partner's credential
/// must not go to another. Where letter case or a character is lost, or the parts could be divided in another way, a hash
/// tells them apart.
fn variable(id: &str, header: &str) -> String {
    let plain = |text: &str, divider: char| {
        text.split(divider)
            .all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()))
    };
    let shouted = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
    };
    let first = if id.starts_with(|c: char| c.is_ascii_alphabetic()) { "" } else { "EP_" };
    let name = format!("{first}{}__{}", shouted(id), shouted(header));
    if first.is_empty() && plain(id, '_') && plain(header, '-') {
        return name;
    }
    let hash = sha256_hex(format!("{id}#{header}").as_bytes());
    format!("{name}__{}", hash[..12].to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_headers_have_the_same_variable_and_each_can_be_set_in_a_shell() {
        let ids =
            ["ep_a", "ep-a", "EP_A", "ep_a_", "ep_a__b", "ep_a_b", "ep_a-b", "1", "_1", "-1", "ep_1", "EP_1", "a"];
        let headers = ["authorization", "b", "b-c", "b.c", "b_c", "c", "_b", "-b", "x__y", "b--c"];
        let pairs = || ids.iter().flat_map(|id| headers.iter().map(move |header| variable(id, header)));
        assert_eq!(pairs().collect::<BTreeSet<_>>().len(), ids.len() * headers.len());
        for name in pairs() {
            let allowed = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_';
            assert!(name.as_bytes()[0].is_ascii_uppercase() && name.bytes().all(allowed), "{name}");
        }
        assert_eq!(variable("ep_a", "authorization"), "EP_A__AUTHORIZATION");
    }
}
