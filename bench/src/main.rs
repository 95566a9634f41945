//! Measures a durable Sdk echo call over REST against two floors, in one run.
//!
//! `cargo run --release -p gateway-bench -- [--seconds N] [--rounds N] [--connections 1,16,64]`
//!
//! Each server is a process of its own (this program again), and the load comes from this one.
//! Rounds of the three servers alternate, so that a drift of the machine meets all of them.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that starts servers and prints what it measured"
)]

mod floor;
mod gateway;
mod load;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use load::Round;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Echo,
    Append,
    Gateway,
}

impl Server {
    const ALL: [Self; 3] = [Self::Echo, Self::Append, Self::Gateway];

    fn name(self) -> &'static str {
        match self {
            Self::Echo => "axum JSON echo",
            Self::Append => "+ one durable append",
            Self::Gateway => "gateway, Sdk echo",
        }
    }

    fn argument(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Append => "append",
            Self::Gateway => "gateway",
        }
    }

    fn request(self) -> fn(u64) -> String {
        match self {
            Self::Echo | Self::Append => |number| request("/", number),
            Self::Gateway => |number| request("/v1/tools/execute", number),
        }
    }
}

fn request(path: &str, number: u64) -> String {
    let body = format!(
        r#"{{"tool_id":"bench.echo","input":{{"message":"hello"}},"correlation_id":"corr_{number}","run_id":"run_bench","wih_id":"wih_bench"}}"#
    );
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

struct Options {
    seconds: u64,
    rounds: usize,
    connections: Vec<u64>,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match arguments.first().map(String::as_str) {
        Some("__sandbox") => bail!("the bench starts no sandboxed process"),
        Some("serve") => {
            let name = arguments.get(1).context("serve what?")?;
            let server = Server::ALL.into_iter().find(|server| server.argument() == name);
            runtime.block_on(serve(server.context("unknown server")?))
        }
        _ => runtime.block_on(measure(&parse(&arguments)?)),
    }
}

fn parse(arguments: &[String]) -> anyhow::Result<Options> {
    let mut options = Options { seconds: 3, rounds: 3, connections: vec![1, 16, 64] };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--seconds" => options.seconds = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--connections" => {
                options.connections = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            other => {
                bail!("unknown argument {other}; known are --seconds, --rounds, --connections")
            }
        }
    }
    Ok(options)
}

/// Serves one of the three on a free loopback port, which it prints, until it is killed.
async fn serve(server: Server) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    match server {
        Server::Echo => axum::serve(listener, floor::echo()).await?,
        Server::Append => axum::serve(listener, floor::append(directory.path())?).await?,
        Server::Gateway => gateway::serve(listener, directory.path()).await?,
    }
    Ok(())
}

/// A server process that ends with this value.
struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    fn start(server: Server) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", server.argument()])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("no standard output")?).read_line(&mut line)?;
        let address =
            line.trim().parse().with_context(|| format!("{} printed {line:?}", server.name()))?;
        Ok(Self { child, address })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let running: Vec<(Server, Running)> = Server::ALL
        .into_iter()
        .map(|server| Ok((server, Running::start(server)?)))
        .collect::<anyhow::Result<_>>()?;
    let duration = Duration::from_secs(options.seconds);
    println!(
        "rounds of {} s, median of {}; server and load share the machine\n",
        options.seconds, options.rounds
    );
    for connections in &options.connections {
        let mut rounds: Vec<Vec<Round>> = vec![Vec::new(); running.len()];
        for _ in 0..options.rounds {
            for ((server, process), rounds) in running.iter().zip(&mut rounds) {
                let round = load::run(
                    process.address,
                    process.child.id(),
                    server.request(),
                    *connections,
                    duration,
                )
                .await?;
                rounds.push(round);
            }
        }
        print_table(*connections, &running, rounds);
    }
    Ok(())
}

fn print_table(connections: u64, running: &[(Server, Running)], rounds: Vec<Vec<Round>>) {
    println!(
        "{connections} connections         calls/s   p50 ms   p99 ms  CPU us/call   of echo  of append"
    );
    let medians: Vec<Round> = rounds.into_iter().map(median).collect();
    let rate =
        |position: usize| medians.get(position).map_or(f64::NAN, |round| round.calls_per_second);
    for ((server, _), round) in running.iter().zip(&medians) {
        println!(
            "{:<22} {:>9.0} {:>8.2} {:>8.2} {:>12.0} {:>9.2} {:>10.2}",
            server.name(),
            round.calls_per_second,
            round.p50.as_secs_f64() * 1e3,
            round.p99.as_secs_f64() * 1e3,
            round.cpu_per_call.as_secs_f64() * 1e6,
            round.calls_per_second / rate(0),
            round.calls_per_second / rate(1),
        );
    }
    println!();
}

/// Returns the round in the middle by rate.
fn median(mut rounds: Vec<Round>) -> Round {
    rounds.sort_by(|a, b| a.calls_per_second.total_cmp(&b.calls_per_second));
    let middle = rounds.len() / 2;
    rounds.get(middle).copied().unwrap_or(Round {
        calls_per_second: f64::NAN,
        p50: Duration::ZERO,
        p99: Duration::ZERO,
        cpu_per_call: Duration::ZERO,
    })
}
