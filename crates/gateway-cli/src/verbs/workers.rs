//! `workers`: the registry of workers, as a start would load it.

use serde_json::{Value, json};

use super::Invocation;
use crate::compose::load_workers;
use crate::exit::{Exit, Outcome};
use crate::table::Table;

pub(super) fn list(invocation: &mut Invocation) -> Outcome {
    let config = invocation.config()?;
    let workers = load_workers(&config, &config.home)?;
    if invocation.is_json() {
        let workers = workers.all().map(|worker| {
            json!({
                "worker": worker.definition.normalised,
                "program": worker.program.to_string_lossy(),
                "digest": worker.digest.to_string(),
            })
        });
        let workers = workers.collect();
        invocation.terminal.json(&Value::Array(workers))?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&["WORKER", "PROGRAM", "DESCRIPTION"]);
    for worker in workers.all() {
        let program = worker.program.to_string_lossy().into_owned();
        let definition = &worker.definition;
        table.row([definition.id.to_string(), program, definition.description.clone()]);
    }
    invocation.terminal.raw(table.to_text().as_bytes())?;
    Ok(Exit::Success)
}
