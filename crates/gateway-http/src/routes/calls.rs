//! Calls: `POST /v1/tools/execute`, `POST /v1/tools/{id}/call`, `POST /v1/tools/explain`.
//!
//! Execute and call answer the five keys, always. What names a call is journaled even where it
//! is refused; a body from which no call can be read names none, and `io_captured` says so.

mod answer;
mod asked;

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gateway_engine::{RefusedCall, RequestContext};
use gateway_model::wire::ExecuteRequest;
use gateway_model::{Face, Principal};
use serde_json::json;

use self::answer::with_call_headers;
use self::asked::{Asked, Faulty, Named, patience};
use super::Route;
use super::operations::json_response;
use crate::body::JsonBody;
use crate::error::Problem;
use crate::openapi::{JSON, Operation, Refusal, schema};
use crate::router::Served;

const KEY_HEADER: &str = "Idempotency-Key";
const RUN_HEADER: &str = "X-Run-Id";
const WIH_HEADER: &str = "X-Wih-Id";
const PREFER_HEADER: &str = "Prefer";
const PREFER_TEXT: &str = "`wait=SECONDS` (RFC 7240) waits for a person's answer, where policy asks for one: at most \
     120 s. Without it, such a call is answered at once with `approval_required`.";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/tools/execute", execute, execute_operation()),
        Route::post("/v1/tools/{id}/call", call, call_operation()),
        Route::post("/v1/tools/explain", explain, explain_operation()),
    ]
}

fn execute_operation() -> Operation {
    let operation = Operation::new(
        "execute",
        "Execute a registered tool",
        "The only permitted side-effect path. Answers 200 once the body can be read and names the \
         call, whatever becomes of it: `success` and `error` say what did. The header \
         Idempotency-Key may stand in for an absent `correlation_id`; the two may not differ. Its \
         sender also gets its statuses: 409 while the key's call runs, or where its outcome is \
         unknown or no longer kept, and 422 for a key that was used with another input.",
    )
    .header(PREFER_HEADER, PREFER_TEXT)
    .body(schema("ExecuteRequest"), execute_example(), Refusal::Call)
    .answer(StatusCode::OK, "The outcome.", Some((JSON, schema("CallAnswer"))));
    with_call_headers(operation).answer(
        StatusCode::CONFLICT,
        "The key of the header cannot be served now, or any more.",
        Some((JSON, schema("CallFailure"))),
    )
}

fn call_operation() -> Operation {
    let operation = Operation::new(
        "call",
        "Call a tool with its input alone",
        "As execute, with the tool in the path, the whole body as the input, and the ids in headers. \
         A tool with side effects needs an Idempotency-Key.",
    )
    .path("id", "Registered tool identifier.", json!({ "type": "string", "minLength": 1 }))
    .header(KEY_HEADER, "Idempotency and trace correlation key: 1 to 128 of A-Z a-z 0-9 . _ : -.")
    .header(RUN_HEADER, "Run scope: 1 to 128 of A-Z a-z 0-9 _ -. Without it, `default`.")
    .header(PREFER_HEADER, PREFER_TEXT)
    .header(WIH_HEADER, "Workflow invocation handle. Without it, `default`.")
    .body(schema("CallInput"), json!({ "message": "hello" }), Refusal::Call)
    .body_is_optional()
    .answer(StatusCode::OK, "The outcome.", Some((JSON, schema("CallAnswer"))));
    with_call_headers(operation).answer(
        StatusCode::CONFLICT,
        "The key cannot be served now, or any more.",
        Some((JSON, schema("CallFailure"))),
    )
}

fn explain_operation() -> Operation {
    Operation::new(
        "explain",
        "Explain a call without making it",
        "Takes the body of execute and answers what the line would say: the rule, the claim, the \
         limits, the sandbox. A call that would end before policy is asked is explained by the \
         answer it would get. Nothing runs and nothing is journaled.",
    )
    .body(schema("ExecuteRequest"), execute_example(), Refusal::Problem)
    .answer(StatusCode::OK, "The verdict.", Some((JSON, schema("ExplainAnswer"))))
}

fn execute_example() -> serde_json::Value {
    json!({
        "tool_id": "echo.test",
        "input": { "message": "hello" },
        "correlation_id": "corr_abc123",
        "run_id": "run_xyz789",
        "wih_id": "wih_456",
    })
}

async fn execute(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match JsonBody::read(&parts.headers, body).await {
        Ok(body) => {
            let asked = Asked::in_body(body, &parts.headers);
            conduct(&served, principal, asked, patience(&parts.headers)).await
        }
        Err(error) => answer::unread(error.status, &error.reason),
    }
}

async fn call(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    tool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let Path(tool) = match tool {
        Ok(tool) => tool,
        Err(rejection) => return answer::unread(rejection.status(), &rejection.body_text()),
    };
    let (parts, body) = request.into_parts();
    match JsonBody::read_optional(&parts.headers, body).await {
        Ok(body) => {
            let asked = Asked::in_headers(tool, body, &parts.headers);
            conduct(&served, principal, asked, patience(&parts.headers)).await
        }
        Err(error) => answer::unread(error.status, &error.reason),
    }
}

/// Brings a call to the line, or journals why it does not get there.
async fn conduct(
    served: &Served,
    principal: Principal,
    asked: Result<Asked, Faulty>,
    patience: Duration,
) -> Response {
    let asked = match asked {
        Ok(asked) => asked,
        Err(Faulty { named: None, error }) => {
            return answer::refused(StatusCode::UNPROCESSABLE_ENTITY, &error);
        }
        Err(Faulty { named: Some(named), error }) => {
            let refused = named.refused(principal, error);
            let report = served.gateway.refuse(refused).await;
            return answer::report(StatusCode::UNPROCESSABLE_ENTITY, &report);
        }
    };
    let Asked { tool, input, ids, is_key_in_header } = asked;
    let report = match RequestContext::parse(principal, Face::Rest, &ids) {
        Ok(context) => {
            let context = RequestContext { patience, ..context };
            served.gateway.execute(context, &tool, input).await
        }
        Err(error) => {
            let refused = RefusedCall { principal, caller: Face::Rest, tool, ids, input, error };
            served.gateway.refuse(refused).await
        }
    };
    answer::report(answer::status(&report, is_key_in_header), &report)
}

async fn explain(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let read = JsonBody::read(&parts.headers, body).await;
    let asked = read.map_err(|error| Problem::new(error.status, error.reason)).and_then(|body| {
        ExecuteRequest::read(body.value)
            .map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))
    });
    let asked = match asked {
        Ok(asked) => Asked::of(asked, false),
        Err(problem) => return problem.into_response(),
    };
    let explained = RequestContext::parse(principal, Face::Rest, &asked.ids)
        .and_then(|context| served.gateway.explain(&context, &asked.tool, &asked.input));
    match explained {
        Ok(explanation) => json_response(StatusCode::OK, &explanation.to_json()),
        Err(error) => answer::refused(StatusCode::OK, &error),
    }
}

impl Named {
    fn refused(self, principal: Principal, error: gateway_model::ToolError) -> RefusedCall {
        let Self { tool, ids, input } = self;
        RefusedCall { principal, caller: Face::Rest, tool, ids, input, error }
    }
}
