//! The one table of keys: what each is called, expects, sets and shows.

use std::time::Duration;

use gateway_model::WorkspaceName;
use gateway_sandbox::AddressRule;
use serde_json::{Value, json};

use super::given::{Given, Wrong};
use super::{Config, LogForm, Source, WorkspaceSetting};

const DAY_SECONDS: u64 = 24 * 3_600;

/// One key of the configuration.
pub(crate) struct Key {
    /// The name, dotted; `NAME` stands for the name of a workspace.
    pub(crate) name: &'static str,
    /// What the value must be; reads after "expected".
    pub(crate) expected: &'static str,
    /// The variable of the environment that sets it.
    pub(crate) environment: Option<&'static str>,
    /// The flag that sets it.
    pub(crate) flag: Option<&'static str>,
    /// What it is for.
    pub(crate) doc: &'static str,
    pub(super) set: fn(&mut Config, &Given<'_>) -> Result<(), Wrong>,
    pub(super) show: Show,
}

/// How the effective value is read back.
pub(super) enum Show {
    /// The key has one value.
    One(fn(&Config) -> Value),
    /// Each workspace has the key.
    EachWorkspace(fn(&WorkspaceSetting) -> Value),
}

/// A key's effective value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    /// The key, with the workspace's name in it.
    pub(crate) name: String,
    /// The effective value.
    pub(crate) value: Value,
    /// Where it came from.
    pub(crate) source: Source,
    /// What the key is for.
    pub(crate) doc: &'static str,
}

impl Shown {
    /// Returns the value as it would stand in the file.
    pub(crate) fn value_text(&self) -> String {
        self.value.to_string()
    }
}

impl Key {
    /// Returns the name with the workspace's name in the place of `NAME`.
    pub(super) fn name_for(&self, workspace: Option<&WorkspaceName>) -> String {
        match workspace {
            Some(workspace) => self.name.replace("NAME", workspace.as_str()),
            None => self.name.to_owned(),
        }
    }

    /// Says whether the key is one of those that each workspace has.
    pub(super) fn is_of_workspace(&self) -> bool {
        matches!(self.show, Show::EachWorkspace(_))
    }

    pub(super) fn shown(&self, config: &Config) -> Vec<Shown> {
        let shown = |name: String, value: Value| Shown {
            source: config.source(&name),
            name,
            value,
            doc: self.doc,
        };
        match self.show {
            Show::One(show) => vec![shown(self.name.to_owned(), show(config))],
            Show::EachWorkspace(show) => config
                .workspaces
                .iter()
                .map(|(name, setting)| shown(self.name_for(Some(name)), show(setting)))
                .collect(),
        }
    }
}

/// Every key, in the order of documentation and `config show`.
pub(crate) const KEYS: &[Key] = &[
    Key {
        name: "host",
        expected: "an IP address or localhost",
        environment: Some("ALLTERNIT_IO_SERVICE_HOST"),
        flag: Some("--host"),
        doc: "Address to listen on, and to talk to.",
        set: |config, given| {
            config.host = match given.text()? {
                "localhost" => [127, 0, 0, 1].into(),
                _ => given.parsed()?,
            };
            Ok(())
        },
        show: Show::One(|config| json!(config.host.to_string())),
    },
    Key {
        name: "port",
        expected: "an integer from 0 to 65535",
        environment: Some("ALLTERNIT_IO_SERVICE_PORT"),
        flag: Some("--port"),
        doc: "Port to listen on, and to talk to; 0 takes a free one.",
        set: |config, given| {
            let port = given.integer(0..=65535)?;
            config.port = u16::try_from(port).map_err(|_too_large| Wrong::Value)?;
            Ok(())
        },
        show: Show::One(|config| json!(config.port)),
    },
    Key {
        name: "allow_remote",
        expected: "true or false",
        environment: None,
        flag: Some("--allow-remote"),
        doc: "Allows a host that other machines reach. There is no TLS.",
        set: |config, given| {
            config.allow_remote = given.switch()?;
            Ok(())
        },
        show: Show::One(|config| json!(config.allow_remote)),
    },
    Key {
        name: "home",
        expected: "a path",
        environment: Some("ALLTERNIT_HOME"),
        flag: Some("--home"),
        doc: "Directory of everything the gateway keeps; not a key of the file.",
        set: |config, given| {
            config.home = given.path()?;
            Ok(())
        },
        show: Show::One(|config| json!(config.home)),
    },
    Key {
        name: "log.level",
        expected: "off, error, warn, info, debug, trace, or a list of target=level",
        environment: Some("ALLTERNIT_LOG"),
        flag: None,
        doc: "What `serve` logs to standard error.",
        set: |config, given| {
            let text = given.text()?;
            if !crate::telemetry::is_filter(text) {
                return Err(Wrong::Value);
            }
            text.clone_into(&mut config.log.level);
            Ok(())
        },
        show: Show::One(|config| json!(config.log.level)),
    },
    Key {
        name: "log.format",
        expected: "text or json",
        environment: Some("ALLTERNIT_LOG_FORMAT"),
        flag: None,
        doc: "Form of the log.",
        set: |config, given| {
            config.log.form = given.word(&[("text", LogForm::Text), ("json", LogForm::Json)])?;
            Ok(())
        },
        show: Show::One(|config| match config.log.form {
            LogForm::Text => json!("text"),
            LogForm::Json => json!("json"),
        }),
    },
    Key {
        name: "sandbox.mode",
        expected: "enforce or off",
        environment: None,
        flag: Some("--sandbox"),
        doc: "`off` runs tools unconfined; every receipt then says so.",
        set: |config, given| {
            config.sandbox.is_enforced = given.word(&[("enforce", true), ("off", false)])?;
            Ok(())
        },
        show: Show::One(|config| json!(if config.sandbox.is_enforced { "enforce" } else { "off" })),
    },
    Key {
        name: "sandbox.readable",
        expected: "a list of paths",
        environment: None,
        flag: None,
        doc: "Directories that confined processes may read besides the system's own.",
        set: |config, given| {
            config.sandbox.readable = given.paths()?;
            Ok(())
        },
        show: Show::One(|config| json!(config.sandbox.readable)),
    },
    Key {
        name: "workspaces.NAME.path",
        expected: "a path",
        environment: None,
        flag: Some("--workspace"),
        doc: "Directory that calls see as `/workspace/NAME`.",
        set: |config, given| {
            let path = given.path()?;
            workspace(config, given)?.path = Some(path);
            Ok(())
        },
        show: Show::EachWorkspace(|workspace| json!(workspace.path)),
    },
    Key {
        name: "workspaces.NAME.mode",
        expected: "ro or rw",
        environment: None,
        flag: Some("--workspace"),
        doc: "`ro`: calls may only read it.",
        set: |config, given| {
            let is_writable = given.word(&[("ro", false), ("rw", true)])?;
            workspace(config, given)?.is_writable = is_writable;
            Ok(())
        },
        show: Show::EachWorkspace(|workspace| {
            json!(if workspace.is_writable { "rw" } else { "ro" })
        }),
    },
    Key {
        name: "http.allowed_hosts",
        expected: "a list of host names",
        environment: None,
        flag: None,
        doc: "Values of the `Host` header that are answered besides the loopback names.",
        set: |config, given| {
            config.http.allowed_hosts = owned(given.texts()?);
            Ok(())
        },
        show: Show::One(|config| json!(config.http.allowed_hosts)),
    },
    Key {
        name: "http.allowed_origins",
        expected: "a list of origins, such as \"https://example.org\"",
        environment: None,
        flag: None,
        doc: "Values of the `Origin` header that are answered.",
        set: |config, given| {
            config.http.allowed_origins = owned(given.texts()?);
            Ok(())
        },
        show: Show::One(|config| json!(config.http.allowed_origins)),
    },
    Key {
        name: "egress.allow_private",
        expected: "a list of addresses or networks, such as \"127.0.0.1:8080\" or \"10.0.0.0/8\"",
        environment: None,
        flag: None,
        doc: "Addresses beyond the public internet that tools may reach, with or without a port.",
        set: |config, given| {
            let rules = given.texts()?.into_iter().map(|text| {
                text.parse::<AddressRule>().map_err(|error| Wrong::Reason(error.to_string()))
            });
            config.egress.allow_private = rules.collect::<Result<_, _>>()?;
            Ok(())
        },
        show: Show::One(|config| {
            let rules = config.egress.allow_private.iter().map(ToString::to_string);
            json!(rules.collect::<Vec<_>>())
        }),
    },
    Key {
        name: "egress.ca_file",
        expected: "a path",
        environment: None,
        flag: None,
        doc: "PEM file of certificate authorities that tools' requests trust beside the system's.",
        set: |config, given| {
            config.egress.ca_file = Some(given.path()?);
            Ok(())
        },
        show: Show::One(|config| json!(config.egress.ca_file)),
    },
    Key {
        name: "limits.grace_seconds",
        expected: "an integer from 0 to 3600",
        environment: None,
        flag: None,
        doc: "How long a stop waits for calls under way before it stops them.",
        set: |config, given| {
            config.grace = Duration::from_secs(given.integer(0..=3600)?);
            Ok(())
        },
        show: Show::One(|config| json!(config.grace.as_secs())),
    },
    Key {
        name: "limits.key_retention_days",
        expected: "an integer from 1 to 3650",
        environment: None,
        flag: None,
        doc: "How long an outcome is kept for its idempotency key; later uses are refused.",
        set: |config, given| {
            config.key_retention = Duration::from_secs(given.integer(1..=3650)? * DAY_SECONDS);
            Ok(())
        },
        show: Show::One(|config| json!(config.key_retention.as_secs() / DAY_SECONDS)),
    },
    Key {
        name: "tools.search_path",
        expected: "a list of paths",
        environment: None,
        flag: None,
        doc: "Directories in which the bare name of a Local tool's command is looked up.",
        set: |config, given| {
            config.search_path = given.paths()?;
            Ok(())
        },
        show: Show::One(|config| json!(config.search_path)),
    },
    Key {
        name: "workers.registry",
        expected: "a path",
        environment: Some("ALLTERNIT_WORKER_REGISTRY_PATH"),
        flag: None,
        doc: "Registry of the workers that Subprocess tools name; `workers/worker_registry.json` in the home where absent.",
        set: |config, given| {
            config.workers = Some(given.path()?);
            Ok(())
        },
        show: Show::One(|config| json!(config.workers)),
    },
];

/// Returns the setting of the workspace that the key belongs to.
fn workspace<'c>(
    config: &'c mut Config,
    given: &Given<'_>,
) -> Result<&'c mut WorkspaceSetting, Wrong> {
    let name = given.workspace.ok_or(Wrong::Value)?;
    Ok(config.workspaces.entry(name.clone()).or_insert_with(WorkspaceSetting::unset))
}

fn owned(texts: Vec<&str>) -> Vec<String> {
    texts.into_iter().map(ToOwned::to_owned).collect()
}
