//! A step of the helper that failed, by name.

use std::io;

use crate::spec::Report;

/// A step that failed, with the path it was about.
#[derive(Debug)]
pub(crate) struct Failure {
    stage: String,
    errno: i32,
    advice: Option<String>,
}

impl Failure {
    pub(crate) fn new(stage: impl Into<String>, errno: i32) -> Self {
        Self { stage: stage.into(), errno, advice: None }
    }

    /// Adds what the operator can do about it.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub(crate) fn errno(&self) -> i32 {
        self.errno
    }

    pub(crate) fn into_report(self) -> Report {
        Report::Failed { stage: self.stage, errno: self.errno, advice: self.advice }
    }
}

/// Names the step that an error belongs to.
pub(crate) trait Stage<T> {
    /// Names the step by a fixed text.
    fn stage(self, stage: &str) -> Result<T, Failure>;
    /// Names the step by a text that is only made if it failed.
    fn stage_with(self, stage: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Stage<T> for Result<T, E> {
    fn stage(self, stage: &str) -> Result<T, Failure> {
        self.stage_with(|| stage.to_owned())
    }

    fn stage_with(self, stage: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| {
            Failure::new(stage(), error.into().raw_os_error().unwrap_or(libc::EIO))
        })
    }
}
