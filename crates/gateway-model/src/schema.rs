//! JSON Schema, compiled at registration under bounds and without any fetch.
//!
//! INVARIANT: compiling and validating take bounded time and stack for every schema that is
//! accepted here: size, nesting and the expansion through references are limited first.

use std::collections::{HashMap, HashSet};

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::error::Violation;
use crate::json::canonical_json;

/// The largest schema, in bytes of its canonical form.
const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// How deep a schema may be, counted through references.
const MAX_DEPTH: usize = 160;
/// How many subschemas one pass may visit, counted through references.
const MAX_EXPANSION: u64 = 50_000;
/// Violations reported for one value.
const MAX_VIOLATIONS: usize = 20;
/// Above this nesting, violations under a recursive schema are not itemised.
const MAX_ITEMISED_NESTING: usize = 8;

/// A schema that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{}", if path.is_empty() { String::new() } else { format!(" at {path}") })]
pub struct SchemaError {
    /// JSON Pointer to the place in the schema; empty for the whole.
    pub path: String,
    /// What is wrong and what was expected.
    pub reason: String,
}

/// A JSON Schema that is ready to check values.
#[derive(Debug)]
pub struct CompiledSchema {
    validator: Validator,
    is_recursive: bool,
    warning: Option<String>,
}

impl CompiledSchema {
    /// Compiles a schema under the dialect its `$schema` names; without one, 2020-12.
    ///
    /// An unknown dialect is read as 2020-12 and leaves a [`Self::warning`].
    ///
    /// # Errors
    /// Returns the place and the reason: not a schema, a reference that is not within it, a
    /// pattern that is too large, or bounds exceeded.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if !schema.is_object() {
            return Err(whole("expected a JSON Schema object".to_owned()));
        }
        let bytes = canonical_json(schema).len();
        if bytes > MAX_SCHEMA_BYTES {
            return Err(whole(format!("has {bytes} bytes, expected at most {MAX_SCHEMA_BYTES}")));
        }
        let mut expansion = Expansion::new(schema);
        expansion.weigh(schema, 0)?;
        let is_recursive = expansion.is_recursive;
        let (draft, warning) = dialect(schema);
        let mut readable = schema.clone();
        if warning.is_some() {
            readable.as_object_mut().map(|object| object.shift_remove("$schema"));
        }
        let patterns = PatternOptions::fancy_regex().size_limit(1 << 20).backtrack_limit(100_000);
        let validator = jsonschema::options()
            .with_draft(draft)
            .with_pattern_options(patterns)
            .offline()
            .build(&readable)
            .map_err(|error| SchemaError {
                path: error.instance_path().to_string(),
                reason: crate::bounded_text(&error.to_string(), 300).into_owned(),
            })?;
        Ok(Self { validator, is_recursive, warning })
    }

    /// Returns what a registrant should know about how the schema is read.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns what is wrong with a value; empty when it is valid. At most 20 are listed.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        // Listing visits a branching recursion once per way to reach it; deciding does not.
        if self.is_recursive && nesting(value) > MAX_ITEMISED_NESTING {
            let reason = "does not match the schema".to_owned();
            return vec![Violation { path: String::new(), reason }];
        }
        self.validator
            .iter_errors(value)
            .take(MAX_VIOLATIONS)
            .map(|error| Violation {
                path: error.instance_path().to_string(),
                reason: crate::bounded_text(&error.to_string(), 500).into_owned(),
            })
            .collect()
    }
}

fn whole(reason: String) -> SchemaError {
    SchemaError { path: String::new(), reason }
}

fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nesting).max().unwrap_or(0),
        Value::Object(entries) => 1 + entries.values().map(nesting).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn dialect(schema: &Value) -> (Draft, Option<String>) {
    let Some(uri) = schema.get("$schema").and_then(Value::as_str) else {
        return (Draft::Draft202012, None);
    };
    match uri.trim_end_matches('#').rsplit_once("json-schema.org/").map(|(_, dialect)| dialect) {
        Some("draft-04/schema") => (Draft::Draft4, None),
        Some("draft-06/schema") => (Draft::Draft6, None),
        Some("draft-07/schema") => (Draft::Draft7, None),
        Some("draft/2019-09/schema") => (Draft::Draft201909, None),
        Some("draft/2020-12/schema") => (Draft::Draft202012, None),
        _ => {
            let uri = crate::bounded_text(uri, 200);
            (Draft::Draft202012, Some(format!("unknown dialect {uri:?} is read as 2020-12")))
        }
    }
}

/// Counts the subschemas that one pass over the schema visits, following references.
struct Expansion<'a> {
    root: &'a Value,
    /// Weight and height by the address of a subschema.
    known: HashMap<*const Value, (u64, usize)>,
    open: HashSet<*const Value>,
    is_recursive: bool,
}

impl<'a> Expansion<'a> {
    fn new(root: &'a Value) -> Self {
        Self { root, known: HashMap::new(), open: HashSet::new(), is_recursive: false }
    }

    fn weigh(&mut self, schema: &'a Value, depth: usize) -> Result<(u64, usize), SchemaError> {
        let address = std::ptr::from_ref(schema);
        if self.open.contains(&address) {
            self.is_recursive = true;
            return Ok((0, 0));
        }
        let (weight, height) = match self.known.get(&address) {
            Some(known) => *known,
            None => self.weigh_new(schema, depth)?,
        };
        if depth + height > MAX_DEPTH {
            return Err(whole(format!("is nested deeper than {MAX_DEPTH}, counted through $ref")));
        }
        if weight > MAX_EXPANSION {
            return Err(whole(format!("expands to more than {MAX_EXPANSION} subschemas")));
        }
        Ok((weight, height))
    }

    fn weigh_new(&mut self, schema: &'a Value, depth: usize) -> Result<(u64, usize), SchemaError> {
        if depth > MAX_DEPTH {
            return Err(whole(format!("is nested deeper than {MAX_DEPTH}, counted through $ref")));
        }
        let address = std::ptr::from_ref(schema);
        self.open.insert(address);
        let (mut weight, mut height) = (1_u64, 0);
        for child in self.children(schema) {
            let (child_weight, child_height) = self.weigh(child, depth + 1)?;
            weight = weight.saturating_add(child_weight);
            height = height.max(child_height + 1);
        }
        self.open.remove(&address);
        self.known.insert(address, (weight, height));
        Ok((weight, height))
    }

    fn children(&self, schema: &'a Value) -> Vec<&'a Value> {
        match schema {
            Value::Array(items) => items.iter().collect(),
            Value::Object(entries) => {
                let referenced = ["$ref", "$dynamicRef", "$recursiveRef"]
                    .into_iter()
                    .filter_map(|keyword| entries.get(keyword)?.as_str())
                    .filter_map(|reference| self.resolve(reference));
                entries.values().filter(|value| is_container(value)).chain(referenced).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        }
    }

    /// Follows a reference within the document: a pointer, an anchor, or an embedded `$id`.
    fn resolve(&self, reference: &str) -> Option<&'a Value> {
        let (resource, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = if resource.is_empty() {
            self.root
        } else {
            find(self.root, &|entries| {
                entries.get("$id").and_then(Value::as_str) == Some(resource)
            })?
        };
        if fragment.is_empty() {
            return Some(base);
        }
        if fragment.starts_with('/') {
            return base.pointer(fragment);
        }
        find(base, &|entries| {
            ["$anchor", "$dynamicAnchor"]
                .into_iter()
                .any(|keyword| entries.get(keyword).and_then(Value::as_str) == Some(fragment))
        })
    }
}

fn is_container(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// Finds the first object that matches. Recursion is bounded by the parser's nesting limit.
fn find<'a>(
    value: &'a Value,
    matches: &dyn Fn(&serde_json::Map<String, Value>) -> bool,
) -> Option<&'a Value> {
    match value {
        Value::Object(entries) if matches(entries) => Some(value),
        Value::Object(entries) => entries.values().find_map(|child| find(child, matches)),
        Value::Array(items) => items.iter().find_map(|child| find(child, matches)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests;
