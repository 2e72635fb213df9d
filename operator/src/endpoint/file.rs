//! The file form of endpoints, in TOML or YAML: read strictly, every problem told at once with its line, no value repeated.

use std::collections::BTreeMap;
use std::path::Path;

use domain::definition::Definition;
use domain::fields::Problem;
use domain::id::EndpointKey;
use serde_json::{Map, Value, json};

use crate::exit::Failure;
use crate::session::Environment;

/// A way to write the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Tables `[endpoints.ID]`.
    Toml,
    /// A mapping `endpoints:`.
    Yaml,
}

impl Format {
    /// By the name of a file.
    fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("toml") => Ok(Self::Toml),
            Some("yaml" | "yml") => Ok(Self::Yaml),
            _ => Err(Failure::invalid(format!("{}: the name must end with .toml, .yaml or .yml", path.display()))),
        }
    }

    /// The text as a JSON value; an error names the line and repeats nothing of it.
    fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Toml => toml::from_str::<toml::Table>(text)
                .map_err(|e| {
                    let line = e.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
                    at_line(line, &format!("is no TOML: {}", e.message().lines().next().unwrap_or_default()))
                })
                .and_then(|table| {
                    serde_json::to_value(table).map_err(|_| "is no TOML that can be read here".to_owned())
                }),
            Self::Yaml => serde_saphyr::from_str::<Value>(text).map_err(|e| {
                let line = e.location().and_then(|l| usize::try_from(l.line()).ok());
                at_line(line, "is no YAML that can be read here: check indentation, quotes and keys that stand twice")
            }),
        }
    }

    /// The file form of definitions.
    pub(super) fn write(self, endpoints: Map<String, Value>) -> Result<String, Failure> {
        let document = json!({ "endpoints": endpoints });
        let trouble = |e: &dyn std::fmt::Display| {
            Failure::new(crate::exit::Exit::Own, "export", format!("cannot be written: {e}"))
        };
        match self {
            Self::Toml => toml::to_string(&document).map_err(|e| trouble(&e)),
            Self::Yaml => serde_saphyr::to_string(&document).map_err(|e| trouble(&e)),
        }
    }
}

fn at_line(line: Option<usize>, what: &str) -> String {
    line.map_or_else(|| what.to_owned(), |line| format!("line {line}: {what}"))
}

/// Reads a file of endpoints.
pub(super) fn read(path: &Path, environment: Environment<'_>) -> Result<BTreeMap<EndpointKey, Definition>, Failure> {
    let format = Format::of(path)?;
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::invalid(format!("{} cannot be read: {e}", path.display())))?;
    definitions(&text, format, environment).map_err(|problems| {
        Failure::problems(&format!("{} was not applied, nothing was written:", path.display()), &problems)
    })
}

fn definitions(
    text: &str,
    format: Format,
    environment: Environment<'_>,
) -> Result<BTreeMap<EndpointKey, Definition>, Vec<String>> {
    let Value::Object(mut file) = format.parse(text).map_err(|problem| vec![problem])? else {
        return Err(vec!["the file must hold `endpoints`, and under it a definition for each id".to_owned()]);
    };
    let endpoints = file.remove("endpoints");
    let mut problems: Vec<String> = file
        .keys()
        .map(|name| at_line(line_of(text, None, name), &format!("`{name}` is no part of this file, `endpoints` is")))
        .collect();
    let Some(Value::Object(endpoints)) = endpoints else {
        problems.push("`endpoints` is missing: it holds a definition for each id".to_owned());
        return Err(problems);
    };
    let mut definitions = BTreeMap::new();
    for (id, mut value) in endpoints {
        let mut wrong = |field: &str, message: &str| {
            // The name of a header may hold dots.
            let last = field.strip_prefix("headers.").or(field.rsplit('.').next()).unwrap_or(field);
            let line = line_of(text, Some(&id), last).or_else(|| line_of(text, None, &id));
            problems.push(at_line(line, &format!("{id}: {message}")));
        };
        let key = match EndpointKey::registered(&id) {
            Ok(key) => Some(key),
            Err(message) => {
                wrong("", &message);
                None
            }
        };
        for problem in resolve_headers(&mut value, environment) {
            wrong(&problem.field, &problem.to_string());
        }
        match Definition::from_json(value) {
            Ok(definition) => {
                if let Some(key) = key {
                    definitions.insert(key, definition);
                }
            }
            Err(found) => {
                for problem in found {
                    wrong(&problem.field, &problem.to_string());
                }
            }
        }
    }
    if problems.is_empty() { Ok(definitions) } else { Err(problems) }
}

/// The value of a variable. An empty one counts as not set: it would silently take the place of a credential.
pub(super) fn credential(environment: Environment<'_>, variable: &str) -> Option<String> {
    environment(variable).filter(|value| !value.trim().is_empty())
}

/// Puts the values of variables in place of `{ env = "NAME" }`.
fn resolve_headers(endpoint: &mut Value, environment: Environment<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Some(headers) = endpoint.get_mut("headers").and_then(Value::as_object_mut) else { return problems };
    for (name, value) in headers {
        let Some(object) = value.as_object() else { continue };
        let field = format!("headers.{name}");
        let variable = object.get("env").and_then(Value::as_str).filter(|_| object.len() == 1).map(ToOwned::to_owned);
        let found = variable.as_deref().and_then(|variable| credential(environment, variable));
        match (variable, &found) {
            (None, _) => problems.push(Problem::new(&field, "must be a text, or { env = \"VARIABLE\" }")),
            (Some(variable), None) => problems
                .push(Problem::new(&field, format!("needs the variable {variable}, which is not set, or empty"))),
            (Some(_), Some(_)) => {}
        }
        *value = json!(found.unwrap_or_default());
    }
    problems
}

/// The line on which a name is given a value, as far as that can be told without a parser: after the line that names the
/// endpoint, if there is one.
fn line_of(text: &str, endpoint: Option<&str>, name: &str) -> Option<usize> {
    let start = match endpoint {
        Some(id) => text.lines().position(|line| names(line, id))?,
        None => 0,
    };
    if name.is_empty() {
        return Some(start + 1);
    }
    text.lines().enumerate().skip(start).find(|(_, line)| names(line, name)).map(|(at, _)| at + 1)
}

/// True for a line that gives this name a value, or opens its table.
fn names(line: &str, wanted: &str) -> bool {
    let quotes = ['"', '\''];
    let line = line.trim_start().trim_start_matches('[').trim_start_matches(quotes);
    let line = line.strip_prefix("endpoints.").unwrap_or(line).trim_start_matches(quotes);
    let rest = line.strip_prefix(wanted).map(|rest| rest.trim_start_matches(quotes).trim_start());
    rest.is_some_and(|rest| rest.starts_with(['=', ':', ']', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("Bearer s3cr3t".to_owned()),
            "EMPTY" => Some(" ".to_owned()),
            _ => None,
        }
    }

    const TOML: &str = r#"
[endpoints.ep_a]
url = "https://a.example.test/in"
signatures = ["v1"]
retry = { max_attempts = 3 }

[endpoints.ep_a.headers]
authorization = { env = "TOKEN" }

[endpoints.ep_b]
url = "https://b.example.test/in"
"#;
    const YAML: &str = r#"
endpoints:
  ep_a:
    url: https://a.example.test/in
    signatures: [v1]
    retry:
      max_attempts: 3
    headers:
      authorization: { env: TOKEN }
  ep_b:
    url: "https://b.example.test/in"
"#;

    #[test]
    fn both_formats_say_the_same() {
        let toml = definitions(TOML, Format::Toml, &environment).unwrap();
        let yaml = definitions(YAML, Format::Yaml, &environment).unwrap();
        assert_eq!(toml, yaml);
        let first = &toml[&EndpointKey::registered("ep_a").unwrap()];
        assert_eq!((first.headers["authorization"].as_str(), first.retry.max_attempts), ("Bearer s3cr3t", Some(3)));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let endpoints = json!({"ep_a": {"url": "https://a.example.test/in", "signatures": ["v1"], "headers": {"x": "1"}, "retry": {"max_attempts": 3}, "max_in_flight": 2}});
        for format in [Format::Toml, Format::Yaml] {
            let text = format.write(endpoints.as_object().unwrap().clone()).unwrap();
            let read = definitions(&text, format, &environment).unwrap();
            assert_eq!(read[&EndpointKey::registered("ep_a").unwrap()].to_json(), endpoints["ep_a"], "{text}");
        }
    }

    #[test]
    fn every_problem_is_told_with_its_line_and_no_value() {
        let toml = "colour = 1\n[endpoints.ep_a]\nurl = \"ftp://s3cr3t\"\ntimeout_seconds = 99\nretry = { tries = 1 }\n[endpoints.ep_b]\nurl = \"https://b.example.test/\"\ntimeouts = 3\nsecrets = [\"whsec_s3cr3t\"]\n[endpoints.ep_b.headers]\nx-a = { env = \"NONE\" }\nx-b = { file = \"s3cr3t\" }\nx-c = { env = \"EMPTY\" }\nx-d = \"1\"\n\"X.e\" = \"s3cr3t \"\nAuthorization = \" s3cr3t\"\n[endpoints.\"ep c\"]\nurl = \"https://c.example.test/\"\n";
        let yaml = "endpoints:\n  ep_a:\n    url: https://a.example.test/\n    timeouts: 3\n  ep_b:\n    timeouts: 4\n    url: https://b.example.test/\n";
        let all = definitions(toml, Format::Toml, &environment).unwrap_err().join("\n");
        for part in [
            "line 1: `colour`",
            "line 3: ep_a: `url`",
            "line 4: ep_a: `timeout_seconds`",
            "ep_a: `retry.tries` is no field here; there are max_attempts, schedule_seconds",
            "line 8: ep_b: `timeouts` is no field here; is `timeout_seconds` meant",
            "line 9: ep_b: `secrets` do not stand",
            "line 11: ep_b: `headers.x-a` needs the variable NONE",
            "line 12: ep_b: `headers.x-b` must be a text",
            "line 13: ep_b: `headers.x-c` needs the variable EMPTY",
            "line 15: ep_b: `headers.X.e` cannot be sent: the value of x.e must not begin or end",
            "line 16: ep_b: `headers.Authorization` cannot be sent: the value of authorization must not begin or end",
            "line 17: ep c: `endpoint` must be",
        ] {
            assert!(all.contains(part), "{part} is missing in:\n{all}");
        }
        assert!(!all.contains("s3cr3t"), "{all}");
        let all = definitions(yaml, Format::Yaml, &environment).unwrap_err();
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].starts_with("line 4: ep_a") && all[1].starts_with("line 6: ep_b"), "{all:?}");
    }

    #[test]
    fn a_file_that_cannot_be_parsed_names_the_line_and_repeats_nothing() {
        for (text, format) in [
            ("[endpoints.a]\nurl = \"https://s3cr3t\n", Format::Toml),
            ("[endpoints.a]\nurl = \"https://s3cr3t\"\nurl = \"https://s3cr3t\"\n", Format::Toml),
            ("endpoints:\n  a: [s3cr3t\n", Format::Yaml),
            ("endpoints:\n  a: {x: s3cr3t}\n  a: {x: s3cr3t}\n", Format::Yaml),
            ("- s3cr3t\n", Format::Yaml),
            ("endpoints: s3cr3t\n", Format::Yaml),
        ] {
            let problems = definitions(text, format, &environment).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(!problems[0].contains("s3cr3t"), "{problems:?}");
        }
    }
}
