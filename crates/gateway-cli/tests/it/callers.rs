//! Who is taken for a caller of this machine, who needs the operator's token, and who only idles.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::gateway::{Gateway, execute_body};

fn token(home: &Path) -> String {
    let token = std::fs::read_to_string(home.join("operator.token")).unwrap();
    format!("Bearer {}", token.trim())
}

fn status(gateway: &Gateway, headers: &[(&str, &str)]) -> u16 {
    gateway.request("GET", "/v1/tools", headers, "").status
}

#[test]
fn a_gateway_that_others_may_reach_takes_nobody_of_this_machine_without_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let file = directory.path().join("config.toml");
    let hosts = "[http]\nallowed_hosts = [\"gateway.example\"]\n";
    std::fs::File::create(&file)
        .and_then(|mut file| std::io::Write::write_all(&mut file, hosts.as_bytes()))
        .unwrap();
    for arguments in [["--allow-remote"].as_slice(), &["--config", file.to_str().unwrap()]] {
        let gateway = Gateway::start(arguments);
        assert_eq!(status(&gateway, &[]), 401, "{arguments:?}");
        let token = token(&gateway.home);
        assert_eq!(status(&gateway, &[("authorization", &token)]), 200, "{arguments:?}");
    }
}

#[test]
fn a_request_that_a_proxy_passed_on_needs_a_token() {
    let gateway = Gateway::start(&[]);
    assert_eq!(status(&gateway, &[]), 200);
    assert_eq!(status(&gateway, &[("x-forwarded-for", "203.0.113.9")]), 401);
    let token = token(&gateway.home);
    assert_eq!(
        status(&gateway, &[("x-forwarded-for", "203.0.113.9"), ("authorization", &token)]),
        200
    );
}

/// Returns how many sockets a process has open.
fn sockets(process: u32) -> usize {
    let links = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let targets = links.filter_map(|link| link.path().read_link().ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

#[test]
fn connections_that_idle_leave_room_for_calls() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start_with_open_files(&directory.path().join("home"), (60, 128));
    let mut busy = TcpStream::connect(gateway.address).unwrap();
    busy.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let idle: Vec<_> = (0..100).map(|_| TcpStream::connect(gateway.address).unwrap()).collect();
    let started = Instant::now();
    while sockets(gateway.process()) < 32 {
        assert!(started.elapsed() < Duration::from_secs(60), "the connections are not accepted");
        std::thread::yield_now();
    }
    let body = execute_body("bash", &json!({"cmd": "echo served"}), "key_1");
    let head = format!(
        "POST /v1/tools/execute HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    busy.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("served"), "{answer:?}");
    // A quarter of what may be open is for connections.
    assert!(sockets(gateway.process()) < 50, "connections take most of what may be open");
    drop(idle);
}

#[test]
fn the_doctor_says_what_holds_for_the_gateway_that_runs() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    let workspace = workspace.to_str().unwrap();
    let gateway = Gateway::start(&["--sandbox", "off", "--workspace", workspace]);
    let output = gateway.cli(&["doctor"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("unless the gateway was started with --workspace"), "{printed}");
    assert!(printed.contains("warn  sandbox        is switched off"), "{printed}");
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(
        printed.contains("warn  user           the gateway is run as root"),
        is_root,
        "{printed}"
    );
}
