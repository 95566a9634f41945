//! An Http tool over the binary: the operator's list, a restart, and a kill while its peer works.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::gateway::{Gateway, execute_body, send};

/// Starts a peer that tells each request's body, and then answers or, where it holds `hang`, not.
fn peer() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let body = String::from_utf8(body).unwrap();
            let is_hanging = body.contains("hang");
            if told.send(body).is_err() {
                return;
            }
            if is_hanging {
                // Until the gateway is gone.
                drop(reader.read(&mut [0]));
                continue;
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"done\":true}";
            drop(reader.get_mut().write_all(answer));
        }
    });
    (address, bodies)
}

fn definition(address: SocketAddr) -> Value {
    json!({
        "id": "order.place", "name": "Place an order", "description": "Places one order",
        "tool_type": "Http", "endpoint": format!("http://{address}/orders"),
        "input_schema": {"type": "object", "properties": {"item": {"type": "string"}}},
        "output_schema": {"type": "object"},
        "side_effects": ["network"], "idempotency_behavior": "not_idempotent", "retryable": false,
        "failure_classification": "none", "safety_tier": "T2",
        "resource_limits": {"network": {"DomainAllowlist": [address.to_string()]}, "filesystem": "None", "time_limit": 60},
    })
}

fn permit(home: &Path, address: SocketAddr) {
    let config = format!("[egress]\nallow_private = [\"{address}\"]\n");
    std::fs::write(home.join("config.toml"), config).unwrap();
}

fn details(answer: &Value) -> &Value {
    &answer["error"]["details"]
}

#[test]
fn a_private_address_is_reached_once_an_operator_lists_it() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let (address, bodies) = peer();
    let mut gateway = Gateway::start_at(&home, &[], &[]);
    assert_eq!(gateway.register(&definition(address)).status, 201);
    let refused = gateway.execute("order.place", &json!({"item": "tea"}), "key_1");
    assert_eq!(details(&refused)["kind"], "permission_denied");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains(&format!("[egress] allow_private = [\"{address}\"]")), "{message}");
    assert!(bodies.try_recv().is_err(), "nothing was sent");
    assert!(gateway.stop().success());

    permit(&home, address);
    let gateway = Gateway::start_at(&home, &[], &[]);
    for _first_and_replay in 0..2 {
        let answer = gateway.execute("order.place", &json!({"item": "tea"}), "key_1");
        assert_eq!(answer["output"], json!({"done": true}), "{answer}");
    }
    let sent: Value = serde_json::from_str(&bodies.recv().unwrap()).unwrap();
    assert_eq!(sent["input"], json!({"item": "tea"}));
    assert!(bodies.try_recv().is_err(), "the replay asks nobody");
    let shown = gateway.get("/v1/tools/order.place").json();
    assert_eq!((&shown["tool_type"], &shown["method"]), (&json!("Http"), &json!("POST")));
}

#[test]
fn a_call_whose_gateway_is_killed_while_its_peer_works_is_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let (address, bodies) = peer();
    std::fs::create_dir(&home).unwrap();
    permit(&home, address);
    let mut gateway = Gateway::start_at(&home, &[], &[]);
    assert_eq!(gateway.register(&definition(address)).status, 201);
    let at = gateway.address;
    let body = Arc::new(execute_body("order.place", &json!({"item": "hang"}), "key_1"));
    let calling = {
        let body = Arc::clone(&body);
        let headers = [("content-type", "application/json")];
        std::thread::spawn(move || send(at, "POST", "/v1/tools/execute", &headers, &body).is_err())
    };
    bodies.recv().unwrap();
    gateway.kill();
    assert!(calling.join().unwrap(), "the caller gets no answer");

    let gateway = Gateway::start_at(&home, &[], &[]);
    let answer = gateway.post("/v1/tools/execute", &body).json();
    assert_eq!(details(&answer)["kind"], "indeterminate", "{answer}");
    assert!(bodies.try_recv().is_err(), "what may have acted is not sent again");
}
