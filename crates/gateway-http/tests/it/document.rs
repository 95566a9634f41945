//! The OpenAPI document: what it says, and that every answer is one it declares.

use serde_json::{Value, json};

use crate::fixture::{Answer, Fixture};

/// Holds an answer against the document: status, media type, and body against its schema.
///
/// What HEAD answers follows from GET (RFC 9110, section 9.3.2) and is not in the document.
#[track_caller]
pub(crate) fn check_declared(document: &Value, method: &str, path: &str, answer: &Answer) {
    if method == "HEAD" {
        return;
    }
    let path = path.split('?').next().unwrap();
    let Some(operation) = operation(document, method, path) else {
        assert!(
            [204, 404, 405].contains(&answer.status) || is_judged(answer),
            "{method} {path}: {answer:?}"
        );
        return;
    };
    let declared = &operation["responses"][answer.status.to_string()];
    assert!(declared.is_object(), "{method} {path} does not declare {answer:?}");
    let Some(content) = declared.get("content") else {
        assert_eq!(answer.body, "", "{method} {path}");
        return;
    };
    let media_type = answer.header("content-type").split(';').next().unwrap();
    assert!(content[media_type].is_object(), "{method} {path} does not declare {answer:?}");
    if media_type.ends_with("json") {
        check_schema(document, &content[media_type]["schema"], &answer.json());
    }
    for (name, header) in declared["headers"].as_object().into_iter().flatten() {
        assert!(
            header["required"] != true || answer.headers.contains_key(name),
            "{name}: {answer:?}"
        );
    }
}

/// Says whether the answer is a refusal from before any route.
fn is_judged(answer: &Answer) -> bool {
    [400, 401, 403, 421].contains(&answer.status)
}

fn operation<'a>(document: &'a Value, method: &str, path: &str) -> Option<&'a Value> {
    let paths = document["paths"].as_object().unwrap();
    let item = paths.get(path).or_else(|| {
        let template = paths.keys().find(|template| matches(template, path))?;
        paths.get(template)
    })?;
    item.get(method.to_lowercase())
}

fn matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<&str>, Vec<&str>) =
        (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template.iter().zip(path).all(|(t, p)| t.starts_with('{') || *t == p)
}

#[track_caller]
fn check_schema(document: &Value, schema: &Value, instance: &Value) {
    let whole =
        json!({ "$ref": "#/schema", "schema": schema, "components": document["components"] });
    let validator = jsonschema::draft202012::new(&whole).unwrap();
    let faults: Vec<String> = validator
        .iter_errors(instance)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}\n{instance:#}");
}

#[tokio::test]
async fn the_document_lists_what_is_served() {
    let fixture = Fixture::open().await;
    let document = fixture.get("/openapi.json").await.json();
    insta::assert_json_snapshot!("openapi", document);
}

#[tokio::test]
async fn the_documents_own_examples_are_valid() {
    let fixture = Fixture::open().await;
    let document = fixture.get("/openapi.json").await.json();
    let mut checked = 0;
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let content = &operation["requestBody"]["content"]["application/json"];
            if content.is_object() {
                check_schema(&document, &content["schema"], &content["example"]);
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 6);
}

#[tokio::test]
async fn other_methods_are_refused_with_those_that_are_served() {
    let fixture = Fixture::open().await;
    for (path, allowed) in [
        ("/health", "GET,HEAD"),
        ("/v1/tools", "GET,HEAD,POST"),
        ("/v1/tools/echo.test", "DELETE,GET,HEAD"),
        ("/v1/tools/execute", "POST"),
        ("/v1/tools/echo.test/call", "POST"),
    ] {
        for method in ["PUT", "PATCH", "TRACE", "PROPFIND"] {
            let answer = fixture.send(method, path, &[], "").await;
            assert_eq!(answer.status, 405, "{answer:?}");
            assert_eq!(answer.json()["title"], "Method Not Allowed");
            check_allow(&answer, allowed);
        }
        let options = fixture.send("OPTIONS", path, &[], "").await;
        assert_eq!((options.status, options.body.as_str()), (204, ""));
        check_allow(&options, allowed);
    }
    let head = fixture.send("HEAD", "/health", &[], "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(fixture.send("HEAD", "/v1/tools/execute", &[], "").await.status, 405);
}

#[track_caller]
fn check_allow(answer: &Answer, expected: &str) {
    let mut methods: Vec<&str> = answer.header("allow").split(',').collect();
    methods.sort_unstable();
    assert_eq!(methods.join(","), expected, "{answer:?}");
}
