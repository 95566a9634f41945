//! Which program is started, and what it is given.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gateway_sandbox::{Exit, LaunchError, Program};

use crate::harness::{SENTINEL, cases, command};
use crate::place::{Place, bash, describe, program, put, stderr, stdout};

cases![
    a_command_is_found_or_refused_with_its_name,
    no_command_tells_which_files_there_are,
    a_program_of_the_home_is_not_shown,
    arguments_and_input_arrive_byte_by_byte,
    the_environment_is_what_was_given_and_no_more,
    what_preloads_into_the_gateway_does_not_reach_the_helper,
    a_program_outside_of_the_system_is_shown_alone,
    a_changed_program_is_refused,
    a_program_that_cannot_start_says_why,
    exits_are_told,
];

/// The argument that makes this program run `true` and print what came of it.
pub(crate) const RUN_TRUE: &str = "__true";

pub(crate) fn run_true() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let finished =
        runtime.block_on(async { Place::new().await.run(&program("/bin/true", &[])).await });
    println!("{:?} {:?}", finished.exit, stderr(&finished));
    ExitCode::SUCCESS
}

async fn what_preloads_into_the_gateway_does_not_reach_the_helper() {
    let mut gateway = command(&crate::place::helper());
    let output = gateway.arg(RUN_TRUE).env("LD_PRELOAD", "/nowhere/evil.so").output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("evil.so"), "the loader of this machine says nothing: {complaint}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Code(0) \"\"\n");
}

fn make(path: &Path, content: &str, mode: u32) {
    put(path, content);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

async fn a_command_is_found_or_refused_with_its_name() {
    let place = Place::new().await;
    let resolve_program =
        |command: &str, search: &[PathBuf]| place.sandbox.resolve_program(command, search);
    let shelf = tempfile::tempdir().unwrap();
    let at = |name: &str| shelf.path().join(name);
    make(&at("plain"), "x", 0o644);
    make(&at("my tool"), "#!/bin/sh\n", 0o755);
    make(&at("secret"), "x", 0o755);
    fs::create_dir(at("directory")).unwrap();
    let search = [PathBuf::from("/nowhere"), shelf.path().to_owned()];
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    assert_eq!(resolve_program("my tool", &search).unwrap().path, at("my tool"));
    assert_eq!(resolve_program(&text("my tool"), &[]).unwrap().path, at("my tool"));
    for (command, expected) in [
        (
            "missing",
            format!("command \"missing\" is not found in /nowhere:{}", shelf.path().display()),
        ),
        ("my tool --flag", "never split at spaces".to_owned()),
        ("bin/tool", "is a relative path".to_owned()),
        ("", "expected".to_owned()),
        ("a\0b", "expected".to_owned()),
    ] {
        let error = resolve_program(command, &search).unwrap_err().to_string();
        assert!(error.contains(&expected), "{command:?}: {error}");
    }
}

async fn no_command_tells_which_files_there_are() {
    let place = Place::new().await;
    let shelf = place.directory.path().to_owned();
    make(&shelf.join("plain"), "x", 0o644);
    fs::create_dir(shelf.join("directory")).unwrap();
    make(&place.home().join("artifacts/run_2/tool"), "#!/bin/sh\necho secret\n", 0o755);
    std::os::unix::fs::symlink(place.home().join("artifacts/run_2/tool"), shelf.join("link"))
        .unwrap();
    for name in [
        "missing",
        "plain",
        "directory",
        "link",
        "home/keys/token",
        "home/keys/missing",
        "home/artifacts/run_2/tool",
    ] {
        let command = shelf.join(name).to_str().unwrap().to_owned();
        let error = place.sandbox.resolve_program(&command, &[]).unwrap_err().to_string();
        let expected = format!("command {command:?} is no program that can be used; expected");
        assert!(error.starts_with(&expected), "{error}");
        let rest = error.strip_prefix(&expected).unwrap();
        assert!(rest.ends_with("(the gateway's log says what is wrong)"), "{error}");
    }
}

async fn a_program_of_the_home_is_not_shown() {
    let place = Place::new().await;
    let other = place.home().join("artifacts/run_2/tool");
    make(&other, "#!/bin/sh\necho secret\n", 0o755);
    let link = place.directory.path().join("link");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    for path in [other, link] {
        let error = place.try_run(&program(path.to_str().unwrap(), &[])).await.unwrap_err();
        assert!(matches!(error, LaunchError::ProgramUnreadable { .. }), "{error}");
        assert!(error.to_string().contains("within the gateway's home"), "{error}");
    }
}

async fn arguments_and_input_arrive_byte_by_byte() {
    let place = Place::new().await;
    let mut program = program(
        "/usr/bin/python3",
        &[
            "-c",
            "import sys\nprint([a.encode('utf8','surrogateescape') for a in sys.argv[1:]], sys.stdin.buffer.read())",
        ],
    );
    let odd: [&[u8]; 5] = [b"", b"two words", b"$(touch x); `y`\n", b"\xff\xfe", b"--"];
    program.args.extend(odd.iter().map(|bytes| OsString::from(OsStr::from_bytes(bytes))));
    program.stdin = b"\0in\n".to_vec();
    let expected =
        "[b'', b'two words', b'$(touch x); `y`\\n', b'\\xff\\xfe', b'--'] b'\\x00in\\n'\n";
    assert_eq!(stdout(&place.run(&program).await), expected);
    program.args.push("a\0b".into());
    let error = place.try_run(&program).await.unwrap_err().to_string();
    assert!(error.contains("holds a NUL"), "{error}");
}

async fn the_environment_is_what_was_given_and_no_more() {
    let place = Place::new().await;
    let (name, value) = SENTINEL;
    let own = fs::read("/proc/self/environ").unwrap();
    let secret = format!("{name}={value}");
    assert!(
        String::from_utf8_lossy(&own).contains(&secret),
        "the gateway of this test has no secret"
    );
    let mut program = program("/usr/bin/env", &[]);
    program.env = [("A".to_owned(), "b=c\nd".to_owned())].into();
    assert_eq!(stdout(&place.run(&program).await), "A=b=c\nd\n");
    let everywhere = place.succeeds("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'").await;
    assert!(!everywhere.contains(value), "{everywhere}");
}

async fn a_program_outside_of_the_system_is_shown_alone() {
    let place = Place::new().await;
    let shelf = place.directory.path().join("shelf");
    fs::create_dir(&shelf).unwrap();
    make(&shelf.join("my tool"), "#!/bin/sh\nls \"$(dirname \"$0\")\"; echo \"$0\"", 0o755);
    put(&shelf.join("beside"), "secret");
    fs::copy("/bin/true", shelf.join("binary")).unwrap();
    std::os::unix::fs::symlink("binary", shelf.join("link")).unwrap();
    let script = shelf.join("my tool");
    let finished = place.run(&program(script.to_str().unwrap(), &[])).await;
    assert_eq!(
        stdout(&finished),
        format!("my tool\n{}\n", script.display()),
        "{}",
        describe(&finished)
    );
    for name in ["binary", "link"] {
        let finished = place.run(&pinned(&place, &shelf.join(name))).await;
        assert_eq!(finished.exit, Exit::Code(0), "{name}: {}", describe(&finished));
    }
    let write = format!("echo x >> '{}'", script.display());
    assert_ne!(place.bash(&write).await.exit, Exit::Code(0));
}

fn pinned(place: &Place, path: &Path) -> Program {
    let text = path.to_str().unwrap();
    let resolved = place.sandbox.resolve_program(text, &[]).unwrap();
    Program { digest: Some(resolved.digest), ..program(text, &[]) }
}

async fn a_changed_program_is_refused() {
    let place = Place::new().await;
    let tool = place.directory.path().join("tool");
    let aside = place.directory.path().join("aside");
    make(&tool, "#!/bin/sh\necho good\n", 0o755);
    make(&aside, "#!/bin/sh\necho evil\n", 0o755);
    let program = pinned(&place, &tool);
    for _ in 0..2 {
        assert_eq!(stdout(&place.run(&program).await), "good\n");
    }
    fs::rename(&aside, &tool).unwrap();
    let error = place.try_run(&program).await.unwrap_err();
    assert!(matches!(error, LaunchError::ProgramChanged { .. }), "{error}");
    assert!(error.to_string().contains("register the tool again"), "{error}");
    make(&tool, "#!/bin/sh\necho good\n", 0o755);
    assert_eq!(stdout(&place.run(&program).await), "good\n", "the same bytes are the same program");
    put(&tool, "#!/bin/sh\necho EVIL\n");
    assert!(matches!(place.try_run(&program).await, Err(LaunchError::ProgramChanged { .. })));
    fs::remove_file(&tool).unwrap();
    let error = place.try_run(&program).await.unwrap_err();
    assert!(matches!(error, LaunchError::ProgramUnreadable { .. }), "{error}");
}

async fn a_program_that_cannot_start_says_why() {
    let place = Place::new().await;
    let shelf = place.directory.path().to_owned();
    make(&shelf.join("interpreted"), "#!/opt/nowhere/interpreter\n", 0o755);
    make(&shelf.join("plain"), "x", 0o644);
    make(&shelf.join("garbage"), "\x7fELF and no more", 0o755);
    let mut astray = bash("true");
    astray.cwd = "/workspace/nowhere".into();
    let of = |name: &str| program(shelf.join(name).to_str().unwrap(), &[]);
    for (program, expected) in [
        (astray, ["enter the working directory /workspace/nowhere", "No such file"]),
        (of("interpreted"), ["/interpreted", "interpreter"]),
        (of("plain"), ["/plain", "Permission denied"]),
        (of("garbage"), ["/garbage", "Exec format error"]),
        (of("missing"), ["/missing", "No such file"]),
        (program("/usr/lib", &[]), ["/usr/lib", "Permission denied"]),
    ] {
        let error = place.try_run(&program).await.unwrap_err().to_string();
        assert!(expected.iter().all(|part| error.contains(part)), "{error}");
    }
}

async fn exits_are_told() {
    let place = Place::new().await;
    for (line, expected) in [
        ("exit 0", Exit::Code(0)),
        ("exit 255", Exit::Code(255)),
        ("kill -KILL $$", Exit::Signal(9)),
        ("kill -TERM $$", Exit::Signal(15)),
    ] {
        let finished = place.bash(line).await;
        assert_eq!((finished.exit, finished.stopped_by), (expected, None), "{line}");
    }
}
