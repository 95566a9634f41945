use proptest::prelude::{any, proptest};
use serde_json::json;

use super::*;

fn schema() -> Value {
    json!({"type": "object", "properties": {"id": {}, "q": {}, "list": {}, "a~b": {}}})
}

#[track_caller]
fn check(endpoint: &str, input: Value, expected: Result<&str, &str>) {
    let template = EndpointTemplate::parse(endpoint, &schema()).unwrap();
    let Value::Object(input) = input else { panic!("input is no object") };
    match (template.expand(&input), expected) {
        (Ok(url), Ok(expected)) => assert_eq!(url.to_string(), expected),
        (Err(error), Err(expected)) => {
            assert!(format!("{} {error}", error.path).contains(expected), "{error:?}");
        }
        (got, _) => panic!("{endpoint} gave {got:?}"),
    }
}

#[test]
fn a_value_stays_in_its_place_of_the_path() {
    let detail = "https://api.example.org/items/{{id}}/detail";
    let at = |segment: &str| format!("https://api.example.org/items/{segment}/detail");
    check(detail, json!({"id": "a?x=1"}), Ok(&at("a%3Fx%3D1")));
    check(detail, json!({"id": "a#f"}), Ok(&at("a%23f")));
    check(detail, json!({"id": "a/b\\c"}), Ok(&at("a%2Fb%5Cc")));
    check(detail, json!({"id": "%2e%2e"}), Ok(&at("%252e%252e")));
    check(
        detail,
        json!({"id": "{{q}} {other} ${HOME}"}),
        Ok(&at("%7B%7Bq%7D%7D%20%7Bother%7D%20%24%7BHOME%7D")),
    );
    check(detail, json!({"id": "...é;=@:"}), Ok(&at("...%C3%A9%3B%3D%40%3A")));
    check(detail, json!({"id": 9_007_199_254_740_993_u64}), Ok(&at("9007199254740993")));
    for (id, expected) in [
        (json!("../../admin"), "/id holds a dot segment"),
        (json!("x/../y"), "/id holds a dot segment"),
        (json!("..\\..\\admin"), "/id holds a dot segment"),
        (json!(".."), "/id holds a dot segment"),
        (json!("."), "/id holds a dot segment"),
        (json!(""), "/id is empty"),
        (json!("a\r\nHost: evil"), "/id holds a control character"),
        (json!("a\0"), "/id holds a control character"),
        (Value::Null, "/id is absent"),
        (json!({"a": 1}), "/id cannot stand"),
        (json!(["a"]), "/id cannot stand"),
    ] {
        check(detail, json!({ "id": id }), Err(expected));
    }
    check(detail, json!({}), Err("/id is absent"));
    check("http://a.org/{{id}}{{q}}/x", json!({"id": ".", "q": "."}), Err("dot segment"));
    check("http://a.org/.{{id}}", json!({"id": "."}), Err("dot segment"));
    check("http://a.org/{{id}},{{q}}", json!({"id": 1.5, "q": -2}), Ok("http://a.org/1.5,-2"));
    check("http://a.org/{{a~b}}", json!({"a~b": {}}), Err("/a~0b cannot"));
    check("http://a.org/{{id}}", json!({"id": "x".repeat(9_000)}), Err("expected at most 8192"));
}

#[test]
fn a_value_stays_in_its_parameter_of_the_query() {
    let search = "http://a.org?v=1&q={{q}}&tag={{list}}";
    check(
        search,
        json!({"q": "a&b=c#d+e f", "list": ["x&y", 2]}),
        Ok("http://a.org/?v=1&q=a%26b%3Dc%23d%2Be%20f&tag=x%26y&tag=2"),
    );
    check(search, json!({"q": null, "list": []}), Ok("http://a.org/?v=1"));
    check("http://a.org/?q={{q}}", json!({}), Ok("http://a.org/"));
    check("http://a.org/?q=({{q}})", json!({"q": ["x"]}), Err("/q cannot stand"));
    check("http://a.org/?q={{q}}", json!({"q": ""}), Ok("http://a.org/?q="));
}

#[test]
fn an_endpoint_that_cannot_work_is_refused_at_registration() {
    for (endpoint, expected) in [
        ("api.example.org/x", "no scheme"),
        ("ftp://a.org/", "expected http or https"),
        ("https://{{id}}.example.org/", "never chooses the host"),
        ("https://a.org:{{id}}/", "never chooses the host"),
        ("https://user:secret@a.org/", "user information"),
        ("https://a.org/{{missing}}", "no property of input_schema"),
        ("https://a.org/{{id}", "not closed"),
        ("https://a.org/{{}}", "without a name"),
        ("https://a.org/{id}", "neither {name} nor ${NAME} is expanded"),
        ("https://a.org/${TOKEN}", "neither {name} nor ${NAME} is expanded"),
        ("https://a.org/a/../b", "the segment \"..\""),
        ("https://a.org/%2E%2e/b", "the segment"),
        ("https://a.org/?{{id}}=1", "a parameter's name"),
        ("https://a.org/#{{id}}", "fragment"),
        ("https://a.org/a b", "percent-encoded"),
        ("https://a.org/%zz", "percent-encoded"),
        ("http://0177.0.0.1/", "could be read as an address"),
    ] {
        let error = EndpointTemplate::parse(endpoint, &schema()).unwrap_err().to_string();
        assert!(error.contains(expected), "{endpoint} gave {error}");
    }
}

proptest! {
    #[test]
    fn whatever_the_value_only_its_own_place_changes(id in any::<String>(), q in any::<String>()) {
        let template = EndpointTemplate::parse("http://a.org/x/{{id}}/y?q={{q}}&z", &schema()).unwrap();
        let Value::Object(input) = json!({"id": id, "q": q}) else { panic!("no object") };
        if let Ok(url) = template.expand(&input) {
            let text = url.to_string();
            assert!(text.starts_with("http://a.org/x/") && text.ends_with("&z"), "{text}");
            assert_eq!(text.matches('/').count(), 5, "{text}");
            assert_eq!((text.matches('?').count(), text.matches('&').count()), (1, 1), "{text}");
            assert_eq!(text.parse::<HttpUrl>().unwrap(), url);
        }
    }
}
