//! Every test, function and source file that a page names exists, under that name and in that place.

use std::path::{Path, PathBuf};

use crate::documents::root;

/// A source file: its path, its place among the modules, and the functions in it.
struct Source {
    path: String,
    modules: Vec<String>,
    functions: Vec<String>,
}

/// Files below a folder of the repository with such an ending, as paths from its root.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut folders, mut found) = (vec![PathBuf::from(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(base.join(&folder)).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.to_str().unwrap().ends_with(ending) {
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found
}

fn sources() -> Vec<Source> {
    let paths = ["shared", "functions", "operator", "tests"].iter().flat_map(|folder| files(folder, ".rs"));
    let sources = paths.map(|path| {
        let text = root(&path);
        let named = |rest: &str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
        let functions = text.split("fn ").skip(1).map(named).collect();
        let modules = path.trim_end_matches(".rs").split('/').filter(|p| !["src", "tests", "it", "mod"].contains(p));
        Source { modules: modules.map(ToOwned::to_owned).collect(), functions, path }
    });
    sources.collect()
}

/// Whether a name stands for this function; an ellipsis stands for the end of it.
fn is_named(function: &str, name: &str) -> bool {
    name.strip_suffix('…').map_or(function == name, |begins| function.starts_with(begins))
}

/// Whether `module::function`, or `module::` for all that is in it, exists.
fn has_path(sources: &[Source], path: &str) -> bool {
    let (modules, function) = path.rsplit_once("::").expect("a path");
    let modules: Vec<&str> = modules.split("::").collect();
    sources.iter().any(|source| {
        if function.is_empty() {
            return !source.functions.is_empty() && source.modules.iter().any(|there| *there == modules[0]);
        }
        source.modules.iter().map(String::as_str).collect::<Vec<_>>().ends_with(&modules)
            && source.functions.iter().any(|there| is_named(there, function))
    })
}

/// What a line names and nobody has. A bare name belongs to the file that is named next in its line. In a list of tests
/// each bare name counts; elsewhere only what is long enough to be a claim.
fn missing(sources: &[Source], line: &str) -> Vec<String> {
    let is_list = ["Test: ", "Tests: "].iter().any(|begins| line.starts_with(begins));
    let (mut missing, mut bare) = (Vec::new(), Vec::new());
    for quoted in line.split('`').skip(1).step_by(2) {
        let is_name = quoted.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:…".contains(c));
        if quoted.ends_with(".rs") && !quoted.contains(' ') {
            let in_file = |source: &&Source| format!("/{}", source.path).ends_with(&format!("/{quoted}"));
            let there: Vec<&Source> = sources.iter().filter(in_file).collect();
            if there.is_empty() {
                missing.push(quoted.to_owned());
            }
            for name in bare.drain(..) {
                if !there.iter().any(|source| source.functions.iter().any(|function| is_named(function, name))) {
                    missing.push(format!("{name} in {quoted}"));
                }
            }
        } else if is_name && quoted.contains("::") {
            missing.extend(Some(quoted).filter(|path| !has_path(sources, path)).map(ToOwned::to_owned));
        } else if is_name && (is_list || quoted.matches('_').count() > 3) {
            bare.push(quoted);
        }
    }
    let anywhere = |name: &str| sources.iter().any(|source| source.functions.iter().any(|there| is_named(there, name)));
    missing.extend(bare.into_iter().filter(|name| !anywhere(name)).map(ToOwned::to_owned));
    missing
}

#[test]
fn every_test_that_a_page_names_exists() {
    let sources = sources();
    let pages = [files("docs", ".md"), vec!["ARCHITECTURE.md".to_owned(), "README.md".to_owned()]].concat();
    assert!(pages.len() > 20, "{pages:?}");
    let mut all = Vec::new();
    for page in pages {
        for line in root(&page).lines() {
            all.extend(missing(&sources, line).into_iter().map(|name| format!("{page}: {name}")));
        }
    }
    assert!(all.is_empty(), "named and not there:\n{}", all.join("\n"));
}

#[test]
fn a_name_that_is_not_there_is_noticed() {
    let sources = sources();
    for (line, expected) in [
        ("Tests: `citations::a_name_that_is_not_there_is_noticed`, `missing` (`tests/tests/it/citations.rs`).", vec![]),
        ("See `citations::a_name_that_is_…`, all of `citations::`, and `receiver_may_have_it`.", vec![]),
        (
            "Tests: `stories::a_name_that_is_not_there_is_noticed`.",
            vec!["stories::a_name_that_is_not_there_is_noticed"],
        ),
        ("Tests: `missing` (`world.rs`), `no_such` ones.", vec!["missing in world.rs", "no_such"]),
        (
            "See `a_claim_that_nobody_makes`, `no_folder::`, `wire::wh_o_99_…` and `nobody.rs`.",
            vec!["no_folder::", "wire::wh_o_99_…", "nobody.rs", "a_claim_that_nobody_makes in nobody.rs"],
        ),
    ] {
        assert_eq!(missing(&sources, line), expected, "{line}");
    }
}
