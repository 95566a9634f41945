//! Runs cases, each in its own runtime, once for each kind of user.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// The argument that makes this program run the cases themselves.
pub(crate) const ROUND: &str = "__round";
/// A variable of the gateway that no program may see.
pub(crate) const SENTINEL: (&str, &str) = ("GW_SECRET", "sentinel-7f3a");

/// A named case.
pub(crate) type Case = (&'static str, fn() -> Pin<Box<dyn Future<Output = ()>>>);

/// Makes a table row of an async function.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const CASES: &[crate::harness::Case] = &[
            $((concat!(module_path!(), "::", stringify!($name)), || Box::pin($name()))),+
        ];
    };
}
pub(crate) use cases;

/// Runs the cases as the current user, and where that is root as an ordinary user too.
pub(crate) fn run_rounds(args: &[String]) -> ExitCode {
    let filters: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let program = std::env::current_exe().unwrap();
    let mut is_good = round(&mut command(&program), &filters, "the current user");
    if rustix::process::geteuid().is_root() {
        // An ordinary user cannot read the build directory of root.
        let shelf = tempfile::tempdir().unwrap();
        let copy = shelf.path().join("it");
        std::fs::copy(&program, &copy).unwrap();
        open_to_all(shelf.path());
        let mut setpriv = command(Path::new("/usr/bin/setpriv"));
        setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
        is_good &= round(&mut setpriv, &filters, "an ordinary user");
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::disallowed_methods, reason = "starts this program again, not a tool")]
pub(crate) fn command(program: &Path) -> Command {
    Command::new(program)
}

pub(crate) fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn round(command: &mut Command, filters: &[&String], user: &str) -> bool {
    println!("\nsandbox cases as {user}");
    command
        .arg(ROUND)
        .args(filters)
        .env(SENTINEL.0, SENTINEL.1)
        .current_dir("/")
        .status()
        .unwrap()
        .success()
}

/// Runs every case whose name holds one of the filters.
pub(crate) fn run_cases(families: &[&[Case]], args: &[String]) -> ExitCode {
    let filters = args.get(1..).unwrap_or_default();
    let is_wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    let mut failed = Vec::new();
    let mut passed = 0;
    for (name, case) in families.iter().copied().flatten().filter(|(name, _)| is_wanted(name)) {
        let started = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let is_good = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case()))).is_ok();
        println!(
            "test {name} ... {} ({:?})",
            if is_good { "ok" } else { "FAILED" },
            started.elapsed()
        );
        if is_good {
            passed += 1;
        } else {
            failed.push(*name);
        }
    }
    println!("test result: {passed} passed; {} failed {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
