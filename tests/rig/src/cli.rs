//! The command line on the local stack: its library is called as its program calls it, with the same words.

use std::ffi::OsString;
use std::io::BufReader;

use operator::exit::Exit;
use operator::session::Io;
use serde_json::Value;

use crate::stack::Stack;

/// What a command left.
#[derive(Debug)]
pub struct Ran {
    pub exit: Exit,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

impl Stack {
    /// Runs a command; its words are divided by blanks.
    pub async fn cli(&self, line: &str) -> Ran {
        self.cli_with(line, b"").await
    }

    pub async fn cli_with(&self, line: &str, input: &[u8]) -> Ran {
        let path = self.stack_path();
        let environment = |name: &str| match name {
            "REDELIVER_STACK" => Some(path.clone()),
            "USER" => Some("ada".to_owned()),
            _ => None,
        };
        let words = std::iter::once("redeliver").chain(line.split(' ')).map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut stdin = BufReader::new(input);
        let io = Io { stdin: &mut stdin, stdout: &mut out, stderr: &mut err, asks: false, shows: false, width: None };
        let exit = operator::run(words, &environment, io).await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { exit, out: text(out), err: text(err) }
    }
}
