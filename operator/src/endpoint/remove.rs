//! `endpoint remove`: the endpoint stays in the table, marked, so that its deliveries are held and not rejected.

use clap::Args;
use domain::id::EndpointKey;
use serde_json::{Value, json};

use super::{existing, id, replace};
use crate::exit::{Exit, Failure};
use crate::outside::{Operator, World};
use crate::session::Session;

/// So many pages of held deliveries are counted.
const PAGES: usize = 20;

/// `endpoint remove`
#[derive(Debug, Args)]
pub struct Remove {
    /// The endpoint
    #[arg(value_parser = id)]
    id: EndpointKey,
}

pub(super) async fn remove<W: World>(session: &mut Session<'_, W>, remove: &Remove) -> Result<Exit, Failure> {
    let outside = session.connect().await?;
    let id = &remove.id;
    let old = existing(&outside, id).await?;
    if let Some(at) = old.removed_at {
        let document = json!({"ok": true, "endpoint": id.as_str(), "version": old.version, "changed": false});
        session.answer(&document, &format!("{id} was removed {} already.", session.time(at)))?;
        return Ok(Exit::Done);
    }
    session.confirm(&format!("Remove {id}, and hold all that is sent to it"))?;
    let next = old.removed(session.now());
    replace(&outside, id, old.version, &next).await?;
    let held = held(&outside, id).await;
    let count = match &held {
        Ok((count, true)) => format!("more than {count} deliveries are held for it now"),
        Ok((1, false)) => "1 delivery is held for it now".to_owned(),
        Ok((count, false)) => format!("{count} deliveries are held for it now"),
        Err(failure) => format!("how many deliveries are held for it is not known ({})", failure.message),
    };
    let text = format!(
        "{id} is removed (version {}): {count}, and later ones will be.\nNothing is deleted. Undo with `redeliver endpoint add {id} --restore --url …`, then `redeliver endpoint resume {id} --reason …`.",
        next.version
    );
    let document = json!({"ok": true, "endpoint": id.as_str(), "version": next.version, "changed": true,
        "held": held.as_ref().ok().map(|(count, _)| count), "held_is_more": held.as_ref().is_ok_and(|(_, more)| *more)});
    session.answer(&document, &text)?;
    Ok(Exit::Done)
}

/// How many deliveries of an endpoint are held, and whether there are more.
pub(super) async fn held<O: Operator>(outside: &O, id: &EndpointKey) -> Result<(usize, bool), Failure> {
    let (mut count, mut cursor) = (0, Value::Null);
    for _ in 0..PAGES {
        let list = json!({"action": "list", "state": "held", "endpoint": id.as_str(), "limit": 500, "cursor": cursor});
        let mut page = Failure::of_answer(outside.ask(list).await?)?;
        count += page["items"].as_array().map_or(0, Vec::len);
        cursor = page["cursor"].take();
        if cursor.is_null() {
            return Ok((count, false));
        }
    }
    Ok((count, true))
}
