//! Who calls, through which face, and how strongly a call is confined.

use std::fmt;

/// The authenticated actor behind a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Principal {
    /// A caller without a token on a loopback address.
    Local,
    /// The holder of the operator token.
    Operator,
}

impl Principal {
    /// Returns the principal's name in receipts, policies and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The way by which a call came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Face {
    /// The REST interface.
    Rest,
    /// A program that embeds the gateway.
    Embedded,
}

impl Face {
    /// Returns the face's name in receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Embedded => "embedded",
        }
    }
}

/// The mechanism that confines a tool's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SandboxTier {
    /// Own user, mount, process, IPC and network namespaces, Landlock and seccomp.
    Namespaces,
}

impl SandboxTier {
    /// Returns the tier's name in configuration, receipts and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
        }
    }
}
