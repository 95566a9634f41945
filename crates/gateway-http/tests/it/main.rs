//! The REST face over a real gateway: routes, refusals, the document, and the server.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod approvals;
mod bad_input;
mod contract;
mod document;
mod fixture;
mod keys;
mod receipts;
mod serving;
