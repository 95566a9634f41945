//! How a call runs: the line, its steps, and the ports it ends in.

pub(crate) mod adapter;
pub(crate) mod approvals;
pub(crate) mod confine;
pub(crate) mod journal;
pub(crate) mod pipeline;
mod redaction;
pub(crate) mod report;
pub(crate) mod scheduler;
pub(crate) mod secrets;
