//! One run of the program: what was asked, where to write, whom to ask. All output goes through here, so that `--json`
//! means one document on standard output, whatever the command.

use std::io::{BufRead, ErrorKind, Read, Write};

use comfy_table::{ColumnConstraint, ContentArrangement};
use domain::definition::is_deceptive;
use domain::ports::Clock;
use domain::time::Millis;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::arguments::{Color, Global};
use crate::exit::{Exit, Failure};
use crate::outside::World;
use crate::stack::{LOCAL, Source, Target};
use crate::when;

/// The most that is read as secrets, in bytes.
const MAX_SECRET_INPUT: usize = 16 * 1024;

/// The streams of the process.
pub struct Io<'a> {
    /// Standard input.
    pub stdin: &'a mut dyn BufRead,
    /// Standard output: answers.
    pub stdout: &'a mut dyn Write,
    /// Standard error: notes, questions, failures.
    pub stderr: &'a mut dyn Write,
    /// Somebody can be asked.
    pub asks: bool,
    /// Standard output is a terminal.
    pub shows: bool,
    /// So many columns wide, if it is one.
    pub width: Option<u16>,
}

/// Looks up a variable of the environment.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A colour of the sixteen.
#[derive(Clone, Copy, Debug)]
pub enum Paint {
    /// Good, or added.
    Green,
    /// Bad, or removed.
    Red,
    /// Worth a look, or changed.
    Yellow,
    /// A heading.
    Bold,
}

/// One run.
pub struct Session<'a, W: World> {
    /// Time, chance and the outside.
    pub world: &'a W,
    /// Options of every command.
    pub global: Global,
    /// Variables.
    pub environment: Environment<'a>,
    /// Streams.
    pub io: Io<'a>,
}

impl<W: World> Session<'_, W> {
    /// The time.
    pub fn now(&self) -> Millis {
        self.world.clock().now()
    }

    /// Finds the stack and connects to it.
    pub async fn connect(&self) -> Result<W::Outside, Failure> {
        let variable = (self.environment)("REDELIVER_STACK");
        let local = std::path::Path::new(LOCAL).is_file();
        let given = |name: &str| (self.environment)(name).is_some_and(|value| !value.is_empty());
        let target = Target {
            source: Source::of(self.global.stack.as_deref(), variable.as_deref(), local),
            profile: self.global.profile.clone(),
            region: self.global.region.clone(),
            own_credentials: self.global.profile.is_some() || given("AWS_ACCESS_KEY_ID") || given("AWS_PROFILE"),
        };
        self.world.connect(&target).await
    }

    /// Answers: the document for scripts, or the text for people.
    pub fn answer(&mut self, document: &Value, text: &str) -> Result<(), Failure> {
        let written = if self.global.json {
            writeln!(self.io.stdout, "{document:#}")
        } else if text.is_empty() || text.ends_with('\n') {
            write!(self.io.stdout, "{text}")
        } else {
            writeln!(self.io.stdout, "{text}")
        };
        match written.and_then(|()| self.io.stdout.flush()) {
            // Who reads on the other side has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => Ok(other?),
        }
    }

    /// Says something that is no answer.
    pub fn note(&mut self, text: &str) {
        writeln!(self.io.stderr, "{text}").ok();
    }

    /// Asks for agreement, of somebody who can see the question. `what` is the question without its mark.
    pub fn confirm(&mut self, what: &str) -> Result<(), Failure> {
        if self.global.yes {
            return Ok(());
        }
        if !self.io.asks {
            let message = format!("{what}: there is no terminal to ask on; add --yes");
            return Err(Failure::new(Exit::Conflict, "not_confirmed", message));
        }
        write!(self.io.stderr, "{what}? [y/N] ")?;
        self.io.stderr.flush()?;
        let mut answer = String::new();
        self.io.stdin.read_line(&mut answer)?;
        if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(Failure::new(Exit::Conflict, "not_confirmed", "nothing was changed"))
    }

    /// The text of a file; `-` is standard input.
    pub fn text_of(&mut self, option: &str, path: &str) -> Result<String, Failure> {
        let mut text = String::new();
        let read = match path {
            "-" => self.io.stdin.read_to_string(&mut text).map(|_| text),
            path => std::fs::read_to_string(path),
        };
        read.map_err(|error| Failure::invalid(format!("{option} {path}: {error}")))
    }

    /// All of standard input, for secrets.
    pub fn secret_input(&mut self) -> Result<Zeroizing<String>, Failure> {
        // All at once, so that no part stays behind in an outgrown buffer.
        let mut text = Zeroizing::new(String::with_capacity(MAX_SECRET_INPUT + 64));
        let most = u64::try_from(MAX_SECRET_INPUT + 1).unwrap_or(u64::MAX);
        (&mut *self.io.stdin).take(most).read_to_string(&mut text)?;
        if text.len() > MAX_SECRET_INPUT {
            return Err(Failure::invalid(format!("--secret-stdin: more than {MAX_SECRET_INPUT} bytes are no secrets")));
        }
        if text.trim().is_empty() {
            return Err(Failure::invalid("--secret-stdin: there is nothing on standard input"));
        }
        Ok(text)
    }

    /// A text in a colour, where colours are wanted.
    pub fn paint(&self, paint: Paint, text: &str) -> String {
        let wanted = match self.global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => self.io.shows && (self.environment)("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        let code = match paint {
            Paint::Green => 32,
            Paint::Red => 31,
            Paint::Yellow => 33,
            Paint::Bold => 1,
        };
        if wanted { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A table that fits the terminal.
    pub fn table(&self, header: &[&str], rows: Vec<Vec<String>>) -> String {
        table(header, rows, self.io.width)
    }

    /// A time for people.
    pub fn time(&self, at: Millis) -> String {
        when::shown(at, self.now(), &self.world.zone())
    }

    /// Who decides: the option, the name that AWS knows, the name that the system knows.
    pub async fn operator(&self, outside: &W::Outside) -> String {
        use crate::outside::Caller;
        if let Some(name) = &self.global.operator {
            return name.clone();
        }
        let name = outside.name().await.or_else(|| (self.environment)("USER"));
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
    }
}

/// A text of somebody else on one line, without what a terminal would obey.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_deceptive(c) { '\u{b7}' } else { c }).collect()
}

/// The same for a text of several lines.
pub fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// The narrowest table; below that a terminal wraps lines itself.
const NARROWEST: u16 = 60;

/// A table with a header, without lines. Where it is wider than so many columns, its cells are wrapped; those of the first
/// column never are, because what stands there is copied.
fn table(header: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(header.to_vec()).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.max(NARROWEST));
        if let Some(first) = table.column_mut(0) {
            first.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal_and_its_first_column_stays_whole() {
        let id = "plan_1796126400_5f0c91aa42d7e308";
        let rows = || vec![vec![id.to_owned(), "a note of many words, ".repeat(8)]];
        let wide = table(&["PLAN", "NOTE"], rows(), None);
        assert_eq!(wide.lines().count(), 2, "a file has no width");
        let text = table(&["PLAN", "NOTE"], rows(), Some(80));
        assert!(text.lines().count() > 3 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(id), "{text}");
        assert!(table(&["PLAN", "NOTE"], rows(), Some(10)).contains(id));
    }
}
