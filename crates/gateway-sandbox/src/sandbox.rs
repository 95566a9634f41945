//! Sandbox: starts a program in a call's confinement, or refuses.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gateway_model::{HostRules, SandboxTier};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::confinement::{Confinement, Limits, SandboxOptions};
use crate::egress::{Egress, MAX_CONNECTIONS, Proxy, ProxyUse};
use crate::launch::LaunchError;
use crate::outcome::{Exit, Finished, SandboxProfile, StoppedBy, Usage};
use crate::pinned::PinnedPrograms;
use crate::plan;
use crate::profile::SetUp;
use crate::program::{self, Program, ResolveError, ResolvedProgram};
use crate::repository::AbsentParts;
use crate::run::{self, Children, Heard, Start};
use crate::spec::{self, FileIdentity, Report, Spec, Used};
use crate::state::{SandboxState, Unavailable};
use crate::way_out;

/// Starts programs in confinement.
#[derive(Debug)]
pub struct Sandbox {
    state: SandboxState,
    options: SandboxOptions,
    pinned: PinnedPrograms,
    children: Arc<Children>,
    egress: Option<Arc<Egress>>,
    /// Connections of all calls together; each holds two open files.
    connections: Arc<Semaphore>,
}

impl Sandbox {
    /// Finds out whether confinement holds, by trying attacks from inside it.
    ///
    /// Where the home exists, a directory for the check is made in it and removed again.
    pub async fn probe(options: SandboxOptions) -> Self {
        let children = Arc::new(Children::default());
        let state = if options.enforce {
            match check(&options, &children).await {
                Ok(()) => SandboxState::Enforced(SandboxTier::Namespaces),
                Err(unavailable) => SandboxState::Unavailable(unavailable),
            }
        } else {
            SandboxState::Off
        };
        Self {
            state,
            options,
            pinned: PinnedPrograms::default(),
            children,
            egress: None,
            connections: Arc::new(Semaphore::new(max_connections())),
        }
    }

    /// Gives calls whose confinement names hosts a way out; without it they are refused.
    #[must_use]
    pub fn with_egress(self, egress: Arc<Egress>) -> Self {
        Self { egress: Some(egress), ..self }
    }

    /// Returns what confines processes.
    pub fn state(&self) -> &SandboxState {
        &self.state
    }

    /// Finds a command: an absolute path, or a bare name in a search path. Never a file of the
    /// gateway's home.
    ///
    /// # Errors
    /// Names the command and what was expected, in the same words whatever is there instead.
    pub fn resolve_program(
        &self,
        command: &str,
        search: &[PathBuf],
    ) -> Result<ResolvedProgram, ResolveError> {
        program::resolve_program(command, search, &self.options.home)
    }

    /// Runs a program in a confinement until it ends or is stopped.
    ///
    /// The token stops the program politely, then by force, and its output is kept; so does the
    /// wall clock. A dropped future kills the program and loses its output. When this returns,
    /// no process of the program is left.
    ///
    /// Where the sandbox is off the program runs on the bare host: the paths of runs and
    /// workspaces do not exist then, but it starts in the host's directory of the one it names.
    ///
    /// # Errors
    /// Returns why nothing was started, or [`LaunchError::Lost`].
    pub async fn run(
        &self,
        program: &Program,
        confinement: &Confinement,
        cancel: &CancellationToken,
    ) -> Result<Finished, LaunchError> {
        if let SandboxState::Unavailable(unavailable) = &self.state {
            return Err(LaunchError::Unavailable(unavailable.clone()));
        }
        let proxy = self.proxy(confinement)?;
        let identity = self.check_digest(program).await?;
        let spec = plan::for_program(&self.options, program, identity, confinement)?;
        let args = program.args.iter().map(|arg| arg.as_bytes());
        let mut env = program.env.clone();
        if proxy.is_some() {
            env.extend(way_out::environment());
        }
        let env: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let texts = args.chain(env.iter().map(String::as_bytes));
        let order = spec::encode(&spec, texts).map_err(|error| LaunchError::Step {
            stage: "describe the program to the sandbox".to_owned(),
            advice: None,
            error,
        })?;
        let start = Start {
            helper: &self.options.helper,
            order: &order,
            stdin: &program.stdin,
            limits: &confinement.limits,
            proxy: proxy.as_ref(),
        };
        let _absent = AbsentParts::of(confinement);
        let heard = run::run(start, &self.children, cancel).await?;
        let mut ending = Ending::read(heard.reports.iter(), &program.path)?;
        ending.network = proxy.map(|proxy| proxy.used());
        ending.finish(heard, &spec, &confinement.limits)
    }

    /// Returns the way out of a call that has one.
    fn proxy(&self, confinement: &Confinement) -> Result<Option<Arc<Proxy>>, LaunchError> {
        if confinement.network == HostRules::Nothing {
            return Ok(None);
        }
        let (SandboxState::Enforced(_), Some(egress)) = (&self.state, &self.egress) else {
            return Err(LaunchError::Unavailable(Unavailable::for_hosts()));
        };
        let deadline = Instant::now() + confinement.limits.wall + confinement.limits.grace;
        let proxy = Proxy::new(
            Arc::clone(egress),
            confinement.network.clone(),
            Arc::clone(&self.connections),
            deadline,
        );
        Ok(Some(Arc::new(proxy)))
    }

    async fn check_digest(&self, program: &Program) -> Result<Option<FileIdentity>, LaunchError> {
        let Some(pinned) = program.digest else { return Ok(None) };
        let path = program.path.clone();
        match self.pinned.digest(&path).await {
            Ok((identity, digest)) if digest == pinned => Ok(Some(identity)),
            Ok(_) => Err(LaunchError::ProgramChanged { path }),
            Err(error) => Err(LaunchError::ProgramUnreadable { path, error }),
        }
    }
}

/// Returns how many connections all calls may have: their two ends are a quarter of the files that
/// this process may have open.
fn max_connections() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let share = limit.map(|limit| usize::try_from(limit / 8).unwrap_or(usize::MAX));
    share.map_or(MAX_CONNECTIONS, |share| share.clamp(1, MAX_CONNECTIONS))
}

/// What the reports of a run come to.
#[derive(Default)]
struct Ending {
    set_up: Option<SetUp>,
    stopped_by: Option<StoppedBy>,
    exit: Option<Exit>,
    used: Option<Used>,
    total: Option<Used>,
    network: Option<ProxyUse>,
}

impl Ending {
    fn read<'a>(
        reports: impl Iterator<Item = &'a Report>,
        program: &Path,
    ) -> Result<Self, LaunchError> {
        let mut ending = Self::default();
        for report in reports {
            match report {
                Report::Failed { stage, errno, advice } => {
                    let error = io::Error::from_raw_os_error(*errno);
                    return Err(LaunchError::Step {
                        stage: stage.clone(),
                        advice: advice.clone(),
                        error,
                    });
                }
                Report::Changed => {
                    return Err(LaunchError::ProgramChanged { path: program.to_owned() });
                }
                Report::Confined { landlock_abi, is_root } => {
                    ending.set_up = Some(SetUp { landlock_abi: *landlock_abi, is_root: *is_root });
                }
                Report::MemoryLimit => ending.stopped_by = Some(StoppedBy::MemoryLimit),
                Report::DiskFull => ending.stopped_by = Some(StoppedBy::DiskFull),
                Report::CpuLimit => ending.stopped_by = Some(StoppedBy::CpuLimit),
                Report::Ended { exit, signal, used } => {
                    let by_signal = Exit::Signal(signal.unwrap_or(libc::SIGKILL));
                    ending.exit = Some(exit.map_or(by_signal, Exit::Code));
                    ending.used = Some(*used);
                }
                Report::Total(used) => ending.total = Some(*used),
                Report::Canary { .. } => {}
            }
        }
        Ok(ending)
    }

    fn finish(self, heard: Heard, spec: &Spec, limits: &Limits) -> Result<Finished, LaunchError> {
        let Self { set_up, exit, used, total, network, .. } = self;
        if exit.is_none() && self.stopped_by.or(heard.stopped_by).is_none() {
            let silent = io::Error::other("it ended before the program did, and gave no reason");
            // The last word before a program is executed is that it is confined.
            let may_have_begun = set_up.is_some() || !spec.is_confined;
            return Err(if may_have_begun {
                LaunchError::Lost(silent)
            } else {
                LaunchError::Helper(silent)
            });
        }
        // Whoever was killed together with everything else has no exit of its own.
        let exit = exit.unwrap_or(Exit::Signal(libc::SIGKILL));
        let used = used.or(total);
        let cpu = used.map(|used| Duration::from_micros(used.cpu_micros));
        let stopped_by = self.stopped_by.or(heard.stopped_by).or(by_cpu(exit, cpu, limits));
        let profile = if spec.is_confined {
            SandboxProfile::namespaces(set_up, limits, network.as_ref())
        } else {
            SandboxProfile::off()
        };
        let usage =
            Usage { wall: heard.wall, cpu, max_rss_bytes: used.map(|used| used.max_rss_bytes) };
        Ok(Finished {
            exit,
            stopped_by,
            stdout: heard.stdout,
            stderr: heard.stderr,
            usage,
            profile,
        })
    }
}

/// The kernel ends a process at its limit with a signal of its own, and a second later for good.
fn by_cpu(exit: Exit, cpu: Option<Duration>, limits: &Limits) -> Option<StoppedBy> {
    let limit = limits.cpu?;
    // A shell passes on how its command ended.
    let is_ended_by = |signal| exit == Exit::Signal(signal) || exit == Exit::Code(128 + signal);
    let is_used_up = cpu.is_some_and(|cpu| cpu >= limit);
    (is_ended_by(libc::SIGXCPU) || (is_used_up && is_ended_by(libc::SIGKILL)))
        .then_some(StoppedBy::CpuLimit)
}

/// Starts the helper with its own attacks instead of a program.
async fn check(options: &SandboxOptions, children: &Arc<Children>) -> Result<(), Unavailable> {
    let unavailable = |missing: String, advice| Unavailable::on_this_machine(missing, advice);
    let directory = CanaryDirectory::make(&options.home);
    let spec = plan::for_canary(options, directory.as_ref().map(|directory| &*directory.0))
        .map_err(|error| unavailable(error.to_string(), None))?;
    let limits = Limits { wall: Duration::from_secs(10), ..Limits::default() };
    let order = spec::encode(&spec, []).map_err(|error| unavailable(error.to_string(), None))?;
    let start =
        Start { helper: &options.helper, order: &order, stdin: &[], limits: &limits, proxy: None };
    let heard = run::run(start, children, &CancellationToken::new())
        .await
        .map_err(|error| unavailable(error.to_string(), None))?;
    for report in heard.reports {
        match report {
            Report::Failed { stage, errno, advice } => {
                let error = io::Error::from_raw_os_error(errno);
                return Err(unavailable(format!("could not {stage}: {error}"), advice));
            }
            Report::Canary { faults } if faults.is_empty() => return Ok(()),
            Report::Canary { faults } => return Err(unavailable(faults.join(", "), None)),
            Report::Changed
            | Report::Confined { .. }
            | Report::MemoryLimit
            | Report::CpuLimit
            | Report::DiskFull
            | Report::Ended { .. }
            | Report::Total(_) => {}
        }
    }
    Err(unavailable("the helper did not finish its check".to_owned(), None))
}

/// A directory of the home's file system, for the check alone.
struct CanaryDirectory(PathBuf);

impl CanaryDirectory {
    /// Makes it; `None` where the home does not exist yet or cannot be written.
    fn make(home: &Path) -> Option<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).ok()?;
        let path = home.join(OsStr::new(&format!(".canary-{}", hex::encode(random))));
        rustix::fs::mkdir(&path, rustix::fs::Mode::RWXU).ok()?;
        Some(Self(path))
    }
}

impl Drop for CanaryDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "directory of the sandbox's check could not be removed");
        }
    }
}
