//! The configuration: defaults < file < environment < flags, each value with where it came from.
//!
//! INVARIANT: the environment is read here and nowhere else.

mod file;
mod given;
mod keys;
#[cfg(test)]
mod tests;
mod workspaces;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_model::WorkspaceName;
use gateway_sandbox::AddressRule;

pub(crate) use given::Given;
pub(crate) use keys::{KEYS, Key, Shown};
pub(crate) use workspaces::WorkspaceSetting;

use crate::exit::{Exit, Failure};

/// The settings of the gateway and of the program that talks to it.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The address that the gateway listens on.
    pub(crate) host: IpAddr,
    /// The port that the gateway listens on; 0 stands for a free one.
    pub(crate) port: u16,
    /// Says whether an address that other machines reach may be listened on.
    pub(crate) allow_remote: bool,
    /// The directory that holds everything the gateway keeps.
    pub(crate) home: PathBuf,
    /// What is logged, and how.
    pub(crate) log: Log,
    /// What confines processes.
    pub(crate) sandbox: SandboxSettings,
    /// Directories that calls may reach besides their run.
    pub(crate) workspaces: BTreeMap<WorkspaceName, WorkspaceSetting>,
    /// Whose requests are answered.
    pub(crate) http: HttpSettings,
    /// Where requests of tools may go.
    pub(crate) egress: EgressSettings,
    /// How long a stop waits for calls under way.
    pub(crate) grace: Duration,
    /// How long an outcome is kept for its idempotency key.
    pub(crate) key_retention: Duration,
    /// Directories in which the bare name of a Local command is looked up.
    pub(crate) search_path: Vec<PathBuf>,
    /// The registry of workers; `None` for the home's own, which may be absent.
    pub(crate) workers: Option<PathBuf>,
    sources: BTreeMap<String, Source>,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Log {
    /// A level, or a list of `target=level`.
    pub(crate) level: String,
    /// One line of text or one JSON object for each event.
    pub(crate) form: LogForm,
}

/// The form of a log event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogForm {
    Text,
    Json,
}

/// What confines processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxSettings {
    /// False only where an operator switched confinement off.
    pub(crate) is_enforced: bool,
    /// Directories that confined processes may read besides the system's own.
    pub(crate) readable: Vec<PathBuf>,
}

/// Whose requests are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpSettings {
    /// Values of `Host` besides the loopback names.
    pub(crate) allowed_hosts: Vec<String>,
    /// Values of `Origin` that are answered.
    pub(crate) allowed_origins: Vec<String>,
}

/// Where requests of tools may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EgressSettings {
    /// Addresses beyond the public internet that may be reached all the same.
    pub(crate) allow_private: Vec<AddressRule>,
    /// Certificate authorities that are trusted beside the system's, in PEM.
    pub(crate) ca_file: Option<PathBuf>,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File { path: PathBuf, line: usize },
    Environment(&'static str),
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One fault of the configuration, at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    source: Source,
    message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Default => f.write_str(&self.message),
            Source::File { .. } => write!(f, "{}: {}", self.source, self.message),
            Source::Environment(name) | Source::Flag(name) => write!(f, "{name}: {}", self.message),
        }
    }
}

/// A configuration that cannot be used; holds every fault found, never none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) struct ConfigError {
    pub(crate) problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.problems.iter().enumerate() {
            let separator = if position == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let is_usage =
            error.problems.iter().all(|problem| matches!(problem.source, Source::Flag(_)));
        let exit = if is_usage { Exit::Usage } else { Exit::Startup };
        Self::of(exit, error)
    }
}

/// The raw texts of every layer but the file, whose place they name.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    /// Flags as typed.
    pub(crate) flags: Flags,
    /// Variables of the environment, by name.
    pub(crate) environment: BTreeMap<&'static str, String>,
    /// The directory that relative paths of flags and environment start from.
    pub(crate) directory: PathBuf,
}

/// The settings that are flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags {
    /// The configuration file.
    pub(crate) file: Option<PathBuf>,
    /// Values of flags that belong to one key, by the flag's name.
    pub(crate) values: BTreeMap<&'static str, String>,
    /// Granted workspaces: `DIR`, `DIR:ro` or `DIR:rw`.
    pub(crate) workspaces: Vec<String>,
}

impl Layers {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// Names a variable that is not UTF-8, and a working directory that is gone.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub(crate) fn of_process(flags: Flags) -> Result<Self, ConfigError> {
        let mut environment = BTreeMap::new();
        let names = KEYS.iter().filter_map(|key| key.environment).chain(["HOME"]);
        for name in names {
            match std::env::var_os(name).map(std::ffi::OsString::into_string) {
                None => {}
                // An empty variable is how a shell says "not set".
                Some(Ok(text)) if text.is_empty() => {}
                Some(Ok(text)) => {
                    environment.insert(name, text);
                }
                Some(Err(_not_utf8)) => {
                    return Err(one(Source::Environment(name), "is not UTF-8"));
                }
            }
        }
        let directory = std::env::current_dir().map_err(|error| {
            one(Source::Default, format!("the working directory cannot be used: {error}"))
        })?;
        Ok(Self { flags, environment, directory })
    }
}

/// Returns a variable that the operator's registry of workers lets a worker have.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub(crate) fn variable_of_worker(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Config {
    /// Returns the configuration that the layers amount to.
    ///
    /// # Errors
    /// Names every value that is not what its key expects, and every unknown key of the file.
    pub(crate) fn load(layers: &Layers) -> Result<Self, ConfigError> {
        let mut config = Self::of_defaults(home(layers)?);
        let mut problems = Vec::new();
        file::apply(&mut config, layers, &mut problems);
        for key in KEYS {
            let environment = key.environment.and_then(|name| {
                layers.environment.get(name).map(|text| (Source::Environment(name), text))
            });
            let flag = key.flag.and_then(|name| {
                layers.flags.values.get(name).map(|text| (Source::Flag(name), text))
            });
            for (source, text) in environment.into_iter().chain(flag) {
                let given = Given::of_text(text, &layers.directory);
                config.set(key, &given, source, &mut problems);
            }
        }
        workspaces::apply_flags(&mut config, layers, &mut problems);
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }

    /// Returns the configuration of a home in which nothing else is said.
    fn of_defaults(home: PathBuf) -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 3510,
            allow_remote: false,
            home,
            log: Log { level: "info".to_owned(), form: LogForm::Text },
            sandbox: SandboxSettings { is_enforced: true, readable: Vec::new() },
            workspaces: BTreeMap::new(),
            http: HttpSettings { allowed_hosts: Vec::new(), allowed_origins: Vec::new() },
            egress: EgressSettings { allow_private: Vec::new(), ca_file: None },
            grace: Duration::from_secs(10),
            key_retention: Duration::from_secs(7 * 24 * 3_600),
            search_path: [
                "/usr/local/bin",
                "/usr/bin",
                "/bin",
                "/usr/local/sbin",
                "/usr/sbin",
                "/sbin",
            ]
            .map(PathBuf::from)
            .into(),
            workers: None,
            sources: BTreeMap::new(),
        }
    }

    /// Returns the configured address.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// Returns where the value of a key came from.
    pub(crate) fn source(&self, name: &str) -> Source {
        self.sources.get(name).cloned().unwrap_or(Source::Default)
    }

    /// Returns every key with its effective value, in the order of the table.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        KEYS.iter().flat_map(|key| key.shown(self)).collect()
    }

    /// Refuses an address that other machines reach, unless that was asked for.
    ///
    /// # Errors
    /// Says why, and what to do.
    pub(crate) fn check_reach(&self) -> Result<(), ConfigError> {
        if self.host.is_loopback() || self.allow_remote {
            return Ok(());
        }
        let message = format!(
            "host: {} can be reached from other machines, and without TLS the operator's token would \
             cross the network in the clear; use 127.0.0.1, or give --allow-remote where something \
             else guards the port",
            self.host
        );
        let source = self.source("host");
        Err(ConfigError { problems: vec![Problem { source, message }] })
    }

    /// Says whether requests of other machines are expected, directly or passed on by a proxy.
    ///
    /// A proxy on this machine connects from a loopback address like a caller of this machine.
    pub(crate) fn is_reached_through_others(&self) -> bool {
        self.allow_remote || !self.http.allowed_hosts.is_empty()
    }

    /// Sets one key, or notes why it cannot be set.
    fn set(
        &mut self,
        key: &'static Key,
        given: &Given<'_>,
        source: Source,
        problems: &mut Vec<Problem>,
    ) {
        match (key.set)(self, given) {
            Ok(()) => {
                self.sources.insert(key.name_for(given.workspace), source);
            }
            Err(wrong) => {
                let name = key.name_for(given.workspace);
                let message = match wrong {
                    given::Wrong::Value => {
                        format!("{name}: expected {}, got {}", key.expected, given.found())
                    }
                    given::Wrong::Reason(reason) => format!("{name}: {reason}"),
                };
                problems.push(Problem { source, message });
            }
        }
    }
}

/// Returns the home: where it lies decides which file is read.
fn home(layers: &Layers) -> Result<PathBuf, ConfigError> {
    let flag = layers.flags.values.get("--home").map(PathBuf::from);
    let environment = || layers.environment.get("ALLTERNIT_HOME").map(PathBuf::from);
    let default = || layers.environment.get("HOME").map(|home| Path::new(home).join(".allternit"));
    let home = flag.or_else(environment).or_else(default).ok_or_else(|| {
        one(Source::Default, "home: HOME is not set, so there is no ~/.allternit; give --home DIR or set ALLTERNIT_HOME")
    })?;
    Ok(layers.directory.join(home))
}

fn one(source: Source, message: impl Into<String>) -> ConfigError {
    ConfigError { problems: vec![Problem { source, message: message.into() }] }
}
