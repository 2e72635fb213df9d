//! The program `redeliver`: streams, variables, and an exit code. Everything else is in the library.

use std::io::{IsTerminal, stderr, stdin, stdout};
use std::process::ExitCode;

use operator::exit::Exit;
use operator::session::Io;

fn main() -> ExitCode {
    let io = Io {
        stdin: &mut stdin().lock(),
        stdout: &mut stdout().lock(),
        stderr: &mut stderr().lock(),
        asks: stdin().is_terminal() && stderr().is_terminal(),
        shows: stdout().is_terminal(),
        width: terminal_size::terminal_size_of(stdout()).map(|(width, _)| width.0),
    };
    let exit = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            runtime.block_on(operator::run(std::env::args_os().collect(), &platform::clock::environment, io))
        }
        Err(_) => Exit::Own,
    };
    ExitCode::from(exit as u8)
}
