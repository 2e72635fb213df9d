//! What the endpoints table says of one endpoint: a reviewed [`Definition`], its secrets, and the version of both.
//!
//! It is read strictly: an unknown field is refused by name, and a wrong one with what it should be; no message repeats a
//! value, because values here are secrets and URLs with tokens.

use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use crate::definition::Definition;
use crate::endpoint::{Defaults, EndpointConfig};
use crate::fields::{Fields, Problem};
use crate::outcome::AnswerRules;
use crate::signature::Secret;
use crate::time::{Millis, SECOND_MS};

/// The most secrets that an endpoint may have, retired ones included.
pub const MAX_SECRETS: usize = 10;
/// A secret with its times.
#[derive(Clone, Debug)]
pub struct SecretEntry {
    /// The key.
    pub secret: Secret,
    /// Since when.
    pub created_at: Millis,
    /// Not from here on.
    pub retired_at: Option<Millis>,
}

impl SecretEntry {
    /// True while requests are signed with it.
    pub fn is_active(&self, now: Millis) -> bool {
        self.retired_at.is_none_or(|at| at > now)
    }
}

/// An endpoint as it is stored.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The reviewed part.
    pub definition: Definition,
    /// The newest first.
    pub secrets: Vec<SecretEntry>,
    /// Grows by one with every change; a change names the version that it was made from.
    pub version: u64,
    /// When it was changed last.
    pub updated_at: Option<Millis>,
    /// Since when it is removed.
    pub removed_at: Option<Millis>,
}

/// What is stored under an id and cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Why not.
    pub problems: Vec<Problem>,
    /// Its version, or 0 where that cannot be told.
    pub version: u64,
    /// Those of its secrets that can be read.
    pub secrets: Vec<SecretEntry>,
}

impl Registration {
    /// What `deliver` needs, at a time: defaults filled in, retired secrets left out.
    pub fn resolve(&self, defaults: &Defaults, now: Millis) -> Result<EndpointConfig, Problem> {
        let Definition { retry, .. } = &self.definition;
        let mut policy = defaults.policy.clone();
        policy.attempts = retry.max_attempts.unwrap_or(policy.attempts);
        policy.waits = retry.waits.clone().unwrap_or(policy.waits);
        policy.jitter_percent = retry.jitter_percent.unwrap_or(policy.jitter_percent);
        policy.window_seconds = retry.window_seconds.or(policy.window_seconds);
        // The deployment's cap is its word to its producers; an endpoint may only ask for less.
        policy.hint_cap_seconds =
            retry.hint_cap_seconds.map_or(policy.hint_cap_seconds, |cap| cap.min(policy.hint_cap_seconds));
        let timeout_ms = self
            .definition
            .timeout_seconds
            .map_or(defaults.timeout_ms, |seconds| (i64::from(seconds) * SECOND_MS).min(defaults.timeout_ms));
        Ok(EndpointConfig {
            url: self.definition.url.clone(),
            timeout_ms,
            policy,
            headers: self.definition.headers.iter().map(|(n, v)| (n.clone(), v.clone())).collect(),
            rules: AnswerRules {
                retry: self.definition.retry_statuses.clone(),
                permanent: self.definition.permanent_statuses.clone(),
                directives: self.definition.receiver_control,
            },
            secrets: self.active_secrets(now)?,
        })
    }

    /// The secrets that sign at a time. A scheme that is asked for and has none is a fault: nothing goes out unsigned, or
    /// signed in another way than was agreed.
    fn active_secrets(&self, now: Millis) -> Result<Vec<Secret>, Problem> {
        let mut active = Vec::new();
        for scheme in &self.definition.signatures {
            let before = active.len();
            let of_scheme = self.secrets.iter().filter(|s| s.secret.scheme() == *scheme && s.is_active(now));
            active.extend(of_scheme.map(|s| s.secret.clone()));
            if active.len() == before {
                let message = format!("has no active {scheme} secret: rotate it, or take {scheme} out of `signatures`");
                return Err(Problem::new("secrets", message));
            }
        }
        Ok(active)
    }

    /// Reads the stored form.
    pub fn from_json(value: Value) -> Result<Self, Vec<Problem>> {
        Self::read(value).map_err(|unreadable| unreadable.problems)
    }

    /// Reads the stored form; of one that cannot be read, what can be kept.
    pub fn read(value: Value) -> Result<Self, Unreadable> {
        let mut fields = match Fields::of("", value) {
            Ok(fields) => fields,
            Err(problems) => return Err(Unreadable { problems, version: 0, secrets: Vec::new() }),
        };
        let secrets = secret_entries(&mut fields);
        let version = fields.take("version", VERSION).unwrap_or(0);
        let updated_at = fields.time("updated_at");
        let removed_at = fields.time("removed_at");
        match Definition::read(fields) {
            Ok(definition) => Ok(Self { definition, secrets, version, updated_at, removed_at }),
            Err(problems) => Err(Unreadable { problems, version, secrets }),
        }
    }

    /// The stored form. It holds the secrets: it goes to the table and nowhere else. What the same reader could not read
    /// again has none, because its deliveries would be held.
    pub fn to_stored(&self) -> Result<Value, Vec<Problem>> {
        Self::from_json(self.written())?;
        Ok(self.written())
    }

    fn written(&self) -> Value {
        let mut value = self.definition.to_json();
        self.add_times(&mut value);
        value["secrets"] = stored_secrets(&self.secrets);
        value
    }

    /// What may be shown: of each secret only its scheme, its times and, for `v1a`, the public key.
    pub fn to_shown(&self, now: Millis) -> Value {
        let mut value = self.definition.to_json();
        let secrets: Vec<Value> = self
            .secrets
            .iter()
            .map(|entry| {
                let mut shown = entry.times();
                shown["scheme"] = json!(entry.secret.scheme().name());
                shown["active"] = json!(entry.is_active(now));
                if let Some(key) = entry.secret.public_key() {
                    shown["public_key"] = json!(key.to_string());
                }
                shown
            })
            .collect();
        self.add_times(&mut value);
        value["secrets"] = Value::Array(secrets);
        value
    }

    fn add_times(&self, value: &mut Value) {
        value["version"] = json!(self.version);
        for (name, time) in [("updated_at", self.updated_at), ("removed_at", self.removed_at)] {
            if let Some(time) = time {
                value[name] = json!(time.to_string());
            }
        }
    }
}

impl SecretEntry {
    fn times(&self) -> Value {
        let mut times = json!({ "created_at": self.created_at.to_string() });
        if let Some(at) = self.retired_at {
            times["retired_at"] = json!(at.to_string());
        }
        times
    }
}

/// What a version must be.
const VERSION: &str = "must be a whole number";

/// The root keys of inline URLs, as they are stored.
#[derive(Clone, Debug, Default)]
pub struct RootKeys {
    /// Those that can be read, the newest first; retired ones too.
    pub keys: Vec<SecretEntry>,
    /// Their version.
    pub version: u64,
    /// What is wrong with the rest: one bad key must not stop every inline URL.
    pub problems: Vec<Problem>,
}

impl RootKeys {
    /// Reads the stored form, as far as it can be read.
    pub fn from_json(value: Value) -> Self {
        let mut fields = match Fields::of("", value) {
            Ok(fields) => fields,
            Err(problems) => return Self { problems, ..Self::default() },
        };
        let keys = secret_entries(&mut fields);
        let version = fields.take("version", VERSION).unwrap_or(0);
        let problems = fields.finish().err().unwrap_or_default();
        Self { keys, version, problems }
    }

    /// The stored form of such keys. It holds the keys: it goes to the table and nowhere else. What could not be read again
    /// has none.
    pub fn to_stored(keys: &[SecretEntry], version: u64) -> Result<Value, Vec<Problem>> {
        let written = || json!({ "secrets": stored_secrets(keys), "version": version });
        let read = Self::from_json(written());
        if read.problems.is_empty() { Ok(written()) } else { Err(read.problems) }
    }

    /// Whether one of them signs.
    pub fn any_active(&self, now: Millis) -> bool {
        self.keys.iter().any(|key| key.is_active(now))
    }
}

fn stored_secrets(entries: &[SecretEntry]) -> Value {
    let stored = entries.iter().map(|entry| {
        let mut stored = entry.times();
        stored["secret"] = json!(*entry.secret.expose());
        stored
    });
    Value::Array(stored.collect())
}

fn secret_entries(fields: &mut Fields) -> Vec<SecretEntry> {
    let mut read = Vec::new();
    for (i, entry) in fields.list("secrets").unwrap_or_default().into_iter().enumerate() {
        match secret_entry(&format!("secrets.{i}"), entry) {
            Ok(entry) => read.push(entry),
            Err(problems) => fields.problems.extend(problems),
        }
    }
    if read.len() > MAX_SECRETS {
        fields.wrong("secrets", format!("may hold {MAX_SECRETS} secrets at most"));
    }
    read
}

fn secret_entry(field: &str, value: Value) -> Result<SecretEntry, Vec<Problem>> {
    // A bare text is a secret that somebody put there by hand. Moved, so that no copy of it stays behind.
    let value = if value.is_string() { Value::Object(Map::from_iter([("secret".to_owned(), value)])) } else { value };
    let mut fields = Fields::of(field, value)?;
    let created_at = fields.time("created_at").unwrap_or(Millis(0));
    let retired_at = fields.time("retired_at");
    let text = Zeroizing::new(fields.take::<String>("secret", "must be a text").unwrap_or_default());
    let secret = match Secret::parse(&text) {
        Ok(secret) => Some(secret),
        Err(message) => {
            fields.wrong("secret", format!("cannot be used: {message}"));
            None
        }
    };
    fields.finish()?;
    secret.map(|secret| SecretEntry { secret, created_at, retired_at }).ok_or_else(Vec::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::MAX_HEADER_VALUE;
    use crate::retry::{RetryPolicy, Waits};
    use crate::signature::Scheme;

    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn defaults() -> Defaults {
        let policy = RetryPolicy {
            attempts: 8,
            waits: Waits::List(vec![30]),
            jitter_percent: 15,
            hint_cap_seconds: 600,
            window_seconds: None,
        };
        Defaults { policy, timeout_ms: 10_000 }
    }

    fn full() -> Value {
        json!({
            "url": "https://hooks.example.test/in?k=1", "description": "a partner", "timeout_seconds": 5,
            "retry": {"max_attempts": 3, "schedule_seconds": [1, 2], "jitter_percent": 0, "window_seconds": 60, "hint_cap_seconds": 30},
            "retry_statuses": [404], "permanent_statuses": [500], "receiver_control": true,
            "headers": {"authorization": "Bearer x"}, "signatures": ["v1", "v1a"],
            "max_per_second": 50, "max_in_flight": 5,
        })
    }

    fn stored(more: Value) -> Value {
        let mut value = json!({"url": "https://h.example.test/", "secrets": [SECRET]});
        value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        value
    }

    fn problem(value: Value) -> String {
        Registration::from_json(value).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn every_limit_is_the_last_value_that_passes() {
        let fits = |more: Value| Registration::from_json(stored(more)).is_ok();
        let secrets = |count: usize| fits(json!({"secrets": vec![SECRET; count]}));
        assert_eq!([secrets(MAX_SECRETS), secrets(MAX_SECRETS + 1)], [true, false]);
        let description = |chars: usize| fits(json!({"description": "x".repeat(chars)}));
        assert_eq!([description(256), description(257)], [true, false]);
        let many = |count: usize| {
            let headers: Value = (0..count).map(|i| (format!("x-{i}"), json!("v"))).collect();
            fits(json!({ "headers": headers }))
        };
        assert_eq!([many(32), many(33)], [true, false]);
        // Names and values count: two names of three bytes.
        let large =
            |bytes: usize| fits(json!({"headers": {"x-a": "v".repeat(4_093), "x-b": "v".repeat(bytes - 4_099)}}));
        assert_eq!([large(8_192), large(8_193)], [true, false]);
    }

    #[test]
    fn a_definition_comes_back_as_it_went_in() {
        assert_eq!(Definition::from_json(full()).unwrap().to_json(), full());
        let exponential = json!({"url": "https://h.example.test/", "retry": {"base_seconds": 5, "factor": 3, "cap_seconds": 60}, "signatures": []});
        assert_eq!(Definition::from_json(exponential.clone()).unwrap().to_json(), exponential);
    }

    #[test]
    fn a_registration_comes_back_as_it_went_in_and_shows_no_secret() {
        let mut value = full();
        value["secrets"] = json!([
            {"secret": SECRET, "created_at": "2026-11-30T12:00:00.000Z", "retired_at": "2026-12-01T12:00:00.000Z"},
            {"secret": *Secret::new(Scheme::V1a, &Zeroizing::new([7; 32])).expose(), "created_at": "2026-11-30T12:00:00.000Z"},
        ]);
        value["version"] = json!(4);
        value["updated_at"] = json!("2026-11-30T12:00:00.000Z");
        value["removed_at"] = json!("2026-11-30T13:00:00.000Z");
        let read = Registration::from_json(value.clone()).unwrap();
        assert_eq!(read.to_stored(), Ok(value));
        let shown = read.to_shown(Millis::parse_rfc3339("2026-12-02T00:00:00Z").unwrap());
        assert!(!shown.to_string().contains("whsec_") && !shown.to_string().contains("whsk_"), "{shown}");
        assert_eq!((&shown["secrets"][0]["active"], &shown["secrets"][1]["active"]), (&json!(false), &json!(true)));
        assert!(shown["secrets"][1]["public_key"].as_str().unwrap().starts_with("whpk_"));
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let far = Millis::parse_rfc3339("9999-12-01T00:00:00Z").unwrap().plus(365 * 86_400_000);
        let mut read = Registration::from_json(stored(json!({"version": 1}))).unwrap();
        assert!(read.to_stored().is_ok());
        read.secrets[0].retired_at = Some(far);
        assert_eq!(read.to_stored().unwrap_err()[0].field, "secrets.0.retired_at");
        assert_eq!(RootKeys::to_stored(&read.secrets, 1).unwrap_err()[0].field, "secrets.0.retired_at");
    }

    #[test]
    fn what_can_be_read_of_a_broken_registration_is_kept_for_its_repair() {
        let broken = Registration::read(stored(json!({
            "version": 7, "colour": 1, "secrets": [SECRET, {"secret": SECRET, "retired_at": "866000000000000"}]
        })))
        .unwrap_err();
        let fields: Vec<&str> = broken.problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!((broken.version, broken.secrets.len(), fields), (7, 1, vec!["secrets.1.retired_at", "colour"]));
        let keys = RootKeys::from_json(json!({"version": 2, "secrets": ["s3cr3t", SECRET]}));
        assert_eq!((keys.version, keys.keys.len(), keys.problems.len()), (2, 1, 1));
        assert!(keys.any_active(Millis(0)) && !keys.problems[0].to_string().contains("s3cr3t"));
    }

    #[test]
    fn every_wrong_field_is_named_with_what_it_must_be_and_no_value_is_repeated() {
        for (value, part) in [
            (json!([]), "must be an object"),
            (json!({}), "`url` is not a URL"),
            (stored(json!({"url": "https://u:s3cr3t@h.example.test/"})), "`url` must not hold a user name"),
            (stored(json!({"url": "ftp://h.example.test/s3cr3t"})), "`url` must be an https URL"),
            (stored(json!({"url": "https://h.example.test:0/"})), "port 0"),
            (stored(json!({"url": "https://h.example.test/\ns3cr3t"})), "blanks or control"),
            (stored(json!({"timeout_seconds": 31})), "`timeout_seconds` must be a whole number from 1 to 30"),
            (stored(json!({"timeout_seconds": "s3cr3t"})), "`timeout_seconds` must be a whole"),
            (stored(json!({"retry": {"max_attempts": 0}})), "`retry.max_attempts` must be"),
            (stored(json!({"retry": {"schedule_seconds": [1, 0]}})), "`retry.schedule_seconds` must hold"),
            (stored(json!({"retry": {"schedule_seconds": [1], "factor": 2}})), "excludes"),
            (stored(json!({"retry": {"base_seconds": 9, "factor": 2, "cap_seconds": 3}})), "not below it"),
            (stored(json!({"retry": {"tries": 3}})), "`retry.tries` is no field"),
            (stored(json!({"retry_statuses": [204]})), "a 2xx always means success"),
            (stored(json!({"retry_statuses": [404], "permanent_statuses": [404]})), "stands in `retry_statuses` too"),
            (stored(json!({"headers": {"Host": "s3cr3t"}})), "host is reserved"),
            (stored(json!({"headers": {"X-A": "s3cr3t\r\n"}})), "x-a may hold only"),
            (stored(json!({"headers": {"Authorization": "Bearer s3cr3t "}})), "`headers.Authorization` cannot be sent"),
            (stored(json!({"description": "s3cr3t\nstate active"})), "`description` must be one line"),
            (stored(json!({"description": "\u{202e}s3cr3t"})), "`description` must be one line"),
            (stored(json!({"url": "https://h.example.test/#s3cr3t"})), "`url` must not have a part after `#`"),
            (stored(json!({"headers": {"X-A": "1", "x-a": "2"}})), "\"x-a\" twice"),
            (stored(json!({"headers": {"x": 1}})), "`headers` must be an object of texts"),
            (stored(json!({"signatures": ["v2"]})), "`signatures` must be a list of"),
            (stored(json!({"secrets": ["s3cr3t"]})), "`secrets.0.secret` cannot be used"),
            (
                stored(json!({"secrets": [{"secret": SECRET, "created_at": "s3cr3t"}]})),
                "`secrets.0.created_at` must be",
            ),
            (
                stored(json!({"secrets": [{"secret": SECRET, "until": 1}]})),
                "`secrets.0.until` is no field here; there are created_at, retired_at, secret",
            ),
            (stored(json!({"max_in_flight": 0})), "`max_in_flight`"),
            (stored(json!({"retry_statusses": [404]})), "`retry_statusses` is no field"),
        ] {
            let problem = problem(value.clone());
            assert!(problem.contains(part) && !problem.contains("s3cr3t"), "{value}: {problem}");
        }
        let both = problem(stored(json!({"timeout_seconds": 0, "max_per_second": 0})));
        assert!(both.contains("timeout_seconds") && both.contains("max_per_second"), "{both}");
        let in_file = Definition::from_json(stored(json!({}))).unwrap_err();
        assert_eq!(in_file[0].field, "secrets");
    }

    /// The largest that passes, and what is one more.
    #[test]
    fn every_size_of_a_registration_ends_where_the_contract_says() {
        let texts = |count: usize| (0..count).map(|i| (format!("x-{i:0>4}"), json!("1"))).collect::<Map<_, _>>();
        let filled = |bytes: usize| {
            let mut headers = Map::new();
            headers.insert("x-aaaaaa".to_owned(), json!("v".repeat(MAX_HEADER_VALUE)));
            headers.insert("x-bbbbbb".to_owned(), json!("v".repeat(bytes - 16 - MAX_HEADER_VALUE)));
            json!(headers)
        };
        let url = |length: usize| format!("https://h.example/{}", "p".repeat(length - 18));
        let waits = |count: usize| json!({"schedule_seconds": vec![1; count]});
        let retry = |name: &str, value: u64| json!({"retry": {name: value}});
        let day30 = u64::from(crate::retry::MAX_WAIT_SECONDS);
        let secrets = |count: usize| json!({"secrets": vec![SECRET; count]});
        for (good, over, field) in [
            (json!({"url": url(2048)}), json!({"url": url(2049)}), "url"),
            (json!({"description": "é".repeat(256)}), json!({"description": "é".repeat(257)}), "description"),
            (json!({"headers": texts(32)}), json!({"headers": texts(33)}), "headers"),
            (json!({"headers": filled(8_192)}), json!({"headers": filled(8_193)}), "headers"),
            (secrets(10), secrets(11), "secrets"),
            (json!({"retry": waits(100)}), json!({"retry": waits(101)}), "retry.schedule_seconds"),
            (
                json!({"retry": {"schedule_seconds": [day30]}}),
                json!({"retry": {"schedule_seconds": [day30 + 1]}}),
                "retry.schedule_seconds",
            ),
            (json!({"timeout_seconds": 30}), json!({"timeout_seconds": 31}), "timeout_seconds"),
            (json!({"timeout_seconds": 1}), json!({"timeout_seconds": 0}), "timeout_seconds"),
            (retry("max_attempts", 100), retry("max_attempts", 101), "retry.max_attempts"),
            (retry("jitter_percent", 100), retry("jitter_percent", 101), "retry.jitter_percent"),
            (retry("window_seconds", day30), retry("window_seconds", day30 + 1), "retry.window_seconds"),
            (retry("hint_cap_seconds", day30), retry("hint_cap_seconds", day30 + 1), "retry.hint_cap_seconds"),
            (json!({"retry_statuses": [300, 599]}), json!({"retry_statuses": [600]}), "retry_statuses"),
            (json!({"retry_statuses": [300]}), json!({"retry_statuses": [299]}), "retry_statuses"),
            (json!({"max_per_second": 100_000}), json!({"max_per_second": 100_001}), "max_per_second"),
            (json!({"max_in_flight": 10_000}), json!({"max_in_flight": 10_001}), "max_in_flight"),
        ] {
            assert!(Registration::from_json(stored(good)).is_ok(), "{field} at its bound");
            let problems = Registration::from_json(stored(over)).unwrap_err();
            assert_eq!(problems.iter().map(|p| p.field.as_str()).collect::<Vec<_>>(), [field], "over its bound");
        }
    }

    #[test]
    fn what_is_debugged_holds_no_credential() {
        let mut value = full();
        value["secrets"] = json!([SECRET, *Secret::new(Scheme::V1a, &Zeroizing::new([7; 32])).expose()]);
        value["url"] = json!("https://hooks.example.test/t0ken?k=t0ken");
        value["headers"]["x-api-key"] = json!("t0ken");
        let read = Registration::from_json(value).unwrap();
        let found = crate::endpoint::Found::Config(Box::new(read.resolve(&defaults(), Millis(0)).unwrap()));
        let shown = format!("{read:?} {read:#?} {found:?} {found:#?}");
        for hidden in ["t0ken", "Bearer", "whsec_", "whsk_", &SECRET[8..20]] {
            assert!(!shown.contains(hidden), "{hidden}: {shown}");
        }
        assert!(shown.contains("https://hooks.example.test") && shown.contains("x-api-key"), "{shown}");
    }

    #[test]
    fn what_is_not_said_is_the_deployments_and_limits_only_narrow() {
        let config = |value| Registration::from_json(value).unwrap().resolve(&defaults(), Millis(0)).unwrap();
        let plain = config(stored(json!({})));
        assert_eq!((plain.timeout_ms, plain.policy.attempts, plain.secrets.len()), (10_000, 8, 1));
        let mut value = full();
        value["signatures"] = json!([]);
        let own = config(value);
        assert_eq!((own.timeout_ms, own.policy.attempts, own.policy.window_seconds), (5_000, 3, Some(60)));
        assert_eq!(own.policy.hint_cap_seconds, 30);
        let greedy = config(stored(json!({"timeout_seconds": 30, "retry": {"hint_cap_seconds": 9_999}})));
        assert_eq!((greedy.timeout_ms, greedy.policy.hint_cap_seconds), (10_000, 600));
    }

    #[test]
    fn nothing_goes_out_unsigned_by_accident() {
        let resolve = |value| Registration::from_json(value).unwrap().resolve(&defaults(), Millis(1_000));
        let old = json!([{"secret": SECRET, "retired_at": "1970-01-01T00:00:01Z"}]);
        for value in [
            json!({"url": "https://h.example.test/"}),
            stored(json!({"secrets": []})),
            stored(json!({"secrets": old})),
            stored(json!({"signatures": ["v1", "v1a"]})),
        ] {
            let problem = resolve(value.clone()).unwrap_err();
            assert_eq!(problem.field, "secrets", "{value}");
        }
        assert!(resolve(stored(json!({"signatures": []}))).unwrap().secrets.is_empty());
        let rotating = json!([{"secret": SECRET, "created_at": "1970-01-01T00:00:00Z"}, {"secret": SECRET, "retired_at": "1970-01-01T00:00:02Z"}]);
        assert_eq!(
            resolve(stored(json!({"secrets": rotating}))).unwrap().secrets.len(),
            2,
            "both sign while one retires"
        );
    }
}
