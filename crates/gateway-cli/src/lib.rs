//! The program: configuration, wiring and verbs.
//!
//! It is built under two names, `allternit-tools-gateway` and `atg`.

mod cli;
mod client;
mod compose;
mod config;
mod exit;
mod home;
mod open_files;
mod table;
mod telemetry;
mod terminal;
mod verbs;

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::CommandLine;
use crate::exit::Exit;
use crate::verbs::Invocation;

/// Runs the program and returns how it ended.
///
/// The sandbox's helper is this program started again with a hidden first argument. It is
/// dispatched before anything else exists: no thread, no runtime, no parsed command line.
pub fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "__sandbox") {
        return gateway_sandbox::helper_main();
    }
    match CommandLine::try_parse() {
        Ok(command_line) => run(command_line),
        Err(shown) => {
            // The help, the version or a fault of the command line; a reader that has gone away
            // does not change how it ended.
            drop(shown.print());
            u8::try_from(shown.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    }
}

fn run(command_line: CommandLine) -> ExitCode {
    let mut invocation = Invocation::new(&command_line, program_name());
    let outcome = verbs::run(&mut invocation, command_line.verb);
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) if failure.is_broken_pipe() => Exit::Success.into(),
        Err(failure) => {
            // With standard error gone, the exit code is all that is left to say.
            drop(invocation.terminal.note(&format!("error: {failure}")));
            failure.exit.into()
        }
    }
}

/// Returns the name under which the program was started.
fn program_name() -> String {
    std::env::args_os()
        .next()
        .and_then(|path| Some(Path::new(&path).file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "atg".to_owned())
}
