//! A closed-loop load of HTTP/1.1 requests over kept-alive loopback connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// What one round of load measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) calls_per_second: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// Processor time of the server for each call.
    pub(crate) cpu_per_call: Duration,
}

/// Sends one request after another on each of `connections`, for `duration`.
pub(crate) async fn run(
    address: SocketAddr,
    server: u32,
    request: fn(u64) -> String,
    connections: u64,
    duration: Duration,
) -> anyhow::Result<Round> {
    let cpu_before = cpu_time(server)?;
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for connection in 0..connections {
        clients.spawn(client(address, request, connection << 32, started + duration));
    }
    let mut latencies = Vec::new();
    while let Some(client) = clients.join_next().await {
        latencies.extend(client??);
    }
    let elapsed = started.elapsed();
    let cpu = cpu_time(server)?.saturating_sub(cpu_before);
    latencies.sort_unstable();
    let count = latencies.len();
    let at = |share: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank within the list"
        )]
        let rank = (count as f64 * share) as usize;
        latencies.get(rank.min(count.saturating_sub(1))).copied().unwrap_or_default()
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of calls is far below 2^52")]
    let calls = count as f64;
    Ok(Round {
        calls_per_second: calls / elapsed.as_secs_f64(),
        p50: at(0.50),
        p99: at(0.99),
        cpu_per_call: cpu.div_f64(calls.max(1.0)),
    })
}

async fn client(
    address: SocketAddr,
    request: fn(u64) -> String,
    first: u64,
    until: Instant,
) -> anyhow::Result<Vec<Duration>> {
    #[expect(clippy::disallowed_methods, reason = "the load comes from outside the gateway")]
    let mut stream = TcpStream::connect(address).await.context("connect to the server")?;
    stream.set_nodelay(true)?;
    let mut latencies = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    let mut number = first;
    while Instant::now() < until {
        number += 1;
        let text = request(number);
        let sent = Instant::now();
        stream.write_all(text.as_bytes()).await?;
        read_response(&mut stream, &mut buffer).await?;
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

/// Reads one answer with a Content-Length and checks that it is a success.
async fn read_response(stream: &mut TcpStream, buffer: &mut [u8]) -> anyhow::Result<()> {
    let mut filled = 0;
    loop {
        let free = buffer.get_mut(filled..).context("answer too large")?;
        let read = stream.read(free).await?;
        if read == 0 {
            bail!("the server closed the connection");
        }
        filled += read;
        let answer = buffer.get(..filled).unwrap_or_default();
        let Some(head_end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(answer.get(..head_end).unwrap_or_default())
            .to_ascii_lowercase();
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .context("an answer without a length")?
            .trim()
            .parse()?;
        if filled < head_end + 4 + length {
            continue;
        }
        let body = String::from_utf8_lossy(answer.get(head_end + 4..).unwrap_or_default());
        if !head.starts_with("http/1.1 200") || body.contains("\"success\":false") {
            bail!("the server refused: {body}");
        }
        return Ok(());
    }
}

/// Returns the processor time a process has used so far, from `/proc`.
fn cpu_time(process: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |position: usize| fields.get(position).and_then(|text| text.parse::<u64>().ok());
    let ticks = ticks(11).context("utime")? + ticks(12).context("stime")?;
    Ok(Duration::from_millis(ticks * 10))
}
