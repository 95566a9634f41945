//! WorkerRegistry: the workers of the operator's file, each with its program found and pinned.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use gateway_model::wire::{WorkerDefinition, WorkersError};
use gateway_model::{Digest, WorkerId};
use gateway_sandbox::{ResolveError, resolve_program};
use serde_json::json;

/// The largest registry.
const MAX_REGISTRY_BYTES: u64 = 1 << 20;

/// The workers that Subprocess tools may name.
#[derive(Debug, Default)]
pub struct WorkerRegistry {
    workers: BTreeMap<WorkerId, Worker>,
}

/// A worker that is ready to be run.
#[derive(Debug)]
pub struct Worker {
    /// What the operator says of it.
    pub definition: WorkerDefinition,
    /// Its program's file.
    pub program: PathBuf,
    /// SHA-256 of that file, checked before every run.
    pub program_digest: [u8; 32],
    /// Hash of the definition and the program, as receipts name it.
    pub digest: Digest,
    /// The variables of the gateway's environment that it gets.
    pub(crate) inherited: BTreeMap<String, String>,
}

/// A registry that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkerRegistryError {
    /// The file cannot be read.
    #[error("worker registry {}: cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The file is larger than any registry.
    #[error("worker registry {}: has more than {MAX_REGISTRY_BYTES} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The content is not a registry.
    #[error("worker registry {}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, at which field.
        source: WorkersError,
    },
    /// A worker's program is not there.
    #[error("worker registry {}: worker {worker}", path.display())]
    Program {
        /// The file.
        path: PathBuf,
        /// The worker.
        worker: WorkerId,
        /// What is wrong with its command.
        source: ResolveError,
    },
}

impl WorkerRegistry {
    /// Loads a registry: finds and pins the program of each worker.
    ///
    /// No program of the gateway's home is one. `variable` returns a variable of the gateway's own environment; a worker's is fixed here.
    ///
    /// # Errors
    /// Names the file, and the first field or program that cannot be used.
    pub fn load(
        path: &Path,
        search_path: &[PathBuf],
        home: &Path,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, WorkerRegistryError> {
        let bytes = read(path)?;
        let definitions = WorkerDefinition::read_registry(&bytes)
            .map_err(|source| WorkerRegistryError::Content { path: path.to_owned(), source })?;
        let mut workers = BTreeMap::new();
        for definition in definitions {
            let id = definition.id.clone();
            let program =
                resolve_program(&definition.command, search_path, home).map_err(|source| {
                    WorkerRegistryError::Program {
                        path: path.to_owned(),
                        worker: id.clone(),
                        source,
                    }
                })?;
            let digest = Digest::of_json(&json!({
                "worker": definition.normalised,
                "program": Digest(program.digest).to_string(),
            }));
            let inherited = definition
                .inherited
                .iter()
                .filter_map(|name| Some((name.clone(), variable(name)?)))
                .collect();
            let worker = Worker {
                definition,
                program: program.path,
                program_digest: program.digest,
                digest,
                inherited,
            };
            workers.insert(id, worker);
        }
        Ok(Self { workers })
    }

    /// Returns the worker of this name.
    pub fn get(&self, id: &WorkerId) -> Option<&Worker> {
        self.workers.get(id)
    }

    /// Returns every worker, by name.
    pub fn all(&self) -> impl Iterator<Item = &Worker> {
        self.workers.values()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, WorkerRegistryError> {
    let unreadable = |source| WorkerRegistryError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_REGISTRY_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_REGISTRY_BYTES {
        return Err(WorkerRegistryError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}
