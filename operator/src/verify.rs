//! `redeliver verify`: what a receiver saw, tried against the keys there are. It says which key fits, or which mistake was
//! made; it never prints a key.

use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use domain::diagnosis::{Candidate, Diagnosis, Fault, Key, Presented, diagnose};
use domain::id::EndpointKey;
use domain::registry::SecretEntry;
use domain::signature::{PublicKey, Scheme, Secret};
use domain::time::Millis;
use serde_json::{Value, json};
use url::Url;

use crate::exit::{Exit, Failure};
use crate::outside::{Registry, World};
use crate::send::bytes_of;
use crate::session::{Paint, Session};
use crate::when;

/// `verify`
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("key").required(true))]
pub struct Arguments {
    /// Take the secret from standard input
    #[arg(long, group = "key", requires = "body_file")]
    secret_stdin: bool,
    /// Take the secrets of a registered endpoint
    #[arg(long, value_name = "ID", value_parser = EndpointKey::registered, group = "key")]
    endpoint: Option<EndpointKey>,
    /// Take the keys of an inline URL
    #[arg(long, value_parser = domain::request::check_url, group = "key")]
    url: Option<Url>,
    /// A public key, whpk_…
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse, group = "key")]
    public_key: Option<PublicKey>,
    /// The webhook-id header
    #[arg(long)]
    id: Option<String>,
    /// The webhook-timestamp header
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    timestamp: Option<String>,
    /// The webhook-signature header
    #[arg(long, value_name = "TEXT")]
    signature: Option<String>,
    /// A file with the headers, one a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["id", "timestamp", "signature"])]
    headers: Option<PathBuf>,
    /// The body, from a file [default: standard input]
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// The receiver's clock [default: now]
    #[arg(long, value_name = "TIME", value_parser = when::time, conflicts_with = "no_tolerance")]
    at: Option<Millis>,
    /// Accept a timestamp of any age
    #[arg(long)]
    no_tolerance: bool,
}

struct Headers {
    id: String,
    timestamp: String,
    signature: String,
}

/// Runs the command.
pub async fn run<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<Exit, Failure> {
    let headers = headers_of(session, arguments)?;
    let mut candidates = candidates(session, arguments).await?;
    let body = bytes_of(session, arguments.body_file.as_deref().unwrap_or(Path::new("-")))?;
    let now = (!arguments.no_tolerance).then(|| arguments.at.unwrap_or_else(|| session.now()));
    let presented =
        Presented { id: &headers.id, timestamp: &headers.timestamp, signatures: &headers.signature, body: &body };
    let mut diagnosis = diagnose(&presented, &candidates, now);
    if let Some(own) = &arguments.endpoint
        && diagnosis.findings.iter().any(|finding| finding.fault == Fault::NoMatch)
    {
        candidates.extend(of_others(session, own).await?);
        diagnosis = diagnose(&presented, &candidates, now);
    }
    tell(session, &diagnosis)
}

fn tell<W: World>(session: &mut Session<'_, W>, diagnosis: &Diagnosis) -> Result<Exit, Failure> {
    let by = diagnosis.by.as_ref().map(|(name, scheme)| format!("{name} ({scheme})"));
    let (text, exit) = if diagnosis.is_valid() {
        let made = by.as_ref().map(|by| format!(": made with {by}")).unwrap_or_default();
        (format!("{}{made}.", session.paint(Paint::Green, "valid")), Exit::Done)
    } else {
        let findings: String = diagnosis.findings.iter().map(|f| format!("  {}\n", f.detail)).collect();
        let made = by.as_ref().map(|by| format!("  The key is {by}.\n")).unwrap_or_default();
        (format!("{}\n{findings}{made}", session.paint(Paint::Red, "invalid")), Exit::No)
    };
    let findings: Value =
        diagnosis.findings.iter().map(|f| json!({"fault": f.fault.name(), "detail": f.detail})).collect();
    let by = diagnosis.by.as_ref().map(|(name, scheme)| json!({"key": name, "scheme": scheme.name()}));
    session.answer(&json!({"ok": true, "valid": diagnosis.is_valid(), "by": by, "findings": findings}), &text)?;
    Ok(exit)
}

fn headers_of<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<Headers, Failure> {
    let Arguments { id, timestamp, signature, .. } = arguments;
    let mut found = [id.clone(), timestamp.clone(), signature.clone()];
    const NAMES: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    if let Some(path) = &arguments.headers {
        let bytes = bytes_of(session, path)?;
        for line in String::from_utf8_lossy(&bytes).lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let Some(at) = NAMES.iter().position(|known| name.trim().eq_ignore_ascii_case(known)) else { continue };
            // Several lines of one name are one list.
            found[at] = Some(match found[at].take() {
                Some(before) => format!("{before} {}", value.trim()),
                None => value.trim().to_owned(),
            });
        }
    }
    let missing: Vec<&str> =
        NAMES.iter().zip(&found).filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
    let [Some(id), Some(timestamp), Some(signature)] = found else {
        return Err(Failure::invalid(format!(
            "not given: {}; use --id, --timestamp and --signature, or --headers with a file that has them",
            missing.join(", ")
        )));
    };
    Ok(Headers { id, timestamp, signature })
}

async fn candidates<W: World>(session: &mut Session<'_, W>, arguments: &Arguments) -> Result<Vec<Candidate>, Failure> {
    let own = |name: String, key| Candidate { name, key, retired_at: None, other: false };
    if arguments.secret_stdin {
        let text = session.secret_input()?;
        let secrets = text.lines().filter(|line| !line.trim().is_empty()).map(|line| {
            let secret = Secret::parse(line).map_err(|e| Failure::invalid(format!("--secret-stdin: {e}")))?;
            Ok(own("the secret on standard input".to_owned(), Key::Secret(secret)))
        });
        return secrets.collect();
    }
    if let Some(key) = &arguments.public_key {
        return Ok(vec![own("the public key that was given".to_owned(), Key::Public(key.clone()))]);
    }
    let outside = session.connect().await?;
    if let Some(url) = &arguments.url {
        let origin = domain::id::origin(url);
        let roots = outside.root_keys().await?.keys;
        if roots.is_empty() {
            return Err(Failure::not_found("there are no keys of inline URLs yet: nothing was ever sent to one"));
        }
        let keys = roots.iter().flat_map(|root| Scheme::ALL.iter().map(move |scheme| (root, *scheme)));
        return Ok(keys
            .map(|(root, scheme)| Candidate {
                retired_at: root.retired_at,
                ..own(named(session, &origin, root), Key::Secret(root.secret.for_origin(scheme, &origin)))
            })
            .collect());
    }
    let Some(id) = &arguments.endpoint else { return Err(Failure::invalid("say whose key to use")) };
    match outside.registration(id).await? {
        None => Err(Failure::not_found(format!("there is no endpoint {id}"))),
        Some(Err(_)) => Err(Failure::invalid(format!(
            "what is stored of {id} cannot be read; `redeliver endpoint show {id}` says why"
        ))),
        Some(Ok(registration)) if registration.secrets.is_empty() => {
            Err(Failure::not_found(format!("{id} has no secrets, so its requests are not signed")))
        }
        Some(Ok(registration)) => Ok(of_entries(session, id.as_str(), &registration.secrets, false)),
    }
}

/// The secrets of all other endpoints: a receiver may have mixed them up.
async fn of_others<W: World>(session: &Session<'_, W>, own: &EndpointKey) -> Result<Vec<Candidate>, Failure> {
    let all = session.connect().await?.registrations().await?;
    let others = all.iter().filter(|(id, _)| id != own).filter_map(|(id, stored)| Some((id, stored.as_ref().ok()?)));
    Ok(others.flat_map(|(id, registration)| of_entries(session, id.as_str(), &registration.secrets, true)).collect())
}

fn of_entries<W: World>(session: &Session<'_, W>, owner: &str, entries: &[SecretEntry], other: bool) -> Vec<Candidate> {
    let candidate = |entry: &SecretEntry| Candidate {
        name: named(session, owner, entry),
        key: Key::Secret(entry.secret.clone()),
        retired_at: entry.retired_at,
        other,
    };
    entries.iter().map(candidate).collect()
}

fn named<W: World>(session: &Session<'_, W>, owner: &str, entry: &SecretEntry) -> String {
    let made =
        if entry.created_at == Millis(0) { String::new() } else { format!(" made {}", session.time(entry.created_at)) };
    let retired = match entry.retired_at {
        Some(at) if at <= session.now() => format!(", retired {}", session.time(at)),
        Some(at) => format!(", which retires {}", session.time(at)),
        None => String::new(),
    };
    format!("the secret of {owner}{made}{retired}")
}
