//! The way out of a call: the hosts that it names, through the gateway's proxy, and nothing else.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gateway_model::{HostRules, NetworkLimit};
use gateway_sandbox::{
    Egress, EgressOptions, Exit, Finished, LaunchError, Resolve, Resolving, StoppedBy,
};
use serde_json::{Value, json};

use crate::harness::cases;
use crate::place::{Place, describe, program, python, stdout};

cases![
    programs_reach_a_host_that_is_named,
    a_host_that_is_not_named_is_denied_and_recorded,
    a_relay_within_the_call_gains_nothing,
    addresses_within_are_denied_in_every_spelling,
    a_name_that_is_named_is_denied_where_it_leads_within,
    nothing_is_reached_but_through_the_proxy,
    many_connections_are_bounded,
    a_time_out_leaves_no_connection,
    a_call_that_names_no_host_has_no_network,
    without_the_sandbox_no_host_is_reached,
];

/// Far more than anything here may take, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server of the host, on a loopback address.
struct Double {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
}

impl Double {
    /// Answers each connection's request with its first line, its Host and its body, and stays
    /// open until the client is gone.
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let double = Self { address: listener.local_addr().unwrap(), open: Arc::default() };
        let open = Arc::clone(&double.open);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                open.fetch_add(1, Ordering::SeqCst);
                let open = Arc::clone(&open);
                std::thread::spawn(move || {
                    drop(answer(stream.unwrap()));
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        double
    }

    fn port(&self) -> u16 {
        self.address.port()
    }

    async fn has_open(&self, count: usize) {
        let started = Instant::now();
        while self.open.load(Ordering::SeqCst) != count {
            assert!(started.elapsed() < PATIENCE, "{} are open", self.open.load(Ordering::SeqCst));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut host, mut length, mut line) = (None, String::new(), 0, String::new());
    while reader.read_line(&mut line)? > 2 {
        let text = line.trim_end().to_owned();
        match text.to_lowercase().split_once(": ") {
            Some(("host", value)) => value.clone_into(&mut host),
            Some(("content-length", value)) => length = value.parse().unwrap(),
            _ => {}
        }
        first.get_or_insert(text);
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if let Some(first) = first {
        let text = format!("{first}|{host}|{}\n", String::from_utf8_lossy(&body));
        let stream = reader.get_mut();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
    }
    reader.read_to_end(&mut body).map(drop)
}

struct Names(BTreeMap<&'static str, IpAddr>);

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let found = self.0.get(name).map(|address| vec![*address]);
        let found = found.ok_or_else(|| std::io::Error::other("no such name"));
        Box::pin(std::future::ready(found))
    }
}

fn egress(double: &Double) -> Arc<Egress> {
    let names = [
        ("double.test", "127.0.0.1"),
        ("metadata.test", "169.254.169.254"),
        ("inner.test", "10.0.0.1"),
    ];
    let names = names.into_iter().map(|(name, address)| (name, address.parse().unwrap()));
    let options = EgressOptions {
        allow_private: vec![double.address.to_string().parse().unwrap()],
        ca_file: None,
        resolver: Arc::new(Names(names.collect())),
    };
    Arc::new(Egress::open(options).unwrap())
}

/// A place whose calls reach the double by its name, or any host where none is named.
async fn place(double: &Double, hosts: &[String]) -> Place {
    let mut place = Place::new().await;
    place.sandbox = place.sandbox.with_egress(egress(double));
    let limit = match hosts {
        [] => NetworkLimit::Unrestricted,
        hosts => NetworkLimit::DomainAllowlist(hosts.to_vec()),
    };
    place.confinement.network = HostRules::of(&limit).unwrap();
    place
}

fn named(double: &Double) -> String {
    format!("double.test:{}", double.port())
}

fn used(finished: &Finished) -> Value {
    let profile = finished.profile.to_json();
    assert_eq!(profile["network"], "proxy", "{profile}");
    profile["proxy"].clone()
}

async fn programs_reach_a_host_that_is_named() {
    let double = Double::start();
    let host = named(&double);
    let place = place(&double, std::slice::from_ref(&host)).await;
    let urllib = format!(
        "import urllib.request as u\nprint(u.urlopen('http://{host}/python', b'body').read().decode(), end='')"
    );
    for (program, expected) in [
        (
            curl(&["-sS", &format!("http://{host}/plain?q=1")]),
            format!("GET /plain?q=1 HTTP/1.1|{host}|\n"),
        ),
        (
            curl(&["-sS", "-d", "two words", &format!("http://{host}/")]),
            format!("POST / HTTP/1.1|{host}|two words\n"),
        ),
        // CONNECT, as for HTTPS.
        (
            curl(&["-sSp", &format!("http://{host}/tunnel")]),
            format!("GET /tunnel HTTP/1.1|{host}|\n"),
        ),
        (
            curl(&["-sS", "--proxy", "socks5h://127.0.0.1:3128", &format!("http://{host}/socks")]),
            format!("GET /socks HTTP/1.1|{host}|\n"),
        ),
        (python(&urllib), format!("POST /python HTTP/1.1|{host}|body\n")),
    ] {
        let finished = place.run(&program).await;
        assert_eq!(stdout(&finished), expected, "{}", describe(&finished));
        let address = double.address.to_string();
        let reached = json!([{ "host": host, "count": 1, "address": address }]);
        let expected = json!({ "rule": [host], "reached": reached, "denied": [], "failed": [] });
        assert_eq!(used(&finished), expected);
        double.has_open(0).await;
    }
}

fn curl(args: &[&str]) -> gateway_sandbox::Program {
    program("/usr/bin/curl", args)
}

async fn a_host_that_is_not_named_is_denied_and_recorded() {
    let double = Double::start();
    let place = place(&double, &[named(&double)]).await;
    let finished = place
        .run(&curl(&["-sS", "-D", "-", "http://other.test/", "http://other.test/again"]))
        .await;
    let printed = stdout(&finished);
    let message = "other.test:80 is denied: the registration of this tool does not permit this host \
                   (resource_limits.network). Retrying does not help.";
    assert_eq!(printed.matches("HTTP/1.1 403 Forbidden").count(), 2, "{printed}");
    assert_eq!(printed.matches("x-gateway-denied: other.test").count(), 2, "{printed}");
    assert_eq!(printed.matches(message).count(), 2, "{printed}");
    let denied = json!([{ "host": "other.test:80", "count": 2, "reason": "not_listed" }]);
    assert_eq!(used(&finished)["denied"], denied);

    for (args, exit) in [
        (["-sSp", "http://double.test:1/"].as_slice(), 56),
        (&["-sS", "--proxy", "socks5h://127.0.0.1:3128", "http://double.test:1/"], 97),
    ] {
        let finished = place.run(&curl(args)).await;
        assert_eq!(finished.exit, Exit::Code(exit), "{}", describe(&finished));
        let denied = json!([{ "host": "double.test:1", "count": 1, "reason": "not_listed" }]);
        assert_eq!(used(&finished)["denied"], denied);
    }
}

/// Relays between a port of the call and its proxy, and prints what comes through it.
const RELAY: &str = "
import os, socket, threading
server = socket.create_server(('127.0.0.1', 4000))
def relay():
    client, _ = server.accept()
    proxy = socket.create_connection(('127.0.0.1', 3128))
    proxy.sendall(client.recv(4096))
    while data := proxy.recv(4096):
        client.sendall(data)
    client.close()
threading.Thread(target=relay, daemon=True).start()
client = socket.create_connection(('127.0.0.1', 4000))
client.sendall(b'GET http://other.test/ HTTP/1.1\\r\\nHost: double.test\\r\\nConnection: close\\r\\n\\r\\n')
print(client.recv(4096).decode().splitlines()[0])
";

async fn a_relay_within_the_call_gains_nothing() {
    let double = Double::start();
    let place = place(&double, &[named(&double)]).await;
    let finished = place.run(&python(RELAY)).await;
    assert_eq!(stdout(&finished), "HTTP/1.1 403 Forbidden\n", "{}", describe(&finished));
    assert_eq!(used(&finished)["denied"][0]["host"], "other.test:80");
}

async fn addresses_within_are_denied_in_every_spelling() {
    let double = Double::start();
    let place = place(&double, &[]).await;
    let mut code = "import socket\n".to_owned();
    let hosts = [
        "metadata.test",
        "inner.test",
        "169.254.169.254",
        "[::ffff:a9fe:a9fe]",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "169.254.43518",
        "[fd00:ec2::254]",
        "localhost",
        "127.0.0.1:22",
        "0.0.0.0",
    ];
    for host in hosts {
        code += &format!(
            "s = socket.create_connection(('127.0.0.1', 3128))\n\
             s.sendall(b'GET http://{host}/latest HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n\
             print(s.recv(4096).decode().split()[1])\n"
        );
    }
    let finished = place.run(&python(&code)).await;
    // A name that is not known is no denial.
    let expected = hosts.map(|host| if host == "localhost" { "502" } else { "403" });
    assert_eq!(stdout(&finished), expected.join("\n") + "\n", "{}", describe(&finished));
    let used = used(&finished);
    assert_eq!(used["rule"], json!(["any public host"]));
    let denied = used["denied"].as_array().unwrap();
    let at = |host: &str| denied.iter().find(|row| row["host"] == host).unwrap_or(&Value::Null);
    assert_eq!(at("metadata.test:80")["reason"], "not_public", "{used}");
    assert_eq!(at("metadata.test:80")["address"], "169.254.169.254:80", "{used}");
    assert_eq!(at("169.254.169.254:80")["count"], 2, "{used}");
    assert_eq!(at("2852039166:80")["reason"], "no_host", "{used}");
}

async fn a_name_that_is_named_is_denied_where_it_leads_within() {
    let double = Double::start();
    let place = place(&double, &["metadata.test".to_owned(), "inner.test".to_owned()]).await;
    for (host, address) in [("metadata.test", "169.254.169.254"), ("inner.test", "10.0.0.1")] {
        let finished = place.run(&curl(&["-sS", &format!("http://{host}/latest")])).await;
        let printed = stdout(&finished);
        assert!(
            printed.starts_with(&format!("denied: {host}:80 leads to {address} ")),
            "{printed}"
        );
        assert!(printed.ends_with("Retrying does not help.\n"), "{printed}");
        let row = &used(&finished)["denied"][0];
        assert_eq!((&row["reason"], &row["count"]), (&json!("not_public"), &json!(1)), "{row}");
    }
}

async fn nothing_is_reached_but_through_the_proxy() {
    let double = Double::start();
    let name = format!("network-{}", std::process::id());
    let hidden = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _hidden = UnixListener::bind_addr(&hidden).unwrap();
    let port = double.port();
    let place = place(&double, &[named(&double)]).await;
    let attempts = [
        (format!("socket.create_connection(('127.0.0.1', {port}), 5)"), "ECONNREFUSED"),
        ("socket.create_connection(('1.1.1.1', 443), 5)".to_owned(), "ENETUNREACH"),
        ("socket.create_connection(('2606:4700::1111', 443), 5)".to_owned(), "ENETUNREACH"),
        ("socket.create_connection(('169.254.169.254', 80), 5)".to_owned(), "ENETUNREACH"),
        ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)".to_owned(), "EPERM"),
        ("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)".to_owned(), "EPERM"),
        (
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, 1)".to_owned(),
            "EPERM",
        ),
        ("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)".to_owned(), "EPERM"),
        ("socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132)".to_owned(), "EPERM"),
        ("socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)".to_owned(), "EPERM"),
        ("socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 262)".to_owned(), "EPERM"),
        ("socket.socket(socket.AF_PACKET, socket.SOCK_STREAM)".to_owned(), "EPERM"),
        ("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)".to_owned(), "EPERM"),
        ("socket.socket(40, socket.SOCK_STREAM)".to_owned(), "EPERM"),
        ("socket.socketpair(socket.AF_INET)".to_owned(), "EPERM"),
        (format!("socket.socket(socket.AF_UNIX).connect('\\0{name}')"), "ECONNREFUSED|EPERM"),
        ("socket.getaddrinfo('double.test', 80)".to_owned(), "EAI"),
        // What must not be blocked: the call's own loopback.
        ("socket.socket(socket.AF_INET, socket.SOCK_STREAM, 6).close()".to_owned(), "None"),
        ("socket.create_server(('::1', 4000), family=socket.AF_INET6).close()".to_owned(), "None"),
    ];
    let mut code = "import socket, errno\n".to_owned();
    for (expression, _) in &attempts {
        code += &format!(
            "try: print({expression})\n\
             except socket.gaierror: print('EAI')\n\
             except OSError as e: print(errno.errorcode[e.errno])\n"
        );
    }
    let finished = place.run(&python(&code)).await;
    let printed = stdout(&finished);
    assert_eq!(printed.lines().count(), attempts.len(), "{}", describe(&finished));
    let wrong: Vec<_> = printed
        .lines()
        .zip(&attempts)
        .filter(|(line, (_, expected))| !expected.split('|').any(|one| one == *line))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(used(&finished)["reached"], json!([]));
    double.has_open(0).await;
}

/// Opens a thousand tunnels, waits for as many as are let through, and prints how many those are.
const THOUSAND: &str = "
import resource, select, socket, sys
sockets = []
for _ in range(1000):
    s = socket.socket()
    s.setblocking(False)
    s.connect_ex(('127.0.0.1', 3128))
    sockets.append(s)
poll = select.poll()
for s in sockets:
    poll.register(s, select.POLLOUT)
by_fd = {s.fileno(): s for s in sockets}
answered = 0
while answered < 64 or poll.poll(300):
    for fd, event in poll.poll(20000):
        s = by_fd[fd]
        if event & (select.POLLERR | select.POLLHUP):
            poll.unregister(fd)
        elif event & select.POLLOUT:
            s.send(f'CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'.encode())
            poll.modify(fd, select.POLLIN)
        else:
            answered += s.recv(4096).startswith(b'HTTP/1.1 200')
            poll.unregister(fd)
print(answered)
";

async fn many_connections_are_bounded() {
    let double = Double::start();
    let host = named(&double);
    let place = place(&double, std::slice::from_ref(&host)).await;
    let mut program = python(THOUSAND);
    program.args.push(host.clone().into());
    let finished = place.run(&program).await;
    assert_eq!(stdout(&finished), "64\n", "{}", describe(&finished));
    // When it ends, those that waited may still be served.
    let reached = used(&finished)["reached"][0]["count"].as_u64().unwrap();
    assert!((64..=1_000).contains(&reached), "{reached}");
    double.has_open(0).await;
}

async fn a_time_out_leaves_no_connection() {
    let double = Double::start();
    let host = named(&double);
    let mut place = place(&double, std::slice::from_ref(&host)).await;
    place.confinement.limits.wall = Duration::from_secs(2);
    let code = format!(
        "import signal, socket, time\n\
         signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
         s = socket.create_connection(('127.0.0.1', 3128))\n\
         s.sendall(b'CONNECT {host} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n\
         print(s.recv(4096).decode().splitlines()[0], flush=True)\n\
         time.sleep(60)"
    );
    let finished = place.run(&python(&code)).await;
    assert_eq!(finished.stopped_by, Some(StoppedBy::WallClock), "{}", describe(&finished));
    assert_eq!(stdout(&finished), "HTTP/1.1 200 OK\n", "{}", describe(&finished));
    assert_eq!(used(&finished)["reached"][0]["count"], 1);
    double.has_open(0).await;
}

async fn a_call_that_names_no_host_has_no_network() {
    let double = Double::start();
    let mut place = place(&double, &[]).await;
    place.confinement.network = HostRules::Nothing;
    let code = "import os, socket\n\
                print([name for name in os.environ if 'proxy' in name.lower()])\n\
                print(open('/proc/net/tcp').read().count(':0C38'))\n\
                try: socket.socket()\n\
                except OSError as e: print(e.errno)\n";
    let finished = place.run(&python(code)).await;
    assert_eq!(stdout(&finished), "[]\n0\n1\n", "{}", describe(&finished));
    let profile = finished.profile.to_json();
    assert_eq!((&profile["network"], profile.get("proxy")), (&json!("none"), None));
}

async fn without_the_sandbox_no_host_is_reached() {
    let double = Double::start();
    let network = HostRules::Any;
    let mut off = Place::off().await;
    off.sandbox = off.sandbox.with_egress(egress(&double));
    for mut place in [off, Place::new().await] {
        place.confinement.network = network.clone();
        let refused = place.try_run(&curl(&["http://double.test/"])).await;
        let Err(LaunchError::Unavailable(unavailable)) = refused else { panic!("{refused:?}") };
        assert!(unavailable.missing.contains("its one way out"), "{unavailable}");
        assert!(!unavailable.remedies.is_empty());
    }
}
