//! file_write: a whole file, replaced at once.

use gateway_model::{Digest, ToolError, ToolOutput};
use serde_json::{Value, json};

use super::Call;

pub(in super::super) fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "the file" },
            "content": { "type": "string", "description": "the whole new content" },
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    })
}

pub(in super::super) fn output_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": { "type": "string" },
            "bytes": { "type": "integer" },
            "digest": { "type": "string", "description": "SHA-256 of the content" },
            "is_new": { "type": "boolean", "description": "false where a file was replaced" },
        },
        "required": ["path", "bytes", "digest", "is_new"],
    })
}

pub(in super::super) fn run(call: &Call) -> Result<ToolOutput, ToolError> {
    let place = call.directories.place("/path", call.input.text("path"))?;
    place.check_may_change("/path")?;
    let content = call.input.text("content").as_bytes();
    let exists = place.check_replaceable()?;
    call.write(&place, content)?;
    Ok(ToolOutput::from_value(json!({
        "path": call.directories.shown(&place),
        "bytes": content.len(),
        "digest": Digest::of(content).to_string(),
        "is_new": !exists,
    })))
}
