//! What is wrong with policy files, each fault at its place.

use std::fmt;
use std::path::Path;

use gateway_model::Digest;

use crate::compile::compile;
use crate::source::{self, Listing};
use crate::world::WorldError;

/// One fault in a policy file, or one thing to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file's name, or the directory where no single file is at fault.
    pub file: String,
    /// The line the fault starts on, counted from 1.
    pub line: Option<usize>,
    /// What is wrong and what to do.
    pub message: String,
}

impl Problem {
    pub(crate) fn of_file(file: impl Into<String>, message: impl Into<String>) -> Self {
        Self { file: file.into(), line: None, message: message.into() }
    }

    pub(crate) fn of_line(
        file: impl Into<String>,
        line: usize,
        message: impl Into<String>,
    ) -> Self {
        Self { file: file.into(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

/// Policy files that cannot be put in force. Nothing of them is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// Every fault found, in the order of files and lines; never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("policy refused: ")?;
        for (position, problem) in self.problems.iter().enumerate() {
            if position > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}

impl From<Problem> for LoadError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl From<WorldError> for LoadError {
    fn from(error: WorldError) -> Self {
        Self::from(Problem::of_file("schema/gateway.cedarschema", error.to_string()))
    }
}

/// What a directory of policy files amounts to, without putting it in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The files that were read.
    pub files: Vec<String>,
    /// How many rules would be in force, the default ones included; 0 with errors.
    pub rule_count: usize,
    /// The digest the set would have; none with errors.
    pub digest: Option<Digest>,
    /// What keeps the files from being put in force.
    pub errors: Vec<Problem>,
    /// What is legal and worth a look.
    pub warnings: Vec<Problem>,
}

/// Checks the policy files of a directory as a start of the gateway would.
pub fn check(directory: &Path) -> CheckReport {
    let mut report = CheckReport {
        files: Vec::new(),
        rule_count: 0,
        digest: None,
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let sources = match source::list(directory) {
        Ok(Listing::Present(files)) => source::read_all(directory, &files),
        Ok(Listing::Absent) => Err(LoadError::from(source::missing(directory))),
        Err(problem) => Err(LoadError::from(problem)),
    };
    match sources.map(|sources| {
        report.files = sources.iter().map(|source| source.name.clone()).collect();
        compile(sources)
    }) {
        Ok(compilation) => {
            report.warnings = compilation.warnings;
            match compilation.rule_set {
                Ok(rule_set) => {
                    report.rule_count = rule_set.rules().len();
                    report.digest = Some(rule_set.digest());
                }
                Err(error) => report.errors = error.problems,
            }
        }
        Err(error) => report.errors = error.problems,
    }
    report
}
