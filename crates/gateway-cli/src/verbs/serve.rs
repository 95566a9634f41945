//! `serve`: runs the gateway until it is told to stop.

use std::fmt::Write as _;

use anyhow::Context;
use gateway_sandbox::SandboxState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Invocation;
use crate::compose::{self, Summary};
use crate::config::Config;
use crate::exit::{Exit, Failure, Outcome};
use crate::table::printable;
use crate::{telemetry, terminal};

pub(super) fn run(invocation: &mut Invocation) -> Outcome {
    let config = invocation.config()?;
    telemetry::start(&config.log, terminal::is_error_output_interactive())
        .map_err(|error| Failure::of(Exit::Startup, error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")
        .map_err(|error| Failure::of(Exit::Startup, error))?;
    let outcome = runtime.block_on(serve(invocation, &config));
    // After a second signal something may still run, and is not waited for.
    runtime.shutdown_background();
    outcome
}

async fn serve(invocation: &mut Invocation, config: &Config) -> Outcome {
    let mut signals = Signals::listen()?;
    let assembly = compose::open(config).await?;
    announce(invocation, assembly.summary())?;
    let stop = CancellationToken::new();
    let mut serving = std::pin::pin!(assembly.serve(stop.clone()));
    tokio::select! {
        ended = serving.as_mut() => return ended.map(|()| Exit::Success),
        () = signals.next() => {}
    }
    tracing::info!("told to stop; a second signal ends the gateway at once");
    stop.cancel();
    tokio::select! {
        ended = serving.as_mut() => {
            tracing::info!("stopped");
            ended.map(|()| Exit::Success)
        }
        () = signals.next() => {
            let message = "ended at once; calls that were under way are settled at the next start";
            Err(Failure::new(Exit::Failed, message))
        }
    }
}

/// The signals that ask a process to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind: SignalKind| {
            signal(kind)
                .map_err(|error| Failure::because(Exit::Startup, "listen for signals", error))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one. Cancel-safe.
    async fn next(&mut self) {
        tokio::select! {
            _terminate = self.terminate.recv() => {}
            _interrupt = self.interrupt.recv() => {}
        }
    }
}

/// Says that the gateway listens, and what holds for it.
fn announce(invocation: &mut Invocation, summary: &Summary) -> Result<(), Failure> {
    let text = announcement(summary, &invocation.program);
    match invocation.terminal.raw_note(text.as_bytes()) {
        // A gateway whose starter has stopped listening serves all the same.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn announcement(summary: &Summary, program: &str) -> String {
    let Summary { address, home, is_root, sandbox, workspaces, tools, ledger } = summary;
    let (built_in, registered) = tools;
    let mut text = format!("{program} {} listens on http://{address}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |subject: &str, what: &str| {
        // Writing to a text cannot fail.
        let _written: Result<(), std::fmt::Error> =
            writeln!(text, "  {subject:<11}{}", printable(what));
    };
    line("home", &home.display().to_string());
    if *is_root {
        line("user", "ROOT: the gateway itself can do everything here; run it as an ordinary user");
    }
    match sandbox {
        SandboxState::Enforced(tier) => line("sandbox", tier.as_str()),
        SandboxState::Off => {
            line("sandbox", "OFF: tools run unconfined, and every receipt says so");
        }
        SandboxState::Unavailable(unavailable) => {
            line(
                "sandbox",
                &format!("UNAVAILABLE, so no tool's process is started: {}", unavailable.missing),
            );
            for remedy in &unavailable.remedies {
                line("", &format!("- {remedy}"));
            }
        }
    }
    for workspace in workspaces {
        let mode = if workspace.is_writable { "rw" } else { "ro" };
        line(
            "workspace",
            &format!("/workspace/{} is {} ({mode})", workspace.name, workspace.host.display()),
        );
    }
    line("tools", &format!("{built_in} built in, {registered} registered"));
    if !ledger.reconciled.is_empty() {
        let count = ledger.reconciled.len();
        line(
            "recovered",
            &format!("cut short by the last end: {count}; whether they acted is unknown"),
        );
        for call in ledger.reconciled.iter().take(20) {
            line("", &format!("- {} of run {}: receipts show {}", call.tool, call.run, call.call));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_engine::Workspace;
    use gateway_ledger::{OpenReport, ReconciledCall};
    use gateway_model::{CallId, SandboxTier, Timestamp};
    use gateway_sandbox::Unavailable;

    fn summary(sandbox: SandboxState) -> Summary {
        let ledger = OpenReport { records: 3, epoch: 1, reconciled: Vec::new() };
        Summary {
            address: "127.0.0.1:3510".parse().unwrap(),
            home: "/home/ada/.allternit".into(),
            is_root: false,
            sandbox,
            workspaces: Vec::new(),
            tools: (7, 0),
            ledger,
        }
    }

    #[test]
    fn a_start_says_where_it_listens_and_what_holds() {
        let plain = summary(SandboxState::Enforced(SandboxTier::Namespaces));
        let unavailable = Unavailable {
            missing: "could not mount /proc: Operation not permitted".to_owned(),
            remedies: vec!["allow user namespaces".to_owned(), "--sandbox off".to_owned()],
        };
        let of_root =
            Summary { is_root: true, ..summary(SandboxState::Enforced(SandboxTier::Namespaces)) };
        let mut full = summary(SandboxState::Unavailable(unavailable));
        full.workspaces.push(Workspace {
            name: "project".parse().unwrap(),
            host: "/srv/project".into(),
            is_writable: true,
        });
        full.workspaces.push(Workspace {
            name: "docs".parse().unwrap(),
            host: "/srv/docs".into(),
            is_writable: false,
        });
        full.ledger.reconciled.push(ReconciledCall {
            call: CallId::new(Timestamp(1_764_551_792_000), [7; 10]),
            tool: "bash".to_owned(),
            run: "build_7".to_owned(),
        });
        let texts = [plain, summary(SandboxState::Off), full, of_root]
            .map(|summary| announcement(&summary, "atg"));
        insta::assert_snapshot!("announcements", texts.join("\n"));
    }
}
