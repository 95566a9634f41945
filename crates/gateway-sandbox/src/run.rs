//! One run of the helper: its streams, its clocks, and what it reports.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::HELPER_ARGUMENT;
use crate::confinement::Limits;
use crate::helper::STOP_POLITELY;
use crate::sandbox::{Captured, StoppedBy};
use crate::spec::{Report, Spec};
use crate::sys::spawn::spawn;

/// A stream is read on past what is kept, so that the program does not stall; up to here.
const FLOOD_FACTOR: u64 = 8;
/// Reports of one run, in bytes.
const MAX_REPORT_BYTES: u64 = 64 * 1024;

/// What was heard of a run.
pub(crate) struct Heard {
    pub(crate) reports: Vec<Report>,
    pub(crate) stopped_by: Option<StoppedBy>,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    pub(crate) wall: Duration,
}

/// The gateway's ends of the pipes.
struct Ends {
    process: AsyncFd<OwnedFd>,
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    status: pipe::Receiver,
    lifeline: File,
}

/// Starts the helper and hears it to its end.
pub(crate) async fn run(
    helper: &Path,
    spec: &Spec,
    stdin: &[u8],
    limits: &Limits,
    cancel: &CancellationToken,
) -> io::Result<Heard> {
    let started = Instant::now();
    let ends = start(helper, spec, !stdin.is_empty())?;
    let Ends { process, stdin: stdin_pipe, stdout, stderr, status, lifeline } = ends;
    let flood = CancellationToken::new();
    let streams = async {
        tokio::join!(
            feed(stdin_pipe, stdin),
            capture(stdout, limits.stdout_bytes, &flood),
            capture(stderr, limits.stderr_bytes, &flood),
            capture(status, MAX_REPORT_BYTES, &flood),
        )
    };
    let stopping = stop_in_time(&process, lifeline, limits, cancel, &flood);
    let (((), stdout, stderr, status), stopped_by) = tokio::join!(streams, stopping);
    let stopped_by = stopped_by?;
    reap(&process)?;
    let reports = status.bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    Ok(Heard { reports: reports.collect(), stopped_by, stdout, stderr, wall: started.elapsed() })
}

fn start(helper: &Path, spec: &Spec, has_stdin: bool) -> io::Result<Ends> {
    let order = rustix::fs::memfd_create("allternit-spec", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut order = File::from(order);
    order.write_all(&serde_json::to_vec(spec)?)?;
    io::Seek::rewind(&mut order)?;
    let ends = || pipe_with(PipeFlags::CLOEXEC);
    let (stdin_read, stdin_write) = if has_stdin {
        let (read, write) = ends()?;
        (read, Some(write))
    } else {
        (File::open("/dev/null")?.into(), None)
    };
    let ((stdout_read, stdout_write), (stderr_read, stderr_write)) = (ends()?, ends()?);
    let ((status_read, status_write), (lifeline_read, lifeline_write)) = (ends()?, ends()?);
    let fds = vec![stdin_read, stdout_write, stderr_write, order.into(), status_write, lifeline_read];
    let process = spawn(helper.as_os_str(), &[HELPER_ARGUMENT.as_ref()], fds)?;
    Ok(Ends {
        process: crate::sys::spawn::watch(process)?,
        stdin: stdin_write.map(pipe::Sender::from_owned_fd).transpose()?,
        stdout: pipe::Receiver::from_owned_fd(stdout_read)?,
        stderr: pipe::Receiver::from_owned_fd(stderr_read)?,
        status: pipe::Receiver::from_owned_fd(status_read)?,
        lifeline: lifeline_write.into(),
    })
}

/// Writes the program's input; a program that does not read it to the end is no fault.
async fn feed(pipe: Option<pipe::Sender>, bytes: &[u8]) {
    if let Some(mut pipe) = pipe
        && let Err(error) = pipe.write_all(bytes).await
    {
        tracing::debug!(%error, "the program did not read its whole input");
    }
}

/// Keeps the first `limit` bytes of a stream and counts the others, until its end or a flood.
async fn capture(mut pipe: pipe::Receiver, limit: u64, flood: &CancellationToken) -> Captured {
    let mut captured = Captured::default();
    let mut buffer = vec![0; 16 * 1024];
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    while let Ok(read) = pipe.read(&mut buffer).await
        && read > 0
    {
        captured.total_bytes += read as u64;
        let kept = read.min(limit - captured.bytes.len());
        captured.bytes.extend_from_slice(buffer.get(..kept).unwrap_or_default());
        if captured.total_bytes > FLOOD_FACTOR * limit as u64 {
            flood.cancel();
        }
    }
    captured
}

/// Waits for the helper to end, and makes it end where a clock or the caller says so.
async fn stop_in_time(
    process: &AsyncFd<OwnedFd>,
    lifeline: File,
    limits: &Limits,
    cancel: &CancellationToken,
    flood: &CancellationToken,
) -> io::Result<Option<StoppedBy>> {
    let stopped_by = tokio::select! {
        ended = process.readable() => return ended.map(|_ready| None),
        () = tokio::time::sleep(limits.wall) => StoppedBy::WallClock,
        () = cancel.cancelled() => StoppedBy::Cancelled,
        () = flood.cancelled() => StoppedBy::OutputLimit,
    };
    // Nobody is asked politely while it floods.
    if stopped_by != StoppedBy::OutputLimit && (&lifeline).write(&[STOP_POLITELY]).is_ok() {
        tokio::select! {
            ended = process.readable() => return ended.map(|_ready| Some(stopped_by)),
            () = tokio::time::sleep(limits.grace) => {}
            () = flood.cancelled() => {}
        }
    }
    drop(lifeline);
    // The init ends with its lifeline, and the kernel kills the rest; this is for an init that hangs.
    if tokio::time::timeout(limits.grace, process.readable()).await.is_err() {
        rustix::process::pidfd_send_signal(process.get_ref(), rustix::process::Signal::KILL)?;
        drop(process.readable().await?);
    }
    Ok(Some(stopped_by))
}

fn reap(process: &AsyncFd<OwnedFd>) -> io::Result<()> {
    use std::os::fd::AsFd as _;
    let id = rustix::process::WaitId::PidFd(process.get_ref().as_fd());
    rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED)?;
    Ok(())
}
