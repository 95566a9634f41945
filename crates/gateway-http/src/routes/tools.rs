//! The registry: `GET/POST /v1/tools`, `GET/DELETE /v1/tools/{id}`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gateway_engine::Registered;
use gateway_model::wire::RegisterTool;
use gateway_model::{Principal, bounded_text};
use serde_json::{Value, json};

use super::Route;
use super::operations::json_response;
use crate::body::JsonBody;
use crate::error::{Problem, registration_status};
use crate::openapi::{JSON, Operation, Refusal, TEXT, schema};
use crate::router::Served;

const WARNING: HeaderName = HeaderName::from_static("x-tool-warning");

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/tools", list, list_operation()),
        Route::post("/v1/tools", register, register_operation()),
        Route::get("/v1/tools/{id}", show, show_operation()),
        Route::delete("/v1/tools/{id}", remove, remove_operation()),
    ]
}

fn list_operation() -> Operation {
    let tools = json!({ "type": "array", "items": schema("RegisterTool") });
    Operation::new("list_tools", "List registered tools", "Built-in tools included, sorted by id.")
        .answer(StatusCode::OK, "The definitions.", Some((JSON, tools)))
}

fn register_operation() -> Operation {
    let text = || Some((TEXT, json!({ "type": "string" })));
    Operation::new(
        "register_tool",
        "Register a new tool",
        "The very same definition again is accepted and changes nothing. Every failure is a text, \
         `Failed to register tool: {reason}`.",
    )
    .body(schema("RegisterTool"), register_example(), Refusal::Text)
    .answer(StatusCode::CREATED, "`Tool registered: {id}`", text())
    .with_header("Location", "Path of the tool.")
    .with_header("X-Tool-Warning", "How a part of the definition is read, where that may surprise.")
    .answer(StatusCode::FORBIDDEN, "Policy does not permit it to this caller.", text())
    .answer(StatusCode::CONFLICT, "The id is taken by another definition.", text())
    .answer(
        StatusCode::INTERNAL_SERVER_ERROR,
        "The gateway could not make it durable.",
        text(),
    )
}

fn register_example() -> Value {
    json!({
        "id": "echo.test",
        "name": "Echo Test Tool",
        "description": "Returns the input unchanged",
        "tool_type": "Local",
        "command": "echo",
        "endpoint": "",
        "input_schema": {
            "type": "object",
            "properties": { "message": { "type": "string" } },
            "required": ["message"],
        },
        "output_schema": { "type": "object" },
        "side_effects": [],
        "idempotency_behavior": "idempotent",
        "retryable": false,
        "failure_classification": "transient",
        "safety_tier": "T0",
        "resource_limits": {
            "cpu": null,
            "memory": null,
            "network": "None",
            "filesystem": "None",
            "time_limit": 30,
        },
        "subprocess": null,
    })
}

fn of_tool(id: &'static str, summary: &'static str, description: &'static str) -> Operation {
    Operation::new(id, summary, description)
        .path("id", "Registered tool identifier.", json!({ "type": "string", "minLength": 1 }))
        .problem(StatusCode::BAD_REQUEST, "The path is not UTF-8.")
        .problem(StatusCode::NOT_FOUND, "No such tool.")
}

fn show_operation() -> Operation {
    of_tool("show_tool", "Show one tool", "Its whole definition.").answer(
        StatusCode::OK,
        "The definition.",
        Some((JSON, schema("RegisterTool"))),
    )
}

fn remove_operation() -> Operation {
    of_tool(
        "remove_tool",
        "Remove a registered tool",
        "Its receipts stay. Built-in tools stay too.",
    )
    .answer(StatusCode::NO_CONTENT, "The tool is removed.", None)
    .problem(StatusCode::FORBIDDEN, "The tool is built in, or policy does not permit it.")
    .problem(StatusCode::INTERNAL_SERVER_ERROR, "The gateway could not make it durable.")
}

async fn list(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let tools = served.gateway.tools(principal);
    let mut body = String::from("[");
    for (position, tool) in tools.iter().enumerate() {
        if position > 0 {
            body.push(',');
        }
        body.push_str(&tool.registration.to_string());
    }
    body.push(']');
    ([(CONTENT_TYPE, JSON)], body).into_response()
}

async fn register(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let definition = match JsonBody::read(&parts.headers, body).await {
        Ok(body) => RegisterTool::read(body.value),
        Err(error) => return not_registered(error.status, &error.reason),
    };
    let definition = match definition {
        Ok(definition) => definition,
        Err(error) => {
            return not_registered(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string());
        }
    };
    match served.gateway.register(principal, definition).await {
        Ok(registered) => is_registered(&registered),
        Err(error) => not_registered(registration_status(&error), &error.to_string()),
    }
}

fn is_registered(registered: &Registered) -> Response {
    let id = &registered.tool.id;
    let mut response = (StatusCode::CREATED, format!("Tool registered: {id}")).into_response();
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::try_from(format!("/v1/tools/{id}")) {
        headers.insert(LOCATION, location);
    }
    for warning in &registered.warnings {
        if let Ok(warning) = HeaderValue::try_from(warning) {
            headers.append(WARNING, warning);
        }
    }
    response
}

fn not_registered(status: StatusCode, reason: &str) -> Response {
    (status, format!("Failed to register tool: {reason}")).into_response()
}

async fn show(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let id = path_text(id)?;
    let tool = served.gateway.tool(principal, &id).ok_or_else(|| {
        let id = bounded_text(&id, 128);
        Problem::new(StatusCode::NOT_FOUND, format!("no tool {id:?} is registered"))
    })?;
    Ok(json_response(StatusCode::OK, &tool.registration))
}

async fn remove(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    id: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, Problem> {
    let id = path_text(id)?;
    match served.gateway.remove(principal, &id).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => {
            let reason = error.to_string();
            Err(Problem::new(registration_status(&error), bounded_text(&reason, 500)))
        }
    }
}

/// Returns the text of a path's one parameter.
pub(super) fn path_text(parameter: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    match parameter {
        Ok(Path(text)) => Ok(text),
        Err(rejection) => Err(Problem::new(rejection.status(), rejection.body_text())),
    }
}
