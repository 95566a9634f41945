//! One run of the helper: its streams, its clocks, and what it reports.

use std::fs::File;
use std::future::Future;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::HELPER_ARGUMENT;
use crate::confinement::Limits;
use crate::egress::Proxy;
use crate::helper::STOP_POLITELY;
use crate::launch::LaunchError;
use crate::outcome::{Captured, StoppedBy};
use crate::spec::Report;
use crate::sys::spawn::{self, Spawned};
use crate::way_out;

/// A stream is read on past what is kept, so that the program does not stall; up to here.
const FLOOD_FACTOR: u64 = 8;
/// Reports of one run, in bytes.
const MAX_REPORT_BYTES: u64 = 64 * 1024;
/// How long a killed run may take to end, and its streams to break after it.
const END: Duration = Duration::from_secs(5);

/// What was heard of a run.
pub(crate) struct Heard {
    pub(crate) reports: Vec<Report>,
    pub(crate) stopped_by: Option<StoppedBy>,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    pub(crate) wall: Duration,
}

/// What the helper is started with.
pub(crate) struct Start<'a> {
    pub(crate) helper: &'a Path,
    pub(crate) order: &'a [u8],
    pub(crate) stdin: &'a [u8],
    pub(crate) limits: &'a Limits,
    /// What the call reaches the network by, if at all.
    pub(crate) proxy: Option<&'a Arc<Proxy>>,
}

/// Starts the helper and hears it to its end.
///
/// A dropped future leaves nothing running: the lifeline breaks with it.
pub(crate) async fn run(
    start: Start<'_>,
    children: &Arc<Children>,
    cancel: &CancellationToken,
) -> Result<Heard, LaunchError> {
    children.reap();
    let spawned = spawn_helper(&start);
    let spawned = spawned.map_err(LaunchError::Helper)?;
    attend(spawned, &start, children, cancel).await.map_err(LaunchError::Lost)
}

/// Feeds and hears a helper that was started.
async fn attend(
    (process, ends): (Spawned, Ends),
    start: &Start<'_>,
    children: &Arc<Children>,
    cancel: &CancellationToken,
) -> io::Result<Heard> {
    let Start { stdin, limits, .. } = *start;
    let started = Instant::now();
    let process = Child { process: process.watch()?, children: Arc::clone(children) };
    let Ends { stdin: stdin_pipe, stdout, stderr, status, lifeline, channel } = ends;
    let mut stdout = Stream::new(stdout, limits.stdout_bytes);
    let mut stderr = Stream::new(stderr, limits.stderr_bytes);
    let mut status = Stream::new(status, MAX_REPORT_BYTES);
    let flood = CancellationToken::new();
    let streams = async {
        tokio::join!(
            feed(stdin_pipe, stdin),
            stdout.read(&flood),
            stderr.read(&flood),
            status.read(&flood)
        )
    };
    let stopping = stop_in_time(&process.process, lifeline, limits, (cancel, &flood));
    // Dropped with this future, and with it every connection of the call.
    let mut connections = JoinSet::new();
    let stopped_by = tokio::select! {
        stopped_by = hear(streams, stopping) => stopped_by?,
        never = way_out::serve(start.proxy.zip(channel), &mut connections) => match never {},
    };
    connections.shutdown().await;
    let reports = status.captured.bytes.split(|byte| *byte == b'\n');
    Ok(Heard {
        reports: reports.filter_map(|line| serde_json::from_slice(line).ok()).collect(),
        stopped_by,
        stdout: stdout.captured,
        stderr: stderr.captured,
        wall: started.elapsed(),
    })
}

/// Reads the streams until they break, or for a while longer than the process lived.
async fn hear<T>(
    streams: impl Future,
    stopping: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::pin!(streams, stopping);
    let mut are_read = false;
    let stopped_by = loop {
        tokio::select! {
            _ended = &mut streams, if !are_read => are_read = true,
            stopped_by = &mut stopping => break stopped_by?,
        }
    };
    // With the last process its streams break; a stream that was smuggled out is left behind.
    if !are_read && tokio::time::timeout(END, streams).await.is_err() {
        tracing::warn!(
            "a stream of an ended program is still held open; what it says is not waited for"
        );
    }
    Ok(stopped_by)
}

/// The gateway's ends of the pipes.
struct Ends {
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    status: pipe::Receiver,
    lifeline: File,
    channel: Option<UnixStream>,
}

fn spawn_helper(start: &Start<'_>) -> io::Result<(Spawned, Ends)> {
    let Start { helper, order, stdin, proxy, .. } = *start;
    let mut file = File::from(rustix::fs::memfd_create("allternit-order", MemfdFlags::CLOEXEC)?);
    file.write_all(order)?;
    file.rewind()?;
    let ends = || pipe_with(PipeFlags::CLOEXEC);
    let (stdin_read, stdin_write) = if stdin.is_empty() {
        (File::open("/dev/null")?.into(), None)
    } else {
        let (read, write) = ends()?;
        (read, Some(write))
    };
    let (channel, channel_of_helper) = proxy.map(|_proxy| UnixStream::pair()).transpose()?.unzip();
    let ((stdout_read, stdout_write), (stderr_read, stderr_write)) = (ends()?, ends()?);
    let ((status_read, status_write), (lifeline_read, lifeline_write)) = (ends()?, ends()?);
    let ends = Ends {
        stdin: stdin_write.map(pipe::Sender::from_owned_fd).transpose()?,
        stdout: pipe::Receiver::from_owned_fd(stdout_read)?,
        stderr: pipe::Receiver::from_owned_fd(stderr_read)?,
        status: pipe::Receiver::from_owned_fd(status_read)?,
        lifeline: lifeline_write.into(),
        channel,
    };
    let mut fds =
        vec![stdin_read, stdout_write, stderr_write, file.into(), status_write, lifeline_read];
    fds.extend(channel_of_helper.map(OwnedFd::from));
    let process = spawn::spawn(helper.as_os_str(), &[HELPER_ARGUMENT.as_ref()], fds)?;
    Ok((process, ends))
}

/// Writes the program's input; a program that does not read it to the end is no fault.
async fn feed(pipe: Option<pipe::Sender>, bytes: &[u8]) {
    if let Some(mut pipe) = pipe
        && let Err(error) = pipe.write_all(bytes).await
    {
        tracing::debug!(%error, "the program did not read its whole input");
    }
}

/// A stream of which the first bytes are kept and the others counted.
struct Stream {
    pipe: pipe::Receiver,
    limit: u64,
    captured: Captured,
}

impl Stream {
    fn new(pipe: pipe::Receiver, limit: u64) -> Self {
        Self { pipe, limit, captured: Captured::default() }
    }

    /// Reads until the stream breaks; reports a flood and reads on.
    async fn read(&mut self, flood: &CancellationToken) {
        let mut buffer = vec![0; 16 * 1024];
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        while let Ok(read) = self.pipe.read(&mut buffer).await
            && read > 0
        {
            self.captured.total_bytes += read as u64;
            let kept = read.min(limit.saturating_sub(self.captured.bytes.len()));
            self.captured.bytes.extend_from_slice(buffer.get(..kept).unwrap_or_default());
            if self.captured.total_bytes > self.limit.saturating_mul(FLOOD_FACTOR) {
                flood.cancel();
            }
        }
    }
}

/// Waits for the helper to end, and makes it end where a clock or the caller says so.
async fn stop_in_time(
    process: &AsyncFd<OwnedFd>,
    lifeline: File,
    limits: &Limits,
    (cancel, flood): (&CancellationToken, &CancellationToken),
) -> io::Result<Option<StoppedBy>> {
    let stopped_by = tokio::select! {
        biased;
        ended = process.readable() => return ended.map(|_ready| None),
        () = flood.cancelled() => StoppedBy::OutputLimit,
        () = cancel.cancelled() => StoppedBy::Cancelled,
        () = tokio::time::sleep(limits.wall) => StoppedBy::WallClock,
    };
    // Nobody is asked politely who floods.
    if stopped_by != StoppedBy::OutputLimit && (&lifeline).write(&[STOP_POLITELY]).is_ok() {
        tokio::select! {
            ended = process.readable() => return ended.map(|_ready| Some(stopped_by)),
            () = tokio::time::sleep(limits.grace) => {}
            () = flood.cancelled() => {}
        }
    }
    // The init ends with its lifeline, and the kernel kills the rest.
    drop(lifeline);
    if tokio::time::timeout(END, process.readable()).await.is_err() {
        // This is for an init that hangs; it dies with the helper.
        pidfd_send_signal(process.get_ref(), Signal::KILL)?;
        drop(tokio::time::timeout(END, process.readable()).await??);
    }
    Ok(Some(stopped_by))
}

/// The helper's process; it is reaped once, at the end of its run or later.
struct Child {
    process: AsyncFd<OwnedFd>,
    children: Arc<Children>,
}

impl Drop for Child {
    fn drop(&mut self) {
        // A process whose run was given up has lost its lifeline and ends by itself.
        if !is_reaped(self.process.get_ref())
            && let Ok(process) = self.process.get_ref().try_clone()
        {
            self.children.lock().push(process);
        }
    }
}

/// Processes whose runs were given up before they ended.
#[derive(Debug, Default)]
pub(crate) struct Children(Mutex<Vec<OwnedFd>>);

impl Children {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reaps those that have ended.
    fn reap(&self) {
        self.lock().retain(|process| !is_reaped(process));
    }
}

fn is_reaped(process: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match waitid(WaitId::PidFd(process.as_fd()), options) {
        Ok(ended) => ended.is_some(),
        Err(error) => error == rustix::io::Errno::CHILD,
    }
}
