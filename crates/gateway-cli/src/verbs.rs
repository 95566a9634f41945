//! The verbs, and what all of them need: configuration, terminal, and the way to the gateway.

mod approvals;
mod call;
mod calls;
mod completions;
mod config;
mod doctor;
mod policy;
mod receipts;
mod secrets;
mod serve;
mod tools;
mod workers;

use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::cli::{CommandLine, OutputForm, Verb, WorkersVerb};
use crate::client::{Answer, Ask, Client, ClientError};
use crate::config::{Config, Flags, Layers, Source};
use crate::exit::{Exit, Failure, Outcome};
use crate::home;
use crate::table::printable;
use crate::terminal::Terminal;

/// How long a gateway may take to answer what starts no tool.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// One start of the program.
pub(crate) struct Invocation {
    /// The name the program was started under.
    pub(crate) program: String,
    /// Where it writes.
    pub(crate) terminal: Terminal,
    flags: Flags,
    /// A flag that only a gateway that starts can heed.
    of_start_only: Option<&'static str>,
}

/// As whom a request is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum As {
    /// As any caller on this machine.
    Local,
    /// As the operator, where the token of the home can be read.
    Operator,
}

/// Runs a verb; serves where there is none.
pub(crate) fn run(invocation: &mut Invocation, verb: Option<Verb>) -> Outcome {
    match verb.unwrap_or(Verb::Serve) {
        Verb::Serve => serve::run(invocation),
        Verb::Call(arguments) => call::run(invocation, &arguments),
        Verb::Tools(verb) => tools::run(invocation, &verb),
        Verb::Workers(WorkersVerb::List) => workers::list(invocation),
        Verb::Secrets(verb) => secrets::run(invocation, &verb),
        Verb::Receipts(verb) => receipts::run(invocation, &verb),
        Verb::Calls(verb) => calls::run(invocation, &verb),
        Verb::Approvals(verb) => approvals::run(invocation, &verb),
        Verb::Policy(verb) => policy::run(invocation, verb),
        Verb::Config(verb) => config::run(invocation, &verb),
        Verb::Doctor => doctor::run(invocation),
        Verb::Completions { shell } => completions::run(invocation, shell),
    }
}

impl Invocation {
    /// Returns the invocation of a command line.
    pub(crate) fn new(command_line: &CommandLine, program: String) -> Self {
        Self {
            program,
            terminal: Terminal::of_process(command_line.output),
            flags: command_line.settings.to_layer(),
            of_start_only: command_line.settings.of_start_only(),
        }
    }

    /// Returns the effective configuration.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let layers = Layers::of_process(self.flags.clone())?;
        Ok(Config::load(&layers)?)
    }

    /// Says whether results are asked for as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.terminal.form() == OutputForm::Json
    }

    /// Makes one request that starts no tool.
    pub(crate) fn ask(
        &self,
        caller: As,
        method: Method,
        path: String,
        body: Option<&Value>,
    ) -> Result<Answer, Failure> {
        let ask = Ask { method, path, body, time: ANSWER_TIME };
        self.client(caller)?.send(&ask).map_err(|error| self.no_answer(error))
    }

    /// Returns the client of the gateway that is meant.
    ///
    /// That is the one at `--host` and `--port` where either is given, else the one that runs in
    /// the home, else the one at the configured address. The token is only ever sent to the
    /// gateway that runs in the home, so that no other program on its port can learn it.
    pub(crate) fn client(&self, caller: As) -> Result<Client, Failure> {
        if let Some(flag) = self.of_start_only {
            let message =
                format!("{flag} is a setting of the gateway; give it to `{} serve`", self.program);
            return Err(Failure::new(Exit::Usage, message));
        }
        let config = self.config()?;
        let is_address_given =
            ["host", "port"].iter().any(|key| matches!(config.source(key), Source::Flag(_)));
        let of_home = home::inspect(&config.home)
            .ok()
            .and_then(|home| Some((home::running(&home).ok()??.address?, home)));
        let address = match &of_home {
            Some((running, _)) if !is_address_given => *running,
            _ => config.address(),
        };
        let token = match &of_home {
            Some((running, home)) if caller == As::Operator && *running == address => {
                home::read_operator_token(home)
                    .map_err(|error| Failure::of(Exit::Startup, error))?
            }
            _ => None,
        };
        Ok(Client::new(address, token))
    }

    /// Returns the failure of a request that got no answer.
    pub(crate) fn no_answer(&self, error: ClientError) -> Failure {
        let is_reached = error.is_outcome_unknown();
        let failure = Failure::of(Exit::Unreachable, error);
        if is_reached {
            return failure;
        }
        failure.advise(format!("start one with `{} serve`", self.program))
    }
}

/// Returns the failure of a request that the gateway refused outside the line of a call.
pub(crate) fn refused(answer: &Answer) -> Failure {
    let exit = match answer.status {
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Exit::Refused,
        _ => Exit::Failed,
    };
    let reason = match answer.json() {
        Ok(body) => reason_of(&body).unwrap_or_else(|| body.to_string()),
        Err(_not_json) => answer.text(),
    };
    Failure::new(exit, printable(reason.trim()))
}

/// Returns the text that says why, from problem details (RFC 9457) or an execute answer.
fn reason_of(body: &Value) -> Option<String> {
    let places = ["/detail", "/error/message", "/title"];
    let text = places.iter().find_map(|place| body.pointer(place)?.as_str());
    text.map(ToOwned::to_owned)
}
