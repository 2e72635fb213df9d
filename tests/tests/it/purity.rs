//! The pure crate's dependency tree is the wall: no runtime, no IO, no clock, no random source, no AWS type behind it.
//! And the functions link what they may link: one TLS stack, and no HTTP client for endpoints outside of `deliver`.

use std::collections::BTreeSet;
use std::process::Command;

/// Names of all packages that a package links on Lambda, itself included, without dev- and build-dependencies.
fn linked(package: &str) -> BTreeSet<String> {
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let arguments =
        ["tree", "--locked", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--target", "x86_64-unknown-linux-gnu"])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("package names are text");
    text.lines().filter_map(|line| line.split(' ').next()).map(ToOwned::to_owned).collect()
}

#[test]
fn the_pure_crate_is_pure() {
    let linked = linked("domain");
    for banned in [
        "tokio",
        "async-std",
        "smol",
        "hyper",
        "reqwest",
        "mio",
        "socket2",
        "getrandom",
        "rand",
        "fastrand",
        "chrono",
        "time",
        "lambda_runtime",
        "tracing",
        "platform",
    ] {
        assert!(!linked.contains(banned), "domain links {banned}");
    }
    let aws: Vec<_> = linked.iter().filter(|n| n.starts_with("aws")).collect();
    assert!(aws.is_empty(), "domain links {aws:?}");
}

#[test]
fn the_wall_would_be_noticed_if_it_fell() {
    let linked = linked("platform");
    for expected in ["tokio", "getrandom", "aws-sdk-dynamodb"] {
        assert!(linked.contains(expected), "the check does not see {expected}");
    }
}

#[test]
fn one_tls_stack_and_no_legacy_http_stack_are_linked() {
    for function in ["deliver", "schedule-retry", "dlq-sweep", "redrive-approve"] {
        let linked = linked(function);
        for banned in ["ring", "native-tls", "openssl", "testkit"] {
            assert!(!linked.contains(banned), "{function} links {banned}");
        }
    }
}

#[test]
fn only_deliver_links_the_http_client_for_endpoints() {
    assert!(linked("deliver").contains("reqwest"));
    for function in ["schedule-retry", "dlq-sweep", "redrive-approve"] {
        let linked = linked(function);
        assert!(!linked.contains("reqwest") && !linked.contains("sender"), "{function} links an HTTP client");
    }
}
