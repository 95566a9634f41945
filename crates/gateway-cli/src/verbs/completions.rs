//! `completions`: a script that completes this command line in a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use super::Invocation;
use crate::cli::CommandLine;
use crate::exit::{Exit, Outcome};

/// Prints the script for the name under which the program was started.
pub(super) fn run(invocation: &mut Invocation, shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), &invocation.program, &mut script);
    invocation.terminal.raw(&script)?;
    Ok(Exit::Success)
}
