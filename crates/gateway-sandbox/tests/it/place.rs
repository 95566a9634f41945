//! A home with runs in it, and a sandbox to start programs in.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_model::HostRules;
use gateway_sandbox::{
    Confinement, Exit, Finished, LaunchError, Limits, Program, RunDirectory, Sandbox,
    SandboxOptions, WorkspaceMount, prepare_run_directory,
};
use tokio_util::sync::CancellationToken;

pub(crate) const RUN: &str = "/.allternit/artifacts/run_1";

/// A home with two runs, and a sandbox that holds.
pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) sandbox: Sandbox,
    pub(crate) confinement: Confinement,
}

impl Place {
    pub(crate) async fn new() -> Self {
        Self::with(true, &[]).await
    }

    pub(crate) async fn off() -> Self {
        Self::with(false, &[]).await
    }

    pub(crate) async fn with(enforce: bool, readable: &[PathBuf]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        for tree in ["artifacts", "receipts/run_1", "keys"] {
            fs::create_dir_all(home.join(tree)).unwrap();
        }
        put(&home.join("keys/token"), "secret");
        let artifacts = home.join("artifacts");
        let other = prepare_run_directory(&artifacts, &"run_2".parse().unwrap()).unwrap();
        put(&other.join("secret"), "secret");
        let run_id = "run_1".parse().unwrap();
        let host = prepare_run_directory(&artifacts, &run_id).unwrap();
        let options =
            SandboxOptions { enforce, helper: helper(), readable: readable.to_vec(), home };
        let sandbox = Sandbox::probe(options).await;
        let expected = if enforce { "namespaces" } else { "off" };
        assert_eq!(sandbox.state().as_str(), expected, "{:?}", sandbox.state());
        let limits = Limits {
            wall: Duration::from_secs(60),
            grace: Duration::from_millis(300),
            ..Limits::default()
        };
        let run = Some(RunDirectory { host, run_id, writable: true });
        let confinement =
            Confinement { run, workspaces: Vec::new(), network: HostRules::Nothing, limits };
        Self { directory, sandbox, confinement }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    pub(crate) fn run_directory(&self) -> PathBuf {
        self.home().join("artifacts/run_1")
    }

    /// Makes a directory and grants it as `/workspace/NAME`.
    pub(crate) fn grant(&mut self, name: &str, writable: bool) -> PathBuf {
        let host = self.directory.path().join(name);
        fs::create_dir(&host).unwrap();
        self.confinement.workspaces.push(WorkspaceMount {
            name: name.to_owned(),
            host: host.clone(),
            writable,
        });
        host
    }

    pub(crate) async fn try_run(&self, program: &Program) -> Result<Finished, LaunchError> {
        self.sandbox.run(program, &self.confinement, &CancellationToken::new()).await
    }

    pub(crate) async fn run(&self, program: &Program) -> Finished {
        self.try_run(program).await.unwrap()
    }

    /// Runs a line of bash in the run's directory.
    pub(crate) async fn bash(&self, line: &str) -> Finished {
        self.run(&bash(line)).await
    }

    /// Runs a line of bash that must succeed, and returns what it printed.
    #[track_caller]
    pub(crate) fn succeeds<'a>(&'a self, line: &'a str) -> impl Future<Output = String> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let finished = self.bash(line).await;
            assert_eq!(finished.exit, Exit::Code(0), "{caller}: {line}: {}", describe(&finished));
            stdout(&finished)
        }
    }
}

pub(crate) fn helper() -> PathBuf {
    std::env::current_exe().unwrap()
}

pub(crate) fn program(path: &str, args: &[&str]) -> Program {
    let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/tmp"), ("LANG", "C.UTF-8")];
    Program {
        path: path.into(),
        digest: None,
        args: args.iter().map(|arg| mine(arg).into()).collect(),
        stdin: Vec::new(),
        env: env
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<BTreeMap<_, _>>(),
        cwd: RUN.into(),
    }
}

pub(crate) fn bash(line: &str) -> Program {
    program("/bin/bash", &["-c", line])
}

pub(crate) fn python(code: &str) -> Program {
    program("/usr/bin/python3", &["-c", code])
}

pub(crate) fn stdout(finished: &Finished) -> String {
    String::from_utf8_lossy(&finished.stdout.bytes).into_owned()
}

pub(crate) fn stderr(finished: &Finished) -> String {
    String::from_utf8_lossy(&finished.stderr.bytes).into_owned()
}

pub(crate) fn describe(finished: &Finished) -> String {
    let Finished { exit, stopped_by, .. } = finished;
    format!("{exit:?} {stopped_by:?}\n{}\n{}", stdout(finished), stderr(finished))
}

pub(crate) fn put(path: &Path, text: &str) {
    use std::io::Write as _;
    fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Makes each marker in a text this process's own: other runs of these cases have others.
pub(crate) fn mine(text: &str) -> String {
    let own = format!("{MARKER}.{:07}", std::process::id());
    text.replace(MARKER, &own)
}

/// A number of seconds to sleep, by which a process is found again.
pub(crate) const MARKER: &str = "60036";

/// Returns the processes of this machine whose command line holds this process's marker after
/// a text.
pub(crate) fn processes_with(text: &str) -> Vec<String> {
    let marker = mine(text);
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let others = entries.filter(|id| id.parse::<u32>().is_ok() && *id != own);
    let command = |id: &String| fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let holds = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains(&marker);
    others.filter(|id| holds(command(id))).collect()
}
