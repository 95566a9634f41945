//! What all processes of the call use together, added up from `/proc` (proc(5)).

use std::fs;
use std::path::Path;

use super::children_used;
use crate::spec::{ProcessLimits, Report};

/// The kernel's clock in `/proc`, in ticks a second (`USER_HZ`).
const TICKS: u64 = 100;
const PAGE_BYTES: u64 = 4_096;
/// File systems in memory that the call can write.
const IN_MEMORY: [&str; 2] = ["/tmp", "/dev/shm"];

/// Returns the limit that is exceeded.
pub(super) fn exceeded(limits: &ProcessLimits) -> Option<Report> {
    let others = others();
    let processes = others.iter().map(|id| Path::new("/proc").join(id));
    if let Some(seconds) = limits.cpu_seconds {
        let living: u64 = processes.clone().filter_map(|path| cpu_ticks(&path)).sum();
        // The program itself gets its signal at the limit; this is for many small processes.
        if living * 1_000_000 / TICKS + children_used().cpu_micros > (seconds + 1) * 1_000_000 {
            return Some(Report::CpuLimit);
        }
    }
    let limit = limits.memory_bytes?;
    let stored: u64 = IN_MEMORY.iter().filter_map(|path| stored_bytes(path)).sum();
    let resident: u64 = processes.clone().filter_map(|path| resident_bytes(&path)).sum();
    // Shares are dear to add up, so they are only asked for where they can matter.
    if resident + stored <= limit {
        return None;
    }
    let shares = processes.map(|path| Share::of(&path)).fold(Share::default(), Share::plus);
    (shares.private + shares.shared_memory.max(stored) > limit).then_some(Report::MemoryLimit)
}

/// Every process of this namespace but this one.
fn others() -> Vec<String> {
    let names = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && name != "1").collect()
}

/// Processor time of a process and of the children it has waited for.
fn cpu_ticks(process: &Path) -> Option<u64> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    Some(
        fields
            .split_whitespace()
            .skip(11)
            .take(4)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum(),
    )
}

fn resident_bytes(process: &Path) -> Option<u64> {
    let statm = fs::read_to_string(process.join("statm")).ok()?;
    Some(statm.split_whitespace().nth(1)?.parse::<u64>().ok()? * PAGE_BYTES)
}

fn stored_bytes(path: &str) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize)
}

/// A process's proportional share of memory.
#[derive(Default)]
struct Share {
    private: u64,
    shared_memory: u64,
}

impl Share {
    fn of(process: &Path) -> Self {
        let Ok(rollup) = fs::read_to_string(process.join("smaps_rollup")) else {
            // A process that cannot be looked into counts with all it has resident.
            return Self { private: resident_bytes(process).unwrap_or(0), shared_memory: 0 };
        };
        let bytes = |field: &str| -> u64 {
            let line = rollup.lines().find_map(|line| line.strip_prefix(field));
            let kilobytes =
                line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
            kilobytes.unwrap_or(0) * 1_024
        };
        let shared_memory = bytes("Pss_Shmem:");
        Self { private: bytes("Pss:").saturating_sub(shared_memory), shared_memory }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            private: self.private + other.private,
            shared_memory: self.shared_memory + other.shared_memory,
        }
    }
}
