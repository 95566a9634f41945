//! What a call sees of the host.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use gateway_sandbox::{Exit, Sandbox, SandboxOptions, SandboxState, WorkspaceMount};

use crate::harness::cases;
use crate::place::{Place, bash, describe, helper, put, stdout};

cases![
    what_is_written_belongs_to_the_owner_of_the_directory,
    a_read_only_grant_is_not_changed,
    a_call_without_files_sees_none,
    a_workspace_behind_a_link_is_shown,
    a_workspace_that_cannot_be_shown_is_named,
    a_run_directory_that_became_a_link_is_refused,
    the_home_is_never_seen,
    readable_paths_are_seen_read_only,
    a_configuration_that_cannot_be_kept_is_refused,
    what_makes_git_run_programs_is_not_changed,
    git_works_in_a_workspace,
    what_would_make_git_run_programs_is_set_aside,
];

async fn what_is_written_belongs_to_the_owner_of_the_directory() {
    let mut place = Place::new().await;
    let host = place.grant("docs", true);
    put(&host.join("old"), "old");
    place.succeeds("echo new > new; cp new /workspace/docs/; echo more >> /workspace/docs/old; mkdir /workspace/docs/d").await;
    let owner = fs::metadata(&host).unwrap().uid();
    for name in ["new", "old", "d"] {
        assert_eq!(fs::metadata(host.join(name)).unwrap().uid(), owner, "{name}");
    }
    assert_eq!(fs::read_to_string(host.join("old")).unwrap(), "oldmore\n");
    assert_eq!(fs::read_to_string(place.run_directory().join("new")).unwrap(), "new\n");
    assert_eq!(
        place.succeeds("stat -c %U new /workspace/docs/old; ls /workspace").await,
        "sandbox\nsandbox\ndocs\n"
    );
}

async fn a_read_only_grant_is_not_changed() {
    let mut place = Place::new().await;
    let host = place.grant("docs", false);
    put(&host.join("old"), "old");
    place.confinement.run.as_mut().unwrap().writable = false;
    for line in [
        "echo x > /workspace/docs/new",
        "echo x >> /workspace/docs/old",
        "rm /workspace/docs/old",
        "touch new",
    ] {
        let finished = place.bash(line).await;
        assert_ne!(finished.exit, Exit::Code(0), "{line}");
    }
    assert_eq!(place.succeeds("cat /workspace/docs/old").await, "old");
    assert_eq!(fs::read_dir(&host).unwrap().count(), 1);
}

async fn a_call_without_files_sees_none() {
    let mut place = Place::new().await;
    place.confinement.run = None;
    let mut program =
        bash("pwd; ls -A; ls /; ls -A /.allternit /workspace 2>/dev/null; touch x && ls");
    program.cwd = "/tmp".into();
    let finished = place.run(&program).await;
    let printed = stdout(&finished);
    let names: Vec<&str> = printed.lines().collect();
    assert_eq!(names.first(), Some(&"/tmp"), "{}", describe(&finished));
    assert_eq!(names.last(), Some(&"x"), "{}", describe(&finished));
    let foreign =
        |name: &&str| ["home", "root", "opt", "srv", "mnt", "boot", "work", "sys"].contains(name);
    assert!(!names.iter().any(foreign), "{printed}");
}

fn mount(place: &mut Place, host: PathBuf) {
    place.confinement.workspaces =
        vec![WorkspaceMount { name: "docs".to_owned(), host, writable: true }];
}

async fn a_workspace_behind_a_link_is_shown() {
    let mut place = Place::new().await;
    let host = place.grant("real", true);
    put(&host.join("file"), "text");
    let link = place.directory.path().join("link");
    symlink("real", &link).unwrap();
    mount(&mut place, link);
    assert_eq!(place.succeeds("cat /workspace/docs/file").await, "text");
}

async fn a_workspace_that_cannot_be_shown_is_named() {
    let mut place = Place::new().await;
    let shelf = place.directory.path().to_owned();
    put(&shelf.join("file"), "x");
    symlink("nowhere", shelf.join("dangling")).unwrap();
    let home = place.home();
    for (host, expected) in [
        (shelf.join("missing"), "No such file or directory"),
        (shelf.join("dangling"), "No such file or directory"),
        (shelf.join("file"), "not a directory"),
        (home.join("keys"), "lies within the gateway's home"),
        (home, "lies within the gateway's home"),
    ] {
        mount(&mut place, host.clone());
        let error = place.try_run(&bash("true")).await.unwrap_err().to_string();
        let parts = [host.to_str().unwrap(), "/workspace/docs", expected];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

async fn a_run_directory_that_became_a_link_is_refused() {
    let place = Place::new().await;
    fs::remove_dir(place.run_directory()).unwrap();
    symlink(place.home().join("artifacts/run_2"), place.run_directory()).unwrap();
    let error = place.try_run(&bash("cat secret")).await.unwrap_err().to_string();
    assert!(error.contains("open ") && error.contains("run_1"), "{error}");
    let artifacts = place.home().join("artifacts");
    assert!(gateway_sandbox::prepare_run_directory(&artifacts, &"run_1".parse().unwrap()).is_err());
    fs::remove_file(place.run_directory()).unwrap();
    put(&place.run_directory(), "a file");
    assert!(gateway_sandbox::prepare_run_directory(&artifacts, &"run_1".parse().unwrap()).is_err());
}

async fn the_home_is_never_seen() {
    // The readable directory holds the gateway's home.
    let outer = tempfile::tempdir().unwrap();
    crate::harness::open_to_all(outer.path());
    put(&outer.path().join("beside"), "seen");
    let home = outer.path().join("home");
    fs::create_dir_all(home.join("keys")).unwrap();
    put(&home.join("keys/token"), "secret");
    let options = SandboxOptions {
        enforce: true,
        helper: helper(),
        readable: vec![outer.path().to_owned()],
        home: home.clone(),
    };
    let place = Place { sandbox: Sandbox::probe(options).await, ..Place::new().await };
    assert_eq!(place.sandbox.state().as_str(), "namespaces", "{:?}", place.sandbox.state());
    assert_eq!(place.succeeds(&format!("cat {}/beside", outer.path().display())).await, "seen");
    for line in [
        "ls HOME",
        "cat HOME/keys/token",
        "touch HOME/x",
        "chmod 755 HOME",
        "rmdir HOME",
        "cd HOME",
    ] {
        let line = line.replace("HOME", home.to_str().unwrap());
        let finished = place.bash(&line).await;
        assert_ne!(finished.exit, Exit::Code(0), "{line}");
        assert_eq!(stdout(&finished), "", "{line}");
    }
}

async fn readable_paths_are_seen_read_only() {
    let shelf = tempfile::tempdir().unwrap();
    let real = shelf.path().join("real");
    fs::create_dir(&real).unwrap();
    crate::harness::open_to_all(shelf.path());
    crate::harness::open_to_all(&real);
    put(&real.join("file"), "text");
    let link = shelf.path().join("link");
    symlink(&real, &link).unwrap();
    let place = Place::with(true, &[link.clone(), PathBuf::from("/usr/share")]).await;
    assert_eq!(place.succeeds(&format!("cat {}/file", link.display())).await, "text");
    assert_ne!(place.bash(&format!("echo x > {}/file", link.display())).await.exit, Exit::Code(0));
    assert_ne!(place.bash(&format!("ls {}", real.display())).await.exit, Exit::Code(0));
}

async fn a_configuration_that_cannot_be_kept_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let within = home.path().join("keys");
    fs::create_dir(&within).unwrap();
    for (path, expected) in [
        (Path::new("/nowhere/at/all"), "No such file or directory"),
        (Path::new("relative"), "absolute path"),
        (Path::new("/"), "the sandbox has of its own"),
        (Path::new("/proc"), "the sandbox has of its own"),
        (&within, "no call may see the gateway's home"),
    ] {
        let options = SandboxOptions {
            enforce: true,
            helper: helper(),
            readable: vec![path.to_owned()],
            home: home.path().to_owned(),
        };
        let SandboxState::Unavailable(unavailable) = Sandbox::probe(options).await.state().clone()
        else {
            panic!("{} was accepted", path.display());
        };
        let text = unavailable.to_string();
        assert!(text.contains(expected) && text.contains(path.to_str().unwrap()), "{text}");
        assert!(text.contains("--sandbox off"), "{text}");
    }
}

/// Makes a repository of the host in a workspace, as a person would.
fn repository(place: &mut Place) -> PathBuf {
    let host = place.grant("work", true);
    let git = crate::harness::command(Path::new("/usr/bin/git"))
        .args(["init", "-q"])
        .arg(&host)
        .env_clear()
        .status();
    assert!(git.unwrap().success());
    host
}

async fn what_makes_git_run_programs_is_not_changed() {
    let mut place = Place::new().await;
    let host = repository(&mut place);
    put(&host.join(".git/hooks/pre-push"), "#!/bin/sh\n");
    let config = fs::read_to_string(host.join(".git/config")).unwrap();
    for line in [
        "echo x > .git/hooks/post-commit",
        "echo x >> .git/hooks/pre-push",
        "rm .git/hooks/pre-push",
        "mv .git/hooks .git/old",
        "echo x >> .git/config",
        "git config core.fsmonitor ./x",
        "rm -f .git/config",
        "mv .git/config .git/old",
        "echo x > x; mv x .git/config",
        "mv .git old",
        "ln .git/config linked && echo x >> linked",
    ] {
        let line = format!("cd /workspace/work && {line}");
        let finished = place.bash(&line).await;
        assert_ne!(finished.exit, Exit::Code(0), "{line}: {}", describe(&finished));
    }
    // What can be removed of a mount is only ever seen as removed by the call itself.
    place.bash("rm -rf /workspace/work/.git").await;
    assert_eq!(fs::read_to_string(host.join(".git/config")).unwrap(), config);
    assert!(!host.join(".git/hooks/post-commit").exists());
    assert_eq!(fs::read_to_string(host.join(".git/hooks/pre-push")).unwrap(), "#!/bin/sh\n");
}

async fn git_works_in_a_workspace() {
    let mut place = Place::new().await;
    let host = repository(&mut place);
    let line = "cd /workspace/work && echo a > f && git add f && \
         git -c user.name=n -c user.email=e commit -qm first && git branch side && git tag one && \
         git checkout -q side && echo b >> f && git stash -q 2>/dev/null; git status --short && \
         git log --format=%s && git gc -q && git fsck && rm -f .git/index && git reset -q --hard && cat f";
    assert_eq!(place.succeeds(line).await.lines().last(), Some("a"));
    assert!(host.join(".git/HEAD").exists());

    // A file that leads to a repository elsewhere stays what it is.
    let linked = place.grant("linked", true);
    put(&linked.join(".git"), "gitdir: /nowhere\n");
    place.bash("cd /workspace/linked && rm -rf .git; git init -q; echo x > .git").await;
    assert_eq!(fs::read_to_string(linked.join(".git")).unwrap(), "gitdir: /nowhere\n");
    place.succeeds("cd /workspace/linked && echo a > f && rm f").await;
}

async fn what_would_make_git_run_programs_is_set_aside() {
    let mut place = Place::new().await;
    let host = repository(&mut place);
    fs::remove_dir_all(host.join(".git/hooks")).unwrap();
    let line = "cd /workspace/work/.git && mkdir hooks && echo x > hooks/post-commit && \
         echo ../evil > commondir && ln -s ../evil config.worktree";
    place.succeeds(line).await;
    for part in ["hooks", "commondir", "config.worktree"] {
        assert!(fs::symlink_metadata(host.join(".git").join(part)).is_err(), "{part}");
    }
    let names = fs::read_dir(host.join(".git")).unwrap().flatten();
    let aside = names.filter(|entry| entry.file_name().to_string_lossy().contains(".set-aside-"));
    assert_eq!(aside.count(), 3, "what was made is kept under another name");
}
