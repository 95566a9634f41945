//! Sandbox: starts a program in a call's confinement, or refuses.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gateway_model::SandboxTier;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::confinement::{Confinement, Limits};
use crate::program::{PinnedPrograms, Program};
use crate::run::{self, Heard};
use crate::spec::{Directory, FileIdentity, ProcessLimits, Report, Spec, Task};

/// How the sandbox is set up.
#[derive(Debug, Clone)]
pub struct SandboxOptions {
    /// False where an operator switched confinement off; every receipt then says so.
    pub enforce: bool,
    /// The program that is started with the argument `__sandbox` and calls `helper_main`.
    pub helper: PathBuf,
    /// More host paths that calls may read, such as `/opt/tool`.
    pub readable: Vec<PathBuf>,
    /// The gateway's home. It must never be visible to a call.
    pub home: PathBuf,
}

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

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// What stopped a process before it ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoppedBy {
    /// Its wall-clock time was used up.
    WallClock,
    /// Its call was cancelled.
    Cancelled,
    /// It wrote eight times what is kept of its output.
    OutputLimit,
    /// It used more memory than it may.
    MemoryLimit,
    /// Its processor time was used up.
    CpuLimit,
}

/// What was kept of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// The first bytes, up to the limit.
    pub bytes: Vec<u8>,
    /// How many bytes were written in all, as far as they were read.
    pub total_bytes: u64,
}

impl Captured {
    /// Says whether more was written than was kept.
    pub fn is_truncated(&self) -> bool {
        self.total_bytes > self.bytes.len() as u64
    }
}

/// What a run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Wall-clock time.
    pub wall: Duration,
    /// Processor time of the program and all it waited for; `None` where it was killed.
    pub cpu: Option<Duration>,
    /// Peak memory of the largest process; `None` where it was killed.
    pub max_rss_bytes: Option<u64>,
}

/// What confined a run, and which limit was enforced by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxProfile {
    whole: Value,
}

impl SandboxProfile {
    /// Returns the profile as it stands in receipts.
    pub fn to_json(&self) -> Value {
        self.whole.clone()
    }
}

/// A program that ran and ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub exit: Exit,
    /// What stopped it, if it did not end by itself.
    pub stopped_by: Option<StoppedBy>,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// What it used.
    pub usage: Usage,
    /// What confined it.
    pub profile: SandboxProfile,
}

/// Why no program was started; nothing has happened then.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Confinement is wanted and not to be had.
    #[error(transparent)]
    Unavailable(Unavailable),
    /// The program is not the one that was registered.
    #[error("program {path} was changed since its tool was registered; register the tool again to accept the change")]
    ProgramChanged {
        /// The program.
        path: PathBuf,
    },
    /// The program cannot be read.
    #[error("program {path} cannot be read: {source}")]
    ProgramUnreadable {
        /// The program.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// A step of the confinement or of the start failed.
    #[error("could not {stage}: {source}{}", remedy(stage, source))]
    Step {
        /// The step, such as `bind /workspace/docs`.
        stage: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The helper could not be started or heard.
    #[error("the sandbox helper cannot be used: {0}")]
    Helper(#[source] io::Error),
}

/// What to do about a failed step, where one thing helps.
fn remedy(stage: &str, source: &io::Error) -> &'static str {
    let is_unsupported = matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP));
    if is_unsupported && stage.starts_with("bind /workspace") || is_unsupported && stage.starts_with("bind /.allternit") {
        return " (a gateway that runs as root needs a file system with id-mapped mounts here; run it as an ordinary user)";
    }
    if stage.starts_with("open ") {
        return " (the directory must exist and be readable by the gateway)";
    }
    ""
}

/// Starts programs in confinement.
#[derive(Debug)]
pub struct Sandbox {
    state: SandboxState,
    options: SandboxOptions,
    pinned: PinnedPrograms,
}

impl Sandbox {
    /// Finds out whether confinement holds, by trying attacks from inside it.
    pub async fn probe(options: SandboxOptions) -> Self {
        let state = if options.enforce { probe(&options).await } else { SandboxState::Off };
        Self { state, options, pinned: PinnedPrograms::default() }
    }

    /// Returns what confines processes.
    pub fn state(&self) -> &SandboxState {
        &self.state
    }

    /// Runs a program in a confinement until it ends or is stopped.
    ///
    /// Not cancel-safe: a dropped future kills the program without a trace of its output. The
    /// token stops it politely, then by force, and its output is kept.
    ///
    /// # Errors
    /// Returns why nothing was started.
    pub async fn run(
        &self,
        program: &Program,
        confinement: &Confinement,
        cancel: &CancellationToken,
    ) -> Result<Finished, LaunchError> {
        let is_confined = match &self.state {
            SandboxState::Enforced(_) => true,
            SandboxState::Off => false,
            SandboxState::Unavailable(unavailable) => return Err(LaunchError::Unavailable(unavailable.clone())),
        };
        let identity = self.check_digest(program)?;
        let spec = spec(program, identity, confinement, is_confined, &self.options.readable);
        let heard = run::run(&self.options.helper, &spec, &program.stdin, &confinement.limits, cancel)
            .await
            .map_err(LaunchError::Helper)?;
        finished(heard, program, confinement, is_confined)
    }

    fn check_digest(&self, program: &Program) -> Result<Option<FileIdentity>, LaunchError> {
        let Some(pinned) = program.digest else { return Ok(None) };
        let path = program.path.clone();
        match self.pinned.digest(&path) {
            Ok((identity, digest)) if digest == pinned => Ok(Some(identity)),
            Ok(_) => Err(LaunchError::ProgramChanged { path }),
            Err(source) => Err(LaunchError::ProgramUnreadable { path, source }),
        }
    }
}

fn spec(
    program: &Program,
    identity: Option<FileIdentity>,
    confinement: &Confinement,
    is_confined: bool,
    readable: &[PathBuf],
) -> Spec {
    let directories: Vec<Directory> = confinement
        .directories()
        .map(|(seen_as, host, is_writable)| Directory { host: host.clone(), seen_as: seen_as.into(), is_writable })
        .collect();
    // Without a root of its own the process starts in the host's directory of that name.
    let cwd = if is_confined {
        program.cwd.clone()
    } else {
        let beneath = directories.iter().find_map(|directory| {
            Some(directory.host.join(program.cwd.strip_prefix(&directory.seen_as).ok()?))
        });
        beneath.unwrap_or_else(|| program.cwd.clone())
    };
    let task = Task::Execute {
        program: program.path.clone(),
        identity,
        args: program.args.clone(),
        env: program.env.clone(),
        cwd,
    };
    Spec { is_confined, directories, readable: readable.to_vec(), limits: process_limits(&confinement.limits), task }
}

fn process_limits(limits: &Limits) -> ProcessLimits {
    ProcessLimits {
        cpu_seconds: limits.cpu.map(|cpu| cpu.as_secs().max(1)),
        memory_bytes: limits.memory_bytes,
        processes: limits.processes,
        open_files: limits.open_files,
        file_bytes: limits.file_bytes,
        tmp_bytes: limits.tmp_bytes,
    }
}

/// Reads what was heard of a run.
fn finished(
    heard: Heard,
    program: &Program,
    confinement: &Confinement,
    is_confined: bool,
) -> Result<Finished, LaunchError> {
    let Heard { reports, stopped_by, stdout, stderr, wall } = heard;
    let mut landlock_abi = None;
    let mut stopped_by = stopped_by;
    let mut ended = None;
    for report in reports {
        match report {
            Report::Failed { stage, errno } => {
                return Err(LaunchError::Step { stage, source: io::Error::from_raw_os_error(errno) });
            }
            Report::Changed => return Err(LaunchError::ProgramChanged { path: program.path.clone() }),
            Report::Confined { landlock_abi: abi } => landlock_abi = Some(abi),
            Report::MemoryLimit => stopped_by = Some(StoppedBy::MemoryLimit),
            Report::Canary { .. } => {}
            Report::Ended { exit, signal, cpu_us, max_rss_bytes } => ended = Some((exit, signal, cpu_us, max_rss_bytes)),
        }
    }
    let exit = match ended {
        Some((Some(code), _, _, _)) => Exit::Code(code),
        Some((None, signal, _, _)) => Exit::Signal(signal.unwrap_or(libc::SIGKILL)),
        None if stopped_by.is_none() && landlock_abi.is_none() && is_confined => {
            return Err(LaunchError::Helper(io::Error::other("it ended before it started the program")));
        }
        None => Exit::Signal(libc::SIGKILL),
    };
    if exit == Exit::Signal(libc::SIGXCPU) || (exit == Exit::Signal(libc::SIGKILL) && ran_out_of_cpu(ended, confinement)) {
        stopped_by = stopped_by.or(Some(StoppedBy::CpuLimit));
    }
    let usage = Usage {
        wall,
        cpu: ended.map(|(_, _, cpu_us, _)| Duration::from_micros(cpu_us)),
        max_rss_bytes: ended.map(|(_, _, _, bytes)| bytes),
    };
    let profile = profile(is_confined, landlock_abi, &confinement.limits);
    Ok(Finished { exit, stopped_by, stdout, stderr, usage, profile })
}

type Ended = (Option<i32>, Option<i32>, u64, u64);

fn ran_out_of_cpu(ended: Option<Ended>, confinement: &Confinement) -> bool {
    match (ended, confinement.limits.cpu) {
        (Some((_, _, cpu_us, _)), Some(limit)) => Duration::from_micros(cpu_us) >= limit,
        (None, _) | (_, None) => false,
    }
}

fn profile(is_confined: bool, landlock_abi: Option<i32>, limits: &Limits) -> SandboxProfile {
    let whole = if is_confined {
        json!({
            "tier": SandboxTier::Namespaces.as_str(),
            "landlock_abi": landlock_abi,
            "seccomp": "v1",
            "network": "none",
            "limits": {
                "wall_ms": millis(limits.wall),
                "cpu": limits.cpu.map(|cpu| json!({"ms": millis(cpu), "by": "rlimit"})),
                "memory": limits.memory_bytes.map(|bytes| json!({"bytes": bytes, "by": "rlimit+sum"})),
                "processes": limits.processes,
                "stdout_bytes": limits.stdout_bytes,
            },
        })
    } else {
        json!({ "tier": "off" })
    };
    SandboxProfile { whole }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Starts the helper with its own attacks instead of a program.
async fn probe(options: &SandboxOptions) -> SandboxState {
    let limits = Limits { wall: Duration::from_secs(10), ..Limits::default() };
    let gateway = i32::try_from(std::process::id()).unwrap_or(0);
    let spec = Spec {
        is_confined: true,
        directories: Vec::new(),
        readable: options.readable.clone(),
        limits: process_limits(&limits),
        task: Task::Canary { gateway, secret: options.home.clone() },
    };
    let cancel = CancellationToken::new();
    let heard = match run::run(&options.helper, &spec, &[], &limits, &cancel).await {
        Ok(heard) => heard,
        Err(error) => return unavailable(format!("the helper cannot be started: {error}")),
    };
    for report in heard.reports {
        match report {
            Report::Failed { stage, errno } => {
                return unavailable(format!("could not {stage}: {}", io::Error::from_raw_os_error(errno)));
            }
            Report::Canary { escaped } if escaped.is_empty() => return SandboxState::Enforced(SandboxTier::Namespaces),
            Report::Canary { escaped } => {
                return unavailable(format!("these attacks were not stopped: {}", escaped.join(", ")));
            }
            Report::Changed | Report::Confined { .. } | Report::MemoryLimit | Report::Ended { .. } => {}
        }
    }
    unavailable("the helper did not finish its check".to_owned())
}

/// Finds the remedies for this machine.
fn unavailable(missing: String) -> SandboxState {
    let setting = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let mut remedies = Vec::new();
    if setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        remedies.push("allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1".to_owned());
    }
    if setting("/proc/sys/user/max_user_namespaces") == "0" {
        remedies.push("allow user namespaces: sysctl -w user.max_user_namespaces=15000".to_owned());
    }
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        let program = std::env::current_exe().unwrap_or_else(|_unknown| "/usr/bin/allternit-tools-gateway".into());
        remedies.push(format!(
            "give the gateway an AppArmor profile: `profile allternit-tools-gateway {} flags=(unconfined) {{ userns, }}` in \
             /etc/apparmor.d/allternit-tools-gateway, then apparmor_parser -r on that file",
            program.display()
        ));
    }
    if remedies.is_empty() {
        remedies.push(
            "in a container, allow namespaces: --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined (Kubernetes: hostUsers: false and procMount: Unmasked); elsewhere, a \
             kernel of 6.1 or later with Landlock, seccomp and user namespaces"
                .to_owned(),
        );
    }
    remedies.push("run tools without confinement, which every receipt then says: --sandbox off".to_owned());
    SandboxState::Unavailable(Unavailable { missing, remedies })
}
