//! The binary over its socket, the layout of the sources, and the commands of the documentation.
#![expect(
    clippy::disallowed_methods,
    reason = "tests start the binary and write files as a user does"
)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a wrong index fails the test")]

mod approvals;
mod bad_input;
mod callers;
mod documentation;
mod effects;
mod fuzzed;
mod gateway;
mod http_tools;
mod kill;
mod networked_commands;
mod secrets;
mod seed_session;
mod tidy;
mod workers;
