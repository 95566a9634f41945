use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::*;

/// A granted directory beside one that is not.
struct Place {
    outer: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        fs::create_dir(outer.path().join("granted")).unwrap();
        fs::create_dir(outer.path().join("granted-secret")).unwrap();
        put(outer.path().join("granted-secret/key"), "secret");
        Self { outer }
    }

    fn granted(&self) -> PathBuf {
        self.outer.path().join("granted")
    }

    fn secret(&self) -> PathBuf {
        self.outer.path().join("granted-secret")
    }

    fn open(&self) -> ScopedDir {
        ScopedDir::open(&self.granted(), true).unwrap()
    }
}

fn put(path: PathBuf, text: &str) {
    File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[track_caller]
fn check_refused<T: std::fmt::Debug>(result: Result<T, FileError>, expected: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(expected), "{error:?} says nothing of {expected:?}");
}

#[test]
fn what_is_written_is_read_and_keeps_its_mode() {
    let place = Place::new();
    let dir = place.open();
    dir.write("a/b/run.sh", b"one").unwrap();
    fs::set_permissions(place.granted().join("a/b/run.sh"), fs::Permissions::from_mode(0o750))
        .unwrap();
    dir.write("a/b/run.sh", b"two").unwrap();
    assert_eq!(dir.read("a/b/run.sh", 3).unwrap(), b"two");
    assert_eq!(dir.metadata("a/b/run.sh").unwrap().mode, 0o750);
    dir.copy("a/b/run.sh", &dir, "copy.sh", 3).unwrap();
    assert_eq!(dir.metadata("copy.sh").unwrap().mode, 0o750);
    let names: Vec<_> = dir.read_dir("").unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "copy.sh"], "nothing unfinished is left");
}

#[test]
fn what_is_there_is_moved_and_removed() {
    let place = Place::new();
    let dir = place.open();
    dir.write("a/one", b"1").unwrap();
    dir.write("two", b"2").unwrap();
    check_refused(dir.rename("two", "a/one"), "a/one: exists already");
    dir.rename("two", "a/two").unwrap();
    check_refused(dir.remove_file("a"), "a: ");
    symlink(place.secret(), place.granted().join("a/link")).unwrap();
    dir.remove_dir_all("a").unwrap();
    check_refused(dir.metadata("a"), "a: does not exist");
    assert!(place.secret().join("key").exists(), "a link in a removed tree was followed");
}

#[test]
fn no_path_leads_outside() {
    let place = Place::new();
    let dir = place.open();
    dir.create_dir_all("a").unwrap();
    for path in
        ["../granted-secret/key", "/etc/passwd", "a/../../granted-secret/key", "..", "../granted"]
    {
        check_refused(dir.open_read(path), "leads outside of the granted directory");
    }
    for path in ["../granted-secret/new", "/tmp/new", "../new/deep"] {
        assert!(dir.write(path, b"x").is_err(), "{path}");
    }
    check_refused(dir.write("a/..", b"x"), "names no file");
    check_refused(dir.create_dir_all("a/../b"), "holds \"..\"");
    check_refused(dir.read("a\0b", 1), "holds a NUL");
}

#[test]
fn a_linked_directory_is_never_written_through() {
    let place = Place::new();
    symlink(place.secret(), place.granted().join("out")).unwrap();
    symlink(place.secret().join("new"), place.granted().join("dangling")).unwrap();
    fs::create_dir(place.granted().join("real")).unwrap();
    symlink("real", place.granted().join("inside")).unwrap();
    let dir = place.open();
    check_refused(dir.write("out/new", b"x"), "leads");
    check_refused(dir.create_dir_all("out/deep"), "leads");
    check_refused(dir.remove_file("out/key"), "leads");
    check_refused(dir.read("out/key", 10), "leads outside");
    check_refused(dir.write("inside/new", b"x"), "leads through a symbolic link");
    dir.write("dangling", b"x").unwrap();
    assert!(!place.secret().join("new").exists(), "a dangling link was followed");
    assert_eq!(dir.metadata("dangling").unwrap().kind, FileKind::File);
}

#[test]
fn links_that_stay_beneath_are_read() {
    let place = Place::new();
    let dir = place.open();
    dir.write("real/file", b"text").unwrap();
    symlink("real", place.granted().join("near")).unwrap();
    symlink(place.granted().join("real"), place.granted().join("absolute")).unwrap();
    symlink("/proc/self/cwd", place.granted().join("magic")).unwrap();
    assert_eq!(dir.read("near/file", 10).unwrap(), b"text");
    check_refused(dir.read("absolute/file", 10), "leads outside");
    check_refused(dir.read("magic/file", 10), "leads outside");
}

#[test]
fn only_regular_files_of_a_bounded_size_are_read() {
    let place = Place::new();
    let dir = place.open();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.granted().join("pipe"),
        FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .unwrap();
    std::os::unix::net::UnixListener::bind(place.granted().join("socket")).unwrap();
    File::create(place.granted().join("giant")).unwrap().set_len(1 << 40).unwrap();
    dir.create_dir_all("directory").unwrap();
    let started = Instant::now();
    check_refused(dir.read("pipe", 10), "is not a regular file");
    check_refused(dir.read("socket", 10), "socket: ");
    check_refused(dir.read("directory", 10), "is a directory");
    check_refused(dir.read("giant", 1 << 20), "has 1099511627776 bytes, more than 1048576");
    check_refused(dir.copy("giant", &dir, "copy", 1 << 20), "more than 1048576");
    assert!(started.elapsed() < Duration::from_secs(5), "a pipe was waited for");
}

#[test]
fn a_read_only_directory_is_not_changed() {
    let place = Place::new();
    place.open().write("file", b"x").unwrap();
    let dir = ScopedDir::open(&place.granted(), false).unwrap();
    for changed in [
        dir.write("file", b"y"),
        dir.create_dir_all("new"),
        dir.remove_file("file"),
        dir.remove_dir_all("file"),
        dir.rename("file", "other"),
        dir.copy("file", &dir, "other", 10),
    ] {
        check_refused(changed, "granted read-only");
    }
    assert_eq!(dir.read("file", 10).unwrap(), b"x");
}

#[test]
fn a_swap_between_check_and_open_leads_nowhere() {
    let place = Place::new();
    let granted = place.granted();
    fs::create_dir(granted.join("real")).unwrap();
    put(granted.join("real/key"), "open");
    symlink("real", granted.join("door")).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let targets = [place.secret(), PathBuf::from("real")];
            for target in targets.iter().cycle() {
                symlink(target, granted.join("next")).unwrap();
                fs::rename(granted.join("next"), granted.join("door")).unwrap();
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let dir = place.open();
        for _ in 0..5_000 {
            if let Ok(bytes) = dir.read("door/key", 100) {
                assert_eq!(bytes, b"open");
            }
            assert!(dir.write("door/new", b"x").is_err());
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(!place.secret().join("new").exists());
}

#[test]
fn an_entry_whose_kind_is_not_listed_is_looked_at() {
    let place = Place::new();
    put(place.granted().join("file"), "x");
    fs::create_dir(place.granted().join("directory")).unwrap();
    symlink("file", place.granted().join("link")).unwrap();
    let directory = OwnedFd::from(File::open(place.granted()).unwrap());
    for (name, expected) in [
        (c"file", FileKind::File),
        (c"directory", FileKind::Directory),
        (c"link", FileKind::Link),
        (c"gone", FileKind::Other),
    ] {
        assert_eq!(kind_of_entry(&directory, name, FileType::Unknown), expected, "{name:?}");
    }
}

#[test]
fn a_root_gateway_reaches_files_as_the_owner_of_the_directory() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let owner = Some(65_520);
    std::os::unix::fs::chown(place.granted(), owner, owner).unwrap();
    put(place.granted().join("root"), "secret");
    put(place.granted().join("group"), "secret");
    for (name, mode) in [("root", 0o600), ("group", 0o660)] {
        let path = place.granted().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(place.granted().join("of-root")).unwrap();
    let dir = place.open();
    for name in ["root", "group"] {
        check_refused(dir.read(name, 9), "Permission denied");
        check_refused(dir.copy(name, &dir, "copy", 9), "Permission denied");
    }
    check_refused(dir.write("of-root/new", b"x"), "Permission denied");
    dir.write("a/b/new", b"x").unwrap();
    for name in ["a", "a/b", "a/b/new"] {
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(fs::metadata(place.granted().join(name)).unwrap().uid(), 65_520, "{name}");
    }
    // Root's own power is back.
    assert_eq!(fs::read(place.granted().join("root")).unwrap(), b"secret");
}
