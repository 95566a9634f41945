use super::*;
use proptest::prelude::*;

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let error = parse_json(text.as_bytes()).expect_err(text);
    assert!(error.to_string().contains(expected), "{text:?} gave {error}");
}

#[track_caller]
fn check_canonical(text: &str, canonical: &str) {
    let value = parse_json(text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(canonical_json(&value)).unwrap(), canonical);
}

#[test]
fn what_has_no_single_meaning_is_refused_with_its_path() {
    check_refused(r#"{"a":{"b":1,"b":2}}"#, "duplicate key at /a/b");
    check_refused(r#"{"x":[0,18446744073709551616]}"#, "outside the 64-bit range at /x/1");
    check_refused("-9223372036854775809", "outside the 64-bit range at (root)");
    check_refused(r#"{"a/b":99999999999999999999}"#, "at /a~1b");
    check_refused("1e400", "out of range");
    check_refused(r#""\ud800""#, "not valid JSON");
    check_refused("{\"a\":\"\u{1}\"}", "not valid JSON");
    check_refused(&"[".repeat(65), "deeper than 64 at");
    check_refused(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)), "deeper than 64");
    check_refused("", "not valid JSON");
    check_refused("{} {}", "trailing characters");
    check_refused("NaN", "not valid JSON");
}

#[test]
fn nesting_up_to_the_bound_is_accepted() {
    let text = format!("{}{}", "[".repeat(64), "]".repeat(64));
    assert!(parse_json(text.as_bytes()).is_ok());
}

#[test]
fn the_canonical_form_is_fixed() {
    check_canonical(r#"{ "b": 1, "a": [true, null] }"#, r#"{"a":[true,null],"b":1}"#);
    check_canonical("[1, 1.0, 1e0, -0.0, 0.1]", "[1,1,1,0,0.1]");
    check_canonical(
        "[9007199254740993, 18446744073709551615]",
        "[9007199254740993,18446744073709551615]",
    );
    check_canonical("[-9223372036854775808, 1e21, 1e-7]", "[-9223372036854775808,1e+21,1e-7]");
    check_canonical(r#""\u0000\u001f\"\\\/\n\u00e9""#, "\"\\u0000\\u001f\\\"\\\\/\\né\"");
    // RFC 8785 section 3.2.3: keys sort by UTF-16 code units, not by code points.
    check_canonical(
        r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#,
        "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}",
    );
}

#[test]
fn an_exponent_makes_a_float_not_an_integer() {
    check_canonical("1e19", "10000000000000000000");
    check_canonical("100000000000000000000.0", "100000000000000000000");
}

fn arb_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53)..(1_i64 << 53)).prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn canonical_form_equals_rfc_8785(value in arb_json()) {
        let ours = canonical_json(&value);
        let theirs = serde_json_canonicalizer::to_vec(&value).unwrap();
        prop_assert_eq!(String::from_utf8(ours).unwrap(), String::from_utf8(theirs).unwrap());
    }

    #[test]
    fn what_is_written_reads_back_to_the_same_canonical_form(value in arb_json()) {
        let written = canonical_json(&value);
        // A float beyond 2^63 without a fraction is written with all its digits, which then
        // read as an integer that is out of range; only such a value may be refused.
        match parse_json(&written) {
            Ok(read) => prop_assert_eq!(canonical_json(&read), written),
            Err(error) => prop_assert!(error.to_string().contains("64-bit range")),
        }
    }

    #[test]
    fn integers_keep_every_digit(signed in any::<i64>(), unsigned in any::<u64>()) {
        let text = format!("[{signed},{unsigned}]");
        let value = parse_json(text.as_bytes()).unwrap();
        prop_assert_eq!(String::from_utf8(canonical_json(&value)).unwrap(), text);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(parse_json(&bytes).is_ok() || parse_json(&bytes).is_err());
    }
}
