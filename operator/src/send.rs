//! `redeliver send`: a webhook on the intake queue, judged by the contract's own parser before it goes, so that nothing is
//! sent that would be rejected.

use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use domain::id::{DeliveryKey, StateKey};
use domain::message::{Intake as Parsed, Limits, parse};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::follow::{Seen, Until, follow, told};
use crate::outside::{Intake, World};
use crate::session::{Paint, Session, plain, plain_lines};
use crate::when;

/// No deployment accepts more; most accept less.
const MAX_BODY_BYTES: usize = 358_400;
/// What a deployment accepts unless it was told otherwise.
const DEFAULT_BODY_BYTES: usize = 262_144;
/// The largest message that SQS takes.
const MAX_MESSAGE_BYTES: usize = 1_048_576;

/// `send`
#[derive(Debug, Args)]
pub struct Arguments {
    /// The event id: yours, stable for ever
    #[arg(long, required_unless_present = "raw")]
    id: Option<String>,
    /// A registered endpoint
    #[arg(long, value_name = "ID", required_unless_present_any = ["url", "raw"], conflicts_with = "url")]
    endpoint: Option<String>,
    /// An inline URL
    #[arg(long)]
    url: Option<String>,
    /// The body, as text
    #[arg(long, value_name = "TEXT", group = "content")]
    body: Option<String>,
    /// The body, from a file (- is standard input); bytes that are no Unicode text are sent as they are
    #[arg(long, value_name = "FILE", group = "content")]
    body_file: Option<PathBuf>,
    /// The body as JSON, or @FILE; its very bytes are sent
    #[arg(long, value_name = "JSON|@FILE", group = "content")]
    body_json: Option<String>,
    /// The content type [default: application/json; for bytes application/octet-stream]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// An extra header; may be repeated
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Your own reference, shown to operators, not sent
    #[arg(long, value_name = "TEXT")]
    correlation_id: Option<String>,
    /// Not before, as RFC 3339 with offset
    #[arg(long, value_name = "TIME")]
    deliver_at: Option<String>,
    /// Not after
    #[arg(long, value_name = "TIME")]
    deliver_by: Option<String>,
    /// A whole message, from a file (- is standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "endpoint", "url", "content", "content_type", "header", "correlation_id", "deliver_at", "deliver_by"])]
    raw: Option<PathBuf>,
    /// Check the message and show it, without sending
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Wait until it is delivered, or parked
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, value_name = "DURATION", value_parser = when::duration, default_value = "60s", requires = "wait")]
    timeout: i64,
}

/// Runs the command.
pub async fn run<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<Exit, Failure> {
    let message = match &arguments.raw {
        Some(path) => String::from_utf8(bytes_of(session, path)?)
            .map_err(|_| Failure::invalid("--raw: a message is UTF-8 text"))?,
        None => built(session, arguments)?,
    };
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(Failure::invalid(format!(
            "the message has {} bytes, SQS takes {MAX_MESSAGE_BYTES}",
            message.len()
        )));
    }
    let limits = Limits { max_body_bytes: MAX_BODY_BYTES, allow_inline_urls: true };
    let parsed = parse(&message, &limits).map_err(|refusal| {
        Failure::invalid(format!("it would be rejected ({}): {}", refusal.reason, refusal.detail))
    })?;
    let (key, group, cancels) = match &parsed {
        Parsed::Webhook(webhook) => {
            if webhook.payload.body.len() > DEFAULT_BODY_BYTES {
                session.note(&format!("The body is larger than {DEFAULT_BODY_BYTES} bytes, which is what a deployment takes unless MaxBodyBytes says more."));
            }
            (webhook.key.clone(), webhook.state_key.clone(), false)
        }
        Parsed::Cancel(cancel) => (cancel.key.clone(), cancel.state_key.clone(), true),
    };
    if arguments.dry_run {
        let document = json!({"ok": true, "dry_run": true, "message": message, "group": group.as_str()});
        // As it stands, unless somebody looks at it.
        let shown = if session.io.shows { plain_lines(&message) } else { message.clone() };
        session.answer(&document, &shown)?;
        return Ok(Exit::Done);
    }
    let outside = session.connect().await?;
    let sqs_id = outside.send(&message, group.as_str()).await?;
    let sent = Sent { key, group, sqs_id };
    if arguments.wait && !cancels {
        return wait(session, &outside, &sent, arguments.timeout).await;
    }
    let what = if cancels { "The cancel of" } else { "Sent" };
    session.answer(
        &sent.to_json(),
        &format!("{what} {} is on the intake queue: SQS message {}.", sent.key.event, sent.sqs_id),
    )?;
    Ok(Exit::Done)
}

struct Sent {
    key: DeliveryKey,
    group: StateKey,
    sqs_id: String,
}

impl Sent {
    fn to_json(&self) -> Value {
        json!({"ok": true, "id": self.key.event.as_str(), "endpoint": self.key.endpoint.as_str(), "group": self.group.as_str(), "message_id": self.sqs_id})
    }
}

async fn wait<W: World>(
    session: &mut Session<'_, W>,
    outside: &W::Outside,
    sent: &Sent,
    timeout_ms: i64,
) -> Result<Exit, Failure> {
    session.note(&format!("Sent {}: SQS message {}.", sent.key.event, sent.sqs_id));
    let seen = follow(session, outside, sent.key.event.as_str(), &sent.key.endpoint, Until::Parked, timeout_ms).await?;
    let mut document = sent.to_json();
    let (text, delivered) = match seen {
        Seen::Delivery(answer) => {
            let text = told(session, &answer);
            for name in ["delivery", "history", "next"] {
                document[name] = answer[name].clone();
            }
            (text, answer["delivery"]["state"] == "delivered")
        }
        Seen::Rejected(why) => {
            document["rejected"] = json!(why);
            (format!("{}: {}", session.paint(Paint::Red, "rejected"), plain(&why)), false)
        }
        Seen::TooLate(last) => {
            let known = last.map(|answer| told(session, &answer)).unwrap_or_default();
            document["timed_out"] = json!(true);
            (format!("It is not done after {}.\n{known}", when::rough(timeout_ms)), false)
        }
    };
    document["delivered"] = json!(delivered);
    session.answer(&document, &text)?;
    Ok(if delivered { Exit::Done } else { Exit::No })
}

/// The message that the options describe, with the bytes of a JSON body as they are.
fn built<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<String, Failure> {
    let text = |value: &str| json!(value).to_string();
    let mut fields: Vec<(&str, String)> = Vec::new();
    let mut put = |name: &'static str, value: &Option<String>| {
        if let Some(value) = value {
            fields.push((name, text(value)));
        }
    };
    put("id", &arguments.id);
    put("endpoint", &arguments.endpoint);
    put("url", &arguments.url);
    put("body", &arguments.body);
    put("content_type", &arguments.content_type);
    put("correlation_id", &arguments.correlation_id);
    put("deliver_at", &arguments.deliver_at);
    put("deliver_by", &arguments.deliver_by);
    if let Some(path) = &arguments.body_file {
        match String::from_utf8(bytes_of(session, path)?) {
            Ok(body) => fields.push(("body", text(&body))),
            Err(error) => fields.push(("body_base64", text(&STANDARD.encode(error.as_bytes())))),
        }
    }
    if let Some(given) = &arguments.body_json {
        let source = match given.strip_prefix('@') {
            Some(path) => String::from_utf8(bytes_of(session, Path::new(path))?)
                .map_err(|_| Failure::invalid("--body-json: JSON is UTF-8 text"))?,
            None => given.clone(),
        };
        let raw: &RawValue = serde_json::from_str(&source).map_err(|e| {
            Failure::invalid(format!("--body-json is no JSON: line {}, column {}", e.line(), e.column()))
        })?;
        fields.push(("json", raw.get().to_owned()));
    }
    if !arguments.header.is_empty() {
        let pair = |header: &String| {
            let (name, value) = header.split_once(':')?;
            Some(format!("{}:{}", text(name.trim()), text(value.trim())))
        };
        let pairs: Option<Vec<String>> = arguments.header.iter().map(pair).collect();
        let pairs = pairs.ok_or_else(|| Failure::invalid("--header must be written as 'Name: value'"))?;
        fields.push(("headers", format!("{{{}}}", pairs.join(","))));
    }
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{}:{value}", text(name))).collect();
    Ok(format!("{{{}}}", fields.join(",")))
}

/// The bytes of a file, or of standard input.
pub(crate) fn bytes_of<W: World>(session: &mut Session<'_, W>, path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        session.io.stdin.read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.map_err(|e| Failure::invalid(format!("{} cannot be read: {e}", path.display())))?;
    Ok(bytes)
}
