//! An HTTP server that does to its connections what a test says, and a resolver that does too.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use gateway_sandbox::{EgressOptions, Resolve, Resolving};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What a peer does once a request has arrived.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Sends these bytes and waits for the next request on the connection.
    Answer(Vec<u8>),
    /// Sends these bytes and closes the connection.
    Last(Vec<u8>),
    /// Sends the first bytes, then the second over and over.
    Endless(Vec<u8>, Vec<u8>),
    /// Sends these bytes and no more, until the other side closes the connection.
    Stall(Vec<u8>),
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
    /// The request line and the headers, in lowercase but for the request line.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: String,
}

impl Seen {
    /// Returns the request line without its version.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap().trim_end_matches(" HTTP/1.1")
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(header, _)| *header == name).map(|(_, value)| value)
    }
}

/// The server; dropped, it closes everything.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    closed: Arc<Semaphore>,
    _server: JoinSet<()>,
}

impl Peer {
    /// Starts a peer; the script is told the number of the request, from 0, and the request.
    pub(crate) async fn start(
        script: impl Fn(usize, &Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, closed) = (Arc::default(), Arc::new(Semaphore::new(0)));
        let script: Arc<Script> = Arc::new(script);
        let mut server = JoinSet::new();
        server.spawn(accept(listener, script, Arc::clone(&seen), Arc::clone(&closed)));
        Self { address, seen, closed, _server: server }
    }

    /// Starts a peer that gives every request the same answer.
    pub(crate) async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_number, _seen| Act::Answer(answer.clone())).await
    }

    /// Returns the requests that arrived.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until the other side has closed a connection that stalled.
    pub(crate) async fn closed(&self) {
        self.closed.acquire().await.unwrap().forget();
    }

    /// Returns an address of this peer.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

type Script = dyn Fn(usize, &Seen) -> Act + Send + Sync;

async fn accept(
    listener: TcpListener,
    script: Arc<Script>,
    seen: Arc<Mutex<Vec<Seen>>>,
    closed: Arc<Semaphore>,
) {
    let mut connections = JoinSet::new();
    for number in 0.. {
        let (stream, _from) = listener.accept().await.unwrap();
        let (script, seen, closed) = (Arc::clone(&script), Arc::clone(&seen), Arc::clone(&closed));
        connections.spawn(async move { serve(number, stream, &*script, &seen, &closed).await });
    }
}

async fn serve(
    connection: usize,
    mut stream: TcpStream,
    script: &Script,
    seen: &Mutex<Vec<Seen>>,
    closed: &Semaphore,
) -> Option<()> {
    loop {
        let request = read_request(connection, &mut stream).await?;
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        match script(number, &request) {
            Act::Answer(bytes) => stream.write_all(&bytes).await.ok()?,
            Act::Last(bytes) => return stream.write_all(&bytes).await.ok(),
            Act::Endless(first, more) => {
                stream.write_all(&first).await.ok()?;
                while stream.write_all(&more).await.is_ok() {}
                closed.add_permits(1);
                return None;
            }
            Act::Stall(bytes) => {
                stream.write_all(&bytes).await.ok()?;
                let _ended_or_reset = stream.read(&mut [0; 1]).await;
                closed.add_permits(1);
                return None;
            }
        }
    }
}

async fn read_request(connection: usize, stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let (line, headers) = text.split_once("\r\n").unwrap();
    let head = format!("{line}\n{}", headers.replace("\r\n", "\n"));
    let mut seen = Seen { connection, head, body: String::new() };
    let length: usize = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    seen.body = String::from_utf8(body).unwrap();
    Some(seen)
}

/// Writes an answer with a body and its length.
pub(crate) fn answer(status: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// Writes a successful answer of JSON.
pub(crate) fn json(body: &str) -> Vec<u8> {
    answer("200 OK", &["content-type: application/json"], body)
}

/// Names and what they resolve to: the first list at the first lookup, the last one ever after.
#[derive(Debug, Default)]
pub(crate) struct Names {
    answers: BTreeMap<&'static str, Vec<Vec<IpAddr>>>,
    lookups: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn of(names: &[(&'static str, &[&[&str]])]) -> Arc<Self> {
        let parse = |lookups: &[&[&str]]| {
            let list = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
            lookups.iter().map(list).collect()
        };
        let answers = names.iter().map(|(name, lookups)| (*name, parse(lookups))).collect();
        Arc::new(Self { answers, lookups: Mutex::default() })
    }

    /// Returns the names that were looked up, in order.
    pub(crate) fn lookups(&self) -> Vec<String> {
        self.lookups.lock().unwrap().clone()
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let mut lookups = self.lookups.lock().unwrap();
        let number = lookups.iter().filter(|earlier| *earlier == name).count();
        lookups.push(name.to_owned());
        let found = self
            .answers
            .get(name)
            .and_then(|answers| answers.get(number).or_else(|| answers.last()).cloned());
        let found = found.ok_or_else(|| std::io::Error::other("no such name"));
        Box::pin(std::future::ready(found))
    }
}

/// Returns the way out for a test: these peers may be reached, by these names.
pub(crate) fn reaching(peers: &[&Peer], names: &Arc<Names>) -> EgressOptions {
    EgressOptions {
        allow_private: peers.iter().map(|peer| peer.address.to_string().parse().unwrap()).collect(),
        ca_file: None,
        resolver: Arc::<Names>::clone(names),
    }
}
