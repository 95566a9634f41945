//! `policy`: whether policy files can be put in force, and what policy says about a call.

use std::path::{Path, PathBuf};

use gateway_policy::{CheckReport, Problem};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::call::{exit_of, request};
use super::{As, Invocation, refused};
use crate::cli::{CallArguments, PolicyVerb};
use crate::exit::{Exit, Failure, Outcome};
use crate::table::{Table, printable};

pub(super) fn run(invocation: &mut Invocation, verb: PolicyVerb) -> Outcome {
    match verb {
        PolicyVerb::Check { directory } => {
            let directory = match directory {
                Some(directory) => directory,
                None => default_directory(invocation)?,
            };
            check(invocation, &directory)
        }
        PolicyVerb::Explain(arguments) => explain(invocation, &arguments),
    }
}

fn default_directory(invocation: &Invocation) -> Result<PathBuf, Failure> {
    Ok(invocation.config()?.home.join("policies"))
}

fn check(invocation: &mut Invocation, directory: &Path) -> Outcome {
    let report = gateway_policy::check(directory);
    if invocation.is_json() {
        invocation.terminal.json(&report_as_json(&report))?;
    } else {
        for problem in &report.errors {
            invocation.terminal.line(&format!("error    {}", printable(&problem.to_string())))?;
        }
        for problem in &report.warnings {
            invocation.terminal.line(&format!("warning  {}", printable(&problem.to_string())))?;
        }
        if report.errors.is_empty() {
            let (files, rules) = (report.files.len(), report.rule_count);
            let digest = report.digest.as_ref().map_or_else(String::new, ToString::to_string);
            invocation.terminal.line(&format!(
                "{files} files, {rules} rules with the default ones, set {digest}"
            ))?;
        }
    }
    Ok(if report.errors.is_empty() { Exit::Success } else { Exit::Failed })
}

fn report_as_json(report: &CheckReport) -> Value {
    let problems = |problems: &[Problem]| -> Vec<Value> {
        let one = |problem: &Problem| json!({"file": problem.file, "line": problem.line, "message": problem.message});
        problems.iter().map(one).collect()
    };
    json!({
        "ok": report.errors.is_empty(),
        "files": report.files,
        "rules": report.rule_count,
        "set": report.digest.as_ref().map(ToString::to_string),
        "errors": problems(&report.errors),
        "warnings": problems(&report.warnings),
    })
}

fn explain(invocation: &mut Invocation, arguments: &CallArguments) -> Outcome {
    let (body, _key) = request(arguments)?;
    let path = "/v1/tools/explain".to_owned();
    let answer = invocation.ask(As::Local, Method::POST, path, Some(&body))?;
    let explained = match answer.json() {
        Ok(body) if answer.status == StatusCode::OK => body,
        Ok(_) | Err(_) => return Err(refused(&answer)),
    };
    // A call that ends before policy is asked is explained by its error.
    if explained.get("success") == Some(&Value::Bool(false)) {
        return Err(Failure { exit: exit_of(&explained), ..refused(&answer) });
    }
    if invocation.is_json() {
        invocation.terminal.json(&explained)?;
    } else {
        let mut table = Table::new(&["WHAT", "VERDICT"]);
        add_rows(&mut table, "", &explained);
        invocation.terminal.raw(table.to_text().as_bytes())?;
    }
    let decision = explained.pointer("/policy/decision").and_then(Value::as_str);
    Ok(if decision == Some("allow") { Exit::Success } else { Exit::Refused })
}

/// Adds a row for each value, under its dotted name; what is null or empty says nothing.
fn add_rows(table: &mut Table, above: &str, value: &Value) {
    let is_empty = match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match value {
        _ if is_empty => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                add_rows(table, &name, value);
            }
        }
        Value::String(text) => table.row([above.to_owned(), text.clone()]),
        other => table.row([above.to_owned(), other.to_string()]),
    }
}
