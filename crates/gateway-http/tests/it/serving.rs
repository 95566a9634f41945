//! The server: one real socket, its bounds, its stop, and callers that leave.

use std::time::Duration;

use gateway_http::{ServeOptions, serve};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, request};

struct Server {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(fixture: &Fixture, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut options = ServeOptions {
            max_connections: 8,
            header_timeout: Duration::from_secs(60),
            drain: Duration::from_secs(60),
        };
        change(&mut options);
        let stop = CancellationToken::new();
        let serving = serve(listener, fixture.router.clone(), options, stop.clone());
        #[expect(clippy::disallowed_methods, reason = "awaited by the test")]
        let task = tokio::spawn(serving);
        Self { address, stop, task }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Reads one answer with a content-length.
async fn answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.unwrap();
        assert_ne!(count, 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            return text;
        }
    }
}

#[tokio::test]
async fn a_connection_serves_one_request_after_another_and_ends_with_the_stop() {
    let fixture = Fixture::open().await;
    let server = Server::start(&fixture, |_| {}).await;
    let mut stream = server.connect().await;
    for _request in 0..2 {
        stream.write_all(HEALTH.as_bytes()).await.unwrap();
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
    }
    server.stop.cancel();
    server.task.await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn what_is_under_way_is_answered_before_the_stop_is_complete() {
    let fixture = Fixture::open().await;
    let server = Server::start(&fixture, |_| {}).await;
    let mut stream = server.connect().await;
    let body = request()
        .to_string()
        .replace("echo.test", "note.read")
        .replace("\"hello\"", "\"hello\",\"wait\":true");
    stream.write_all(post("/v1/tools/execute", &body).as_bytes()).await.unwrap();
    fixture.fake.has_started.notified().await;
    server.stop.cancel();
    fixture.fake.go_on.notify_one();
    assert!(answer(&mut stream).await.contains("\"success\":true"));
    server.task.await.unwrap();
}

#[tokio::test]
async fn what_is_not_answered_in_the_drain_time_is_cut_off() {
    let fixture = Fixture::open().await;
    let server = Server::start(&fixture, |options| options.drain = Duration::from_millis(1)).await;
    let mut stream = server.connect().await;
    let body = request()
        .to_string()
        .replace("echo.test", "note.read")
        .replace("\"hello\"", "\"hello\",\"wait\":true");
    stream.write_all(post("/v1/tools/execute", &body).as_bytes()).await.unwrap();
    fixture.fake.has_started.notified().await;
    server.stop.cancel();
    server.task.await.unwrap();
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
    fixture.fake.go_on.notify_one();
}

#[tokio::test]
async fn a_caller_that_leaves_does_not_stop_its_call() {
    let fixture = Fixture::open().await;
    let server = Server::start(&fixture, |_| {}).await;
    let mut stream = server.connect().await;
    let body = request()
        .to_string()
        .replace("echo.test", "note.add")
        .replace("\"hello\"", "\"hello\",\"wait\":true");
    stream.write_all(post("/v1/tools/execute", &body).as_bytes()).await.unwrap();
    fixture.fake.has_started.notified().await;
    drop(stream);
    server.stop.cancel();
    server.task.await.unwrap();
    fixture.fake.go_on.notify_one();
    let again =
        fixture.execute("note.add", json!({"message": "hello", "wait": true}), "corr_abc123").await;
    assert_eq!(again.json()["output"], json!({"raw_output": "hello\n"}));
    assert_eq!(fixture.fake.runs("note.add"), 1);
}

#[tokio::test]
async fn a_connection_that_sends_no_whole_head_is_given_up() {
    let fixture = Fixture::open().await;
    let server =
        Server::start(&fixture, |options| options.header_timeout = Duration::from_millis(20)).await;
    for sent in ["", "GET /health HTTP/1.1\r\nhost: loc", HEALTH] {
        let mut stream = server.connect().await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answered = Vec::new();
        stream.read_to_end(&mut answered).await.unwrap();
        let answers = String::from_utf8_lossy(&answered).matches("200 OK").count();
        assert_eq!(answers, usize::from(sent == HEALTH), "{sent:?}");
    }
}

#[tokio::test]
async fn connections_beyond_the_bound_wait() {
    let fixture = Fixture::open().await;
    let server = Server::start(&fixture, |options| options.max_connections = 1).await;
    let mut first = server.connect().await;
    first.write_all(HEALTH.as_bytes()).await.unwrap();
    answer(&mut first).await;
    let mut second = server.connect().await;
    second.write_all(HEALTH.as_bytes()).await.unwrap();
    first.write_all(HEALTH.as_bytes()).await.unwrap();
    answer(&mut first).await;
    let unanswered = second.try_read(&mut [0; 1]).unwrap_err();
    assert_eq!(unanswered.kind(), std::io::ErrorKind::WouldBlock);
    drop(first);
    assert!(answer(&mut second).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_client_that_sends_too_much_gets_to_read_why() {
    let fixture = Fixture::open().await;
    let server = Server::start(&fixture, |_| {}).await;
    let mut stream = server.connect().await;
    stream.write_all(post("/v1/tools/execute", &"x".repeat(3 << 20)).as_bytes()).await.unwrap();
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{answer}");
    assert!(answer.contains("more than 2097152 bytes"), "{answer}");
}
