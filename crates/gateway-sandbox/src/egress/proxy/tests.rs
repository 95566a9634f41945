//! What the proxy makes of requests, well-formed and not; its client stands outside of a sandbox.

use std::collections::BTreeMap;
use std::net::IpAddr;

use gateway_model::NetworkLimit;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::egress::{EgressOptions, Resolve, Resolving};

struct Names(BTreeMap<&'static str, IpAddr>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let found = self.0.get(name).map(|address| vec![*address]);
        Box::pin(std::future::ready(found.ok_or_else(|| io::Error::other("no such name"))))
    }
}

/// A proxy that is served, and two hosts, each of which tells the head of each request.
struct Place {
    proxy: Arc<Proxy>,
    address: SocketAddr,
    ports: [u16; 2],
    _tasks: JoinSet<()>,
}

impl Place {
    async fn new() -> Self {
        let mut tasks = JoinSet::new();
        let [one, two] = [origin(&mut tasks).await, origin(&mut tasks).await];
        let names = ["one.test", "two.test"].map(|name| (name, IpAddr::from([127, 0, 0, 1])));
        let options = EgressOptions {
            allow_private: vec!["127.0.0.1".parse().unwrap()],
            ca_file: None,
            resolver: Arc::new(Names(names.into())),
        };
        let hosts = vec![format!("one.test:{one}"), format!("two.test:{two}")];
        let proxy = Arc::new(Proxy::new(
            Arc::new(Egress::open(options).unwrap()),
            HostRules::of(&NetworkLimit::DomainAllowlist(hosts)).unwrap(),
            Arc::new(Semaphore::new(1)),
            Instant::now() + Duration::from_secs(20),
        ));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::clone(&proxy);
        tasks.spawn(async move { served.serve(listener, &mut JoinSet::new()).await });
        Self { proxy, address, ports: [one, two], _tasks: tasks }
    }

    /// Sends bytes on a connection of their own and reads until the proxy closes it.
    async fn send(&self, bytes: &[u8]) -> Vec<u8> {
        #[expect(
            clippy::disallowed_methods,
            reason = "the client, which is no part of the gateway"
        )]
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // A proxy that refuses may reset the connection instead of reading what is left.
        drop(stream.read_to_end(&mut answer).await);
        answer
    }

    async fn ask(&self, text: &str) -> String {
        String::from_utf8(self.send(text.as_bytes()).await).unwrap()
    }
}

async fn origin(tasks: &mut JoinSet<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move {
        loop {
            let (mut stream, _from) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0 {}
            let answer = format!(
                "HTTP/1.1 200 OK\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nX-End: 1\r\nContent-Length: {}\r\n\r\n",
                head.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.write_all(&head).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_request_is_passed_on_without_what_is_for_the_proxy() {
    let place = Place::new().await;
    let port = place.ports[0];
    let answer = place
        .ask(&format!(
            "GET http://me:secret@one.test:{port}/a?b=c HTTP/1.1\r\nHost: elsewhere.test\r\nProxy-Connection: keep-alive\r\n\
             Proxy-Authorization: Basic x\r\nConnection: close, x-private\r\nX-Private: 1\r\nX-Kept: 1\r\n\r\n"
        ))
        .await
        .to_lowercase();
    let (head, seen) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("http/1.1 200 ok") && head.contains("x-end: 1"), "{head}");
    assert!(!head.contains("x-hop"), "{head}");
    assert!(seen.starts_with("get /a?b=c http/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: one.test:{port}\r\n")) && seen.contains("x-kept: 1"));
    for gone in ["proxy-", "x-private", "elsewhere", "secret"] {
        assert!(!seen.contains(gone), "{gone}: {seen}");
    }
}

#[tokio::test]
async fn requests_on_one_connection_go_each_to_its_own_host() {
    let place = Place::new().await;
    let [one, two] = place.ports;
    let targets = [format!("one.test:{one}"), format!("two.test:{two}"), "three.test".to_owned()];
    let requests = targets.each_ref().map(|host| {
        let last = if host == "three.test" { "Connection: close\r\n" } else { "" };
        format!("GET http://{host}/ HTTP/1.1\r\nHost: x\r\n{last}\r\n")
    });
    let answer = place.ask(&requests.concat()).await;
    let positions = [
        answer.find(&format!("host: one.test:{one}")),
        answer.find(&format!("host: two.test:{two}")),
        answer.find("three.test:80 is denied"),
    ];
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{answer}");
    let used = place.proxy.used().to_json();
    assert_eq!(used["rule"], json!([targets[0], targets[1]]));
    assert_eq!(used["reached"].as_array().unwrap().len(), 2, "{used}");
    assert_eq!(used["denied"][0]["host"], "three.test:80");
}

#[tokio::test]
async fn what_is_no_request_for_a_proxy_is_refused() {
    let place = Place::new().await;
    let endless = format!("GET http://one.test/ HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET http://one.test/ HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(200));
    for (request, expected) in [
        ("GET / HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n", "400 Bad Request"),
        (
            "GET https://one.test/ HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n",
            "400 Bad Request",
        ),
        (
            "CONNECT one.test HTTP/1.1\r\nHost: one.test\r\nConnection: close\r\n\r\n",
            "400 Bad Request",
        ),
        ("GET http://a..b/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "403 Forbidden"),
        ("\x16\x03\x01\x02\0\x01\r\n\r\n", "400 Bad Request"),
        (&endless, "431 Request Header Fields Too Large"),
        (&many, "431 Request Header Fields Too Large"),
    ] {
        let answer = place.ask(request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{request:.60}: {answer}");
    }
    assert_eq!(place.proxy.used().to_json()["reached"], json!([]));
}

#[tokio::test]
async fn socks_answers_by_its_codes() {
    let place = Place::new().await;
    let [port_high, port_low] = place.ports[0].to_be_bytes();
    let named = |command: u8, host: &str, port: [u8; 2]| {
        let length = u8::try_from(host.len()).unwrap();
        [&[5, 1, 0, 5, command, 0, 3, length], host.as_bytes(), &port].concat()
    };
    let port = [port_high, port_low];
    for (sent, expected) in [
        (named(1, "two.test", port), [5, 0, 5, 2]),
        (named(1, "169.254.169.254", [0, 80]), [5, 0, 5, 2]),
        (named(1, "0x7f.1", [0, 80]), [5, 0, 5, 2]),
        (named(2, "one.test", port), [5, 0, 5, 7]),
        (named(3, "one.test", port), [5, 0, 5, 7]),
        (vec![5, 1, 0, 5, 1, 0, 1, 169, 254, 169, 254, 0, 80], [5, 0, 5, 2]),
        (vec![5, 1, 0, 5, 1, 0, 9], [5, 0, 5, 8]),
    ] {
        let answer = place.send(&sent).await;
        assert_eq!(answer.get(..4), Some(expected.as_slice()), "{sent:?}");
    }
    assert_eq!(place.send(&[5, 1, 2]).await, [5, 0xFF], "a password is not asked for");
    let mut tunnel = named(1, "one.test", port);
    tunnel.extend(b"GET /through HTTP/1.1\r\n\r\n");
    let answer = place.send(&tunnel).await;
    assert_eq!(answer.get(..4), Some([5, 0, 5, 0].as_slice()));
    assert!(String::from_utf8_lossy(&answer).ends_with("GET /through HTTP/1.1\r\n\r\n"));
}

#[test]
fn what_is_told_is_bounded() {
    let hosts = (0..256).map(|number| format!("host-{number}.test:443")).collect();
    let rules = HostRules::of(&NetworkLimit::DomainAllowlist(hosts)).unwrap();
    let mut used = ProxyUse::under(&rules);
    let address = SocketAddr::from(([192, 0, 2, 1], 443));
    for number in 0..1_000 {
        used.denied(&format!("{}-{number}.test:443", "x".repeat(200)), Denied::NotPublic(address));
        used.reached(&format!("host-{number}.test:443"), address);
        used.failed("same.test:443");
    }
    let told = used.to_json();
    assert!(told.to_string().len() < 3 << 10, "{told}");
    let count = |kind: &str| told[kind].as_array().unwrap().len() as u64;
    assert!(count("rule") > 10 && count("reached") > 5 && count("denied") > 1, "{told}");
    assert_eq!(told["failed"], json!([{ "host": "same.test:443", "count": 1_000 }]));
    assert_eq!(told["other_rules"], 256 - count("rule"));
    assert_eq!(told["others"], 2_000 - count("reached") - count("denied"));
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_given_up_and_a_used_one_is_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "the client, which is no part of the gateway")]
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(connecting, listener.accept());
    let (mut watched, activity) = Watched::new(client.unwrap());
    let started = Instant::now();
    tokio::time::advance(Duration::from_secs(200)).await;
    watched.write_all(b"x").await.unwrap();
    activity.has_ceased(IDLE_TIME).await;
    assert!(started.elapsed() >= Duration::from_secs(500), "{:?}", started.elapsed());
    drop(accepted);
}
