//! The REST face of the gateway: routes, their OpenAPI document, and the server that carries them.
//!
//! A request passes `auth` (Host, Origin, Authorization: who is it?), then its route reads the
//! body and hands one parsed call to the engine. Routes and document are built from one table,
//! `routes::all`.

mod auth;
mod body;
mod error;
mod openapi;
mod router;
mod routes;
mod serve;

pub use auth::Peer;
pub use router::{HttpOptions, router};
pub use serve::{ServeOptions, serve};
