use clap::{CommandFactory, Parser};

use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::fakes::{Fake, words};

use super::file;

fn root(path: &str) -> String {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The command lines in a document: lines that begin with `redeliver`, without what a shell makes of pipes.
fn lines(text: &str) -> Vec<String> {
    let ours = text.lines().map(|line| line.trim_start().trim_start_matches("$ ")).filter_map(|line| {
        let start = line.find("redeliver ").filter(|at| *at == 0 || line[..*at].trim_end().ends_with('|'))?;
        let line = &line[start..];
        let end = [" | ", " > ", " < ", " # ", "  #"].iter().filter_map(|mark| line.find(mark)).min();
        Some(line[..end.unwrap_or(line.len())].trim_end().to_owned())
    });
    ours.filter(|line| !line.starts_with("redeliver is ")).collect()
}

#[test]
fn every_command_line_in_the_guides_can_be_parsed() {
    for (guide, least) in [("docs/CLI.md", 25), ("README.md", 3)] {
        let lines = lines(&root(guide));
        assert!(lines.len() >= least, "{guide}: {lines:?}");
        for line in lines {
            match Arguments::try_parse_from(words(&line)) {
                Err(error) if error.use_stderr() => panic!("{guide}: {line}\n{error}"),
                // Help is a way to succeed.
                Ok(_) | Err(_) => {}
            }
        }
    }
}

#[test]
fn every_file_in_the_guide_can_be_applied() {
    let text = root("docs/CLI.md");
    for (format, endpoints) in [("toml", 1), ("yaml", 1)] {
        let blocks: Vec<&str> = text.split(&format!("```{format}\n")).skip(1).collect();
        assert_eq!(blocks.len(), 1, "{format}");
        let block = blocks[0].split("```").next().unwrap();
        let path = file(&format!("guide.{format}"), block.as_bytes());
        let ran = Fake::new().run(&format!("endpoint apply {path} --yes"));
        assert!(ran.exit == Exit::Done && ran.out.contains(&format!("{endpoints} of {endpoints} written")), "{ran:?}");
    }
}

#[test]
fn every_command_has_an_example() {
    fn walk(command: &clap::Command, path: &str, all: &mut Vec<String>) {
        for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
            let path = format!("{path} {}", inner.get_name());
            walk(inner, &path, all);
            all.push(path);
        }
    }
    let (mut all, lines) = (Vec::new(), lines(&root("docs/CLI.md")));
    walk(&Arguments::command(), "redeliver", &mut all);
    for command in all {
        assert!(lines.iter().any(|line| line.starts_with(&command)), "docs/CLI.md has no example of `{command}`");
    }
}
