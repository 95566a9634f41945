//! Files beneath one directory: what in-process tools read and write, and nothing else.
//!
//! INVARIANT: every path is resolved by the kernel beneath the directory's descriptor
//! (`openat2` with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS; changes also with
//! RESOLVE_NO_SYMLINKS), so no link and no swap between two steps leads outside.
//! INVARIANT: where the gateway is root, everything is done as the directory's owner, who reaches
//! no file by it that is somebody else's alone, and to whom belongs what is made.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::file::{FileError, FileKind, Metadata};
use crate::space;
use crate::sys::file_user::FileUser;

/// Entries of one directory that are listed at most.
const MAX_ENTRIES: usize = 100_000;
/// How deep a tree may be to be removed.
const MAX_DEPTH: usize = 128;

/// An open directory; all paths are relative to it.
#[derive(Debug)]
pub struct ScopedDir {
    fd: OwnedFd,
    is_writable: bool,
    /// As whom a root gateway works here; `None` where it works as itself.
    owner: Option<(u32, u32)>,
}

impl ScopedDir {
    /// Opens a directory of this machine.
    ///
    /// # Errors
    /// Returns what the file system said.
    pub fn open(host: &Path, is_writable: bool) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(host, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let is_root = rustix::process::geteuid().is_root();
        let owner = (is_root && stat.st_uid != 0).then_some((stat.st_uid, stat.st_gid));
        Ok(Self { fd, is_writable, owner })
    }

    /// Becomes the directory's owner for as long as the result lives.
    fn as_owner(&self, path: &str) -> Result<Option<FileUser>, FileError> {
        let become_owner = |(user, group)| FileUser::become_user(user, group);
        self.owner.map(become_owner).transpose().map_err(|error| fault(path, &error))
    }

    /// Says whether changes are allowed.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Opens a regular file for reading. Links are followed while they stay beneath.
    ///
    /// # Errors
    /// Refuses directories, pipes, devices and what lies outside.
    pub fn open_read(&self, path: &str) -> Result<File, FileError> {
        let _as_owner = self.as_owner(path)?;
        // Not blocking, because opening a pipe would wait for its other end.
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK, true)?;
        let file = File::from(fd);
        let metadata = file.metadata().map_err(|error| fault(path, &error))?;
        if metadata.is_dir() {
            return Err(refused(path, "is a directory", io::ErrorKind::IsADirectory));
        }
        if !metadata.is_file() {
            return Err(refused(path, "is not a regular file", io::ErrorKind::InvalidInput));
        }
        Ok(file)
    }

    /// Reads a whole regular file of at most `max_bytes`.
    ///
    /// # Errors
    /// As [`Self::open_read`]; refuses larger files with their size.
    pub fn read(&self, path: &str, max_bytes: u64) -> Result<Vec<u8>, FileError> {
        let file = self.open_read(path)?;
        let size = file.metadata().map_err(|error| fault(path, &error))?.len();
        if size > max_bytes {
            return Err(refused(
                path,
                &format!("has {size} bytes, more than {max_bytes}"),
                io::ErrorKind::FileTooLarge,
            ));
        }
        let mut bytes = Vec::new();
        file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| fault(path, &error))?;
        Ok(bytes)
    }

    /// Returns what is known of a path. A final link is not followed.
    ///
    /// # Errors
    /// Returns what the file system said.
    pub fn metadata(&self, path: &str) -> Result<Metadata, FileError> {
        let _as_owner = self.as_owner(path)?;
        let fd = self.resolve(path, OFlags::PATH | OFlags::NOFOLLOW, true)?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| fault(path, &error.into()))?;
        Ok(Metadata {
            kind: kind(FileType::from_raw_mode(stat.st_mode)),
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            modified_seconds: stat.st_mtime,
        })
    }

    /// Lists a directory, sorted by name; names that are not UTF-8 are written with `�`.
    ///
    /// # Errors
    /// Refuses what is no directory, and directories of more than 100,000 entries.
    pub fn read_dir(&self, path: &str) -> Result<Vec<(String, FileKind)>, FileError> {
        let _as_owner = self.as_owner(path)?;
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, true)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&fd).map_err(|error| fault(path, &error.into()))? {
            let entry = entry.map_err(|error| fault(path, &error.into()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." {
                continue;
            }
            if entries.len() == MAX_ENTRIES {
                return Err(refused(
                    path,
                    "has more than 100000 entries",
                    io::ErrorKind::InvalidInput,
                ));
            }
            entries.push((name, kind_of_entry(&fd, entry.file_name(), entry.file_type())));
        }
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(entries)
    }

    /// Writes a whole file: readers see the old content or all of the new one.
    ///
    /// Missing directories are made. An existing file keeps its permission bits; an existing
    /// link is replaced, not followed.
    ///
    /// # Errors
    /// Returns what the file system said; the old content is then unchanged.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.write_new(path, bytes, None)
    }

    fn write_new(
        &self,
        path: &str,
        bytes: &[u8],
        mode_if_new: Option<Mode>,
    ) -> Result<(), FileError> {
        self.check_writable(path)?;
        let (parent, name) = split(path)?;
        let _as_owner = self.as_owner(path)?;
        self.make_directories(parent)?;
        let directory = self.resolve(parent, OFlags::PATH | OFlags::DIRECTORY, false)?;
        let old = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        if old.is_some_and(|old| FileType::from_raw_mode(old.st_mode) == FileType::Directory) {
            return Err(refused(path, "is a directory", io::ErrorKind::IsADirectory));
        }
        space::check_room(&self.fd, bytes.len()).map_err(|error| fault(path, &error))?;
        let mode = old.filter(|old| FileType::from_raw_mode(old.st_mode) == FileType::RegularFile);
        let mode = mode.map(|old| Mode::from_raw_mode(old.st_mode & 0o777)).or(mode_if_new);
        replace(&directory, name, bytes, mode).map_err(|error| fault(path, &error))
    }

    /// Copies a regular file of at most `max_bytes`, with its permission bits where the target
    /// is new. The target may lie in another directory; it is written as by [`Self::write`].
    ///
    /// # Errors
    /// As [`Self::read`] for the source, and as [`Self::write`] for the target.
    pub fn copy(
        &self,
        from: &str,
        target: &Self,
        to: &str,
        max_bytes: u64,
    ) -> Result<(), FileError> {
        let bytes = self.read(from, max_bytes)?;
        let mode = Mode::from_raw_mode(self.metadata(from)?.mode & 0o777);
        target.write_new(to, &bytes, Some(mode))
    }

    /// Makes a directory and those above it; existing ones are fine.
    ///
    /// # Errors
    /// Refuses a path that leads through a link or a file.
    pub fn create_dir_all(&self, path: &str) -> Result<(), FileError> {
        let _as_owner = self.as_owner(path)?;
        self.make_directories(path)
    }

    fn make_directories(&self, path: &str) -> Result<(), FileError> {
        self.check_writable(path)?;
        let mut made = String::new();
        for component in path.split('/').filter(|component| !matches!(*component, "" | ".")) {
            if component == ".." {
                return Err(refused(
                    path,
                    "holds \"..\"; expected a path without it",
                    io::ErrorKind::InvalidInput,
                ));
            }
            let directory = self.resolve(&made, OFlags::PATH | OFlags::DIRECTORY, false)?;
            match rustix::fs::mkdirat(&directory, component, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(fault(path, &error.into())),
            }
            made.push_str(component);
            made.push('/');
        }
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY, false).map(drop)
    }

    /// Removes a file or a link.
    ///
    /// # Errors
    /// Refuses directories.
    pub fn remove_file(&self, path: &str) -> Result<(), FileError> {
        let _as_owner = self.as_owner(path)?;
        let (directory, name) = self.parent_of(path)?;
        rustix::fs::unlinkat(&directory, name, AtFlags::empty())
            .map_err(|error| fault(path, &error.into()))
    }

    /// Removes a directory with all that is in it. Links in it are removed, not followed.
    ///
    /// # Errors
    /// Stops at the first entry that cannot be removed, at a depth of 128, or after 100,000
    /// entries; what was removed until then stays removed.
    pub fn remove_dir_all(&self, path: &str) -> Result<(), FileError> {
        let _as_owner = self.as_owner(path)?;
        let (directory, name) = self.parent_of(path)?;
        let mut entries_left = MAX_ENTRIES;
        remove_tree(&directory, name, MAX_DEPTH, &mut entries_left)
            .map_err(|error| fault(path, &error))
    }

    /// Moves a file or a directory to a path where nothing is.
    ///
    /// # Errors
    /// Refuses an existing target.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        let _as_owner = self.as_owner(from)?;
        let (from_directory, from_name) = self.parent_of(from)?;
        let (to_directory, to_name) = self.parent_of(to)?;
        rustix::fs::renameat_with(
            &from_directory,
            from_name,
            &to_directory,
            to_name,
            RenameFlags::NOREPLACE,
        )
        .map_err(|error| fault(if error == Errno::EXIST { to } else { from }, &error.into()))
    }

    fn parent_of<'path>(&self, path: &'path str) -> Result<(OwnedFd, &'path str), FileError> {
        self.check_writable(path)?;
        let (parent, name) = split(path)?;
        let directory = self.resolve(parent, OFlags::RDONLY | OFlags::DIRECTORY, false)?;
        Ok((directory, name))
    }

    fn check_writable(&self, path: &str) -> Result<(), FileError> {
        if self.is_writable {
            return Ok(());
        }
        Err(refused(
            path,
            "is in a directory that is granted read-only",
            io::ErrorKind::ReadOnlyFilesystem,
        ))
    }

    fn resolve(
        &self,
        path: &str,
        flags: OFlags,
        follows_links: bool,
    ) -> Result<OwnedFd, FileError> {
        if path.contains('\0') {
            return Err(refused(path, "holds a NUL", io::ErrorKind::InvalidInput));
        }
        let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if !follows_links {
            resolve |= ResolveFlags::NO_SYMLINKS;
        }
        let beneath = if path.is_empty() { "." } else { path };
        rustix::fs::openat2(&self.fd, beneath, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
            .map_err(|error| fault(path, &error.into()))
    }
}

/// Writes a new file and puts it in the place of `name`.
fn replace(directory: &OwnedFd, name: &str, bytes: &[u8], mode: Option<Mode>) -> io::Result<()> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let unfinished = format!(".{}.unfinished", hex::encode(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file =
        File::from(rustix::fs::openat(directory, &unfinished, flags, Mode::from_raw_mode(0o644))?);
    let mut write = || -> io::Result<()> {
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, mode)?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        rustix::fs::renameat(directory, &unfinished, directory, name).map_err(io::Error::from)
    };
    let written = write();
    if written.is_err()
        && let Err(error) = rustix::fs::unlinkat(directory, &unfinished, AtFlags::empty())
    {
        // The first error is the one to report.
        tracing::warn!(%error, "an unfinished file is left behind");
    }
    written
}

/// Splits a path into its directory and its last name.
fn split(path: &str) -> Result<(&str, &str), FileError> {
    let trimmed = path.trim_end_matches('/');
    let (parent, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    if name.is_empty() || name == "." || name == ".." {
        return Err(refused(path, "names no file", io::ErrorKind::InvalidInput));
    }
    if path.contains('\0') {
        return Err(refused(path, "holds a NUL", io::ErrorKind::InvalidInput));
    }
    Ok((parent, name))
}

fn remove_tree(
    parent: &OwnedFd,
    name: impl Arg + Copy,
    depth: usize,
    entries_left: &mut usize,
) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other("is nested too deeply to be removed"));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let child = entry.file_name();
        if child == c"." || child == c".." {
            continue;
        }
        *entries_left = entries_left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("has too many entries to be removed at once"))?;
        match rustix::fs::unlinkat(&directory, child, AtFlags::empty()) {
            Err(Errno::ISDIR) => remove_tree(&directory, child, depth - 1, entries_left)?,
            removed => removed?,
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(io::Error::from)
}

/// Returns the kind of an entry. Some file systems do not say it in their lists.
fn kind_of_entry(directory: &OwnedFd, name: &CStr, listed: FileType) -> FileKind {
    if listed != FileType::Unknown {
        return kind(listed);
    }
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    // What went away meanwhile is nothing that can be opened.
    stat.map_or(FileKind::Other, |stat| kind(FileType::from_raw_mode(stat.st_mode)))
}

fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

fn refused(path: &str, fault: &str, kind: io::ErrorKind) -> FileError {
    FileError {
        path: gateway_model::bounded_text(path, 500).into_owned(),
        fault: fault.to_owned(),
        kind,
    }
}

/// Names a fault; one that leads outside says so instead of the kernel's word for it.
fn fault(path: &str, error: &io::Error) -> FileError {
    match error.raw_os_error() {
        Some(libc::EXDEV) => {
            refused(path, "leads outside of the granted directory", io::ErrorKind::PermissionDenied)
        }
        Some(libc::ELOOP) => {
            refused(path, "leads through a symbolic link", io::ErrorKind::PermissionDenied)
        }
        Some(libc::ENOENT) => refused(path, "does not exist", io::ErrorKind::NotFound),
        Some(libc::EEXIST) => refused(path, "exists already", io::ErrorKind::AlreadyExists),
        Some(libc::ENOTDIR) => refused(path, "leads through a file", io::ErrorKind::NotADirectory),
        _ => refused(path, &error.to_string(), error.kind()),
    }
}

#[cfg(test)]
mod tests;
