//! The file system that a confined process sees: nothing but what is put here.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::Order;
use super::failure::{Failure, Stage as _};
use super::owners::Owners;
use crate::spec::Binding;
use crate::sys::mount::{self, Bind};
use crate::sys::process;

/// Where the new root is put together; what is there on the host is covered, not changed.
const STAGE: &str = "/tmp";
/// Directories of the root that lead into `/usr` on a merged system.
const MERGED: [&str; 6] = ["bin", "lib", "lib32", "lib64", "libx32", "sbin"];
/// What of `/etc` is seen, where it exists. None of it is secret.
const ETC: [&str; 8] = [
    "alternatives",
    "crypto-policies",
    "ld.so.cache",
    "localtime",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "ssl/certs",
    "ssl/openssl.cnf",
];
const DEVICES: [&str; 5] = ["full", "null", "random", "urandom", "zero"];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
    ("/tmp", "var/tmp"),
];

/// Something of the host, opened before it is covered.
struct Source<'a> {
    fd: OwnedFd,
    seen_as: PathBuf,
    is_directory: bool,
    how: Bind<'a>,
}

/// Puts the root together and moves into it. Runs as the first process of its namespaces.
pub(super) fn enter(order: &Order, owners: &Owners) -> Result<(), Failure> {
    mount::remount(c"/", libc::MS_REC | libc::MS_PRIVATE).stage("make mounts private")?;
    let system = system_sources()?;
    let granted = granted_sources(order, owners)?;
    let options = c"size=4m,nr_inodes=4096,mode=755";
    mount::mount(
        c"tmpfs",
        &staged_text(Path::new("/"))?,
        libc::MS_NOSUID | libc::MS_NODEV,
        options,
    )
    .stage("mount the root")?;
    std::env::set_current_dir(STAGE).stage("enter the root")?;
    system.iter().try_for_each(place)?;
    own_file_systems(order)?;
    granted.iter().try_for_each(place)?;
    order.spec.hidden.iter().try_for_each(|path| hide(path))?;
    write_files(order)?;
    mount::pivot_here().stage("make the root the root")?;
    std::env::set_current_dir("/").stage("enter the root")?;
    let flags =
        libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
    mount::remount(c"/", flags).stage("make the root read-only")?;
    process::set_host_name("sandbox").stage("set the host name")
}

/// Opens what every call sees.
fn system_sources() -> Result<Vec<Source<'static>>, Failure> {
    let usr = Path::new("/usr");
    let mut sources = vec![open(usr, usr, ResolveFlags::empty())?];
    let read_only = Bind::default();
    let device = Bind { is_writable: true, is_device: true, owner: None };
    // On a merged system these are links, which are made again instead.
    let merged =
        MERGED.map(|name| Path::new("/").join(name)).into_iter().filter(|path| !path.is_symlink());
    let etc = ETC.map(|name| Path::new("/etc").join(name));
    let devices = DEVICES.map(|name| Path::new("/dev").join(name));
    let optional =
        merged.chain(etc).map(|path| (path, read_only)).chain(devices.map(|path| (path, device)));
    for (path, how) in optional {
        match open(&path, &path, ResolveFlags::empty()) {
            Ok(source) => sources.push(Source { how, ..source }),
            Err(failure) if matches!(failure.errno(), libc::ENOENT | libc::EACCES) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(sources)
}

/// Opens what this call sees besides.
fn granted_sources<'a>(order: &Order, owners: &'a Owners) -> Result<Vec<Source<'a>>, Failure> {
    let mut sources = Vec::with_capacity(order.spec.bindings.len());
    for Binding { host, seen_as, is_writable, is_owned } in &order.spec.bindings {
        // The gateway resolved every link; one that appeared since is an attack.
        let source = open(host, seen_as, ResolveFlags::NO_SYMLINKS)?;
        let stat =
            rustix::fs::fstat(&source.fd).stage_with(|| format!("look at {}", host.display()))?;
        let owner = if *is_owned { owners.find((stat.st_uid, stat.st_gid)) } else { None };
        let how = Bind { is_writable: *is_writable, is_device: false, owner };
        sources.push(Source { how, ..source });
    }
    Ok(sources)
}

fn open(host: &Path, seen_as: &Path, resolve: ResolveFlags) -> Result<Source<'static>, Failure> {
    let stage = || format!("open {}", host.display());
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let fd = rustix::fs::openat2(rustix::fs::CWD, host, flags, Mode::empty(), resolve)
        .stage_with(stage)?;
    let mode = rustix::fs::fstat(&fd).stage_with(stage)?.st_mode;
    let is_directory = FileType::from_raw_mode(mode) == FileType::Directory;
    Ok(Source { fd, seen_as: seen_as.to_owned(), is_directory, how: Bind::default() })
}

/// Returns where a path that the call sees is put together.
fn staged(seen_as: &Path) -> PathBuf {
    let relative =
        seen_as.components().filter(|component| matches!(component, Component::Normal(_)));
    Path::new(STAGE).join(relative.collect::<PathBuf>())
}

fn staged_text(seen_as: &Path) -> Result<CString, Failure> {
    CString::new(staged(seen_as).as_os_str().as_bytes()).stage("name a path")
}

fn place(source: &Source<'_>) -> Result<(), Failure> {
    let Source { fd, seen_as, is_directory, how } = source;
    let target = staged(seen_as);
    let stage = || format!("show {}", seen_as.display());
    if *is_directory {
        fs::create_dir_all(&target).stage_with(stage)?;
    } else {
        make_file(&target).stage_with(stage)?;
    }
    mount::bind(fd.as_fd(), &staged_text(seen_as)?, *how).stage_with(stage).map_err(|failure| {
        if how.owner.is_none() {
            return failure;
        }
        failure.advise(
            "for a gateway that runs as root, its file system must allow id-mapped mounts; \
             run the gateway as an ordinary user",
        )
    })
}

/// Makes an empty file to mount on. Beneath a tree that is shown already it exists there.
fn make_file(target: &Path) -> io::Result<()> {
    let made = match File::create_new(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(target.parent().unwrap_or(Path::new(STAGE)))?;
            File::create_new(target)
        }
        made => made,
    };
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Covers a directory that must not be seen, where what surrounds it is.
fn hide(path: &Path) -> Result<(), Failure> {
    let stage = || format!("hide {}", path.display());
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount::mount(c"tmpfs", &staged_text(path)?, flags, c"size=4k,nr_inodes=1,mode=000")
        .stage_with(stage)
}

fn own_file_systems(order: &Order) -> Result<(), Failure> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let temporary = format!("size={},nr_inodes=4096,mode=1777", order.spec.limits.tmp_bytes);
    let temporary = CString::new(temporary).stage("mount /tmp")?;
    // INVARIANT: the host's own /proc is still visible here; without it the kernel refuses a new one.
    let rows = [
        (c"proc", "/proc", flags | libc::MS_NOEXEC, c""),
        (c"tmpfs", "/tmp", flags, &*temporary),
        (c"tmpfs", "/dev/shm", flags | libc::MS_NOEXEC, c"size=64m,nr_inodes=1024,mode=1777"),
    ];
    for (kind, path, flags, options) in rows {
        let stage = || format!("mount {path}");
        fs::create_dir_all(staged(Path::new(path))).stage_with(stage)?;
        mount::mount(kind, &staged_text(Path::new(path))?, flags, options).stage_with(stage).map_err(|failure| {
            match kind.to_bytes() {
                b"proc" => failure.advise("in a container, show the whole of /proc: --security-opt systempaths=unconfined"),
                _ => failure,
            }
        })?;
    }
    Ok(())
}

fn write_files(order: &Order) -> Result<(), Failure> {
    for directory in ["etc", "run", "var"] {
        fs::create_dir_all(Path::new(STAGE).join(directory))
            .stage_with(|| format!("make /{directory}"))?;
    }
    let merged =
        MERGED.iter().filter_map(|name| Some((Path::new("/").join(name).read_link().ok()?, *name)));
    for (target, link) in
        LINKS.map(|(target, link)| (PathBuf::from(target), link)).into_iter().chain(merged)
    {
        symlink(&target, Path::new(STAGE).join(link)).stage_with(|| format!("link /{link}"))?;
    }
    let Order { user, group, .. } = order;
    let files = [
        (
            "passwd",
            format!("root:x:0:0::/:/usr/sbin/nologin\nsandbox:x:{user}:{group}::/tmp:/bin/sh\n"),
        ),
        ("group", format!("root:x:0:\nsandbox:x:{group}:\n")),
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n".to_owned()),
        ("hostname", "sandbox\n".to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
    ];
    for (name, content) in files {
        write_file(&Path::new(STAGE).join("etc").join(name), &content)
            .stage_with(|| format!("write /etc/{name}"))?;
    }
    Ok(())
}

/// Writes a file that everybody may read, whatever this process's mask is.
fn write_file(path: &Path, content: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(content.as_bytes())
}
