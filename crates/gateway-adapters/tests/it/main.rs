//! Built-in, Local and Http tools through a real gateway, on real files, in the real sandbox.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests arrange files as a user does and fail loudly"
)]

mod bash;
mod documented;
mod escapes;
mod files;
mod fixture;
mod http;
mod local;
mod peer;
mod search;
mod secrets;
mod workers;
