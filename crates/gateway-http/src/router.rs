//! The router: the table of routes behind one check of who is calling.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use gateway_engine::ToolGateway;
use gateway_model::bounded_text;

use crate::error::Problem;
use crate::{auth, openapi, routes};

/// Who may call over REST, and under which names the gateway is reached.
#[derive(Clone)]
pub struct HttpOptions {
    /// The bearer token that makes a caller the operator; without one nobody is.
    pub operator_token: Option<String>,
    /// Whether a caller on this machine needs the token too, as it must where requests of other
    /// machines may be passed on by a program on this one.
    pub needs_token: bool,
    /// Names and addresses, without port, that `Host` may hold besides the loopback ones.
    pub allowed_hosts: Vec<String>,
    /// Origins, such as `https://console.example`, from which a browser may call.
    pub allowed_origins: Vec<String>,
}

/// What every route works on.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) gateway: ToolGateway,
    /// The OpenAPI document.
    pub(crate) document: Bytes,
}

/// Returns the REST face of a gateway.
///
/// Every request must carry a [`Peer`](crate::Peer) to count as coming from this machine;
/// [`serve`](fn@crate::serve) adds it.
pub fn router(gateway: ToolGateway, options: HttpOptions) -> Router {
    let table = routes::all();
    let document = Bytes::from(openapi::document(&table).to_string());
    let mut router = Router::new();
    for route in table {
        router = router.route(route.path, route.handler);
    }
    router
        .method_not_allowed_fallback(other_method)
        .fallback(unknown_path)
        .layer(from_fn_with_state(Arc::new(options), auth::admit))
        .with_state(Served { gateway, document })
}

/// Answers a method that a known path does not have; the `Allow` header is added by the route.
async fn other_method(request: Request) -> Response {
    if request.method() == Method::OPTIONS {
        return StatusCode::NO_CONTENT.into_response();
    }
    let (method, path) = (request.method(), bounded_text(request.uri().path(), 200));
    let detail = format!("{path} does not answer {method}; the Allow header lists what it answers");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).into_response()
}

async fn unknown_path(request: Request) -> Problem {
    let path = bounded_text(request.uri().path(), 200);
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("nothing is at {path}; GET /openapi.json lists what is served"),
    )
}
