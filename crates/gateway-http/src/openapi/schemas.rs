//! The schemas that the operations of the document refer to.

use gateway_engine::ApprovalStage;
use gateway_model::wire::ToolType;
use gateway_model::{ErrorKind, FailureClass, HttpBody, HttpMethod, Idempotency, SafetyTier};
use serde_json::{Value, json};

/// Returns every schema by its name.
pub(super) fn all() -> Value {
    json!({
        "Health": health(),
        "Ready": closed(json!({ "ready": { "const": true } })),
        "ExecuteRequest": execute_request(),
        "CallInput": {
            "type": ["object", "null"],
            "description": "The tool's input; null is an empty one.",
        },
        "CallSuccess": call_success(),
        "CallFailure": call_failure(),
        "CallAnswer": { "oneOf": [reference("CallSuccess"), reference("CallFailure")] },
        "Explanation": explanation(),
        "ExplainAnswer": { "oneOf": [reference("Explanation"), reference("CallFailure")] },
        "RegisterTool": register_tool(),
        "ResourceLimits": resource_limits(),
        "Receipt": receipt(true),
        "ReceiptSummary": receipt(false),
        "ReceiptLeaf": closed(json!({
            "seq": { "type": "integer", "minimum": 0 },
            "leaf": { "type": "string", "description": "The canonical text, as stored and hashed." },
            "leaf_hash": { "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" },
        })),
        "ReceiptPage": closed(json!({
            "receipts": { "type": "array", "items": reference("ReceiptSummary") },
            "next_after": {
                "type": ["integer", "null"],
                "description": "The `after` of the next page; null where this is the last one.",
            },
        })),
        "Approval": approval(true),
        "ApprovalSummary": approval(false),
        "ApprovalPage": closed(json!({
            "approvals": { "type": "array", "items": reference("ApprovalSummary") },
            "next_after": {
                "type": ["integer", "null"],
                "description": "The `after` of the next page; null where this is the last one.",
            },
        })),
        "AnswerApproval": answer_approval(),
        "ResolveCall": resolve_call(),
        "Problem": problem(),
    })
}

fn reference(name: &str) -> Value {
    super::schema(name)
}

/// Returns an object that has exactly these properties.
fn closed(properties: Value) -> Value {
    let required: Vec<&String> =
        properties.as_object().into_iter().flat_map(|all| all.keys()).collect();
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

fn health() -> Value {
    closed(json!({
        "status": { "enum": ["ok", "degraded"] },
        "service": { "const": "allternit-io-service" },
        "version": { "type": "string" },
        "ontology_compliance": {
            "type": "boolean",
            "description": "Every call is journaled and every process confined.",
        },
        "sandbox": closed(json!({
            "state": { "enum": ["enforced", "off", "unavailable"] },
            "tier": { "type": ["string", "null"] },
            "reason": { "type": ["string", "null"], "description": "What is missing, and the remedies." },
        })),
        "ledger": closed(json!({ "state": { "enum": ["writable", "unwritable"] } })),
        "is_accepting": { "type": "boolean" },
        "calls_running": { "type": "integer", "minimum": 0 },
        "tools": { "type": "integer", "minimum": 0 },
    }))
}

fn execute_request() -> Value {
    let id = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "type": "object",
        "required": ["tool_id", "input", "correlation_id", "run_id", "wih_id"],
        "properties": {
            "tool_id": id("Registered tool identifier."),
            "input": {
                "type": "object",
                "description": "Tool-specific input payload.",
            },
            "correlation_id": id(
                "Idempotency and trace correlation key: 1 to 128 of A-Z a-z 0-9 . _ : -.",
            ),
            "run_id": id("Run scope used for filesystem isolation: 1 to 128 of A-Z a-z 0-9 _ -."),
            "wih_id": id("Workflow invocation handle: 1 to 128 of A-Z a-z 0-9 . _ : -."),
        },
        "additionalProperties": false,
    })
}

fn call_success() -> Value {
    closed(json!({
        "success": { "const": true },
        "output": { "description": "What the tool gave back." },
        "error": { "type": "null" },
        "io_captured": { "type": "boolean", "description": "The attempt is durably journaled." },
        "policy_enforced": { "type": "boolean", "description": "Policy was evaluated." },
    }))
}

fn call_failure() -> Value {
    let kinds: Vec<&str> = ErrorKind::ALL.into_iter().map(ErrorKind::as_str).collect();
    let id = |description: &str| json!({ "type": ["string", "null"], "description": description });
    closed(json!({
        "success": { "const": false },
        "output": { "type": "null" },
        "error": closed(json!({
            "code": { "const": "TOOL_EXECUTION_FAILED" },
            "message": { "type": "string" },
            "details": {
                "type": "object",
                "description": "What a program branches on; a kind may bring more members.",
                "required": ["kind", "retryable", "call_id", "receipt_id"],
                "properties": {
                    "kind": { "enum": kinds },
                    "retryable": { "type": "boolean" },
                    "call_id": id("The attempt; null where none was made."),
                    "receipt_id": id("The receipt; null where the call did not come to one."),
                },
            },
        })),
        "io_captured": { "type": "boolean", "description": "The attempt is durably journaled." },
        "policy_enforced": { "type": "boolean", "description": "Policy was evaluated." },
    }))
}

fn explanation() -> Value {
    let object = || json!({ "type": "object" });
    json!({
        "type": "object",
        "description": "What the line would say about a call, had it been made.",
        "required": ["tool", "principal", "view", "run_id", "policy", "claim", "limits", "sandbox"],
        "not": { "required": ["success"] },
        "properties": {
            "tool": object(),
            "principal": { "type": "string" },
            "view": { "type": "string" },
            "run_id": { "type": "string" },
            "policy": {
                "type": "object",
                "required": ["decision", "rule", "reason"],
                "properties": {
                    "decision": { "enum": ["allow", "ask", "deny"] },
                    "rule": { "type": "string" },
                    "reason": { "type": "string" },
                },
            },
            "claim": object(),
            "limits": object(),
            "sandbox": { "type": "string" },
        },
    })
}

fn register_tool() -> Value {
    json!({
        "type": "object",
        "required": [
            "id", "name", "description", "tool_type", "input_schema", "output_schema", "side_effects",
            "idempotency_behavior", "retryable", "failure_classification", "safety_tier",
            "resource_limits",
        ],
        "properties": register_properties(),
        "additionalProperties": false,
        "allOf": [
            {
                "if": { "properties": { "tool_type": { "const": "Local" } } },
                "then": {
                    "required": ["command"],
                    "properties": { "command": { "type": "string", "minLength": 1 } },
                },
                "else": {
                    "properties": {
                        "command": { "enum": ["", null] },
                        "args": { "type": "null" },
                        "stdin": { "enum": ["none", null] },
                        "env": { "enum": [{}, null] },
                    },
                },
            },
            {
                "if": { "properties": { "tool_type": { "const": "Http" } } },
                "then": {
                    "required": ["endpoint"],
                    "properties": { "endpoint": { "type": "string", "minLength": 1 } },
                },
                "else": {
                    "properties": {
                        "endpoint": { "enum": ["", null] },
                        "method": { "type": "null" },
                        "body": { "type": "null" },
                        "resource_limits": { "properties": { "network": { "const": "None" } } },
                    },
                },
            },
            {
                "if": { "properties": { "tool_type": { "const": "Subprocess" } } },
                "then": {
                    "required": ["subprocess"],
                    "properties": { "subprocess": { "type": "object" } },
                },
                "else": { "properties": { "subprocess": { "type": "null" } } },
            },
        ],
    })
}

fn register_properties() -> Value {
    let words = |words: Vec<&str>| json!({ "enum": words });
    let schema =
        |description: &str| json!({ "type": ["object", "boolean"], "description": description });
    json!({
        "id": { "type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$" },
        "name": { "type": "string", "minLength": 1, "maxLength": 200 },
        "description": { "type": "string", "maxLength": 8000 },
        "tool_type": words(
            [ToolType::Local, ToolType::Http, ToolType::Sdk, ToolType::Subprocess]
                .map(ToolType::as_str)
                .to_vec(),
        ),
        "command": {
            "type": ["string", "null"],
            "description": "The program of a Local tool: a path, or a name on the gateway's search path.",
        },
        "endpoint": {
            "type": ["string", "null"],
            "description": "The address of an Http tool, such as https://api.example.org/items/{{id}}.",
            "maxLength": 8192,
        },
        "method": nullable(HttpMethod::ALL.map(HttpMethod::as_str)),
        "body": nullable(HttpBody::ALL.map(HttpBody::as_str)),
        "subprocess": {
            "description": "The worker of a Subprocess tool, by its name in the operator's registry.",
            "type": ["object", "null"],
            "required": ["worker_id"],
            "properties": { "worker_id": { "type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$" } },
            "additionalProperties": false,
        },
        "args": {
            "type": ["array", "null"],
            "description": "Argument template of a Local tool, such as [\"--\", \"{{path}}\"].",
            "maxItems": 256,
            "items": { "type": "string", "maxLength": 8192 },
        },
        "stdin": { "enum": ["none", "json", null] },
        "env": {
            "type": ["object", "null"],
            "description": "Variables of a Local tool; secret:NAME stands for a secret.",
            "maxProperties": 64,
            "propertyNames": { "pattern": "^(?!ALLTERNIT_)[A-Za-z_][A-Za-z0-9_]{0,127}$" },
            "additionalProperties": { "type": "string", "pattern": "^[^\\u0000]*$", "maxLength": 8192 },
        },
        "input_schema": schema("JSON Schema of the input."),
        "output_schema": schema("JSON Schema of the output."),
        "side_effects": texts(),
        "idempotency_behavior": words(Idempotency::ALL.into_iter().map(Idempotency::as_str).collect()),
        "retryable": { "type": "boolean" },
        "failure_classification": words(FailureClass::ALL.into_iter().map(FailureClass::as_str).collect()),
        "safety_tier": words(SafetyTier::ALL.into_iter().map(SafetyTier::as_str).collect()),
        "resource_limits": reference("ResourceLimits"),
        "claim": claim(),
        "tags": { "oneOf": [texts(), { "type": "null" }] },
    })
}

fn nullable<const N: usize>(words: [&str; N]) -> Value {
    let words: Vec<Value> = words.into_iter().map(Value::from).chain([Value::Null]).collect();
    json!({ "enum": words })
}

fn texts() -> Value {
    json!({ "type": "array", "maxItems": 32, "items": { "type": "string", "maxLength": 64 } })
}

fn claim() -> Value {
    json!({
        "description": "Which calls may run beside one of this tool.",
        "oneOf": [
            { "enum": ["shared", "global", null] },
            {
                "type": "object",
                "required": ["paths"],
                "properties": {
                    "paths": {
                        "type": "array",
                        "minItems": 1,
                        "maxItems": 16,
                        "items": { "type": "string", "pattern": "^/", "maxLength": 200 },
                    },
                },
                "additionalProperties": false,
            },
        ],
    })
}

fn resource_limits() -> Value {
    let one_list = |name: &str, max_items: u32, max_bytes: u32| {
        json!({
            "type": "object",
            "required": [name],
            "properties": {
                name: {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": max_items,
                    "items": { "type": "string", "maxLength": max_bytes },
                },
            },
            "additionalProperties": false,
        })
    };
    json!({
        "type": "object",
        "required": ["network", "filesystem", "time_limit"],
        "properties": {
            "cpu": { "type": ["string", "null"], "pattern": "^[0-9]+m?$", "examples": ["500m", "2"] },
            "memory": {
                "type": ["string", "null"],
                "pattern": "^[0-9]+(Ki|Mi|Gi|k|M|G)?$",
                "examples": ["64Mi", "1Gi"],
            },
            "network": {
                "description": "Http tools declare what they reach; tools of other types have no network.",
                "oneOf": [{ "enum": ["None", "Unrestricted"] }, one_list("DomainAllowlist", 256, 253)],
            },
            "filesystem": {
                "oneOf": [
                    { "enum": ["None"] },
                    one_list("Allowlist", 64, 4096),
                    one_list("ReadWrite", 64, 4096),
                ],
            },
            "time_limit": { "type": "integer", "minimum": 1, "maximum": 3600, "description": "Seconds." },
        },
        "additionalProperties": false,
    })
}

fn receipt(is_whole: bool) -> Value {
    let text = || json!({ "type": ["string", "null"] });
    let mut properties = json!({
        "v": { "const": 1 },
        "receipt_id": { "type": "string" },
        "log": { "type": "string" },
        "seq": { "type": "integer", "minimum": 0 },
        "call_id": { "type": "string" },
        "run_id": { "type": "string" },
        "tool_id": text(),
        "status": text(),
        "decision": text(),
        "rule": text(),
        "ts": {},
        "outcome": reference("ReceiptLeaf"),
        "intent": { "oneOf": [reference("ReceiptLeaf"), { "type": "null" }] },
    });
    if let (true, Some(properties)) = (is_whole, properties.as_object_mut()) {
        let bundle = json!({ "description": "What the leaves commit to: input, output, error, with their salts." });
        properties.insert("bundle".to_owned(), bundle);
    }
    closed(properties)
}

fn approval(is_whole: bool) -> Value {
    let text = || json!({ "type": "string" });
    let optional = || json!({ "type": ["string", "null"] });
    let states: Vec<&str> = ApprovalStage::ALL.into_iter().map(ApprovalStage::as_str).collect();
    let mut properties = json!({
        "approval_id": { "type": "string", "format": "uuid" },
        "state": { "enum": states },
        "scope": { "const": "once" },
        "principal": text(),
        "run_id": text(),
        "wih_id": text(),
        "correlation_id": optional(),
        "call_id": { "type": "string", "description": "The attempt that was asked about." },
        "tool": { "type": "object", "description": "Id, version, hash of the definition, tier, adapter." },
        "rule": text(),
        "reason": { "type": "string", "description": "Why the rule asks." },
        "policy_set": text(),
        "input_bytes": { "type": "integer", "minimum": 0 },
        "asked_at": text(),
        "expires_at": text(),
        "answered_by": optional(),
        "answered_at": optional(),
        "answer_reason": optional(),
        "used_by": { "type": ["string", "null"], "description": "The call that used the yes." },
    });
    if let (true, Some(properties)) = (is_whole, properties.as_object_mut()) {
        let input =
            json!({ "type": "object", "description": "Exactly what the call would run with." });
        properties.insert("input".to_owned(), input);
    }
    closed(properties)
}

fn answer_approval() -> Value {
    json!({
        "type": "object",
        "required": ["decision"],
        "properties": {
            "decision": { "enum": ["approve", "deny"] },
            "scope": { "enum": ["once", null], "description": "An answer is to one call." },
            "reason": reason("Why, for whoever made the call"),
        },
        "additionalProperties": false,
    })
}

fn resolve_call() -> Value {
    json!({
        "type": "object",
        "required": ["resolution"],
        "properties": {
            "resolution": { "enum": ["done", "not_done"] },
            "reason": reason("How it was found out"),
        },
        "additionalProperties": false,
    })
}

fn reason(what: &str) -> Value {
    json!({
        "type": ["string", "null"],
        "maxLength": 125,
        "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$",
        "description": format!("{what}: one line, at most 500 bytes."),
    })
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "const": "about:blank" },
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string" },
            "reasons": { "type": "array", "items": { "type": "string" } },
        },
        "additionalProperties": false,
    })
}
