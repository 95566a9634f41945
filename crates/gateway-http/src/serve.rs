//! Carries a router over HTTP/1.1: bounded connections, bounded waits, a graceful stop.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::auth::Peer;

/// The largest head of a request; a larger one is answered with 431.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The wait after a connection could not be accepted, which mostly means too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How connections are served.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Connections at once, at least one; more wait to be accepted.
    pub max_connections: usize,
    /// How long the head of a request may take to arrive, and a connection may idle.
    pub header_timeout: Duration,
    /// How long requests under way may take to be answered after the stop.
    pub drain: Duration,
}

/// Serves a router on a listener until told to stop, then answers what is under way.
///
/// After the stop no connection is accepted and idle ones are closed; what is not answered
/// within the drain time is cut off. Nothing that a cut-off request started is lost: calls run
/// in tasks of the engine, so close the gateway as well, at the same time.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    options: ServeOptions,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(options.max_connections.max(1)));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((place, stream, peer)) => {
                let connection = Connection {
                    router: router.clone(),
                    peer,
                    header_timeout: options.header_timeout,
                    stop: stop.clone(),
                };
                let cut = cut.clone();
                connections.spawn(async move {
                    let _is_cut = cut.run_until_cancelled(connection.serve(stream)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(options.drain, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "connections cut off at the stop");
        cut.cancel();
        connections.wait().await;
    }
}

/// Waits for a place and then for a connection. Cancel-safe.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(OwnedSemaphorePermit, TcpStream, SocketAddr)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((place, stream, peer))
}

/// One connection.
struct Connection {
    router: Router,
    peer: SocketAddr,
    header_timeout: Duration,
    stop: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        let Self { router, peer, header_timeout, stop } = self;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "small packets may be delayed");
        }
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            router.clone().oneshot(request)
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(header_timeout)
                .max_buf_size(MAX_HEAD_BYTES)
                .serve_connection(TokioIo::new(stream), service)
        );
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection broke off");
        }
    }
}
