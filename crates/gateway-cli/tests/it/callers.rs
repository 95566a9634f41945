//! Who is taken for a caller of this machine, who needs the operator's token, and who only idles.

use std::path::Path;

use crate::gateway::Gateway;

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
