//! `config`: the effective configuration, and whether a gateway could start with it.

use serde_json::json;

use super::Invocation;
use crate::cli::ConfigVerb;
use crate::exit::{Exit, Outcome};
use crate::table::Table;

pub(super) fn run(invocation: &mut Invocation, verb: &ConfigVerb) -> Outcome {
    match verb {
        ConfigVerb::Show => show(invocation),
        ConfigVerb::Check => check(invocation),
    }
}

fn show(invocation: &mut Invocation) -> Outcome {
    let shown = invocation.config()?.shown();
    if invocation.is_json() {
        let entries = shown.iter().map(|shown| {
            let source = shown.source.to_string();
            json!({"key": shown.name, "value": shown.value, "source": source, "for": shown.doc})
        });
        invocation.terminal.json(&entries.collect())?;
    } else {
        let mut table = Table::new(&["KEY", "VALUE", "SOURCE"]);
        for shown in &shown {
            table.row([shown.name.clone(), shown.value_text(), shown.source.to_string()]);
        }
        invocation.terminal.raw(table.to_text().as_bytes())?;
    }
    Ok(Exit::Success)
}

fn check(invocation: &mut Invocation) -> Outcome {
    let config = invocation.config()?;
    config.check_reach()?;
    let workspaces = config.granted_workspaces()?;
    if invocation.is_json() {
        invocation.terminal.json(&json!({"ok": true, "workspaces": workspaces.len()}))?;
    } else {
        invocation.terminal.line("the configuration is good")?;
    }
    Ok(Exit::Success)
}
