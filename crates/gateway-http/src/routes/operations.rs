//! Whether the gateway works: `/health`, `/ready`, `/openapi.json`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use gateway_engine::Health;
use gateway_sandbox::SandboxState;
use serde_json::{Value, json};

use super::Route;
use crate::error::Problem;
use crate::openapi::{JSON, Operation, schema};
use crate::router::Served;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get(
            "/health",
            health,
            Operation::new(
                "health",
                "Service health and ontology compliance",
                "Answers 200 as long as the process answers at all; `status` is `ok` while the \
                 side-effect boundary holds and calls are accepted.",
            )
            .answer(StatusCode::OK, "The state.", Some((JSON, schema("Health")))),
        ),
        Route::get(
            "/ready",
            ready,
            Operation::new("ready", "Whether calls are accepted", "For a supervisor.")
                .answer(StatusCode::OK, "Calls are accepted.", Some((JSON, schema("Ready"))))
                .problem(StatusCode::SERVICE_UNAVAILABLE, "They are not; `reasons` says why."),
        ),
        Route::get(
            "/openapi.json",
            document,
            Operation::new("openapi", "This document", "OpenAPI 3.1.").answer(
                StatusCode::OK,
                "The document.",
                Some((JSON, json!({ "type": "object" }))),
            ),
        ),
    ]
}

async fn health(State(served): State<Served>) -> Response {
    json_response(StatusCode::OK, &health_body(&served.gateway.health()))
}

/// Returns the state of the gateway; the first four keys are the wire contract's, in its order.
fn health_body(health: &Health) -> Value {
    let is_compliant = health.is_compliant();
    let ledger = if health.is_journal_writable { "writable" } else { "unwritable" };
    let (tier, missing) = match &health.sandbox {
        SandboxState::Enforced(tier) => (Some(tier.as_str()), None),
        SandboxState::Off => (None, None),
        SandboxState::Unavailable(unavailable) => (None, Some(unavailable.to_string())),
    };
    json!({
        "status": if is_compliant && health.is_accepting { "ok" } else { "degraded" },
        "service": "allternit-io-service",
        "version": env!("CARGO_PKG_VERSION"),
        "ontology_compliance": is_compliant,
        "sandbox": { "state": sandbox_state(&health.sandbox), "tier": tier, "reason": missing },
        "ledger": { "state": ledger },
        "is_accepting": health.is_accepting,
        "calls_running": health.calls_running,
        "tools": health.tools,
    })
}

fn sandbox_state(sandbox: &SandboxState) -> &'static str {
    match sandbox {
        SandboxState::Enforced(_) => "enforced",
        SandboxState::Off => "off",
        SandboxState::Unavailable(_) => "unavailable",
    }
}

async fn ready(State(served): State<Served>) -> Response {
    let health = served.gateway.health();
    let reasons: Vec<&str> = [
        (health.is_accepting, "the gateway is shutting down"),
        (health.is_journal_writable, "the journal cannot be written"),
    ]
    .into_iter()
    .filter(|(is_met, _)| !is_met)
    .map(|(_, reason)| reason)
    .collect();
    if reasons.is_empty() {
        return json_response(StatusCode::OK, &json!({ "ready": true }));
    }
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, reasons.join("; "))
        .with("reasons", reasons)
        .into_response()
}

async fn document(State(served): State<Served>) -> Response {
    ([(CONTENT_TYPE, JSON)], served.document).into_response()
}

/// Returns a JSON answer.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, JSON)], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use gateway_model::SandboxTier;

    use super::*;

    fn health(sandbox: SandboxState) -> Health {
        let is_journal_writable = true;
        Health {
            is_journal_writable,
            sandbox,
            is_accepting: true,
            calls_running: 0,
            calls_waiting: 0,
            tools: 8,
        }
    }

    #[test]
    fn a_sound_gateway_answers_the_contracts_four_keys_first() {
        let body =
            health_body(&health(SandboxState::Enforced(SandboxTier::Namespaces))).to_string();
        let expected = "{\"status\":\"ok\",\"service\":\"allternit-io-service\",\"version\":\"0.1.0\",\
                        \"ontology_compliance\":true,";
        assert!(body.starts_with(expected), "{body}");
    }

    #[test]
    fn a_gateway_whose_boundary_does_not_hold_is_degraded() {
        let unwritable = Health {
            is_journal_writable: false,
            ..health(SandboxState::Enforced(SandboxTier::Namespaces))
        };
        for health in [health(SandboxState::Off), unwritable] {
            let body = health_body(&health);
            assert_eq!(
                (&body["status"], &body["ontology_compliance"]),
                (&json!("degraded"), &json!(false))
            );
        }
    }
}
