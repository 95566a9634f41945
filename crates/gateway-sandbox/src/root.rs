//! The file system that a confined process sees: nothing but what is put here.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::spec::{Directory, Spec, Task};
use crate::sys::mount::{self, Bind};

/// A step that failed, with the path it was about.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) stage: String,
    pub(crate) errno: i32,
}

pub(crate) trait Stage<T> {
    /// Names the step that an error belongs to.
    fn stage(self, stage: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T> Stage<T> for io::Result<T> {
    fn stage(self, stage: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure { stage: stage(), errno: error.raw_os_error().unwrap_or(libc::EIO) })
    }
}

/// Where the new root is put together; the old content is hidden, not changed.
const STAGE: &str = "/tmp";
/// What of `/etc` is visible. None of it is secret.
const ETC: &[&str] = &[
    "alternatives", "debian_version", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types",
    "os-release", "pki", "protocols", "services", "ssl", "timezone",
];
const DEVICES: &[&str] = &["full", "null", "random", "urandom", "zero"];
/// Directories of the root that lead into `/usr` on a merged system.
const MERGED: &[&str] = &["bin", "lib", "lib32", "lib64", "libx32", "sbin"];

/// Something of the host that is opened before it is hidden.
struct Source {
    fd: OwnedFd,
    seen_as: PathBuf,
    is_directory: bool,
    is_writable: bool,
    is_device: bool,
    owner: Option<usize>,
}

/// Puts the root together and moves into it. Runs as the first process of its namespaces.
///
/// `owners` holds, in the order of the spec's directories, the user namespaces whose maps show
/// each directory's owner as the sandbox's user; empty where the sandbox is its own user.
pub(crate) fn enter(spec: &Spec, owners: &[OwnedFd]) -> Result<(), Failure> {
    mount::remount(c"/", libc::MS_REC | libc::MS_PRIVATE).stage(|| "make mounts private".to_owned())?;
    let sources = open_sources(spec, owners)?;
    mount::mount(c"tmpfs", c"/tmp", libc::MS_NOSUID | libc::MS_NODEV, c"size=4m,nr_inodes=4096,mode=755")
        .stage(|| "mount the root".to_owned())?;
    std::env::set_current_dir(STAGE).stage(|| "enter the root".to_owned())?;
    for source in &sources {
        place(source, owners)?;
    }
    own_file_systems(spec)?;
    generated_files()?;
    mount::pivot_here().stage(|| "make the root the root".to_owned())?;
    std::env::set_current_dir("/").stage(|| "enter the root".to_owned())?;
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
    mount::remount(c"/", flags).stage(|| "make the root read-only".to_owned())
}

fn open_sources(spec: &Spec, owners: &[OwnedFd]) -> Result<Vec<Source>, Failure> {
    let mut sources = Vec::new();
    sources.extend(open(Path::new("/usr"), Path::new("/usr"), false)?);
    for name in MERGED {
        let path = Path::new("/").join(name);
        // On a merged system these are links, which are made again instead.
        if path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            sources.extend(open(&path, &path, false)?);
        }
    }
    for name in ETC {
        let path = Path::new("/etc").join(name);
        sources.extend(open(&path, &path, true)?);
    }
    for name in DEVICES {
        let path = Path::new("/dev").join(name);
        sources.extend(open(&path, &path, true)?.map(|source| Source { is_device: true, is_writable: true, ..source }));
    }
    for path in &spec.readable {
        sources.extend(open(path, path, true)?);
    }
    for (position, Directory { host, seen_as, is_writable }) in spec.directories.iter().enumerate() {
        let owner = (!owners.is_empty()).then_some(position);
        let source = open(host, seen_as, false)?;
        sources.extend(source.map(|source| Source { is_writable: *is_writable, owner, ..source }));
    }
    if let Task::Execute { program, .. } = &spec.task
        && !program.starts_with("/usr")
        && !MERGED.iter().any(|name| program.starts_with(Path::new("/").join(name)))
    {
        let real = program.canonicalize().stage(|| format!("find {}", program.display()))?;
        sources.extend(open(&real, program, false)?);
    }
    Ok(sources)
}

/// Opens a path of the host; one that may be absent is skipped then.
fn open(host: &Path, seen_as: &Path, may_be_absent: bool) -> Result<Option<Source>, Failure> {
    let opened = rustix::fs::open(host, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from);
    let fd = match opened {
        Err(error) if may_be_absent && error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.stage(|| format!("open {}", host.display()))?,
    };
    let stat = rustix::fs::fstat(&fd).map_err(io::Error::from).stage(|| format!("look at {}", host.display()))?;
    let is_directory = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
    Ok(Some(Source {
        fd,
        seen_as: seen_as.to_owned(),
        is_directory,
        is_writable: false,
        is_device: false,
        owner: None,
    }))
}

/// Returns the path below the stage of a path that the call sees.
fn staged(seen_as: &Path) -> PathBuf {
    let relative = seen_as.components().filter(|component| matches!(component, Component::Normal(_)));
    Path::new(STAGE).join(relative.collect::<PathBuf>())
}

fn text(path: &Path) -> Result<CString, Failure> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from).stage(|| "name a path".to_owned())
}

fn place(source: &Source, owners: &[OwnedFd]) -> Result<(), Failure> {
    let target = staged(&source.seen_as);
    let stage = || format!("bind {}", source.seen_as.display());
    if source.is_directory {
        std::fs::create_dir_all(&target).stage(stage)?;
    } else {
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).stage(stage)?;
        }
        // A target inside a tree that is bound already exists there.
        if !target.exists() {
            File::create(&target).stage(stage)?;
        }
    }
    let owner: Option<BorrowedFd<'_>> = source.owner.and_then(|owner| owners.get(owner)).map(AsFd::as_fd);
    let how = Bind { is_writable: source.is_writable, is_device: source.is_device, owner };
    mount::bind(source.fd.as_fd(), &text(&target)?, how).stage(stage)
}

fn own_file_systems(spec: &Spec) -> Result<(), Failure> {
    let directory = |path: &str| {
        let path = Path::new(STAGE).join(path);
        std::fs::create_dir_all(&path).stage(|| format!("make {}", path.display()))?;
        text(&path)
    };
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // INVARIANT: the host's own /proc is still visible here; without it the kernel refuses a new one.
    mount::mount(c"proc", &directory("proc")?, flags | libc::MS_NOEXEC, c"").stage(|| "mount /proc".to_owned())?;
    let options = CString::new(format!("size={},nr_inodes=4096,mode=1777", spec.limits.tmp_bytes))
        .map_err(io::Error::from)
        .stage(|| "mount /tmp".to_owned())?;
    mount::mount(c"tmpfs", &directory("tmp")?, flags, &options).stage(|| "mount /tmp".to_owned())?;
    let shared = directory("dev/shm")?;
    mount::mount(c"tmpfs", &shared, flags | libc::MS_NOEXEC, c"size=64m,nr_inodes=1024,mode=1777")
        .stage(|| "mount /dev/shm".to_owned())
}

fn generated_files() -> Result<(), Failure> {
    let links = [
        ("/proc/self/fd", "dev/fd"),
        ("/proc/self/fd/0", "dev/stdin"),
        ("/proc/self/fd/1", "dev/stdout"),
        ("/proc/self/fd/2", "dev/stderr"),
        ("/tmp", "var/tmp"),
    ];
    let merged = MERGED.iter().filter_map(|name| {
        let target = std::fs::read_link(Path::new("/").join(name)).ok()?;
        Some((target, (*name).to_owned()))
    });
    let links = links.map(|(target, link)| (PathBuf::from(target), link.to_owned())).into_iter().chain(merged);
    for directory in ["etc", "run", "var"] {
        std::fs::create_dir_all(Path::new(STAGE).join(directory)).stage(|| format!("make /{directory}"))?;
    }
    for (target, link) in links {
        std::os::unix::fs::symlink(&target, Path::new(STAGE).join(&link)).stage(|| format!("link /{link}"))?;
    }
    let (user, group) = crate::helper::tool_ids();
    let files = [
        ("passwd", format!("root:x:0:0::/:/usr/sbin/nologin\nsandbox:x:{user}:{group}::/tmp:/bin/sh\n")),
        ("group", format!("root:x:0:\nsandbox:x:{group}:\n")),
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n".to_owned()),
        ("hostname", "sandbox\n".to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
    ];
    for (name, content) in files {
        let stage = || format!("write /etc/{name}");
        let mut file = File::create(Path::new(STAGE).join("etc").join(name)).stage(stage)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o644)).stage(stage)?;
        file.write_all(content.as_bytes()).stage(stage)?;
    }
    Ok(())
}

/// Returns owner and group of a directory of the host.
pub(crate) fn owner_of(path: &Path) -> Result<(u32, u32), Failure> {
    let metadata = path.metadata().stage(|| format!("open {}", path.display()))?;
    Ok((metadata.uid(), metadata.gid()))
}
