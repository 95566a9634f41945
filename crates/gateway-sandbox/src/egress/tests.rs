//! Connections under policy, and whom TLS trusts: against servers on loopback addresses.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use gateway_model::{Digest, NetworkLimit};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;

/// Names, what each resolves to, and what was asked.
#[derive(Default)]
struct Names {
    answers: BTreeMap<&'static str, Vec<IpAddr>>,
    lookups: Mutex<Vec<String>>,
    never: Option<&'static str>,
}

impl Names {
    fn of(answers: &[(&'static str, &[&str])]) -> Arc<Self> {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let answers = answers.iter().map(|(name, texts)| (*name, parse(texts))).collect();
        Arc::new(Self { answers, ..Self::default() })
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        self.lookups.lock().unwrap().push(name.to_owned());
        if self.never == Some(name) {
            return Box::pin(std::future::pending());
        }
        let found = self.answers.get(name).cloned();
        let found = found.ok_or_else(|| io::Error::other("no such name"));
        Box::pin(std::future::ready(found))
    }
}

fn egress(allowed: &[SocketAddr], names: &Arc<Names>, ca_file: Option<PathBuf>) -> Egress {
    let allow_private =
        allowed.iter().map(|address| address.to_string().parse().unwrap()).collect();
    let resolver = Arc::<Names>::clone(names);
    Egress::open(EgressOptions { allow_private, ca_file, resolver }).unwrap()
}

fn in_a_while() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

async fn connect(
    egress: &Egress,
    rules: &HostRules,
    host: &str,
    port: u16,
) -> Result<CheckedStream, ConnectError> {
    egress.connect(rules, (&host.parse().unwrap(), port), in_a_while()).await
}

#[tokio::test]
async fn a_connection_needs_no_http_and_leads_to_the_checked_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let names = Names::of(&[("peer.test", &["127.0.0.1"])]);
    let egress = egress(&[address], &names, None);
    for host in ["peer.test", "127.0.0.1", "[::ffff:7f00:1]"] {
        let mut reached = connect(&egress, &HostRules::Any, host, address.port()).await.unwrap();
        assert_eq!(reached.address, address, "{host}");
        reached.stream.write_all(b"x").await.unwrap();
        let (mut accepted, _from) = listener.accept().await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');
    }
}

#[tokio::test]
async fn what_is_not_listed_is_neither_looked_up_nor_connected() {
    let names = Names::of(&[("listed.test", &["10.0.0.1"]), ("other.test", &["8.8.8.8"])]);
    let egress = egress(&[], &names, None);
    let limit = NetworkLimit::DomainAllowlist(vec!["listed.test".to_owned()]);
    let rules = HostRules::of(&limit).unwrap();
    for (rules, host, port) in [
        (&rules, "other.test", 443),
        (&rules, "8.8.8.8", 443),
        (&rules, "listed.test", 22),
        (&HostRules::Nothing, "listed.test", 443),
    ] {
        let error = connect(&egress, rules, host, port).await.unwrap_err();
        assert!(matches!(error, ConnectError::NotListed { .. }) && error.is_denied(), "{error}");
    }
    assert!(names.lookups.lock().unwrap().is_empty());
    let error = connect(&egress, &rules, "listed.test", 443).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "listed.test:443 leads to 10.0.0.1 (private), which is not on the public internet; an operator permits it \
         with [egress] allow_private = [\"10.0.0.1:443\"]"
    );
}

#[tokio::test]
async fn one_forbidden_answer_refuses_the_whole_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let names = Names::of(&[
        ("mixed.test", &["127.0.0.1", "169.254.169.254"]),
        (
            "many.test",
            &[
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1",
                "::1",
            ],
        ),
        ("none.test", &[]),
    ]);
    let egress = egress(&[address], &names, None);
    for host in ["mixed.test", "many.test"] {
        let error = connect(&egress, &HostRules::Any, host, address.port()).await.unwrap_err();
        assert!(error.is_denied(), "{error}");
    }
    let error = connect(&egress, &HostRules::Any, "none.test", address.port()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Resolve { .. }), "{error}");
}

#[tokio::test]
async fn the_next_address_is_tried_where_one_refuses() {
    // The port is taken in both places, and listened on in one.
    let silent = tokio::net::TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = silent.local_addr().unwrap();
    let open = SocketAddr::new([127, 0, 0, 2].into(), closed.port());
    let _listener = TcpListener::bind(open).await.unwrap();
    let names = Names::of(&[("two.test", &["127.0.0.1", "127.0.0.2"])]);
    let egress = egress(&[open, closed], &names, None);
    let reached = connect(&egress, &HostRules::Any, "two.test", open.port()).await.unwrap();
    assert_eq!(reached.address, open);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_never_answered_ends_with_the_time_to_connect() {
    let names = Arc::new(Names { never: Some("slow.test"), ..Names::default() });
    let egress = egress(&[], &names, None);
    let started = Instant::now();
    let error = connect(&egress, &HostRules::Any, "slow.test", 443).await.unwrap_err();
    assert_eq!(error.to_string(), "slow.test:443 was not connected within 10000 ms");
    assert_eq!(started.elapsed(), CONNECT_TIME);
}

/// A certificate authority and a server with its certificate for some names.
struct TlsPeer {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
    directory: tempfile::TempDir,
    _server: JoinSet<()>,
}

impl TlsPeer {
    async fn start(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        Self::answering(name, answer, change).await
    }

    async fn answering(
        name: &str,
        answer: &'static [u8],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let mut leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut leaf);
        let key = KeyPair::generate().unwrap();
        let certificate = leaf.signed_by(&key, &authority).unwrap();
        let directory = tempfile::tempdir().unwrap();
        write_pem(&directory.path().join("ca.pem"), authority.der());
        let chain = vec![certificate.der().clone()];
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, key.into())
                .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let mut server = JoinSet::new();
        server.spawn(serve(listener, config, answer, Arc::clone(&requests)));
        Self { address, requests, directory, _server: server }
    }

    fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }
}

#[expect(clippy::disallowed_methods, reason = "the test writes the file that an operator would")]
fn write_pem(path: &std::path::Path, certificate: &CertificateDer<'_>) {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    std::fs::write(path, pem).unwrap();
}

async fn serve(
    listener: TcpListener,
    config: ServerConfig,
    answer: &'static [u8],
    requests: Arc<AtomicUsize>,
) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    while let Ok((stream, _from)) = listener.accept().await {
        let Ok(mut secured) = acceptor.accept(stream).await else { continue };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if secured.read_buf(&mut head).await.unwrap_or(0) == 0 {
                break;
            }
        }
        if head.ends_with(b"\r\n\r\n") {
            requests.fetch_add(1, Ordering::Relaxed);
            secured.write_all(answer).await.unwrap();
        }
    }
}

/// Asks for `/` at a port of this machine by a name; says what happened and whether it was sent.
async fn send(
    address: SocketAddr,
    ca_file: Option<PathBuf>,
    name: &str,
    patience: Duration,
) -> (Result<HttpResponse, HttpError>, bool) {
    let names = Names::of(&[("peer.test", &["127.0.0.1"]), ("other.test", &["127.0.0.1"])]);
    let egress = egress(&[address], &names, ca_file);
    let request = HttpRequest {
        method: Method::GET,
        url: format!("https://{name}:{}/", address.port()).parse().unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        is_repeatable: true,
    };
    let bounds = HttpBounds {
        rules: &HostRules::Any,
        deadline: Instant::now() + patience,
        max_body_bytes: 10,
        max_error_bytes: 10,
        partition: Digest([0; 32]),
    };
    let progress = HttpProgress::default();
    let answered = egress.send(request, &bounds, &progress).await;
    (answered, progress.is_sent())
}

/// Asks the peer by a name; returns the answer, or what went wrong before anything was sent.
async fn ask(peer: &TlsPeer, ca_file: Option<PathBuf>, name: &str) -> Result<Vec<u8>, String> {
    let (answered, is_sent) = send(peer.address, ca_file, name, Duration::from_secs(20)).await;
    answered.map(|response| response.body).map_err(|error| {
        assert!(!is_sent, "{error}");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    })
}

#[tokio::test]
async fn a_peer_must_prove_its_name_to_whom_the_gateway_trusts() {
    let peer = TlsPeer::start("peer.test", |_leaf| {}).await;
    assert_eq!(ask(&peer, Some(peer.ca_file()), "peer.test").await, Ok(b"ok".to_vec()));
    let unknown = ask(&peer, None, "peer.test").await.unwrap_err();
    assert!(unknown.contains("[egress] ca_file"), "{unknown}");
    for name in ["other.test", "127.0.0.1"] {
        let wrong = ask(&peer, Some(peer.ca_file()), name).await.unwrap_err();
        assert!(wrong.contains("not valid for name"), "{wrong}");
    }
    assert_eq!(peer.requests.load(Ordering::Relaxed), 1, "no request went to a peer unproven");
}

#[tokio::test]
async fn an_expired_certificate_and_a_peer_without_tls_are_refused() {
    let expired = TlsPeer::start("peer.test", |leaf| {
        leaf.not_before = date_time_ymd(2020, 1, 1);
        leaf.not_after = date_time_ymd(2021, 1, 1);
    })
    .await;
    let error = ask(&expired, Some(expired.ca_file()), "peer.test").await.unwrap_err();
    assert!(error.contains("no TLS connection") && error.contains("expired"), "{error}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut plain = TlsPeer::start("peer.test", |_leaf| {}).await;
    plain.address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _from) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let error = ask(&plain, Some(plain.ca_file()), "peer.test").await.unwrap_err();
    assert!(error.contains("no TLS connection"), "{error}");
}

#[tokio::test]
async fn a_handshake_that_never_ends_and_a_body_that_is_cut_are_told_apart() {
    // Connections wait in the backlog, and nobody ever says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let patience = Duration::from_secs(1);
    let (answered, is_sent) = send(silent.local_addr().unwrap(), None, "peer.test", patience).await;
    let error = answered.unwrap_err();
    assert!(matches!(error, HttpError::TimedOut { phase: HttpPhase::Handshake, .. }), "{error}");
    assert!(!is_sent);

    // Without TLS's own farewell, an end of the stream may be somebody's cut.
    let peer = TlsPeer::answering("peer.test", b"HTTP/1.1 200 OK\r\n\r\npart", |_leaf| {}).await;
    let patience = Duration::from_secs(20);
    let (answered, is_sent) = send(peer.address, Some(peer.ca_file()), "peer.test", patience).await;
    let error = answered.unwrap_err();
    assert!(matches!(error, HttpError::Broken { phase: HttpPhase::Body, .. }), "{error}");
    assert!(is_sent);
}

#[tokio::test]
async fn an_address_can_be_proven_as_well_as_a_name() {
    let peer = TlsPeer::start("127.0.0.1", |_leaf| {}).await;
    assert_eq!(ask(&peer, Some(peer.ca_file()), "127.0.0.1").await, Ok(b"ok".to_vec()));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the test writes the file that an operator would")]
async fn a_file_of_authorities_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let open = |path: PathBuf| {
        let options = EgressOptions { ca_file: Some(path), ..EgressOptions::public_internet() };
        Egress::open(options).unwrap_err().to_string()
    };
    let missing = directory.path().join("missing.pem");
    assert_eq!(
        open(missing.clone()),
        format!("egress.ca_file: {} cannot be read", missing.display())
    );
    for text in
        ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        let path = directory.path().join("ca.pem");
        std::fs::write(&path, text).unwrap();
        assert!(open(path).contains("expected certificates in PEM"), "{text:?}");
    }
}
