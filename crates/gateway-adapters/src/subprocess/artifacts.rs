//! The artifact manifest: the files that a worker left new or changed in its run's directory.
//!
//! INVARIANT: walks and hashes are bounded in files, bytes and time; a manifest that is not the
//! whole truth says so.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gateway_engine::Job;
use gateway_model::{Digest, canonical_json};
use gateway_sandbox::{FileKind, ScopedDir};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::Worker;

/// Entries that one walk visits.
const MAX_ENTRIES: usize = 20_000;
/// How deep a walk goes.
const MAX_DEPTH: usize = 32;
/// Files that a manifest names.
const MAX_FILES: usize = 1_000;
/// Bytes of paths that a manifest holds.
const MAX_PATH_BYTES: usize = 128 << 10;
/// Bytes that are hashed for one manifest.
const MAX_HASHED_BYTES: u64 = 512 << 20;
/// How long making a manifest may take.
const MAX_TIME: Duration = Duration::from_secs(2);

/// What tells a file from the same file changed; no program can set the time of a change back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

/// The files of a run's directory at one moment, by their path beneath it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    files: BTreeMap<String, Stamp>,
    is_whole: bool,
}

/// Looks at the run's directory before a worker starts.
pub(super) async fn look(job: &Job) -> Seen {
    let Some(host) = writable_run(job) else { return Seen::nothing() };
    let looked = tokio::task::spawn_blocking(move || match ScopedDir::open(&host, false) {
        Ok(directory) => Seen::of(&directory, Instant::now() + MAX_TIME),
        Err(_gone) => Seen::default(),
    });
    looked.await.unwrap_or_default()
}

/// Returns the manifest, as canonical JSON, of what a worker left behind.
pub(super) async fn manifest(job: &Job, worker: &Worker, before: Seen) -> Vec<u8> {
    let run = format!("/.allternit/artifacts/{}", job.context().run);
    let (files, is_complete) = match writable_run(job) {
        None => (Vec::new(), true),
        Some(host) => {
            let listed = tokio::task::spawn_blocking(move || {
                let directory = ScopedDir::open(&host, false).ok()?;
                Some(changes(&directory, &run, &before))
            });
            listed.await.ok().flatten().unwrap_or((Vec::new(), false))
        }
    };
    canonical_json(&json!({
        "worker": { "id": worker.definition.id.as_str(), "digest": worker.digest.to_string() },
        "files": files,
        "is_complete": is_complete,
    }))
}

fn writable_run(job: &Job) -> Option<PathBuf> {
    let run = job.confinement().run.as_ref()?;
    run.writable.then(|| run.host.clone())
}

/// Lists and hashes what is new or changed; says whether that is all of it.
fn changes(directory: &ScopedDir, run: &str, before: &Seen) -> (Vec<Value>, bool) {
    let until = Instant::now() + MAX_TIME;
    let after = Seen::of(directory, until);
    let mut is_complete = before.is_whole && after.is_whole;
    let (mut files, mut path_bytes, mut left) = (Vec::new(), 0, MAX_HASHED_BYTES);
    let changed =
        after.files.iter().filter(|(path, stamp)| before.files.get(*path) != Some(*stamp));
    for (path, stamp) in changed {
        path_bytes += path.len();
        if files.len() == MAX_FILES || path_bytes > MAX_PATH_BYTES {
            return (files, false);
        }
        let digest = directory
            .open_read(path)
            .ok()
            .filter(|_file| stamp.bytes <= left)
            .and_then(|file| hash(file, stamp.bytes, until));
        left = left.saturating_sub(stamp.bytes);
        is_complete &= digest.is_some();
        files.push(json!({
            "path": format!("{run}/{path}"),
            "size_bytes": stamp.bytes,
            "digest": digest.map(|digest| digest.to_string()),
        }));
    }
    (files, is_complete)
}

/// Returns the hash of a file that still has this size.
fn hash(mut file: File, bytes: u64, until: Instant) -> Option<Digest> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let mut hashed = 0;
    while Instant::now() < until {
        let read = file.read(&mut buffer).ok()?;
        hashed += read as u64;
        if read == 0 || hashed > bytes {
            return (hashed == bytes).then(|| Digest(hasher.finalize().into()));
        }
        hasher.update(buffer.get(..read)?);
    }
    None
}

impl Seen {
    fn nothing() -> Self {
        Self { files: BTreeMap::new(), is_whole: true }
    }

    fn of(directory: &ScopedDir, until: Instant) -> Self {
        let mut seen = Self::nothing();
        seen.walk(directory, "", MAX_DEPTH, until);
        seen
    }

    /// Adds the files beneath a path; links are not followed and not listed.
    fn walk(&mut self, directory: &ScopedDir, path: &str, depth: usize, until: Instant) {
        let listed = if path.is_empty() { "." } else { path };
        let Ok(entries) = directory.read_dir(listed) else {
            self.is_whole = false;
            return;
        };
        for (name, kind) in entries {
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            match kind {
                FileKind::File => self.add(directory, below),
                FileKind::Directory if depth == 0 => self.is_whole = false,
                FileKind::Directory => self.walk(directory, &below, depth - 1, until),
                FileKind::Link | FileKind::Other => {}
            }
            if self.files.len() >= MAX_ENTRIES || Instant::now() >= until {
                self.is_whole = false;
                return;
            }
        }
    }

    fn add(&mut self, directory: &ScopedDir, path: String) {
        let found = directory.open_read(&path).ok().and_then(|file| file.metadata().ok());
        match found {
            None => self.is_whole = false,
            Some(found) => {
                let stamp = Stamp {
                    inode: found.ino(),
                    bytes: found.len(),
                    changed: (found.ctime(), found.ctime_nsec()),
                };
                self.files.insert(path, stamp);
            }
        }
    }
}
