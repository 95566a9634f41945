//! The OpenAPI 3.1 document, assembled from the table of routes.
//!
//! An [`Operation`] names every status its route can answer. What a request meets before its
//! route, and the errors of reading a body, are the same everywhere and are added by name.

mod schemas;

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use crate::error::PROBLEM_JSON;
use crate::routes::Route;

/// The media type of plain answers.
pub(crate) const JSON: &str = "application/json";
/// The media type of answers to registrations.
pub(crate) const TEXT: &str = "text/plain";

/// What one route takes and answers.
pub(crate) struct Operation {
    id: &'static str,
    summary: &'static str,
    description: &'static str,
    parameters: Vec<Value>,
    body: Option<Body>,
    answers: Vec<Answer>,
}

struct Body {
    is_required: bool,
    schema: Value,
    example: Value,
}

struct Answer {
    status: StatusCode,
    description: &'static str,
    content: Option<(&'static str, Value)>,
    headers: Map<String, Value>,
}

/// The form in which a route says that it could not read a body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    /// The five keys of an execute answer.
    Call,
    /// `Failed to register tool: …`
    Text,
    /// Problem details.
    Problem,
}

impl Refusal {
    fn content(self) -> (&'static str, Value) {
        match self {
            Self::Call => (JSON, schema("CallFailure")),
            Self::Text => (TEXT, json!({ "type": "string" })),
            Self::Problem => (PROBLEM_JSON, schema("Problem")),
        }
    }
}

/// Returns a reference to a schema of the document.
pub(crate) fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

impl Operation {
    /// Returns an operation with what every route can answer before it runs.
    pub(crate) fn new(id: &'static str, summary: &'static str, description: &'static str) -> Self {
        let operation =
            Self { id, summary, description, parameters: vec![], body: None, answers: vec![] };
        operation
            .problem(StatusCode::BAD_REQUEST, "Host is absent, or a header came twice.")
            .problem(StatusCode::UNAUTHORIZED, "No valid token where one is needed.")
            .problem(StatusCode::FORBIDDEN, "The Origin is not allowed.")
            .problem(StatusCode::MISDIRECTED_REQUEST, "The Host is not this gateway's.")
    }

    /// Adds a parameter in the path.
    pub(crate) fn path(self, name: &'static str, description: &'static str, schema: Value) -> Self {
        self.parameter(name, "path", description, schema)
    }

    /// Adds an optional parameter in the query.
    pub(crate) fn query(
        self,
        name: &'static str,
        description: &'static str,
        schema: Value,
    ) -> Self {
        self.parameter(name, "query", description, schema)
    }

    /// Adds an optional header.
    pub(crate) fn header(self, name: &'static str, description: &'static str) -> Self {
        self.parameter(name, "header", description, json!({ "type": "string" }))
    }

    fn parameter(mut self, name: &str, place: &str, description: &str, schema: Value) -> Self {
        self.parameters.push(json!({
            "name": name,
            "in": place,
            "description": description,
            "required": place == "path",
            "schema": schema,
        }));
        self
    }

    /// Adds a JSON body, and how it is refused.
    pub(crate) fn body(mut self, schema: Value, example: Value, refusal: Refusal) -> Self {
        self.body = Some(Body { is_required: true, schema, example });
        [
            (
                StatusCode::BAD_REQUEST,
                "The body is not JSON with a single meaning: keys are distinct, integers (no fraction, \
                 no exponent) fit 64 bits, and nesting is 64 deep at most.",
            ),
            (StatusCode::REQUEST_TIMEOUT, "The body did not arrive in time."),
            (StatusCode::PAYLOAD_TOO_LARGE, "The body has more than 2 MiB."),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is not declared as application/json."),
            (
                StatusCode::UNPROCESSABLE_ENTITY,
                "A field is absent, of the wrong type, unknown, or cannot be used.",
            ),
        ]
        .into_iter()
        .fold(self, |operation, (status, description)| {
            operation.answer(status, description, Some(refusal.content()))
        })
    }

    /// Says that the body may be absent.
    pub(crate) fn body_is_optional(mut self) -> Self {
        if let Some(body) = &mut self.body {
            body.is_required = false;
        }
        self
    }

    /// Adds an answer of this shape.
    pub(crate) fn answer(
        mut self,
        status: StatusCode,
        description: &'static str,
        content: Option<(&'static str, Value)>,
    ) -> Self {
        self.answers.push(Answer { status, description, content, headers: Map::new() });
        self
    }

    /// Adds an answer that is problem details.
    pub(crate) fn problem(self, status: StatusCode, description: &'static str) -> Self {
        self.answer(status, description, Some((PROBLEM_JSON, schema("Problem"))))
    }

    /// Adds an optional header to the answer that was added last.
    pub(crate) fn with_header(mut self, name: &str, description: &str) -> Self {
        if let Some(answer) = self.answers.last_mut() {
            let header = json!({ "description": description, "schema": { "type": "string" } });
            answer.headers.insert(name.to_owned(), header);
        }
        self
    }

    fn to_json(&self) -> Value {
        let mut operation = Map::new();
        let mut set = |name: &str, value: Value| operation.insert(name.to_owned(), value);
        set("operationId", self.id.into());
        set("summary", self.summary.into());
        set("description", self.description.into());
        if !self.parameters.is_empty() {
            set("parameters", json!(self.parameters));
        }
        if let Some(Body { is_required, schema, example }) = &self.body {
            let content = json!({ JSON: { "schema": schema, "example": example } });
            set("requestBody", json!({ "required": is_required, "content": content }));
        }
        set("responses", self.responses());
        Value::Object(operation)
    }

    /// Returns the answers by status; two that share one are told apart by their media types.
    fn responses(&self) -> Value {
        let mut by_status: BTreeMap<&str, Vec<&Answer>> = BTreeMap::new();
        for answer in &self.answers {
            by_status.entry(answer.status.as_str()).or_default().push(answer);
        }
        let responses =
            by_status.into_iter().map(|(status, answers)| (status.to_owned(), response(&answers)));
        Value::Object(responses.collect())
    }
}

fn response(answers: &[&Answer]) -> Value {
    let descriptions: Vec<&str> = answers.iter().map(|answer| answer.description).collect();
    let mut response = Map::from_iter([("description".to_owned(), descriptions.join(" ").into())]);
    let headers: Map<_, _> = answers.iter().flat_map(|answer| answer.headers.clone()).collect();
    if !headers.is_empty() {
        response.insert("headers".to_owned(), Value::Object(headers));
    }
    let content: Map<_, _> = answers
        .iter()
        .filter_map(|answer| answer.content.as_ref())
        .map(|(media_type, schema)| ((*media_type).to_owned(), json!({ "schema": schema })))
        .collect();
    if !content.is_empty() {
        response.insert("content".to_owned(), Value::Object(content));
    }
    Value::Object(response)
}

/// Returns the document of a table of routes.
pub(crate) fn document(table: &[Route]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in table {
        let path = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.to_owned(), route.operation.to_json());
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Allternit Tools Gateway",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The only path by which agents cause side effects. Every path also answers \
                HEAD where it answers GET, OPTIONS with 204, and any other method with 405; both name \
                the methods in Allow. Errors are problem details (RFC 9457), except where an operation \
                says otherwise.",
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "operator": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "operator": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The operator's token. Callers on this machine may do without.",
                },
            },
            "schemas": schemas::all(),
        },
    })
}
