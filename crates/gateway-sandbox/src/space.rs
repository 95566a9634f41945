//! How much of a file system tools leave free, so that the journal and everybody else can go on.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::StatVfs;

/// What is left free. It is far more than the journal's own reserve.
const FREE_BYTES: u64 = 256 << 20;
/// The part of a small file system that is left free instead.
const PART_OF_SMALL: u64 = 20;

/// Says whether the file system of a path has less free than tools leave, which `floor` may name.
pub(crate) fn is_short(path: &Path, floor: Option<u64>) -> bool {
    // What cannot be looked at cannot be written to either.
    rustix::fs::statvfs(path).is_ok_and(|stat| free(&stat) < floor.unwrap_or(default_floor(&stat)))
}

/// Refuses to write so many bytes where they would leave less free than tools leave.
pub(crate) fn check_room(directory: impl AsFd, bytes: usize) -> io::Result<()> {
    let stat = rustix::fs::fstatvfs(directory)?;
    let floor = default_floor(&stat);
    let needed = floor.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    if free(&stat) >= needed {
        return Ok(());
    }
    let message = format!(
        "is on a disk with {} MiB left, and writing to it would leave less than {} MiB; free some",
        free(&stat) >> 20,
        floor >> 20
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, message))
}

fn free(stat: &StatVfs) -> u64 {
    stat.f_bavail.saturating_mul(stat.f_frsize)
}

fn default_floor(stat: &StatVfs) -> u64 {
    FREE_BYTES.min(stat.f_blocks.saturating_mul(stat.f_frsize) / PART_OF_SMALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_would_fill_the_disk_is_refused() {
        let directory = std::fs::File::open("/tmp").unwrap();
        check_room(&directory, 0).unwrap();
        let error = check_room(&directory, usize::MAX / 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().ends_with("free some"), "{error}");
    }

    #[test]
    fn a_disk_is_short_below_the_floor() {
        let path = Path::new("/tmp");
        assert!(!is_short(path, None) && !is_short(path, Some(1)));
        assert!(is_short(path, Some(u64::MAX)));
        assert!(!is_short(Path::new("/nowhere"), Some(u64::MAX)));
    }
}
