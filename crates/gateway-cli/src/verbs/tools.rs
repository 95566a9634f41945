//! `tools`: what is registered.

use std::fs;
use std::io;
use std::path::Path;

use gateway_model::parse_json;
use hyper::{Method, StatusCode};
use serde_json::Value;

use super::call::read_bounded;
use super::{As, Invocation, refused};
use crate::cli::ToolsVerb;
use crate::client::segment;
use crate::exit::{Exit, Failure, Outcome};
use crate::table::{Table, printable};

pub(super) fn run(invocation: &mut Invocation, verb: &ToolsVerb) -> Outcome {
    match verb {
        ToolsVerb::List => list(invocation),
        ToolsVerb::Show { id } => show(invocation, id),
        ToolsVerb::Register { file } => register(invocation, file),
        ToolsVerb::Rm { id } => remove(invocation, id),
    }
}

fn list(invocation: &mut Invocation) -> Outcome {
    let answer = invocation.ask(As::Operator, Method::GET, "/v1/tools".to_owned(), None)?;
    if answer.status != StatusCode::OK {
        return Err(refused(&answer));
    }
    let tools = answer.json().map_err(|error| Failure::of(Exit::Failed, error))?;
    if invocation.is_json() {
        invocation.terminal.json(&tools)?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&["ID", "TYPE", "TIER", "SIDE EFFECTS", "DESCRIPTION"]);
    for tool in tools.as_array().into_iter().flatten() {
        let text =
            |name: &str| tool.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let side_effects = tool.get("side_effects").and_then(Value::as_array);
        let side_effects: Vec<&str> =
            side_effects.into_iter().flatten().filter_map(Value::as_str).collect();
        table.row([
            text("id"),
            text("tool_type"),
            text("safety_tier"),
            if side_effects.is_empty() { "-".to_owned() } else { side_effects.join(",") },
            first_sentence(&text("description")),
        ]);
    }
    invocation.terminal.raw(table.to_text().as_bytes())?;
    Ok(Exit::Success)
}

/// Returns what fits a table of a description.
fn first_sentence(description: &str) -> String {
    let first = description.lines().next().unwrap_or_default();
    let sentence = first.split_inclusive(". ").next().unwrap_or_default().trim_end();
    match sentence.char_indices().nth(72) {
        Some((end, _)) => format!("{}…", sentence.get(..end).unwrap_or_default()),
        None => sentence.to_owned(),
    }
}

fn show(invocation: &mut Invocation, id: &str) -> Outcome {
    let path = format!("/v1/tools/{}", segment(id));
    let answer = invocation.ask(As::Operator, Method::GET, path, None)?;
    if answer.status != StatusCode::OK {
        return Err(refused(&answer));
    }
    let tool = answer.json().map_err(|error| Failure::of(Exit::Failed, error))?;
    invocation.terminal.json(&tool)?;
    Ok(Exit::Success)
}

fn register(invocation: &mut Invocation, file: &Path) -> Outcome {
    let bytes = if file == Path::new("-") {
        read_bounded(io::stdin().lock())
    } else {
        fs::File::open(file).and_then(read_bounded)
    };
    let name = file.display().to_string();
    let bytes =
        bytes.map_err(|error| Failure::because(Exit::Usage, format!("read {name}"), error))?;
    let definition = parse_json(&bytes)
        .map_err(|error| Failure::because(Exit::Usage, format!("{name} is not JSON"), error))?;
    let path = "/v1/tools".to_owned();
    let answer = invocation.ask(As::Operator, Method::POST, path, Some(&definition))?;
    if answer.status != StatusCode::CREATED {
        return Err(refused(&answer));
    }
    invocation.terminal.line(&printable(answer.text().trim()))?;
    Ok(Exit::Success)
}

fn remove(invocation: &mut Invocation, id: &str) -> Outcome {
    let path = format!("/v1/tools/{}", segment(id));
    let answer = invocation.ask(As::Operator, Method::DELETE, path, None)?;
    if !answer.status.is_success() {
        return Err(refused(&answer));
    }
    invocation.terminal.line(&format!("Tool removed: {}", printable(id)))?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_cut_to_its_first_sentence() {
        let check = |text: &str, expected: &str| assert_eq!(first_sentence(text), expected);
        check("Reads a file. Lines are numbered.", "Reads a file.");
        check("One line\nand another", "One line");
        check("", "");
        check(&"é".repeat(80), &format!("{}…", "é".repeat(72)));
    }
}
