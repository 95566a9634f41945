//! `receipts`: what calls did.

use hyper::{Method, StatusCode};
use serde_json::Value;

use super::{As, Invocation, refused};
use crate::cli::ReceiptsVerb;
use crate::client::segment;
use crate::exit::{Exit, Failure, Outcome};
use crate::table::Table;

/// Receipts of one page.
const PAGE: u32 = 100;

pub(super) fn run(invocation: &mut Invocation, verb: &ReceiptsVerb) -> Outcome {
    match verb {
        ReceiptsVerb::List { run } => list(invocation, run),
        ReceiptsVerb::Show { id } => show(invocation, id),
    }
}

fn list(invocation: &mut Invocation, run: &str) -> Outcome {
    let receipts = read_all(invocation, run)?;
    if invocation.is_json() {
        invocation.terminal.json(&Value::Array(receipts))?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&["TIME", "TOOL", "STATUS", "DECISION", "RULE", "RECEIPT"]);
    for receipt in &receipts {
        let columns = ["ts", "tool_id", "status", "decision", "rule", "receipt_id"];
        table.row(
            columns.map(|name| receipt.get(name).and_then(Value::as_str).unwrap_or("-").to_owned()),
        );
    }
    invocation.terminal.raw(table.to_text().as_bytes())?;
    Ok(Exit::Success)
}

/// Returns the receipts of every page.
fn read_all(invocation: &Invocation, run: &str) -> Result<Vec<Value>, Failure> {
    let mut receipts = Vec::new();
    let mut after = 0;
    loop {
        let path = format!("/v1/runs/{}/receipts?limit={PAGE}&after={after}", segment(run));
        let mut page = read(invocation, path)?;
        if let Some(Value::Array(listed)) = page.get_mut("receipts").map(Value::take) {
            receipts.extend(listed);
        }
        match page.get("next_after").and_then(Value::as_u64) {
            // A page that leads back would be read for ever.
            Some(next) if next > after => after = next,
            Some(_) | None => return Ok(receipts),
        }
    }
}

fn show(invocation: &mut Invocation, id: &str) -> Outcome {
    let receipt = read(invocation, format!("/v1/receipts/{}", segment(id)))?;
    invocation.terminal.json(&receipt)?;
    Ok(Exit::Success)
}

fn read(invocation: &Invocation, path: String) -> Result<Value, Failure> {
    let answer = invocation.ask(As::Operator, Method::GET, path, None)?;
    if answer.status != StatusCode::OK {
        return Err(refused(&answer));
    }
    answer.json().map_err(|error| Failure::of(Exit::Failed, error))
}
