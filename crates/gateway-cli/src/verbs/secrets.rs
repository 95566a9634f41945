//! `secrets`: values that bindings name and only the run of a call resolves.

use std::io::{self, IsTerminal, Read};

use gateway_model::SecretName;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use super::Invocation;
use crate::cli::SecretsVerb;
use crate::exit::{Exit, Failure, Outcome};
use crate::home::{self, SecretStore};

/// More than any value has.
const MAX_INPUT_BYTES: u64 = 256 << 10;

pub(super) fn run(invocation: &mut Invocation, verb: &SecretsVerb) -> Outcome {
    match verb {
        SecretsVerb::Set { name } => set(invocation, name),
        SecretsVerb::List => list(invocation),
        SecretsVerb::Rm { name } => remove(invocation, name),
    }
}

fn set(invocation: &mut Invocation, name: &str) -> Outcome {
    let name = parse(name)?;
    let home = home::prepare(&invocation.config()?.home).map_err(unusable)?;
    let value = if io::stdin().is_terminal() {
        invocation.terminal.raw_note(format!("value of {name}: ").as_bytes())?;
        let typed = read_unseen();
        invocation.terminal.note("")?;
        typed?
    } else {
        read_value()?
    };
    SecretStore::of(&home).set(&name, &value).map_err(failed)?;
    invocation.terminal.note(&format!("secret {name} is set; bindings name it secret:{name}"))?;
    Ok(Exit::Success)
}

fn list(invocation: &mut Invocation) -> Outcome {
    let home = home::inspect(&invocation.config()?.home).map_err(unusable)?;
    let names = SecretStore::of(&home).names().map_err(failed)?;
    if invocation.is_json() {
        let names = names.iter().map(|name| json!({ "name": name.as_str() })).collect();
        invocation.terminal.json(&Value::Array(names))?;
        return Ok(Exit::Success);
    }
    for name in names {
        invocation.terminal.line(name.as_str())?;
    }
    Ok(Exit::Success)
}

fn remove(invocation: &mut Invocation, name: &str) -> Outcome {
    let name = parse(name)?;
    let home = home::inspect(&invocation.config()?.home).map_err(unusable)?;
    if !SecretStore::of(&home).remove(&name).map_err(failed)? {
        return Err(Failure::new(Exit::Failed, format!("secret {name} is not set")));
    }
    invocation.terminal.note(&format!("secret {name} is removed"))?;
    Ok(Exit::Success)
}

fn parse(name: &str) -> Result<SecretName, Failure> {
    name.parse().map_err(|error| Failure::of(Exit::Usage, anyhow::Error::new(error)))
}

fn unusable(error: home::HomeError) -> Failure {
    Failure::of(Exit::Startup, error)
}

fn failed(error: home::StoreError) -> Failure {
    Failure::of(Exit::Failed, error)
}

/// Reads the value from standard input; one line feed at its end is no part of it.
fn read_value() -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    io::stdin().take(MAX_INPUT_BYTES).read_to_end(&mut value)?;
    if value.last() == Some(&b'\n') {
        value.pop();
    }
    Ok(value)
}

/// Reads a line that the terminal does not show.
fn read_unseen() -> io::Result<Vec<u8>> {
    let shown = tcgetattr(io::stdin())?;
    let mut unseen = shown.clone();
    unseen.local_modes.remove(LocalModes::ECHO);
    let restore = Restore(shown);
    tcsetattr(io::stdin(), OptionalActions::Flush, &unseen)?;
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    drop(restore);
    Ok(line.trim_end_matches(['\r', '\n']).as_bytes().to_vec())
}

/// Shows again what is typed, however reading ends.
struct Restore(Termios);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0) {
            tracing::warn!(%error, "the terminal does not show what is typed");
        }
    }
}
