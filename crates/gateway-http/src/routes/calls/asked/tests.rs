use axum::http::HeaderValue;
use serde_json::json;

use super::*;

fn body(value: Value) -> JsonBody {
    JsonBody { text: value.to_string().into_bytes(), value }
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn request(change: impl FnOnce(&mut Map<String, Value>)) -> JsonBody {
    let mut request = json!({
        "tool_id": "echo.test", "input": {"message": "hello"}, "correlation_id": "corr_1",
        "run_id": "run_1", "wih_id": "wih_1",
    });
    change(request.as_object_mut().unwrap());
    body(request)
}

#[test]
fn the_header_stands_in_for_an_absent_correlation_id() {
    let without = || {
        request(|request| {
            request.shift_remove("correlation_id");
        })
    };
    let key = |body, given: &[(&'static str, &str)]| {
        let asked = Asked::in_body(body, &headers(given)).map_err(|faulty| faulty.error.message)?;
        Ok::<_, String>((asked.ids.key.unwrap(), asked.is_key_in_header))
    };
    assert_eq!(key(request(|_| {}), &[]), Ok(("corr_1".to_owned(), false)));
    assert_eq!(key(without(), &[("idempotency-key", "k")]), Ok(("k".to_owned(), true)));
    assert_eq!(key(without(), &[("idempotency-key", "\"k\"")]), Ok(("k".to_owned(), true)));
    assert_eq!(
        key(request(|_| {}), &[("idempotency-key", "corr_1")]),
        Ok(("corr_1".to_owned(), true))
    );
    let message = key(request(|_| {}), &[("idempotency-key", "k")]).unwrap_err();
    assert!(message.contains("/correlation_id: differs from the header"), "{message}");
    let message = key(without(), &[]).unwrap_err();
    assert!(message.contains(RequiredId::Correlation.message()), "{message}");
    let message =
        key(without(), &[("idempotency-key", "a"), ("idempotency-key", "a")]).unwrap_err();
    assert!(message.contains("more than once"), "{message}");
}

#[test]
fn a_faulty_request_is_journaled_with_what_it_names() {
    let faulty = Asked::in_body(
        request(|request| drop(request.insert("run_id".into(), json!(7)))),
        &headers(&[]),
    );
    let named = faulty.unwrap_err().named.unwrap();
    assert_eq!(named.tool, "echo.test");
    assert_eq!(named.input, json!({"message": "hello"}));
    assert_eq!(
        named.ids,
        RequestIds { run: String::new(), wih: "wih_1".into(), key: Some("corr_1".into()) }
    );
    let faulty = Asked::in_body(body(json!([1])), &headers(&[])).unwrap_err();
    assert!(faulty.named.is_none());
    assert_eq!(faulty.error.fields["violations"][0]["path"], "");
}

#[test]
fn absent_arguments_and_null_are_an_empty_input() {
    for given in [None, Some(body(Value::Null)), Some(body(json!({})))] {
        let asked = Asked::in_headers("t".into(), given, &headers(&[])).unwrap();
        assert_eq!(asked.input, json!({}));
        assert_eq!(
            asked.ids,
            RequestIds { run: "default".into(), wih: "default".into(), key: None }
        );
    }
    for given in [json!([]), json!("x"), json!(7), json!(false)] {
        let faulty =
            Asked::in_headers("t".into(), Some(body(given.clone())), &headers(&[])).unwrap_err();
        assert_eq!(faulty.named.unwrap().input, given);
        assert!(faulty.error.message.contains("expected the tool's input"), "{}", faulty.error);
    }
}

#[test]
fn ids_come_in_headers() {
    let given = headers(&[("x-run-id", "run_1"), ("x-wih-id", "wih_1"), ("idempotency-key", "k")]);
    let asked = Asked::in_headers("t".into(), None, &given).unwrap();
    assert_eq!(
        asked.ids,
        RequestIds { run: "run_1".into(), wih: "wih_1".into(), key: Some("k".into()) }
    );
    assert!(asked.is_key_in_header);
    let given = headers(&[("x-run-id", "run_1"), ("x-run-id", "run_2")]);
    assert!(Asked::in_headers("t".into(), None, &given).is_err());
}

#[test]
fn a_preference_to_wait_is_read_and_any_other_is_ignored() {
    let check = |values: &[&'static str], seconds: u64| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PREFER_HEADER, axum::http::HeaderValue::from_static(value));
        }
        assert_eq!(patience(&headers), Duration::from_secs(seconds), "{values:?}");
    };
    check(&[], 0);
    check(&["wait=10"], 10);
    check(&["respond-async, Wait = \"7\"; x=1"], 7);
    check(&["respond-async", "wait=3"], 3);
    check(&["wait", "wait=-1, wait=x, wait=99999, waits=4"], 0);
}
