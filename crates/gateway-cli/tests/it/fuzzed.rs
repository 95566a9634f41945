//! schemathesis, which knows nothing of the gateway but its OpenAPI document.

use std::process::Command;

use crate::gateway::Gateway;

/// Where `scripts/test` put the peers; without them (`--quick`) this test says so and ends.
#[expect(clippy::print_stderr, reason = "says that nothing was tested")]
fn peers() -> Option<String> {
    let peers = std::env::var("ALLTERNIT_TEST_PEERS").ok().filter(|peers| !peers.is_empty());
    if peers.is_none() {
        eprintln!("ALLTERNIT_TEST_PEERS is not set: schemathesis is not run");
    }
    peers
}

#[test]
fn schemathesis_finds_nothing() {
    let Some(peers) = peers() else { return };
    let gateway = Gateway::start(&[]);
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway-http/tests/schemathesis.toml");
    let document = format!("http://{}/openapi.json", gateway.address);
    let output = Command::new(format!("{peers}/schemathesis"))
        .args(["--config-file", config, "run", &document, "--checks", "all"])
        .args([
            "--max-examples",
            "25",
            "--phases",
            "examples,coverage,fuzzing",
            "--workers",
            "1",
            "--seed",
            "1",
        ])
        .current_dir(&gateway.home)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(gateway.get("/health").status, 200);
}
