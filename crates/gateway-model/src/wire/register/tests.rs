use std::time::Duration;

use super::*;

/// The registration of the wire contract, as it stands there.
fn seed() -> Value {
    json!({
        "id": "echo.test",
        "name": "Echo Test Tool",
        "description": "Returns the input unchanged",
        "tool_type": "Local",
        "command": "echo",
        "endpoint": "",
        "input_schema": {
            "type": "object",
            "properties": { "message": { "type": "string" } },
            "required": ["message"],
        },
        "output_schema": { "type": "object" },
        "side_effects": [],
        "idempotency_behavior": "idempotent",
        "retryable": false,
        "failure_classification": "transient",
        "safety_tier": "T0",
        "resource_limits": {
            "cpu": null, "memory": null, "network": "None", "filesystem": "None", "time_limit": 30,
        },
        "subprocess": null,
    })
}

#[track_caller]
fn check_refused(pointer: &str, value: Value, expected: &str) {
    let mut body = seed();
    match body.pointer_mut(pointer) {
        Some(field) => *field = value,
        None => {
            body.as_object_mut().unwrap().insert(pointer.trim_start_matches('/').to_owned(), value);
        }
    }
    let error = RegisterTool::read(body).expect_err(pointer).to_string();
    assert!(error.contains(expected), "{pointer} gave {error}");
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

#[track_caller]
fn check_limits(pointer: &str, value: Value, expected: impl FnOnce(&ResourceLimits) -> bool) {
    let mut body = seed();
    body["safety_tier"] = json!("T1");
    *body.pointer_mut(pointer).unwrap() = value;
    let registration = RegisterTool::read(body).unwrap();
    assert!(expected(&registration.limits), "{:?}", registration.limits);
}

#[test]
fn the_contracts_example_is_read_and_written_back_in_full() {
    let registration = RegisterTool::read(seed()).unwrap();
    for (key, value) in seed().as_object().unwrap() {
        assert_eq!(&registration.normalised[key], value, "{key}");
    }
    assert_eq!(RegisterTool::read(registration.normalised.clone()).unwrap(), registration);
}

#[test]
fn a_variable_may_name_a_secret_and_nothing_else_may() {
    let mut body = seed();
    body["env"] = json!({ "TOKEN": "secret:CRM", "HEADER": "Bearer secret:CRM", "MODE": "fast" });
    let registration = RegisterTool::read(body.clone()).unwrap();
    assert_eq!(registration.normalised["env"].as_object().unwrap().len(), 3);
    assert_eq!(registration.process.environment["HEADER"].to_string(), "Bearer secret:CRM");
    assert_eq!(RegisterTool::read(registration.normalised.clone()).unwrap(), registration);
    check_refused(
        "/env",
        json!({ "ALLTERNIT_RUN_ID": "x" }),
        "/env/ALLTERNIT_RUN_ID: is a variable",
    );
    check_refused("/env", json!({ "A": "secret:a/b" }), "/env/A: secret holds '/'");
    check_refused("/env", json!({ "A": "secret:A and" }), "/env/A: a reference");
    check_refused("/env", json!({ "A": 1 }), "/env/A: expected a string");
    check_refused("/env", json!(["A=1"]), "/env: expected an object");
    check_refused("/args", json!(["-t", "--token=secret:CRM"]), "/args/1: names a secret");
    check_refused("/command", json!("secret:CRM"), "/command: names a secret");
    body["tool_type"] = json!("Sdk");
    body["command"] = json!("");
    let error = RegisterTool::read(body).unwrap_err().to_string();
    assert!(error.contains("/env: belongs to Local tools only"), "{error}");
}

#[test]
fn a_subprocess_tool_names_its_worker_and_nothing_else() {
    let mut body = seed();
    body["tool_type"] = json!("Subprocess");
    body["command"] = json!("");
    body["subprocess"] = json!({ "worker_id": "report.writer" });
    let registration = RegisterTool::read(body.clone()).unwrap();
    assert_eq!(registration.worker, Some("report.writer".parse().unwrap()));
    assert_eq!(registration.normalised["subprocess"], body["subprocess"]);
    assert_eq!(RegisterTool::read(registration.normalised.clone()).unwrap(), registration);
    for (field, value, expected) in [
        ("subprocess", Value::Null, "/subprocess: a Subprocess tool names its worker"),
        ("subprocess", json!("report"), "/subprocess: expected an object"),
        ("subprocess", json!({}), "/subprocess/worker_id: is required"),
        ("subprocess", json!({ "worker_id": "a/b" }), "/subprocess/worker_id: worker_id holds"),
        ("subprocess", json!({ "worker_id": "a", "command": "b" }), "/subprocess/command: unknown"),
        ("command", json!("echo"), "/command: belongs to Local tools only"),
        ("stdin", json!("json"), "/stdin: belongs to Local tools only"),
    ] {
        let mut body = body.clone();
        body[field] = value;
        let error = RegisterTool::read(body).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    check_refused(
        "/subprocess",
        json!({ "worker_id": "a" }),
        "/subprocess: belongs to Subprocess tools only",
    );
}

#[test]
fn each_fault_names_its_field_and_what_was_expected() {
    check_refused("/id", json!("a/b"), "/id: tool_id holds '/'");
    check_refused("/id", json!(""), "/id: tool_id is empty");
    check_refused("/id", json!("execute"), "/id: execute is a path of the gateway's own");
    check_refused("/id", json!("explain"), "/id: explain is a path of the gateway's own");
    check_refused("/name", json!(""), "/name: has 0 bytes, expected 1 to 200");
    check_refused(
        "/tool_type",
        json!("Shell"),
        "expected one of Local, Http, Sdk, Subprocess, Mcp, got \"Shell\"",
    );
    check_refused("/tool_type", json!("Mcp"), "attaching their server");
    check_refused("/command", json!(""), "/command: a Local tool needs a command");
    check_refused("/command", json!("a\0b"), "/command: holds a NUL");
    check_refused("/endpoint", json!("http://x"), "/endpoint: belongs to Http");
    check_refused("/safety_tier", json!("T9"), "expected one of T0, T1, T2, T3, T4, got \"T9\"");
    check_refused("/retryable", json!("no"), "/retryable: expected a boolean, got \"no\"");
    check_refused("/side_effects", json!(["a", 1]), "/side_effects/1: expected a string, got 1");
    check_refused("/colour", json!(1), "/colour: unknown key; known are id, name");
    check_refused("/resource_limits/time_limit", json!(0), "whole seconds from 1 to 3600");
    check_refused("/resource_limits/time_limit", json!(1.5), "whole seconds");
    check_refused(
        "/resource_limits/cpu",
        json!("0.5x"),
        "/resource_limits/cpu: expected processors",
    );
    check_refused("/resource_limits/memory", json!("1"), "/resource_limits/memory: expected bytes");
    check_refused("/resource_limits/network", json!("Some"), "/resource_limits/network: expected");
    check_refused("/resource_limits/filesystem", json!({"ReadWrite": []}), "lists no path");
    check_refused(
        "/resource_limits/filesystem",
        json!({"Writable": ["/workspace/**"]}),
        "/resource_limits/filesystem: has the unknown key \"Writable\"; expected \"None\"",
    );
    check_refused(
        "/resource_limits/network",
        json!({"Hosts": []}),
        "/resource_limits/network: has the unknown key \"Hosts\"; expected \"None\"",
    );
    check_refused("/resource_limits/network", json!({}), "network: expected \"None\"");
    check_refused(
        "/resource_limits",
        json!({"network": "None"}),
        "/resource_limits/filesystem: is required",
    );
    check_refused("/claim", json!({"paths": ["x"]}), "/claim/paths: expected JSON Pointers");
}

#[test]
fn what_belongs_to_local_tools_is_refused_by_its_own_name() {
    for (field, value) in [("args", json!(["x"])), ("stdin", json!("json"))] {
        let mut body = seed();
        body["tool_type"] = json!("Sdk");
        body["command"] = json!("");
        body[field] = value;
        let error = RegisterTool::read(body).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/{field}: belongs to Local")), "{error}");
    }
}

#[test]
fn declarations_that_contradict_each_other_are_refused() {
    check_refused(
        "/side_effects",
        json!(["filesystem"]),
        "/safety_tier: T0 is read-only, but side_effects",
    );
    check_refused("/resource_limits/network", json!("Unrestricted"), "network is Unrestricted");
    check_refused(
        "/resource_limits/filesystem",
        json!({"ReadWrite": ["/.allternit/artifacts/{run_id}"]}),
        "ReadWrite paths",
    );
    let mut writer = seed();
    writer["safety_tier"] = json!("T1");
    writer["resource_limits"]["filesystem"] = json!({"ReadWrite": ["/workspace/**"]});
    for body in [writer, with(seed(), "safety_tier", json!("T2"))] {
        let error = RegisterTool::read(body).unwrap_err().to_string();
        assert!(error.starts_with("/side_effects") && error.contains("idempotency key"), "{error}");
    }
    let mut body = seed();
    body["retryable"] = json!(true);
    body["failure_classification"] = json!("permanent");
    assert!(RegisterTool::read(body).unwrap_err().to_string().starts_with("/retryable"));
}

#[test]
fn equal_quantities_are_written_alike() {
    for (cpu, memory) in
        [("500m", "64Mi"), ("2000m", "65536Ki"), ("2", "67108864"), ("1m", "1048577")]
    {
        let mut body = seed();
        body["resource_limits"]["cpu"] = json!(cpu);
        body["resource_limits"]["memory"] = json!(memory);
        let limits = &RegisterTool::read(body).unwrap().normalised["resource_limits"];
        let expected = match cpu {
            "2000m" | "2" => ["2", "64Mi"],
            _ => [cpu, memory],
        };
        assert_eq!([limits["cpu"].as_str().unwrap(), limits["memory"].as_str().unwrap()], expected);
    }
}

#[test]
fn quantities_are_read_to_their_bounds() {
    check_limits("/resource_limits/cpu", json!("500m"), |limits| limits.cpu_millis == Some(500));
    check_limits("/resource_limits/cpu", json!("2"), |limits| {
        limits.cpu_time() == Some(Duration::from_secs(60))
    });
    check_limits("/resource_limits/memory", json!("64Mi"), |limits| {
        limits.memory_bytes == Some(64 << 20)
    });
    check_limits("/resource_limits/memory", json!("1048576"), |limits| {
        limits.memory_bytes == Some(1 << 20)
    });
    check_limits("/resource_limits/time_limit", json!(3600), |limits| {
        limits.time_limit.as_secs() == 3600
    });
    check_limits(
        "/resource_limits/network",
        json!({"DomainAllowlist": ["example.org"]}),
        |limits| limits.network == NetworkLimit::DomainAllowlist(vec!["example.org".into()]),
    );
}

/// An Http tool, changed.
fn http(change: impl FnOnce(&mut Value)) -> Result<RegisterTool, String> {
    let mut body = seed();
    body["tool_type"] = json!("Http");
    body["command"] = json!("");
    body["endpoint"] = json!("https://api.example.org/items/{{message}}");
    body["resource_limits"]["network"] = json!({"DomainAllowlist": ["api.example.org"]});
    change(&mut body);
    RegisterTool::read(body).map_err(|error| error.to_string())
}

#[test]
fn an_http_tool_is_read_and_written_back_in_full() {
    let registration = http(|_body| {}).unwrap();
    let normalised = &registration.normalised;
    assert_eq!(normalised["endpoint"], "https://api.example.org/items/{{message}}");
    assert_eq!((&normalised["method"], &normalised["body"]), (&json!("POST"), &json!("envelope")));
    assert_eq!(RegisterTool::read(normalised.clone()).unwrap(), registration);
    for (method, body) in
        [("GET", "none"), ("PUT", "input"), ("PATCH", "input"), ("DELETE", "none")]
    {
        let registration = http(|changed| changed["method"] = json!(method)).unwrap();
        assert_eq!(registration.normalised["body"], body, "{method}");
    }
}

#[test]
fn an_http_tool_reaches_what_it_declares() {
    let network = |network: Value| {
        http(|body| body["resource_limits"]["network"] = network).map(drop).unwrap_or_else(
            |error| {
                panic!("{error}");
            },
        );
    };
    network(json!({"DomainAllowlist": ["*.example.org", "other.org"]}));
    for (field, value, expected) in [
        ("endpoint", json!(""), "/endpoint: an Http tool needs an address"),
        (
            "endpoint",
            json!("https://api.example.org/${TOKEN}"),
            "neither {name} nor ${NAME} is expanded",
        ),
        ("endpoint", json!("https://api.example.org/{{id}}"), "no property of input_schema"),
        (
            "endpoint",
            json!("https://api.example.org:8443/"),
            "expected {\"DomainAllowlist\": [\"api.example.org:8443\"]}",
        ),
        ("endpoint", json!("https://evil.org/"), "does not admit the endpoint"),
        ("command", json!("curl"), "/command: belongs to Local tools only"),
        ("method", json!("TRACE"), "/method: expected one of GET, POST, PUT, PATCH, DELETE"),
        ("body", json!("form"), "/body: expected one of envelope, input, none"),
    ] {
        let error = http(|body| body[field] = value).unwrap_err();
        assert!(error.contains(expected), "{field} gave {error}");
    }
    for (network, expected) in [
        (json!("None"), "does not admit the endpoint"),
        (json!({"DomainAllowlist": []}), "does not admit the endpoint"),
        (json!({"DomainAllowlist": ["*"]}), "DomainAllowlist: \"*\""),
        (json!("Unrestricted"), "network is Unrestricted"),
    ] {
        let error = http(|body| body["resource_limits"]["network"] = network).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let get = http(|body| {
        body["method"] = json!("GET");
        body["body"] = json!("input");
    });
    assert!(get.unwrap_err().contains("a GET carries no body"));
    check_refused("/method", json!("GET"), "/method: belongs to Http tools only");
    check_refused("/body", json!("input"), "/body: belongs to Http tools only");
}
