//! `calls`: settling those whose outcome is unknown.

use hyper::Method;
use serde_json::json;

use super::{As, Invocation, refused};
use crate::cli::{CallsVerb, ResolveArguments};
use crate::client::segment;
use crate::exit::{Exit, Outcome};
use crate::table::printable;

pub(super) fn run(invocation: &mut Invocation, verb: &CallsVerb) -> Outcome {
    let CallsVerb::Resolve(ResolveArguments { id, done, not_done: _, reason }) = verb;
    let resolution = if *done { "done" } else { "not_done" };
    let body = json!({ "resolution": resolution, "reason": reason });
    let path = format!("/v1/calls/{}/resolution", segment(id));
    let answer = invocation.ask(As::Operator, Method::POST, path, Some(&body))?;
    if !answer.status.is_success() {
        return Err(refused(&answer));
    }
    invocation.terminal.line(&format!("settled as {resolution}: {}", printable(id)))?;
    Ok(Exit::Success)
}
