//! A Local tool that names hosts, over the binary: reached, denied, recorded, and refused where the
//! sandbox is off.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};

use serde_json::{Value, json};

use crate::gateway::Gateway;

/// Starts a peer that answers every request alike.
fn peer() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            let answer =
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 7\r\n\r\nreached";
            drop(reader.get_mut().write_all(answer));
        }
    });
    address
}

fn definition(host: &str) -> Value {
    json!({
        "id": "page.fetch", "name": "Fetch a page", "description": "Fetches one page",
        "tool_type": "Local", "command": "curl",
        "args": ["-sS", "--noproxy", "none.test", "--", "{{url}}"],
        "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
        "output_schema": {"type": "object"},
        "side_effects": [], "idempotency_behavior": "idempotent", "retryable": false,
        "failure_classification": "none", "safety_tier": "T1",
        "resource_limits": {"network": {"DomainAllowlist": [host]}, "filesystem": "None", "time_limit": 30},
    })
}

#[test]
fn a_command_reaches_the_hosts_of_its_registration_and_its_receipt_says_which() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let address = peer();
    let config = format!("[egress]\nallow_private = [\"{address}\"]\n");
    std::fs::write(home.join("config.toml"), config).unwrap();
    let mut gateway = Gateway::start_at(&home, &[], &[]);
    let registered = gateway.register(&definition(&address.to_string()));
    assert_eq!(registered.status, 201, "{registered:?}");

    let url = format!("http://{address}/");
    let answer = gateway.execute("page.fetch", &json!({ "url": url }), "key_1");
    assert_eq!(answer["output"], json!({ "raw_output": "reached" }), "{answer}");
    let answer = gateway.execute("page.fetch", &json!({ "url": "http://other.test/" }), "key_2");
    let message = answer["output"]["raw_output"].as_str().unwrap();
    assert!(
        message.starts_with("other.test:80 is denied: the registration of this tool"),
        "{answer}"
    );
    assert!(message.contains("Retrying does not help"), "{answer}");

    let receipts = gateway.get("/v1/runs/run_1/receipts").json();
    let leaves: Vec<Value> = receipts["receipts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|receipt| {
            let leaf = receipt["outcome"]["leaf"].as_str().unwrap();
            serde_json::from_str::<Value>(leaf).unwrap()["exec"]["sandbox"].take()
        })
        .collect();
    assert!(leaves.iter().all(|profile| profile["network"] == "proxy"), "{leaves:?}");
    let told = |kind: &str| {
        let rows = leaves.iter().flat_map(|profile| profile["proxy"][kind].as_array().unwrap());
        rows.map(|row| row["host"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(told("reached"), [json!(address.to_string())]);
    assert_eq!(told("denied"), [json!("other.test:80")]);

    // What was registered while the sandbox held is refused while it is switched off.
    assert!(gateway.stop().success());
    let gateway = Gateway::start_at(&home, &["--sandbox", "off"], &[]);
    let answer = gateway.execute("page.fetch", &json!({ "url": url }), "key_3");
    assert_eq!(answer["error"]["details"]["kind"], "sandbox_unavailable", "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("its one way out"), "{message}");
    let mut other = definition("example.org");
    other["id"] = json!("page.other");
    let refused = gateway.register(&other);
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.body.contains("only from within the sandbox, which is off"), "{refused:?}");
}
