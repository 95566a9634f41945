//! BUILTIN_TOOL_DEFINITIONS: every built-in tool, with its facts and its constructor.
//!
//! A description is written for a model: it says what the tool does, what it answers and where
//! its bounds are, in as few words as that takes.

use gateway_model::{Idempotency, SafetyTier};

use super::files::{edit, in_process, operations, read, write};
use super::search::{find, grep};
use super::{BuiltinTool, Claim, Facts, Reach, shell};

/// What is true of tools that only read.
const READS: Facts = Facts {
    tier: SafetyTier::T0,
    side_effects: &[],
    idempotency: Idempotency::Idempotent,
    reach: Reach::Read,
    time_limit_seconds: 60,
    memory: None,
    claim: Claim::Shared,
};

/// What is true of tools that change files.
const WRITES: Facts = Facts {
    tier: SafetyTier::T2,
    side_effects: &["filesystem"],
    idempotency: Idempotency::NotIdempotent,
    reach: Reach::ReadWrite,
    time_limit_seconds: 60,
    memory: None,
    claim: Claim::Paths(&["/path"]),
};

/// Every built-in tool, sorted by family.
pub const BUILTIN_TOOL_DEFINITIONS: &[BuiltinTool] = &[
    BuiltinTool {
        id: "file_read",
        name: "Read a file",
        description: "Reads a text file and answers its lines, each with its number and a tab before it; \
            PNG, JPEG, GIF and WebP images of up to 4 MiB are answered as images. At most 10,000 lines (2,000 where \
            limit is absent) and 128 KiB a call, 4,000 bytes of a line; next_offset says where to go on. Other binary \
            files are refused. Relative paths start in the first workspace, or in the run's directory where none is \
            granted; absolute ones are /workspace/NAME/… and /.allternit/artifacts/RUN_ID/….",
        input_schema: read::input_schema,
        output_schema: read::output_schema,
        facts: READS,
        build: || in_process(read::run),
    },
    BuiltinTool {
        id: "file_write",
        name: "Write a file",
        description: "Writes a whole text file, replacing the one that is there; missing directories are made. Readers \
            see the old content or all of the new, and permission bits stay. Answers the size and the SHA-256. Change a \
            part of a file with file_edit instead. Links are refused. Paths as for file_read.",
        input_schema: write::input_schema,
        output_schema: write::output_schema,
        facts: Facts { idempotency: Idempotency::Idempotent, ..WRITES },
        build: || in_process(write::run),
    },
    BuiltinTool {
        id: "file_edit",
        name: "Edit a file",
        description: "Replaces exact texts in one file of up to 16 MiB: each old_text must occur exactly once, or \
            replace_all is set. Up to 100 edits a call, applied in order and at once: all of them or none. Copy old_text \
            from file_read without the line numbers. CRLF line ends are kept. Paths as for file_read.",
        input_schema: edit::input_schema,
        output_schema: edit::output_schema,
        facts: WRITES,
        build: || in_process(edit::run),
    },
    BuiltinTool {
        id: "file_ops",
        name: "List, move, copy and delete files",
        description: "op list: a directory's entries, at most 1,000. op stat: kind, size, mode and time of one path. op \
            mkdir: a directory with those above it. op move and op copy: path becomes to, where nothing may be; a move \
            stays within one workspace or the run's directory; a copy takes at most 10,000 files of up to 64 MiB, \
            1 GiB in all, and leaves out links. op delete: only in the run's directory; a directory \
            with content needs recursive. Search with find and grep instead. Paths as for file_read.",
        input_schema: operations::input_schema,
        output_schema: operations::output_schema,
        facts: Facts { claim: Claim::Paths(&["/path", "/to"]), ..WRITES },
        build: || in_process(operations::run),
    },
    BuiltinTool {
        id: "grep",
        name: "Search in files",
        description: "Finds the lines that match a regular expression, in a directory or one file, sorted by path. Skips \
            .git, binary files and what .gitignore and .ignore exclude; never follows links. At most 2,000 matching lines \
            (200 where limit is absent) and 256 KiB a call, 500 bytes of a line; is_truncated says that there is more. \
            Paths as for file_read.",
        input_schema: grep::input_schema,
        output_schema: grep::output_schema,
        facts: READS,
        build: || in_process(grep::run),
    },
    BuiltinTool {
        id: "find",
        name: "Find files",
        description: "Finds files (or directories, or links) beneath a directory by glob and size, sorted by path. Skips \
            .git and what .gitignore and .ignore exclude; never follows links; goes 64 directories deep. At most 5,000 \
            results (200 where limit is absent); is_truncated says that there is more. Paths as for file_read.",
        input_schema: find::input_schema,
        output_schema: find::output_schema,
        facts: READS,
        build: || in_process(find::run),
    },
    BuiltinTool {
        id: "bash",
        name: "Run a command",
        description: "Runs a command line with bash in a sandbox and answers stdout, stderr and exit_code; another exit \
            code than 0 is an answer, not an error. It sees the system's programs, the run's directory, the granted \
            workspaces and an empty /tmp of its own; there is no network and no state from call to call. Stopped after \
            timeout_s (120 where absent, at most 600), with all it started. Keeps 1 MiB of stdout and 256 KiB of stderr. \
            Prefer file_read, grep and find for reading.",
        input_schema: shell::input_schema,
        output_schema: shell::output_schema,
        facts: Facts {
            side_effects: &["process", "filesystem"],
            time_limit_seconds: shell::MAX_SECONDS,
            memory: Some("4Gi"),
            claim: Claim::Global,
            ..WRITES
        },
        build: shell::build,
    },
];
