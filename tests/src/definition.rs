//! The endpoints table.

use domain::definition::Definition;
use domain::fields::Problem;
use domain::registry::Registration;
use domain::time::Millis;
use serde_json::Value;

use crate::{marked, repeats_the_mark};

/// What was read comes back from its stored form, shows no secret, and its reviewed part stands alone; a problem repeats no
/// value.
pub fn definition(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    if let Ok(read) = Registration::from_json(value.clone()) {
        let stored = read.to_stored().unwrap_or_else(|e| panic!("{value}: {e:?}"));
        let again = Registration::from_json(stored.clone()).unwrap_or_else(|e| panic!("{stored}: {e:?}"));
        assert_eq!((&again.definition, again.to_stored()), (&read.definition, Ok(stored)));
        assert_eq!(again.secrets.len(), read.secrets.len());
        let reviewed = Definition::from_json(read.definition.to_json());
        assert_eq!(reviewed.as_ref(), Ok(&read.definition), "without its secrets");
        let shown = read.to_shown(Millis(0)).to_string();
        for entry in &read.secrets {
            assert!(!shown.contains(entry.secret.expose().as_str()));
        }
    }
    let marked_value = marked(value.clone());
    if !repeats_the_mark(&value.to_string()) {
        for problems in [
            Registration::from_json(marked_value.clone()).map(drop),
            Definition::from_json(marked_value).map(drop),
            Registration::from_json(value).map(drop),
        ] {
            for problem in problems.err().unwrap_or_default() {
                told(&problem);
            }
        }
    }
}

fn told(problem: &Problem) {
    // The longest names a header that cannot be one: 128 characters, each escaped.
    assert!(problem.message.len() < 1_500 && problem.field.len() < 600, "{problem}");
    assert!(!repeats_the_mark(&problem.to_string()), "{problem}");
}
