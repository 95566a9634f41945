//! A run directory, a neighbour with a secret, and a sandbox that the probe found to hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_sandbox::{
    Confinement, Finished, LaunchError, Limits, Program, RunDirectory, Sandbox, SandboxOptions, SandboxState,
    WorkspaceMount,
};
use tokio_util::sync::CancellationToken;

pub(crate) struct Fixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) confinement: Confinement,
    pub(crate) cancel: CancellationToken,
    enforce: bool,
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(future)
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for path in ["artifacts/run_1", "artifacts/run_2", "receipts/run_1", "work"] {
            std::fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        std::fs::write(directory.path().join("artifacts/run_2/secret"), "secret").unwrap();
        let run = RunDirectory {
            host: directory.path().join("artifacts/run_1"),
            run_id: "run_1".parse().unwrap(),
            writable: true,
        };
        let limits = Limits { wall: Duration::from_secs(60), ..Limits::default() };
        let confinement = Confinement { run: Some(run), workspaces: Vec::new(), limits };
        Self { directory, confinement, cancel: CancellationToken::new(), enforce: true }
    }

    /// The same without confinement, as an operator may choose.
    pub(crate) fn unconfined() -> Self {
        Self { enforce: false, ..Self::new() }
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.directory.path().join(relative)
    }

    pub(crate) fn with_workspace(mut self, host: &Path, writable: bool) -> Self {
        let host = host.to_owned();
        self.confinement.workspaces.push(WorkspaceMount { name: "work".to_owned(), host, writable });
        self
    }

    pub(crate) async fn sandbox(&self) -> Sandbox {
        let options = SandboxOptions {
            enforce: self.enforce,
            helper: std::env::current_exe().unwrap(),
            readable: Vec::new(),
            home: self.directory.path().to_owned(),
        };
        let sandbox = Sandbox::probe(options).await;
        if self.enforce {
            assert!(matches!(sandbox.state(), SandboxState::Enforced(_)), "{:?}", sandbox.state());
        }
        sandbox
    }

    pub(crate) async fn start(&self, program: &Program) -> Result<Finished, LaunchError> {
        self.sandbox().await.run(program, &self.confinement, &self.cancel).await
    }

    pub(crate) fn run(&self, program: &Program) -> Result<Finished, LaunchError> {
        block_on(self.start(program))
    }

    /// Runs a shell line and returns how it ended.
    pub(crate) fn shell(&self, line: &str) -> Finished {
        self.run(&shell(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Runs a shell line that must exit with 0, and returns what it printed.
    pub(crate) fn shell_ok(&self, line: &str) -> String {
        let finished = self.shell(line);
        let (stdout, stderr) = (text(&finished.stdout.bytes), text(&finished.stderr.bytes));
        assert_eq!(finished.exit, gateway_sandbox::Exit::Code(0), "{line}: {stdout}{stderr}");
        stdout
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn shell(line: &str) -> Program {
    program("/bin/bash", &["-c", line])
}

pub(crate) fn program(path: &str, args: &[&str]) -> Program {
    let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/.allternit/artifacts/run_1"), ("LANG", "C.UTF-8")];
    Program {
        path: path.into(),
        digest: None,
        args: args.iter().map(Into::into).collect(),
        stdin: Vec::new(),
        env: BTreeMap::from(env.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        cwd: "/.allternit/artifacts/run_1".into(),
    }
}
