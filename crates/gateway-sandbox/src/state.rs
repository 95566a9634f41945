//! Whether confinement is to be had, and what would bring it where it is not.

use gateway_model::SandboxTier;

/// What confines the processes of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxState {
    /// Confinement holds: the start-up tried attacks, and all failed.
    Enforced(SandboxTier),
    /// An operator switched confinement off.
    Off,
    /// Confinement is wanted and not to be had: no process is started.
    Unavailable(Unavailable),
}

impl SandboxState {
    /// Returns the state in one word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Enforced(tier) => tier.as_str(),
            Self::Off => "off",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

/// Why no confinement is to be had, and what would bring it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox is not available: {missing}. Remedies: {}", remedies.join("; or "))]
pub struct Unavailable {
    /// What is missing.
    pub missing: String,
    /// What to do on this machine, each by itself enough.
    pub remedies: Vec<String>,
}
