//! `endpoint export`: the registry in the form of `apply`. No secret is in it; values of headers become references to
//! variables, because they may be credentials.

use clap::Args;
use domain::id::EndpointKey;
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
        let variable: String = format!("{id}_{name}")
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        *value = json!({ "env": variable });
        variables.push(variable);
    }
}
