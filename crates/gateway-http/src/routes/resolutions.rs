//! Settling a call by hand: `POST /v1/calls/{id}/resolution`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use gateway_engine::ResolutionError;
use gateway_model::wire::ResolveCall;
use gateway_model::{CallId, Principal};
use serde_json::json;

use super::Route;
use super::receipts::unusable;
use super::tools::path_text;
use crate::body::JsonBody;
use crate::error::Problem;
use crate::openapi::{Operation, Refusal, schema};
use crate::router::Served;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::post("/v1/calls/{id}/resolution", resolve, resolve_operation())]
}

fn resolve_operation() -> Operation {
    let format = json!({ "type": "string", "format": "uuid" });
    Operation::new(
        "resolve_call",
        "Settle a call whose outcome is unknown",
        "`done`: its effect happened, and its key answers so. `not_done`: it did not, and the same \
         call may act under the key. Journaled. Operators only.",
    )
    .path("id", "Call id, as in the refusal's `unknown_call_id`.", format)
    .body(
        schema("ResolveCall"),
        json!({ "resolution": "not_done", "reason": "the mail is not in the outbox" }),
        Refusal::Problem,
    )
    .answer(StatusCode::NO_CONTENT, "The call is settled.", None)
    .problem(StatusCode::BAD_REQUEST, "The path is not UTF-8.")
    .problem(StatusCode::FORBIDDEN, "The caller is no operator.")
    .problem(StatusCode::NOT_FOUND, "No such call has ended under a key.")
    .problem(StatusCode::CONFLICT, "The outcome is known, or a later attempt took its place.")
    .problem(StatusCode::INTERNAL_SERVER_ERROR, "The ledger could not be used.")
}

async fn resolve(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let call: CallId = path_text(id)?
        .parse()
        .map_err(|error| Problem::new(StatusCode::NOT_FOUND, format!("no call: {error}")))?;
    let (parts, body) = request.into_parts();
    let body = JsonBody::read(&parts.headers, body).await;
    let body = body.map_err(|error| Problem::new(error.status, error.reason))?;
    let ResolveCall { has_acted, reason } =
        ResolveCall::read(body.value).map_err(|error| unusable(error.to_string()))?;
    match served.gateway.resolve_call(principal, call, (has_acted, reason)).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(problem(&error)),
    }
}

fn problem(error: &ResolutionError) -> Problem {
    let status = match error {
        ResolutionError::Forbidden => StatusCode::FORBIDDEN,
        ResolutionError::NotFound(_) => StatusCode::NOT_FOUND,
        ResolutionError::Settled(_) => StatusCode::CONFLICT,
        ResolutionError::Ledger(_) => {
            return Problem::internal("the ledger could not be used", error);
        }
    };
    Problem::new(status, error.to_string())
}
