//! `docs/SEMANTICS.md` as its tests read it: sections, and in them examples. An example begins with a line that starts with
//! "Example" and the name of its test in backticks; the indented block, the table, or both behind it are what the test plays.

use crate::documents::root;

/// A section with the names of its examples.
pub struct Section {
    pub heading: String,
    pub examples: Vec<String>,
}

fn page() -> String {
    root("docs/SEMANTICS.md")
}

/// The name in a line that begins an example.
fn name(line: &str) -> Option<&str> {
    line.strip_prefix("Example `")?.split('`').next()
}

pub fn sections() -> Vec<Section> {
    let page = page();
    let sections = page.split("\n## ").skip(1).map(|section| Section {
        heading: section.lines().next().unwrap().to_owned(),
        examples: section.lines().filter_map(name).map(ToOwned::to_owned).collect(),
    });
    sections.collect()
}

/// The lines of an example, without what marks them as a block.
fn block(example: &str) -> Vec<String> {
    let page = page();
    let is_block = |line: &&str| line.is_empty() || line.starts_with("    ") || line.starts_with('|');
    let behind = page.lines().skip_while(|line| name(line) != Some(example)).skip(1).take_while(is_block);
    let lines: Vec<String> = behind.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty(), "docs/SEMANTICS.md has no example `{example}`");
    lines
}

/// The lines of an example in columns, which two blanks or more keep apart. What follows an arrow is the last column of
/// the line before.
pub fn lines(example: &str) -> Vec<Vec<String>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    for line in block(example).into_iter().filter(|line| !line.starts_with('|')) {
        if let Some(outcome) = line.strip_prefix('→') {
            lines.last_mut().expect("an arrow continues a line").push(outcome.trim().to_owned());
        } else {
            let columns = line.split("  ").map(str::trim).filter(|column| !column.is_empty());
            lines.push(columns.map(ToOwned::to_owned).collect());
        }
    }
    lines
}

/// The rows of an example that is a table, without its head.
pub fn rows<const CELLS: usize>(example: &str) -> Vec<[String; CELLS]> {
    let rows = block(example).into_iter().filter(|line| line.starts_with('|')).skip(2).map(|row| {
        let cells: Vec<String> = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().unwrap_or_else(|cells| panic!("{example}: a row of other than {CELLS} cells: {cells:?}"))
    });
    rows.collect()
}

/// The cases of a cell: what semicolons keep apart, without backticks and remarks in brackets.
pub fn cases(cell: &str) -> Vec<String> {
    cell.split("; ").map(|case| case.split(" (").next().unwrap().replace('`', "").trim().to_owned()).collect()
}

/// What is to come of it, without backticks and without the explanation behind a colon.
pub fn outcome(text: &str) -> String {
    text.split(": ").next().unwrap().replace('`', "").trim().to_owned()
}

/// The texts in backticks of a cell.
pub fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// `30 s`, `2 min`, `6 h` in milliseconds.
pub fn duration_ms(text: &str) -> i64 {
    let (number, unit) = text.split_once(' ').unwrap_or_else(|| panic!("no duration: {text}"));
    let unit_ms = match unit {
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "days" => 86_400_000,
        other => panic!("no unit of time: {other}"),
    };
    number.parse::<i64>().unwrap_or_else(|e| panic!("{text}: {e}")) * unit_ms
}
