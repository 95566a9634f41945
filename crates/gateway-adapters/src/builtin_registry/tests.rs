use std::collections::BTreeSet;

use gateway_model::wire::ToolType;
use gateway_model::{CompiledSchema, NetworkLimit};

use super::*;

#[test]
fn every_row_is_a_registration_with_an_executor() {
    let registrations = builtins().unwrap();
    let mut ids = BTreeSet::new();
    for (row, registration) in BUILTIN_TOOL_DEFINITIONS.iter().zip(&registrations) {
        assert!(ids.insert(row.id.to_lowercase()), "{} stands twice", row.id);
        assert_eq!((registration.id.as_str(), registration.tool_type), (row.id, ToolType::Sdk));
        assert_eq!(registration.limits.network, NetworkLimit::None, "{}", row.id);
        assert_eq!(
            registration.tier == SafetyTier::T0,
            registration.side_effects.is_empty(),
            "{}",
            row.id
        );
        for schema in [&registration.input_schema, &registration.output_schema] {
            CompiledSchema::compile(schema).unwrap_or_else(|error| panic!("{}: {error}", row.id));
        }
        drop((row.build)());
    }
    assert_eq!(registrations.len(), BUILTIN_TOOL_DEFINITIONS.len());
}

#[test]
fn definitions_are_as_reviewed() {
    let definitions: Vec<Value> =
        builtins().unwrap().into_iter().map(|tool| tool.normalised).collect();
    insta::assert_json_snapshot!(definitions);
}

#[test]
fn descriptions_are_short() {
    for tool in BUILTIN_TOOL_DEFINITIONS {
        assert!(tool.description.len() <= 700, "{} has {} bytes", tool.id, tool.description.len());
        assert!(!tool.description.contains("  "), "{} has a gap", tool.id);
    }
}
