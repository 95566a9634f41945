//! `doctor`: what a gateway needs on this machine, and what to do where it is missing.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use gateway_ledger::LedgerOptions;
use gateway_sandbox::{Sandbox, SandboxState};
use hyper::Method;
use serde_json::{Value, json};

use super::{As, Invocation};
use crate::compose;
use crate::config::Config;
use crate::exit::{Exit, Outcome};
use crate::home::{self, HomeError};
use crate::table::printable;

/// Below this a busy gateway soon stops admitting.
const FREE_BYTES_WANTED: u64 = 1 << 30;

/// Entries of workspaces that are looked at for sockets.
const MAX_LOOKED_AT: usize = 100_000;
/// Sockets that are listed.
const MAX_SOCKETS: usize = 20;

/// What one look found.
struct Finding {
    subject: &'static str,
    grade: Grade,
    text: String,
    advice: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grade {
    Good,
    Warning,
    Fault,
}

impl Grade {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Warning => "warn",
            Self::Fault => "fail",
        }
    }
}

impl Finding {
    fn good(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Good, text: text.into(), advice: None }
    }

    fn warning(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Warning, text: text.into(), advice: Some(advice.into()) }
    }

    fn fault(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, grade: Grade::Fault, text: text.into(), advice: None }
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

pub(super) fn run(invocation: &mut Invocation) -> Outcome {
    let findings = match invocation.config() {
        Ok(config) => look(invocation, &config),
        Err(failure) => vec![Finding::fault("configuration", failure.to_string())],
    };
    let has_fault = findings.iter().any(|finding| finding.grade == Grade::Fault);
    if invocation.is_json() {
        let findings: Vec<Value> = findings.iter().map(to_json).collect();
        invocation.terminal.json(&json!({"ok": !has_fault, "findings": findings}))?;
    } else {
        for finding in &findings {
            print(invocation, finding)?;
        }
    }
    Ok(if has_fault { Exit::Failed } else { Exit::Success })
}

fn look(invocation: &Invocation, config: &Config) -> Vec<Finding> {
    vec![
        configuration(config),
        of_home(config),
        running(invocation, config),
        sandbox(invocation, config),
        user(config),
        sockets(config),
        policy(config),
        space(config),
        bash(),
    ]
}

fn print(invocation: &mut Invocation, finding: &Finding) -> std::io::Result<()> {
    let Finding { subject, grade, text, advice } = finding;
    for (position, line) in text.lines().enumerate() {
        let (grade, subject) = if position == 0 { (grade.word(), *subject) } else { ("", "") };
        invocation.terminal.line(&format!("{grade:<6}{subject:<15}{}", printable(line)))?;
    }
    for line in advice.iter().flat_map(|advice| advice.lines()) {
        invocation.terminal.line(&format!("{:<6}{:<15}{}", "", "", printable(line)))?;
    }
    Ok(())
}

fn to_json(finding: &Finding) -> Value {
    let Finding { subject, grade, text, advice } = finding;
    json!({"subject": subject, "grade": grade.word(), "text": text, "advice": advice})
}

fn configuration(config: &Config) -> Finding {
    let subject = "configuration";
    let reach = config.check_reach().err().map(|error| error.to_string());
    match (reach, config.granted_workspaces()) {
        (None, Ok(workspaces)) if workspaces.is_empty() => {
            let text = "good; the configuration grants no workspace, so calls reach their run only, \
                        unless the gateway was started with --workspace";
            Finding::good(subject, text)
        }
        (None, Ok(workspaces)) => {
            let count = workspaces.len();
            let text = format!(
                "good; the configuration grants {count} workspaces, --workspace may add more"
            );
            Finding::good(subject, text)
        }
        (reach, workspaces) => {
            let faults = reach.into_iter().chain(workspaces.err().map(|error| error.to_string()));
            Finding::fault(subject, faults.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn of_home(config: &Config) -> Finding {
    let subject = "home";
    match home::inspect(&config.home) {
        Ok(real) => {
            let shown = real.display().to_string();
            match fs::metadata(&real).map(|metadata| metadata.mode() & 0o077) {
                Ok(0) => match home::read_operator_token(&real) {
                    Ok(_) => Finding::good(subject, shown),
                    Err(error) => Finding::fault(subject, error.to_string()),
                },
                Ok(_) => Finding::warning(
                    subject,
                    format!("{shown}: others may look into it"),
                    format!("run `chmod 700 {shown}`"),
                ),
                Err(error) => {
                    Finding::fault(subject, format!("{shown}: cannot be looked at: {error}"))
                }
            }
        }
        Err(HomeError::Absent { path }) => {
            Finding::good(subject, format!("{}: made at the first start", path.display()))
        }
        Err(error) => Finding::fault(subject, error.to_string()),
    }
}

fn running(invocation: &Invocation, config: &Config) -> Finding {
    let subject = "gateway";
    let running = home::inspect(&config.home).ok().and_then(|home| home::running(&home).ok()?);
    let Some(running) = running else {
        return port(config);
    };
    let process =
        running.process.map_or_else(String::new, |process| format!(" as process {process}"));
    let answer = invocation.ask(As::Operator, Method::GET, "/health".to_owned(), None);
    match answer.map(|answer| answer.json()) {
        Ok(Ok(health)) if health.get("ontology_compliance") == Some(&Value::Bool(true)) => {
            Finding::good(subject, format!("runs{process} and is healthy"))
        }
        Ok(Ok(health)) => Finding::warning(
            subject,
            format!("runs{process}, but its boundary does not hold"),
            format!("its /health says {health}"),
        ),
        Ok(Err(error)) => Finding::fault(subject, format!("runs{process}: {error}")),
        Err(failure) => Finding::fault(subject, format!("runs{process}: {failure}")),
    }
}

/// Warns of root's power: confined tools do not have it, but the gateway itself has.
fn user(config: &Config) -> Finding {
    let subject = "user";
    let running = home::inspect(&config.home).ok().and_then(|home| home::running(&home).ok()?);
    let process = running.and_then(|running| running.process);
    let of_gateway = process
        .and_then(|process| fs::metadata(format!("/proc/{process}")).ok())
        .map(|metadata| metadata.uid());
    let user = of_gateway.unwrap_or(rustix::process::geteuid().as_raw());
    if user == 0 {
        let text = "the gateway is run as root";
        return Finding::warning(subject, text, "run it as an ordinary user: tools need no more");
    }
    Finding::good(subject, format!("{user}, an ordinary user"))
}

/// Looks for sockets in granted directories, by which a tool reaches programs of this machine.
fn sockets(config: &Config) -> Finding {
    let subject = "sockets";
    let workspaces = config.granted_workspaces().unwrap_or_default();
    let mut left = MAX_LOOKED_AT;
    let found: Vec<String> = workspaces
        .iter()
        .flat_map(|workspace| sockets_beneath(&workspace.host, &mut left))
        .take(MAX_SOCKETS)
        .map(|path| path.display().to_string())
        .collect();
    if !found.is_empty() {
        let text = format!("tools can talk to the programs behind\n{}", found.join("\n"));
        return Finding::warning(subject, text, "keep sockets out of workspaces");
    }
    let extent = if left == 0 { ", as far as was looked" } else { "" };
    Finding::good(
        subject,
        format!("none in the {} configured workspaces{extent}", workspaces.len()),
    )
}

/// Returns the sockets beneath a directory, without following links. Looks at `left` entries.
fn sockets_beneath(directory: &Path, left: &mut usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Some(fewer) = left.checked_sub(1) else { return found };
            *left = fewer;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => directories.push(entry.path()),
                Ok(kind) if kind.is_socket() => found.push(entry.path()),
                Ok(_) | Err(_) => {}
            }
        }
    }
    found
}

/// Looks whether the configured port could be had.
fn port(config: &Config) -> Finding {
    let subject = "gateway";
    let address = config.address();
    match TcpListener::bind(address) {
        Ok(_free) => Finding::good(subject, format!("does not run; {address} is free")),
        Err(error) => Finding::fault(
            subject,
            format!("does not run, and could not listen on {address}: {error}"),
        )
        .advise("stop what listens there, or choose another with --port"),
    }
}

/// Says what confines the tools of the gateway that runs, else what would.
fn sandbox(invocation: &Invocation, config: &Config) -> Finding {
    let is_running = home::inspect(&config.home)
        .is_ok_and(|home| home::running(&home).is_ok_and(|running| running.is_some()));
    let answer = is_running
        .then(|| {
            invocation.ask(As::Operator, Method::GET, "/health".to_owned(), None).ok()?.json().ok()
        })
        .flatten();
    let text = |pointer: &str| answer.as_ref()?.pointer(pointer)?.as_str();
    match text("/sandbox/state") {
        Some("enforced") => {
            let tier = text("/sandbox/tier").unwrap_or("confinement");
            Finding::good("sandbox", format!("{tier} holds"))
        }
        Some("off") => sandbox_is_off(),
        Some(_) => {
            let reason = text("/sandbox/reason").unwrap_or("it does not say why");
            Finding::fault("sandbox", format!("the gateway that runs has none: {reason}"))
        }
        None => try_sandbox(config),
    }
}

fn sandbox_is_off() -> Finding {
    Finding::warning(
        "sandbox",
        "is switched off: tools run unconfined",
        "remove --sandbox off, or sandbox.mode from the configuration file",
    )
}

/// Looks whether confinement would hold, by the attacks that a start tries as well.
fn try_sandbox(config: &Config) -> Finding {
    let subject = "sandbox";
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Finding::fault(subject, format!("cannot be tried: {error}")),
    };
    let options = compose::sandbox_options(config, &config.home);
    match runtime.block_on(Sandbox::probe(options)).state() {
        SandboxState::Enforced(tier) => Finding::good(subject, format!("{} holds", tier.as_str())),
        SandboxState::Off => sandbox_is_off(),
        SandboxState::Unavailable(unavailable) => {
            let remedies: Vec<String> =
                unavailable.remedies.iter().map(|remedy| format!("- {remedy}")).collect();
            Finding::fault(subject, format!("is not available: {}", unavailable.missing))
                .advise(remedies.join("\n"))
        }
    }
}

fn policy(config: &Config) -> Finding {
    let subject = "policy";
    let directory = config.home.join("policies");
    if !directory.exists() {
        return Finding::good(subject, "the default rules; no rules of your own");
    }
    let report = gateway_policy::check(&directory);
    let lines = |problems: &[gateway_policy::Problem]| {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    if !report.errors.is_empty() {
        return Finding::fault(subject, lines(&report.errors))
            .advise(format!("correct the files in {}", directory.display()));
    }
    let text =
        format!("{} files of your own, {} rules in all", report.files.len(), report.rule_count);
    if report.warnings.is_empty() {
        Finding::good(subject, text)
    } else {
        Finding::warning(subject, text, lines(&report.warnings))
    }
}

fn space(config: &Config) -> Finding {
    let subject = "disk";
    let existing = config.home.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let free_bytes = match rustix::fs::statvfs(existing) {
        Ok(space) => space.f_bavail.saturating_mul(space.f_frsize),
        Err(error) => {
            return Finding::fault(
                subject,
                format!("{}: cannot be looked at: {error}", existing.display()),
            );
        }
    };
    let text = format!("{} MiB are free at {}", free_bytes >> 20, existing.display());
    let needed_bytes = LedgerOptions::in_home(&config.home).reserve_bytes;
    let advice = format!("free some: the journal admits no call below {} MiB", needed_bytes >> 20);
    if free_bytes < needed_bytes {
        Finding::fault(subject, text).advise(advice)
    } else if free_bytes < FREE_BYTES_WANTED {
        Finding::warning(subject, text, advice)
    } else {
        Finding::good(subject, text)
    }
}

/// The one program that a built-in tool needs.
fn bash() -> Finding {
    let subject = "bash";
    let found = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| Path::new(path).is_file());
    match found {
        Some(path) => Finding::good(subject, path),
        None => Finding::warning(
            subject,
            "is not installed",
            "the built-in tool bash needs it; install bash",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_in_bounded_time_and_not_through_links() {
        let directory = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let inner = directory.path().join("inner");
        fs::create_dir(&inner).unwrap();
        std::os::unix::fs::symlink(outside.path(), directory.path().join("link")).unwrap();
        let listen = |path: &Path| std::os::unix::net::UnixListener::bind(path).unwrap();
        let (_beyond, _within) =
            (listen(&outside.path().join("beyond")), listen(&inner.join("host.sock")));
        let mut left = 10;
        assert_eq!(sockets_beneath(directory.path(), &mut left), [inner.join("host.sock")]);
        assert_eq!(left, 7);
        let mut none_left = 1;
        assert_eq!(sockets_beneath(directory.path(), &mut none_left), [] as [PathBuf; 0]);
    }
}
