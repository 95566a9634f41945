use super::*;
use serde_json::{Map, json};

#[track_caller]
fn check_refused(schema: &Value, expected: &str) {
    let error = CompiledSchema::compile(schema).expect_err("should be refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[track_caller]
fn check_value(schema: &Value, value: &Value, expected: &[&str]) {
    let compiled = CompiledSchema::compile(schema).unwrap();
    let listed: Vec<String> = compiled
        .violations(value)
        .into_iter()
        .map(|violation| format!("{}: {}", violation.path, violation.reason))
        .collect();
    assert_eq!(listed, expected);
}

#[test]
fn a_schema_that_reaches_outside_itself_is_refused() {
    check_refused(&json!({"$ref": "http://127.0.0.1:9/x.json"}), "Retrieval is disabled");
    check_refused(&json!({"$ref": "file:///etc/passwd"}), "Retrieval is disabled");
    check_refused(&json!({"$ref": "#/$defs/absent"}), "absent");
}

#[test]
fn what_is_no_schema_is_refused_with_its_place() {
    check_refused(&json!([]), "expected a JSON Schema object");
    check_refused(&json!({"properties": {"a": {"type": "strin"}}}), "at /properties/a/type");
    check_refused(&json!({"properties": {"a": {"pattern": "(("}}}), "at /properties/a/pattern");
    check_refused(
        &json!({"properties": {"a": {"pattern": "((a{1000}){1000}){1000}"}}}),
        "at /properties/a/pattern",
    );
}

#[test]
fn recursive_schemas_are_walked_without_end_or_overflow() {
    check_value(&json!({"$ref": "#"}), &json!({}), &[]);
    let mutual = json!({
        "$ref": "#/$defs/A",
        "$defs": {
            "A": {"allOf": [{"$ref": "#/$defs/B"}], "type": "object"},
            "B": {"allOf": [{"$ref": "#/$defs/A"}], "required": ["x"]},
        },
    });
    check_value(&mutual, &json!({"x": 1}), &[]);
    assert!(!CompiledSchema::compile(&mutual).unwrap().violations(&json!({})).is_empty());
    let tree = json!({
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "name": {"type": "string"}},
    });
    check_value(&tree, &json!({"left": {"name": 1}}), &["/left/name: 1 is not of type \"string\""]);
}

#[test]
fn a_schema_that_explodes_is_refused() {
    let mut definitions = Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/A{}", n + 1)});
        definitions.insert(format!("A{n}"), json!({"allOf": [next, next]}));
    }
    definitions.insert("A40".to_owned(), json!({"type": "object"}));
    check_refused(&json!({"$ref": "#/$defs/A0", "$defs": definitions}), "expands to more than");

    let mut chain = Map::new();
    for n in 0..5000 {
        chain.insert(format!("A{n}"), json!({"$ref": format!("#/$defs/A{}", n + 1)}));
    }
    chain.insert("A5000".to_owned(), json!(true));
    check_refused(&json!({"$ref": "#/$defs/A0", "$defs": chain}), "nested deeper than");
}

#[test]
fn a_branching_recursion_is_decided_without_listing_every_way() {
    let twice = json!({"properties": {"x": {"$ref": "#/$defs/A"}}, "type": "object"});
    let schema = json!({"$ref": "#/$defs/A", "$defs": {"A": {"allOf": [twice, twice]}}});
    let mut value = json!(7);
    for _ in 0..50 {
        value = json!({"x": value});
    }
    check_value(&schema, &value, &[": does not match the schema"]);
}

#[test]
fn a_hostile_pattern_ends() {
    let schema = json!({"properties": {"a": {"pattern": "^(a+)+(?=b)$"}}});
    let value = json!({"a": "a".repeat(5_000)});
    assert_eq!(CompiledSchema::compile(&schema).unwrap().violations(&value).len(), 1);
}

#[test]
fn every_dialect_is_honoured_and_an_unknown_one_is_read_as_2020_12() {
    for uri in [
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-04/schema#",
    ] {
        let schema = json!({"$schema": uri, "type": "object", "required": ["a"]});
        let compiled = CompiledSchema::compile(&schema).unwrap();
        assert_eq!(compiled.warning(), None, "{uri}");
        assert_eq!(compiled.violations(&json!({})).len(), 1, "{uri}");
    }
    let schema = json!({"$schema": "https://example.org/mine", "type": "object"});
    let compiled = CompiledSchema::compile(&schema).unwrap();
    assert!(compiled.warning().unwrap().contains("read as 2020-12"));
    assert_eq!(compiled.violations(&json!([])).len(), 1);
}

#[test]
fn an_integral_float_is_an_integer() {
    check_value(&json!({"properties": {"n": {"type": "integer"}}}), &json!({"n": 1.0}), &[]);
    check_value(
        &json!({"properties": {"n": {"type": "integer", "maximum": 9_007_199_254_740_992_u64}}}),
        &json!({"n": 9_007_199_254_740_993_u64}),
        &["/n: 9007199254740993 is greater than the maximum of 9007199254740992"],
    );
}
