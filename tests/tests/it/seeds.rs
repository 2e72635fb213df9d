//! The fuzz targets without a fuzzer: over their seeds, over what becomes of seeds when a few bytes change, and over any
//! bytes.

use std::path::{Path, PathBuf};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use redeliver_tests::{TARGETS, Target, edges, egress};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz"))
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = root().join("seeds").join(name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{name} has no seeds");
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// A seed with some of its bytes replaced, removed or put in twice.
fn changed(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change =
        (any::<Index>(), any::<Index>(), 0..3u8, prop_oneof![any::<u8>(), select(b"019Aa \"{}[],:.\\\n\0".to_vec())]);
    (select(seeds), vec(change, 0..5)).prop_map(|(mut bytes, changes)| {
        for (at, length, kind, byte) in changes {
            if bytes.is_empty() {
                break;
            }
            let start = at.index(bytes.len());
            let end = start + length.index((bytes.len() - start).min(16)) + 1;
            match kind {
                0 => bytes[start] = byte,
                1 => drop(bytes.drain(start..end)),
                _ => {
                    let again = bytes[start..end].to_vec();
                    bytes.splice(start..start, again);
                }
            }
        }
        bytes
    })
}

fn hold(name: &str, inputs: u32) {
    let (_, target) = TARGETS.iter().find(|(n, _)| *n == name).expect("a target of that name");
    let target: Target = *target;
    let seeds = seeds(name);
    seeds.iter().for_each(|seed| target(seed));
    let any_bytes = prop_oneof![4 => changed(seeds), 1 => vec(any::<u8>(), 0..200)];
    let mut runner = TestRunner::new(Config { cases: inputs, failure_persistence: None, ..Config::default() });
    let held = runner.run(&any_bytes, |bytes| {
        target(&bytes);
        Ok(())
    });
    held.unwrap_or_else(|e| panic!("{name}: {e}"));
}

#[test]
fn every_target_can_be_run_by_the_fuzzer_and_is_run_here() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let this = include_str!("seeds.rs");
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is no fuzz target");
        let program = std::fs::read_to_string(root().join("fuzz_targets").join(format!("{name}.rs"))).unwrap();
        assert!(program.contains(&format!("redeliver_tests::{name}(data)")), "{program}");
        assert!(this.contains(&format!("hold(\"{name}\", ")), "no test runs {name}");
    }
}

#[test]
fn answers_hold() {
    hold("answer", 1_000);
}

#[test]
fn answers_over_http2_hold() {
    hold("answer_http2", 500);
}

#[test]
fn addresses_hold() {
    edges().iter().for_each(|input| egress(input));
    hold("egress", 3_000);
}

#[test]
fn hints_hold() {
    hold("retry_after", 5_000);
}

#[test]
fn messages_hold() {
    hold("message", 5_000);
}

#[test]
fn definitions_hold() {
    hold("definition", 3_000);
}

#[test]
fn signatures_hold() {
    hold("signature", 2_000);
}
