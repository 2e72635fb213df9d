//! How many deliveries, and which seed. The same binaries run as tests, so they take what the test runner gives to all.

use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub deliveries: usize,
    pub seed: u64,
    /// For `table_faults`: long enough that messages reach the transport DLQs.
    pub to_dlq: bool,
    /// Where the evidence of a failed run is kept.
    pub evidence: Option<PathBuf>,
}

/// Reads the arguments. `None`: this binary was not meant (a filter for other tests, or a listing).
pub fn read(name: &str, small: usize, arguments: impl IntoIterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { deliveries: small, seed: 1, to_dlq: false, evidence: None };
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let mut value = |what: &str| arguments.next().ok_or_else(|| format!("{what} needs a value"));
        match argument.as_str() {
            "--deliveries" => options.deliveries = number(&value("--deliveries")?)?,
            "--seed" => options.seed = number(&value("--seed")?)? as u64,
            "--to-dlq" => options.to_dlq = true,
            "--evidence" => options.evidence = Some(PathBuf::from(value("--evidence")?)),
            "--list" => return Ok(None),
            // Of the test runner; they take a value.
            "--test-threads" | "--skip" | "--color" | "--format" => drop(value(&argument)?),
            other if other.starts_with('-') => {}
            filter if name.contains(filter) => {}
            _ => return Ok(None),
        }
    }
    if options.deliveries == 0 {
        return Err("--deliveries must be at least 1".to_owned());
    }
    Ok(Some(options))
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Option<Options>, String> {
        read("chaos", 400, text.split_whitespace().map(ToOwned::to_owned))
    }

    #[test]
    fn size_and_seed_can_be_chosen_and_are_small_by_themselves() {
        let options = given("--deliveries 20000 --seed 7").unwrap().unwrap();
        assert_eq!((options.deliveries, options.seed), (20_000, 7));
        let options = given("--nocapture --test-threads 1").unwrap().unwrap();
        assert_eq!((options.deliveries, options.seed), (400, 1));
    }

    #[test]
    fn a_filter_for_other_tests_leaves_it_out() {
        assert_eq!(given("wire::"), Ok(None));
        assert_eq!(given("--list --format terse"), Ok(None));
        assert!(given("chaos").unwrap().is_some());
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in ["--deliveries", "--deliveries many", "--deliveries 0"] {
            assert!(given(wrong).is_err(), "{wrong}");
        }
    }
}
