//! A gateway of its own for one test: the real binary, a home and a port that nobody else has.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_allternit-tools-gateway");

/// How long anything in these tests may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running gateway; killed when dropped.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) home: PathBuf,
    child: Child,
    log: mpsc::Receiver<String>,
    _directory: Option<tempfile::TempDir>,
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (header, value) = line.split_once(':')?;
            header.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Gateway {
    /// Starts a gateway on a fresh home.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        let mut gateway = Self::start_at(&home, arguments, &[]);
        gateway._directory = Some(directory);
        gateway
    }

    /// Starts a gateway on a home that may exist.
    pub(crate) fn start_at(home: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = command(home);
        command.args(["--port", "0"]).args(arguments).envs(environment.iter().copied());
        Self::start_by(command, home)
    }

    /// Starts a gateway on a machine that lets nobody make a user namespace.
    pub(crate) fn start_without_namespaces(home: &Path) -> Self {
        let mut command = Command::new("unshare");
        let line =
            "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" --home \"$1\" --port 0";
        command.args(["-Ur", "bash", "-c", line, BINARY]).arg(home);
        Self::start_by(command, home)
    }

    /// Starts a gateway that may have so many files open, at first and at most.
    pub(crate) fn start_with_open_files(home: &Path, (soft, hard): (u32, u32)) -> Self {
        let mut command = Command::new("bash");
        let line =
            format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" --home \"$1\" --port 0");
        command.args(["-c", &line, BINARY]).arg(home);
        Self::start_by(command, home)
    }

    fn start_by(mut command: Command, home: &Path) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (lines, log) = mpsc::channel();
        for stream in [
            Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>,
            Box::new(child.stderr.take().unwrap()),
        ] {
            let lines = lines.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    drop(lines.send(line));
                }
            });
        }
        drop(lines);
        let address = wait_for_address(&mut child, &log);
        Self { address, home: home.to_owned(), child, log, _directory: None }
    }

    /// Sends one request and returns the answer.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.try_request(method, path, headers, body).unwrap()
    }

    /// Sends one request; fails where the connection breaks.
    pub(crate) fn try_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> std::io::Result<Answer> {
        send(self.address, method, path, headers, body)
    }

    /// Posts JSON.
    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.request("POST", path, &[("content-type", "application/json")], body)
    }

    /// Gets a path.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], "")
    }

    /// Executes a tool and returns the five keys of the answer.
    pub(crate) fn execute(&self, tool: &str, input: &Value, key: &str) -> Value {
        let answer = self.post("/v1/tools/execute", &execute_body(tool, input, key));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Registers a tool as the operator.
    pub(crate) fn register(&self, definition: &Value) -> Answer {
        let token = std::fs::read_to_string(self.home.join("operator.token")).unwrap();
        let authorization = format!("Bearer {}", token.trim());
        let headers =
            [("content-type", "application/json"), ("authorization", authorization.as_str())];
        self.request("POST", "/v1/tools", &headers, &definition.to_string())
    }

    /// Runs the command line against this gateway.
    pub(crate) fn cli(&self, arguments: &[&str]) -> std::process::Output {
        command(&self.home)
            .args(["--port", &self.address.port().to_string()])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Returns the id of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns the lines that were logged, as they come.
    pub(crate) fn log(&self) -> &mpsc::Receiver<String> {
        &self.log
    }

    /// Kills the gateway at once, as a power cut would.
    pub(crate) fn kill(&mut self) {
        drop(self.child.kill());
        self.child.wait().unwrap();
    }

    /// Asks the gateway to stop and waits for it.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        signal(self.child.id(), "TERM");
        wait(&mut self.child)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the command that runs the binary on a home, with nothing else from the environment.
pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").arg("--home").arg(home);
    command
}

/// Sends one request on a connection of its own; fails where the connection breaks.
pub(crate) fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request.push_str("host: localhost\r\n");
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || method == "POST" {
        request.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(Answer {
        status: status.ok_or(std::io::ErrorKind::InvalidData)?,
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

/// Sends a signal to a process.
pub(crate) fn signal(process: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(status.unwrap().success(), "kill -{name} {process}");
}

/// Returns the body of an execute request in one run.
pub(crate) fn execute_body(tool: &str, input: &Value, key: &str) -> String {
    json!({"tool_id": tool, "input": input, "correlation_id": key, "run_id": "run_1", "wih_id": "wih_1"}).to_string()
}

/// Waits for a process that should end by itself.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(started.elapsed() < PATIENCE, "the process does not end");
        std::thread::yield_now();
    }
}

fn wait_for_address(child: &mut Child, log: &mpsc::Receiver<String>) -> SocketAddr {
    let mut seen = String::new();
    loop {
        match log.recv_timeout(PATIENCE) {
            Ok(line) => {
                if let Some(rest) = line.split("http://").nth(1) {
                    let address =
                        rest.split(|c: char| c.is_whitespace() || c == '/').next().unwrap();
                    return address.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
                }
                seen.push_str(&line);
                seen.push('\n');
            }
            Err(error) => panic!("{error}: {:?} printed {seen}", child.try_wait()),
        }
    }
}
