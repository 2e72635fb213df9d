//! The pure crate's dependency tree is the wall: no runtime, no IO, no clock, no random source, no AWS type behind it.
//! And the functions link what they may link: one TLS stack, and no HTTP client for endpoints outside of `deliver`.

use std::collections::{BTreeSet, HashMap};

use cargo_metadata::{DependencyKind, MetadataCommand, PackageId};

/// Names of all packages that a package links, itself included, without dev- and build-dependencies.
fn linked(package: &str) -> BTreeSet<String> {
    let metadata = MetadataCommand::new().no_deps().exec().expect("cargo metadata works");
    let root = metadata.workspace_root;
    let mut command = MetadataCommand::new();
    command.manifest_path(root.join("Cargo.toml")).other_options(["--locked".to_owned(), "--offline".to_owned()]);
    let metadata = command.exec().expect("cargo metadata works");
    let names: HashMap<&PackageId, &str> = metadata.packages.iter().map(|p| (&p.id, p.name.as_str())).collect();
    let resolve = metadata.resolve.as_ref().expect("the graph is resolved");
    let nodes: HashMap<&PackageId, _> = resolve.nodes.iter().map(|n| (&n.id, n)).collect();
    let start = metadata.packages.iter().find(|p| p.name.as_str() == package).expect("a package of the workspace");
    let (mut todo, mut seen) = (vec![&start.id], BTreeSet::new());
    while let Some(id) = todo.pop() {
        if !seen.insert(names[id].to_owned()) {
            continue;
        }
        for dependency in &nodes[id].deps {
            if dependency.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal) {
                todo.push(&dependency.pkg);
            }
        }
    }
    seen
}

#[test]
fn the_pure_crate_is_pure() {
    let linked = linked("domain");
    for banned in ["tokio", "async-std", "smol", "hyper", "reqwest", "mio", "socket2", "getrandom", "rand", "fastrand", "chrono", "time", "lambda_runtime", "tracing", "platform"] {
        assert!(!linked.contains(banned), "domain links {banned}");
    }
    let aws: Vec<_> = linked.iter().filter(|n| n.starts_with("aws")).collect();
    assert!(aws.is_empty(), "domain links {aws:?}");
}

#[test]
fn the_wall_would_be_noticed_if_it_fell() {
    let linked = linked("platform");
    for expected in ["tokio", "reqwest", "getrandom", "aws-sdk-dynamodb"] {
        assert!(linked.contains(expected), "the check does not see {expected}");
    }
}

#[test]
fn one_tls_stack_and_no_legacy_http_stack_are_linked() {
    for function in ["deliver", "schedule-retry", "dlq-sweep", "redrive-approve"] {
        let linked = linked(function);
        for banned in ["ring", "native-tls", "openssl", "rustls-platform-verifier-android", "testkit"] {
            assert!(!linked.contains(banned), "{function} links {banned}");
        }
    }
}
