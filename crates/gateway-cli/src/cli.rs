//! The command line: verbs, their arguments, and the flags that are settings.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::config::Flags;
use crate::exit;

/// Tools Gateway: the only path by which agents cause side effects.
#[derive(Debug, Parser)]
#[command(version, after_help = exit::help(), subcommand_help_heading = "Verbs", subcommand_value_name = "VERB")]
pub(crate) struct CommandLine {
    /// Form of results.
    #[arg(short, long, value_enum, global = true, default_value = "table", value_name = "FORM")]
    pub(crate) output: OutputForm,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
    /// What to do; serve where nothing is said.
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

/// The form in which results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputForm {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Flags that set configuration keys; the texts are read where keys are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct SettingFlags {
    /// Directory of everything the gateway keeps [default: ~/.allternit].
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<String>,
    /// Configuration file [default: config.toml in the home].
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on, or to talk to [default: 127.0.0.1].
    #[arg(long, global = true, value_name = "ADDRESS")]
    host: Option<String>,
    /// Port to listen on, or to talk to [default: 3510].
    #[arg(long, global = true, value_name = "PORT")]
    port: Option<String>,
    /// Grant a directory to calls, as /workspace/NAME; repeatable.
    #[arg(long, global = true, value_name = "DIR[:ro]")]
    workspace: Vec<String>,
    /// Confine tools, or run them unconfined [default: enforce].
    #[arg(long, global = true, value_name = "enforce|off")]
    sandbox: Option<String>,
    /// Listen on an address that other machines reach; there is no TLS.
    #[arg(long, global = true)]
    allow_remote: bool,
}

impl SettingFlags {
    /// Returns the flags as the topmost layer of the configuration.
    pub(crate) fn to_layer(&self) -> Flags {
        let allow_remote = self.allow_remote.then(|| "true".to_owned());
        let values = [
            ("--home", &self.home),
            ("--host", &self.host),
            ("--port", &self.port),
            ("--sandbox", &self.sandbox),
            ("--allow-remote", &allow_remote),
        ];
        let values =
            values.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
        Flags { file: self.config.clone(), values, workspaces: self.workspace.clone() }
    }

    /// Returns the first flag that only a gateway that starts can heed.
    pub(crate) fn of_start_only(&self) -> Option<&'static str> {
        [
            ("--workspace", !self.workspace.is_empty()),
            ("--sandbox", self.sandbox.is_some()),
            ("--allow-remote", self.allow_remote),
        ]
        .into_iter()
        .find_map(|(name, is_given)| is_given.then_some(name))
    }
}

/// What the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the gateway until it is told to stop.
    Serve,
    /// Call a tool of the running gateway.
    Call(CallArguments),
    /// List, show, register and remove tools.
    #[command(subcommand)]
    Tools(ToolsVerb),
    /// List the workers that Subprocess tools can name.
    #[command(subcommand)]
    Workers(WorkersVerb),
    /// Keep the values that bindings name as secret:NAME.
    #[command(subcommand)]
    Secrets(SecretsVerb),
    /// List and show receipts.
    #[command(subcommand)]
    Receipts(ReceiptsVerb),
    /// Settle calls whose outcome is unknown.
    #[command(subcommand)]
    Calls(CallsVerb),
    /// List, answer and revoke approvals of calls.
    #[command(subcommand)]
    Approvals(ApprovalsVerb),
    /// Check policy files, or explain what policy says about a call.
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Show the configuration, or check it.
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Check what a gateway needs on this machine.
    Doctor,
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// One call, as the shell gives it.
#[derive(Debug, Args)]
pub(crate) struct CallArguments {
    /// The tool.
    pub(crate) tool: String,
    /// The input: JSON text, @FILE, or - for standard input.
    #[arg(default_value = "{}", value_name = "JSON")]
    pub(crate) input: String,
    /// The run the call belongs to; calls of one run share a directory.
    #[arg(long, default_value = "cli", value_name = "ID")]
    pub(crate) run: String,
    /// The workflow invocation handle.
    #[arg(long, default_value = "cli", value_name = "ID")]
    pub(crate) wih: String,
    /// The idempotency key; the same key never acts twice [default: a fresh one].
    #[arg(long, value_name = "ID")]
    pub(crate) key: Option<String>,
}

/// What can be done with tools.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsVerb {
    /// List the registered tools.
    List,
    /// Show the whole definition of a tool.
    Show {
        /// The tool.
        id: String,
    },
    /// Register a tool from its definition.
    Register {
        /// The definition, a JSON file, or - for standard input.
        file: PathBuf,
    },
    /// Remove a registered tool; its receipts stay.
    Rm {
        /// The tool.
        id: String,
    },
}

/// What can be done with workers.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkersVerb {
    /// List the workers of the registry as a start would load them.
    List,
}

/// What can be done with secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretsVerb {
    /// Keep a value, read from standard input or typed unseen.
    Set {
        /// The secret.
        name: String,
    },
    /// List the names of all secrets.
    List,
    /// Remove a secret.
    Rm {
        /// The secret.
        name: String,
    },
}

/// What can be done with receipts.
#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptsVerb {
    /// List the receipts of a run.
    List {
        /// The run.
        #[arg(long, default_value = "cli", value_name = "ID")]
        run: String,
    },
    /// Show a receipt.
    Show {
        /// The call that the receipt is of.
        id: String,
    },
}

/// What can be done with calls.
#[derive(Debug, Subcommand)]
pub(crate) enum CallsVerb {
    /// Say what became of a call whose outcome is unknown.
    Resolve(ResolveArguments),
}

/// What an operator found out about a call, as the shell gives it.
#[derive(Debug, Args)]
pub(crate) struct ResolveArguments {
    /// The call.
    pub(crate) id: String,
    /// Its effect happened; its key answers so.
    #[arg(long, conflicts_with = "not_done", required_unless_present = "not_done")]
    pub(crate) done: bool,
    /// Its effect did not happen; the same call may act under its key.
    #[arg(long)]
    pub(crate) not_done: bool,
    /// How it was found out.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// What can be done with approvals.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsVerb {
    /// List calls that wait for approval.
    List {
        /// Those in another state.
        #[arg(
            long,
            default_value = "pending",
            value_name = "STATE",
            value_parser = ["pending", "approved", "used", "denied", "expired", "revoked"]
        )]
        state: String,
    },
    /// Show an approval, with the whole input of its call.
    Show {
        /// The approval.
        id: String,
    },
    /// Print each call that comes to wait for approval, until interrupted.
    Watch,
    /// Let exactly this call act, once.
    Approve(AnswerArguments),
    /// Refuse this call, under any key.
    Deny(AnswerArguments),
    /// Take back a question, a yes that was not used, or a no.
    Revoke {
        /// The approval.
        id: String,
    },
}

/// An answer, as the shell gives it.
#[derive(Debug, Args)]
pub(crate) struct AnswerArguments {
    /// The approval.
    pub(crate) id: String,
    /// Why, for whoever made the call.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// What can be done with policy.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyVerb {
    /// Check the policy files of a directory as a start would.
    Check {
        /// The directory [default: policies in the home].
        directory: Option<PathBuf>,
    },
    /// Say what would become of a call, without running it.
    Explain(CallArguments),
}

/// What can be done with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Print each key's effective value and where it came from.
    Show,
    /// Check the configuration without starting.
    Check,
}

#[cfg(test)]
mod tests;
