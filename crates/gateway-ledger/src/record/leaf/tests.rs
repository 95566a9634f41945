//! Leaves are canonical and bounded whatever callers, tools and policies put into them.

use gateway_model::{Effect, Face};
use proptest::prelude::{Just, Strategy, any, prop, proptest};

use super::*;

fn decision(texts: &[String]) -> Decision {
    Decision {
        effect: Effect::Deny,
        rule: texts.first().cloned().unwrap_or_default(),
        reason: String::new(),
        reasons: texts.to_vec(),
        errors: texts.to_vec(),
        policy_set: Digest::of(b""),
    }
}

fn refused(ids: [String; 4], decision: Decision) -> Event {
    Event::Refused {
        call: CallId::new(Timestamp(0), [7; 10]),
        principal: Principal::Operator,
        face: Face::Embedded,
        ids,
        input: Vec::new(),
        decision: Some(std::sync::Arc::new(decision)),
        error: ErrorKind::ValidationFailed,
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let control = Just("\u{1}\"\\\u{1f}".repeat(60));
    prop::strategy::Union::new([any::<String>().boxed(), control.boxed(), "é{0,90}".boxed()])
}

proptest! {
    #[test]
    fn a_leaf_is_the_canonical_form_of_what_it_says(
        ids in prop::array::uniform4(any_text()),
        texts in prop::collection::vec(any_text(), 0..40),
        seq in any::<u64>(),
    ) {
        let event = refused(ids, decision(&texts));
        let origin = Origin { epoch: u64::MAX, at: Timestamp(u64::from(u32::MAX)) };
        let leaf = super::event(&event, &Bundle::default(), origin).at(seq);
        let parsed = gateway_model::parse_json(&leaf).unwrap();
        assert_eq!(parsed["seq"], seq);
        assert_eq!(String::from_utf8(canonical_json(&parsed)), String::from_utf8(leaf.clone()));
        assert!(leaf.len() <= MAX_LEAF_BYTES, "{} bytes", leaf.len());
    }
}

#[test]
fn a_value_too_long_for_a_leaf_is_told_by_its_hash() {
    let short = json!({ "paths": ["/workspace/a"] });
    assert_eq!(bounded(short.clone()), short);
    let long = json!({ "paths": vec!["/workspace/a"; 500] });
    let told = bounded(long.clone());
    assert_eq!(told["sha256"], hex::encode(Digest::of_json(&long).0));
    assert_eq!(told["len"], canonical_json(&long).len());
}
