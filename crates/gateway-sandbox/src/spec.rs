//! What the gateway tells the helper, and what the helper tells back.
//!
//! An order is one JSON document, then the arguments and the environment, each text preceded by
//! a NUL: arguments may be large and need not be UTF-8, and no argument can hold a NUL.

use std::ffi::CString;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What tells a file from one that took its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

/// The whole order to the helper, but for the program's texts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// False only where an operator switched the sandbox off.
    pub(crate) is_confined: bool,
    /// The call has a way out: a listener on its own loopback, which the gateway serves.
    pub(crate) has_proxy: bool,
    /// What of the host is seen besides the system's own directories, in order.
    pub(crate) bindings: Vec<Binding>,
    /// Directories, as the call sees them, that are covered by an empty one.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) limits: ProcessLimits,
    pub(crate) task: Task,
}

/// A file or directory of the host, and the path it is seen under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Binding {
    /// Absolute, without a symbolic link in it.
    pub(crate) host: PathBuf,
    pub(crate) seen_as: PathBuf,
    pub(crate) is_writable: bool,
    /// Where the gateway is root: its owner is shown as the sandbox's user.
    pub(crate) is_owned: bool,
}

/// The limits that the helper sets; the gateway holds the others.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ProcessLimits {
    pub(crate) cpu_seconds: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) processes: u64,
    pub(crate) open_files: u64,
    pub(crate) file_bytes: u64,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) tmp_bytes: u64,
}

/// What runs once everything is locked down.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// A program.
    Execute {
        program: PathBuf,
        identity: Option<FileIdentity>,
        cwd: PathBuf,
        /// How many of the texts are arguments; the others are the environment.
        argument_count: usize,
    },
    /// The helper's own attacks, which must all fail.
    Canary {
        /// The gateway's process.
        gateway: i32,
        /// A path of the host that must not be visible.
        secret: PathBuf,
        /// A directory that must be writable, as the call sees it.
        writable: Option<PathBuf>,
    },
}

/// Returns an order as bytes.
///
/// # Errors
/// Refuses a path that is not UTF-8 and a text that holds a NUL.
pub(crate) fn encode<'text>(
    spec: &Spec,
    texts: impl IntoIterator<Item = &'text [u8]>,
) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(spec)?;
    for text in texts {
        if text.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "an argument or a variable of the environment holds a NUL",
            ));
        }
        bytes.push(0);
        bytes.extend_from_slice(text);
    }
    Ok(bytes)
}

/// Reads an order.
///
/// # Errors
/// Returns what is wrong with the JSON document.
pub(crate) fn decode(bytes: &[u8]) -> io::Result<(Spec, Vec<CString>)> {
    let mut parts = bytes.split(|byte| *byte == 0);
    let spec = serde_json::from_slice(parts.next().unwrap_or_default())?;
    let texts = parts.map(CString::new).collect::<Result<_, _>>()?;
    Ok((spec, texts))
}

/// What the helper writes on its status pipe, one JSON document a line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A step failed; nothing was executed.
    Failed {
        stage: String,
        errno: i32,
        advice: Option<String>,
    },
    /// The program is not the one that was pinned.
    Changed,
    /// Everything is locked down.
    Confined {
        landlock_abi: i32,
        is_root: bool,
    },
    /// The checks that did not turn out as they must.
    Canary {
        faults: Vec<String>,
    },
    /// The call's processes used more memory, or more processor time, than they may.
    MemoryLimit,
    CpuLimit,
    /// A file system that the call may write to has too little left.
    DiskFull,
    /// The program ended.
    Ended {
        exit: Option<i32>,
        signal: Option<i32>,
        used: Used,
    },
    /// What everything used, the helper's own work with it.
    Total(Used),
}

/// Processor time and the peak memory of the largest process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) cpu_micros: u64,
    pub(crate) max_rss_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> Spec {
        let limits = ProcessLimits {
            cpu_seconds: None,
            memory_bytes: Some(1),
            processes: 2,
            open_files: 3,
            file_bytes: 4,
            free_bytes: None,
            tmp_bytes: 5,
        };
        let task = Task::Execute {
            program: "/p q".into(),
            identity: None,
            cwd: "/".into(),
            argument_count: 2,
        };
        Spec {
            is_confined: true,
            has_proxy: false,
            bindings: Vec::new(),
            hidden: Vec::new(),
            limits,
            task,
        }
    }

    #[test]
    fn texts_arrive_byte_by_byte() {
        let texts: [&[u8]; 4] = [b"", b"\xff\"\n", b"K=", b"L=a=b"];
        let (_, read) = decode(&encode(&spec(), texts).unwrap()).unwrap();
        assert_eq!(read.iter().map(|text| text.as_bytes()).collect::<Vec<_>>(), texts);
    }

    #[test]
    fn a_text_with_a_nul_is_refused() {
        let error = encode(&spec(), [b"a\0b".as_slice()]).unwrap_err();
        assert!(error.to_string().contains("holds a NUL"), "{error}");
    }
}
