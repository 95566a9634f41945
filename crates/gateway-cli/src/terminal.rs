//! What the program writes: results on standard output, everything else on standard error.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use crate::cli::OutputForm;

/// The two outputs of the program.
pub(crate) struct Terminal {
    out: io::Stdout,
    err: io::Stderr,
    form: OutputForm,
}

impl Terminal {
    /// Returns the terminal of this process.
    pub(crate) fn of_process(form: OutputForm) -> Self {
        Self { out: io::stdout(), err: io::stderr(), form }
    }

    /// Returns the form in which results are asked for.
    pub(crate) fn form(&self) -> OutputForm {
        self.form
    }

    /// Writes a result as it is.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.flush()
    }

    /// Writes a line of a result.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        self.raw(format!("{text}\n").as_bytes())
    }

    /// Writes a result as indented JSON.
    pub(crate) fn json(&mut self, value: &Value) -> io::Result<()> {
        self.line(&format!("{value:#}"))
    }

    /// Writes to standard error as it is.
    pub(crate) fn raw_note(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.err.write_all(bytes)?;
        self.err.flush()
    }

    /// Writes a line to standard error.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        self.raw_note(format!("{text}\n").as_bytes())
    }
}

/// Says whether standard error is read by a person.
pub(crate) fn is_error_output_interactive() -> bool {
    io::stderr().is_terminal()
}
