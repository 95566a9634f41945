//! Where a request may go: declared hosts, public addresses, and every hop of a redirect.

use serde_json::{Value, json};

use super::{calling, register, with_effects};
use crate::fixture::Fixture;
use crate::peer::{Act, Names, Peer, answer, json, reaching};

fn unrestricted(definition: &mut Value) {
    definition["resource_limits"]["network"] = json!("Unrestricted");
}

fn redirect(status: &str, to: &str) -> Vec<u8> {
    answer(status, &[&format!("location: {to}")], "")
}

/// Spellings of addresses that no tool may reach, as hosts of an address.
const FORBIDDEN: &[&str] = &[
    "127.0.0.1",
    "127.0.0.2",
    "[::1]",
    "0.0.0.0",
    "[::]",
    "localhost.test",
    "169.254.169.254",
    "169.254.169.254.",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[::a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "metadata.test",
    "mapped.test",
    "mixed.test",
];

/// Spellings that are no host at all, so that no parser reads another address into them.
const NO_HOST: &[&str] = &[
    "2852039166",
    "0xa9fea9fe",
    "0xA9.0xFE.0xA9.0xFE",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.16689662",
    "127.1",
    "127.0.0.1.0x",
    "１６９.254.169.254",
    "169。254。169。254",
    "%31%36%39.254.169.254",
    "good.test@169.254.169.254",
    "[fe80::1%25eth0]",
    "[::ffff:169.254.169.254",
    "good.test\\@169.254.169.254",
];

fn names() -> std::sync::Arc<Names> {
    Names::of(&[
        ("localhost.test", &[&["127.0.0.1"]]),
        ("metadata.test", &[&["169.254.169.254"]]),
        ("mapped.test", &[&["::ffff:10.0.0.1"]]),
        ("mixed.test", &[&["8.8.8.8", "10.0.0.1"]]),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_private_address_is_reached() {
    let fixture = Fixture::with_egress(&[], reaching(&[], &names())).await;
    for (number, host) in FORBIDDEN.iter().enumerate() {
        let id = format!("tool{number}");
        let endpoint = format!("http://{host}/latest/meta-data");
        register(&fixture, (&id, &endpoint), &[], unrestricted).await.unwrap();
        let error = fixture.fails(&id, json!({})).await;
        assert_eq!(
            (error.kind.as_str(), error.is_retryable),
            ("permission_denied", false),
            "{host}"
        );
        assert!(error.message.contains("[egress] allow_private = [\""), "{host}: {error}");
    }
    for host in NO_HOST {
        let endpoint = format!("http://{host}/");
        let refused = register(&fixture, ("never", &endpoint), &[], unrestricted).await;
        assert!(refused.unwrap_err().starts_with("/endpoint: "), "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_redirect_leads_to_a_private_address() {
    let locations: Vec<String> = FORBIDDEN
        .iter()
        .chain(NO_HOST)
        .flat_map(|host| [format!("http://{host}/"), format!("//{host}:9/x")])
        .collect();
    let answers: Vec<_> = locations.iter().map(|to| redirect("302 Found", to)).collect();
    let peer = Peer::start(move |number, _seen| Act::Answer(answers[number].clone())).await;
    let fixture = Fixture::with_egress(&[], reaching(&[&peer], &names())).await;
    register(&fixture, ("call", &peer.url("/")), &[], |definition| {
        definition["method"] = json!("GET");
        unrestricted(definition);
    })
    .await
    .unwrap();
    for location in &locations {
        let error = fixture.fails("call", json!({})).await;
        let expected = ["permission_denied", "execution"];
        assert!(expected.contains(&error.kind.as_str()), "{location}: {error}");
    }
    assert_eq!(peer.seen().len(), locations.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_held_to_the_tools_own_hosts() {
    let trap = Peer::answering(json("{}")).await;
    let to_trap = redirect("307 Temporary Redirect", &trap.url("/"));
    let peer = Peer::answering(to_trap).await;
    let fixture = Fixture::with_egress(&[], reaching(&[&peer, &trap], &Names::of(&[]))).await;
    let (host, other) = (peer.address.to_string(), trap.address.to_string());
    for (id, hosts) in [("narrow", vec![host.as_str()]), ("wide", vec![&host, &other])] {
        register(&fixture, (id, &peer.url("/")), &hosts, |_definition| {}).await.unwrap();
    }
    let error = fixture.fails("narrow", json!({})).await;
    assert_eq!(error.kind.as_str(), "permission_denied");
    assert!(error.message.contains("not in the tool's network declaration"), "{error}");
    assert!(trap.seen().is_empty());
    fixture.succeeds("wide", json!({})).await;
    assert_eq!(trap.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_redirect_keeps_the_request_or_reads_its_result() {
    let script = |_number, seen: &crate::peer::Seen| match seen.line() {
        "POST /same" => Act::Answer(redirect("307 Temporary Redirect", "there?x#f")),
        "POST /made" => Act::Answer(redirect("303 See Other", "/result")),
        "POST /moved" => Act::Answer(redirect("301 Moved Permanently", "/result")),
        "POST /loop" => Act::Answer(redirect("308 Permanent Redirect", "/loop")),
        _ => Act::Answer(json("{}")),
    };
    let peer = Peer::start(script).await;
    let fixture = calling(&peer, "/", |_definition| {}).await;
    let host = peer.address.to_string();
    for path in ["same", "made", "moved", "loop"] {
        let endpoint = peer.url(&format!("/{path}"));
        register(&fixture, (path, &endpoint), &[&host], with_effects("keyed")).await.unwrap();
    }
    fixture.succeeds("same", json!({})).await;
    let [first, second] = &peer.seen()[..] else { panic!("{:?}", peer.seen()) };
    assert_eq!((second.line(), &second.body), ("POST /there?x", &first.body));
    assert_eq!(second.header("idempotency-key"), first.header("idempotency-key"));
    fixture.succeeds("made", json!({})).await;
    let last = peer.seen().pop().unwrap();
    assert_eq!((last.line(), last.body.as_str()), ("GET /result", ""));
    assert_eq!((last.header("idempotency-key"), last.header("content-type")), (None, None));
    fixture.check_refused("moved", json!({}), "execution", "would turn a POST into a GET").await;
    let before = peer.seen().len();
    fixture.check_refused("loop", json!({}), "execution", "which is not followed").await;
    assert_eq!(peer.seen().len() - before, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_changes_its_answers_gains_nothing() {
    let peer = Peer::answering(answer("200 OK", &["connection: close"], "{}")).await;
    let port = peer.address.port();
    let names = Names::of(&[
        ("rebind.test", &[&["127.0.0.1"], &["127.0.0.2"]]),
        ("both.test", &[&["127.0.0.1", "127.0.0.2"]]),
    ]);
    let fixture = Fixture::with_egress(&[], reaching(&[&peer], &names)).await;
    for name in ["rebind.test", "both.test"] {
        let host = format!("{name}:{port}");
        register(&fixture, (name, &format!("http://{host}/")), &[&host], |_definition| {})
            .await
            .unwrap();
    }
    fixture.succeeds("rebind.test", json!({})).await;
    assert_eq!(names.lookups(), ["rebind.test"], "one lookup, and its answer is what is dialled");
    for name in ["rebind.test", "both.test"] {
        fixture.check_refused(name, json!({}), "permission_denied", "127.0.0.2 (loopback)").await;
    }
    assert_eq!(peer.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_not_declared_is_not_even_looked_up() {
    let names = Names::of(&[]);
    let peer = Peer::answering(redirect("302 Found", "http://secret.leak.test/")).await;
    let fixture = Fixture::with_egress(&[], reaching(&[&peer], &names)).await;
    let host = peer.address.to_string();
    register(&fixture, ("call", &peer.url("/")), &[&host], |definition| {
        definition["method"] = json!("GET");
    })
    .await
    .unwrap();
    fixture.check_refused("call", json!({}), "permission_denied", "secret.leak.test:80").await;
    assert_eq!(names.lookups(), [""; 0]);
}
