//! What a confinement means on this machine: which paths are shown, under which names.

use std::io;
use std::path::{Path, PathBuf};

use gateway_model::HostRules;

use crate::confinement::{Confinement, Limits, SandboxOptions};
use crate::launch::LaunchError;
use crate::program::{Program, in_home, is_in_home};
use crate::repository;
use crate::spec::{Binding, FileIdentity, ProcessLimits, Spec, Task};

/// Trees of the host that every call sees.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"];
/// Trees that are the sandbox's own; a path of the host cannot be shown in their place.
const OWN: [&str; 7] = ["/", "/proc", "/dev", "/etc", "/tmp", "/workspace", "/.allternit"];

/// Returns the helper's order for one run of a program.
pub(crate) fn for_program(
    options: &SandboxOptions,
    program: &Program,
    identity: Option<FileIdentity>,
    confinement: &Confinement,
) -> Result<Spec, LaunchError> {
    check_program(&options.home, &program.path)?;
    let task = |cwd: PathBuf| Task::Execute {
        program: program.path.clone(),
        identity,
        cwd,
        argument_count: program.args.len(),
    };
    let limits = process_limits(&confinement.limits);
    if !options.enforce {
        let cwd = host_directory(confinement, &program.cwd);
        return Ok(Spec {
            is_confined: false,
            has_proxy: false,
            bindings: Vec::new(),
            hidden: Vec::new(),
            limits,
            task: task(cwd),
        });
    }
    let mut bindings = readable(options)?;
    bindings.extend(program_bindings(&program.path, &bindings)?);
    bindings.extend(directories(confinement)?);
    let hidden = hidden(options, confinement, &bindings)?;
    Ok(Spec {
        is_confined: true,
        has_proxy: confinement.network != HostRules::Nothing,
        bindings,
        hidden,
        limits,
        task: task(program.cwd.clone()),
    })
}

/// Returns the helper's order for the start-up's check.
pub(crate) fn for_canary(
    options: &SandboxOptions,
    run: Option<&Path>,
) -> Result<Spec, LaunchError> {
    const SEEN_AS: &str = "/.allternit/artifacts/canary";
    let mut bindings = readable(options)?;
    let run = run.map(|run| canonical(run, Path::new(SEEN_AS))).transpose()?;
    bindings.extend(run.clone().map(|host| Binding {
        host,
        seen_as: SEEN_AS.into(),
        is_writable: true,
        is_owned: true,
    }));
    let task = Task::Canary {
        gateway: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
        secret: real_home(options),
        writable: run.map(|_shown| SEEN_AS.into()),
    };
    let none = Confinement {
        run: None,
        workspaces: Vec::new(),
        network: HostRules::Nothing,
        limits: Limits::default(),
    };
    let hidden = hidden(options, &none, &bindings)?;
    let limits = process_limits(&none.limits);
    Ok(Spec { is_confined: true, has_proxy: false, bindings, hidden, limits, task })
}

/// Without a root of its own a process starts in the host's directory of that name.
fn host_directory(confinement: &Confinement, cwd: &Path) -> PathBuf {
    let mut beneath = confinement
        .directories()
        .filter_map(|(seen_as, host, _)| Some(host.join(cwd.strip_prefix(seen_as).ok()?)));
    beneath.next().unwrap_or_else(|| cwd.to_owned())
}

fn process_limits(limits: &Limits) -> ProcessLimits {
    ProcessLimits {
        cpu_seconds: limits.cpu.map(|cpu| cpu.as_secs() + u64::from(cpu.subsec_nanos() > 0)),
        memory_bytes: limits.memory_bytes,
        processes: limits.processes,
        open_files: limits.open_files,
        file_bytes: limits.file_bytes,
        free_bytes: limits.free_bytes,
        tmp_bytes: limits.tmp_bytes,
    }
}

fn canonical(host: &Path, seen_as: &Path) -> Result<PathBuf, LaunchError> {
    let unusable = |error| {
        let stage = format!("show {} as {}", host.display(), seen_as.display());
        LaunchError::step(stage, "make the directory, or withdraw its grant", error)
    };
    let found = host.canonicalize().map_err(unusable)?;
    if found.is_dir() { Ok(found) } else { Err(unusable(io::ErrorKind::NotADirectory.into())) }
}

fn readable(options: &SandboxOptions) -> Result<Vec<Binding>, LaunchError> {
    let home = real_home(options);
    let mut bindings = Vec::with_capacity(options.readable.len());
    for path in options.readable.iter().filter(|path| !is_system(path)) {
        let unusable = |advice: &str, error| {
            LaunchError::step(
                format!("show {}, which sandbox.readable names", path.display()),
                advice,
                error,
            )
        };
        let refused = || io::ErrorKind::InvalidInput.into();
        if !path.is_absolute() || OWN.iter().any(|own| path == Path::new(own)) {
            return Err(unusable(
                "name an absolute path, and none that the sandbox has of its own",
                refused(),
            ));
        }
        let host = path
            .canonicalize()
            .map_err(|error| unusable("make it, or take it off the list", error))?;
        if host.starts_with(&home) {
            return Err(unusable("no call may see the gateway's home", refused()));
        }
        bindings.push(Binding { host, seen_as: path.clone(), is_writable: false, is_owned: false });
    }
    Ok(bindings)
}

/// A home that does not exist yet is taken by its name.
fn real_home(options: &SandboxOptions) -> PathBuf {
    options.home.canonicalize().unwrap_or_else(|_missing| options.home.clone())
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|tree| path.starts_with(tree))
}

/// Refuses a program that is a file of the gateway's home: another run's, or the gateway's own.
fn check_program(home: &Path, program: &Path) -> Result<(), LaunchError> {
    let unreadable = |error| LaunchError::ProgramUnreadable { path: program.to_owned(), error };
    let host = program.canonicalize().map_err(unreadable)?;
    if is_in_home(&host, home) { Err(unreadable(in_home())) } else { Ok(()) }
}

/// Shows a program that lies outside of what is shown already: its file alone.
fn program_bindings(program: &Path, shown: &[Binding]) -> Result<Option<Binding>, LaunchError> {
    let is_shown = |path: &Path| {
        is_system(path) || shown.iter().any(|binding| path.starts_with(&binding.seen_as))
    };
    let unreadable = |error| LaunchError::ProgramUnreadable { path: program.to_owned(), error };
    let host = program.canonicalize().map_err(unreadable)?;
    let seen_as = if is_shown(program) { host.clone() } else { program.to_owned() };
    if is_shown(program) && is_shown(&host) {
        return Ok(None);
    }
    Ok(Some(Binding { host, seen_as, is_writable: false, is_owned: true }))
}

fn directories(confinement: &Confinement) -> Result<Vec<Binding>, LaunchError> {
    let mut bindings = Vec::new();
    let has_run = confinement.run.is_some();
    for (position, (seen_as, host, is_writable)) in confinement.directories().enumerate() {
        let seen_as = PathBuf::from(seen_as);
        // A run's own name is kept as it is, so that a link put in its place is refused.
        let host = match (has_run && position == 0, host.parent(), host.file_name()) {
            (true, Some(parent), Some(name)) => canonical(parent, &seen_as)?.join(name),
            _ => canonical(host, &seen_as)?,
        };
        let directory = Binding { host, seen_as, is_writable, is_owned: true };
        let is_workspace = !(has_run && position == 0);
        let repository =
            if is_workspace && is_writable { repository::bindings(&directory) } else { Vec::new() };
        bindings.push(directory);
        bindings.extend(repository);
    }
    Ok(bindings)
}

/// Returns where the gateway's home would be seen, and refuses a workspace within it.
fn hidden(
    options: &SandboxOptions,
    confinement: &Confinement,
    bindings: &[Binding],
) -> Result<Vec<PathBuf>, LaunchError> {
    let Ok(home) = options.home.canonicalize() else {
        // What does not exist cannot be seen.
        return Ok(Vec::new());
    };
    let within = confinement
        .workspaces
        .iter()
        .find(|workspace| workspace.host.canonicalize().is_ok_and(|host| host.starts_with(&home)));
    if let Some(workspace) = within {
        let stage = format!("show {} as /workspace/{}", workspace.host.display(), workspace.name);
        let advice = "it lies within the gateway's home, which no call may see; grant a directory outside of it";
        return Err(LaunchError::step(stage, advice, io::ErrorKind::PermissionDenied.into()));
    }
    let system = SYSTEM.iter().map(|tree| (Path::new(tree), Path::new(tree)));
    let granted = bindings.iter().map(|binding| (&*binding.host, &*binding.seen_as));
    let seen = system
        .chain(granted)
        .filter_map(|(host, seen_as)| Some(seen_as.join(home.strip_prefix(host).ok()?)));
    Ok(seen.collect())
}
