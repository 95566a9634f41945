//! Approvals, for operators: `GET /v1/approvals`, `GET/POST/DELETE /v1/approvals/{id}`.

use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use gateway_engine::{ApprovalError, ApprovalStage};
use gateway_model::wire::AnswerApproval;
use gateway_model::{ApprovalId, Principal, bounded_text};
use serde_json::{Value, json};

use super::Route;
use super::operations::json_response;
use super::receipts::{MAX_POSITION, number, unusable};
use super::tools::path_text;
use crate::body::JsonBody;
use crate::error::Problem;
use crate::openapi::{JSON, Operation, Refusal, schema};
use crate::router::Served;

/// Approvals of one page, where the caller names no number.
const DEFAULT_LIMIT: u32 = 50;
/// The most approvals of one page.
const MAX_LIMIT: u32 = 100;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/approvals", list, list_operation()),
        Route::get("/v1/approvals/{id}", show, show_operation()),
        Route::post("/v1/approvals/{id}", answer, answer_operation()),
        Route::delete("/v1/approvals/{id}", revoke, revoke_operation()),
    ]
}

fn list_operation() -> Operation {
    let states: Vec<&str> = ApprovalStage::ALL.into_iter().map(ApprovalStage::as_str).collect();
    let after = json!({ "type": "integer", "minimum": 0, "maximum": MAX_POSITION });
    let limit =
        json!({ "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT });
    of_operators(
        "list_approvals",
        "List calls that wait for approval",
        "In the order in which they were asked for, without their inputs. Operators only.",
    )
    .query("state", "Those in another state.", json!({ "enum": states, "default": "pending" }))
    .query("after", "Leaves out approvals up to this position.", after)
    .query("limit", "How many approvals at most.", limit)
    .answer(StatusCode::OK, "One page.", Some((JSON, schema("ApprovalPage"))))
    .problem(StatusCode::UNPROCESSABLE_ENTITY, "A query parameter cannot be used.")
}

fn show_operation() -> Operation {
    of_approval(
        "show_approval",
        "Show one approval",
        "With the whole input of the call. Operators only.",
    )
    .answer(StatusCode::OK, "The approval.", Some((JSON, schema("Approval"))))
}

fn answer_operation() -> Operation {
    of_approval(
        "answer_approval",
        "Approve or deny a call",
        "The first answer holds. A yes lets exactly this call act, once: another argument, \
         definition, policy, run or key needs another. A no also holds for the same call under another \
         key, until it is revoked. Operators only, and never for calls of their own.",
    )
    .body(
        schema("AnswerApproval"),
        json!({ "decision": "approve", "reason": "looked at it" }),
        Refusal::Problem,
    )
    .answer(StatusCode::OK, "The answer holds.", Some((JSON, schema("ApprovalSummary"))))
    .problem(StatusCode::CONFLICT, "It came too late; the detail says which answer holds.")
}

fn revoke_operation() -> Operation {
    of_approval(
        "revoke_approval",
        "Take back a question, a yes that was not used, or a no",
        "The next call like it is asked about anew. Operators only.",
    )
    .answer(StatusCode::OK, "It is taken back.", Some((JSON, schema("ApprovalSummary"))))
    .problem(StatusCode::CONFLICT, "It has ended; the detail says how.")
}

fn of_operators(id: &'static str, summary: &'static str, description: &'static str) -> Operation {
    Operation::new(id, summary, description)
        .problem(StatusCode::FORBIDDEN, "The caller is no operator.")
        .problem(StatusCode::INTERNAL_SERVER_ERROR, "The ledger could not be used.")
}

fn of_approval(id: &'static str, summary: &'static str, description: &'static str) -> Operation {
    let format = json!({ "type": "string", "format": "uuid" });
    of_operators(id, summary, description)
        .path("id", "Approval id, as in the refusal's `approval_id`.", format)
        .problem(StatusCode::BAD_REQUEST, "The path is not UTF-8.")
        .problem(StatusCode::NOT_FOUND, "No such approval.")
}

async fn list(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    uri: Uri,
) -> Result<Response, Problem> {
    let Page { state, after, limit } = Page::read(&uri)?;
    let listed = served.gateway.approvals(principal, Some(state), (after, limit)).await;
    let listed = listed.map_err(problem)?;
    let is_full = listed.len() == limit as usize;
    let next_after = listed.last().filter(|_| is_full).map(|approval| approval.position);
    let approvals: Vec<Value> = listed.iter().map(|approval| approval.to_json()).collect();
    Ok(json_response(StatusCode::OK, &json!({ "approvals": approvals, "next_after": next_after })))
}

async fn show(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let approval = served.gateway.approval(principal, approval_id(id)?).await.map_err(problem)?;
    Ok(json_response(StatusCode::OK, &approval.to_json_with_input()))
}

async fn answer(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let id = approval_id(id)?;
    let (parts, body) = request.into_parts();
    let body = JsonBody::read(&parts.headers, body).await;
    let body = body.map_err(|error| Problem::new(error.status, error.reason))?;
    let AnswerApproval { is_approved, reason } =
        AnswerApproval::read(body.value).map_err(|error| unusable(error.to_string()))?;
    let answered = served.gateway.answer_approval(principal, id, (is_approved, reason)).await;
    Ok(json_response(StatusCode::OK, &answered.map_err(problem)?.to_json()))
}

async fn revoke(
    State(served): State<Served>,
    Extension(principal): Extension<Principal>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let revoked = served.gateway.revoke_approval(principal, approval_id(id)?).await;
    Ok(json_response(StatusCode::OK, &revoked.map_err(problem)?.to_json()))
}

fn approval_id(id: Result<Path<String>, PathRejection>) -> Result<ApprovalId, Problem> {
    path_text(id)?
        .parse()
        .map_err(|error| Problem::new(StatusCode::NOT_FOUND, format!("no approval: {error}")))
}

fn problem(error: ApprovalError) -> Problem {
    let status = match &error {
        ApprovalError::Forbidden(_) => StatusCode::FORBIDDEN,
        ApprovalError::NotFound(_) => StatusCode::NOT_FOUND,
        ApprovalError::Ended(_) => StatusCode::CONFLICT,
        ApprovalError::Ledger(_) => {
            return Problem::internal("the ledger could not be used", &error);
        }
    };
    Problem::new(status, error.to_string())
}

/// Which approvals are asked for.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    state: ApprovalStage,
    after: u64,
    limit: u32,
}

impl Page {
    fn read(uri: &Uri) -> Result<Self, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|rejection| unusable(rejection.body_text()))?;
        let (mut state, mut after, mut limit) = (None, None, None);
        for (name, text) in &pairs {
            let is_repeated = match name.as_str() {
                "state" => state.replace(known_state(text)?).is_some(),
                "after" => after.replace(number(name, text, &(0..=MAX_POSITION))?).is_some(),
                "limit" => {
                    limit.replace(number(name, text, &(1..=u64::from(MAX_LIMIT)))?).is_some()
                }
                other => {
                    let other = bounded_text(other, 60);
                    return Err(unusable(format!(
                        "query parameter {other:?} is unknown; known are state, after, limit"
                    )));
                }
            };
            if is_repeated {
                return Err(unusable(format!("query parameter {name} came more than once")));
            }
        }
        Ok(Self {
            state: state.unwrap_or(ApprovalStage::Pending),
            after: after.unwrap_or(0),
            limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(DEFAULT_LIMIT),
        })
    }
}

fn known_state(text: &str) -> Result<ApprovalStage, Problem> {
    ApprovalStage::from_name(text).ok_or_else(|| {
        let known = ApprovalStage::ALL.map(ApprovalStage::as_str).join(", ");
        let text = bounded_text(text, 60);
        unusable(format!("query parameter state is {text:?}; expected one of {known}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Option<(&str, u64, u32)>) {
        let uri = format!("/v1/approvals{query}").parse().unwrap();
        let page = Page::read(&uri).ok();
        let page = page.map(|page| (page.state.as_str(), page.after, page.limit));
        assert_eq!(page, expected, "{query}");
    }

    #[test]
    fn a_page_is_read_from_known_parameters_within_their_ranges() {
        check("", Some(("pending", 0, DEFAULT_LIMIT)));
        check("?state=denied&after=7&limit=1", Some(("denied", 7, 1)));
        for query in ["?state=open", "?state=used&state=used", "?limit=0", "?after=-1", "?x=1"] {
            check(query, None);
        }
    }
}
