//! Secrets: resolved when a call is run, and taken out of everything that the call gives back.
//!
//! INVARIANT: a value exists only between a [`Job`](super::adapter::Job) that resolves it and the
//! process or peer that it is given to. What is journaled, stored, answered or logged was written
//! before, or has passed the redactor.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gateway_model::{ErrorKind, SecretName, SecretText, ToolError};

use super::adapter::Completion;
use super::redaction::Redactor;

/// Where the values of secrets come from. Clones share one source.
///
/// The function is asked at each use, so that a changed value is in force at once; it may block
/// for as long as a small file takes to be read.
#[derive(Clone)]
pub struct SecretSource {
    read: Arc<Read>,
}

type Read = dyn Fn(&SecretName) -> Result<String, SecretError> + Send + Sync;

/// A secret whose value cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No secret has this name.
    #[error("secret {name} is not set; the operator sets it with `secrets set {name}`")]
    Absent {
        /// The name.
        name: SecretName,
    },
    /// There is one, and its value cannot be read.
    #[error("secret {name} cannot be read: {reason}")]
    Unreadable {
        /// The name.
        name: SecretName,
        /// What stands in the way; holds nothing of the value.
        reason: String,
    },
}

impl SecretSource {
    /// Returns the source that a function is.
    pub fn new(
        read: impl Fn(&SecretName) -> Result<String, SecretError> + Send + Sync + 'static,
    ) -> Self {
        Self { read: Arc::new(read) }
    }

    /// Returns a source without secrets.
    pub fn none() -> Self {
        Self::new(|name| Err(SecretError::Absent { name: name.clone() }))
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretSource")
    }
}

/// The secrets of one call: what it may resolve, and what it has resolved. Clones share both.
#[derive(Clone)]
pub(crate) struct CallSecrets {
    source: SecretSource,
    redactor: Arc<Mutex<Redactor>>,
}

impl CallSecrets {
    pub(crate) fn of(source: &SecretSource) -> Self {
        Self { source: source.clone(), redactor: Arc::default() }
    }

    /// Returns a text with its reference replaced by the value.
    ///
    /// # Errors
    /// Names the secret; then nothing was given to anyone.
    pub(crate) async fn resolve(&self, text: &SecretText) -> Result<String, ToolError> {
        let Some(name) = text.secret().cloned() else { return Ok(text.prefix().to_owned()) };
        let unavailable =
            |reason: String| ToolError::new(ErrorKind::Unavailable, reason).retryable(false);
        let read = Arc::clone(&self.source.read);
        let asked = name.clone();
        let value = tokio::task::spawn_blocking(move || read(&asked))
            .await
            .map_err(|_panic| unavailable(format!("secret {name} cannot be read")))?
            .map_err(|error| unavailable(error.to_string()))?;
        self.redactor().add(&name, &value);
        Ok(format!("{}{value}", text.prefix()))
    }

    /// Takes every resolved value out of what a stream held; `is_cut` where it went on.
    pub(crate) fn redact_stream(&self, bytes: Vec<u8>, is_cut: bool) -> Vec<u8> {
        self.redactor().stream(bytes, is_cut)
    }

    /// Takes every resolved value out of what a call gives back.
    pub(crate) fn redact(&self, completion: Completion) -> Completion {
        self.redactor().completion(completion)
    }

    fn redactor(&self) -> std::sync::MutexGuard<'_, Redactor> {
        self.redactor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CallSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallSecrets")
    }
}
