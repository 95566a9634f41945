//! The examples of docs/tools.md, run as they are printed.

use std::path::Path;

use serde_json::Value;

use crate::fixture::Fixture;

/// The workspace that the page says its examples run in.
const WORKSPACE: &[(&str, &str)] = &[
    (".gitignore", "target/\n"),
    ("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n"),
    ("src/lib.rs", "//! Greets.\n"),
    ("target/out.txt", "hello\n"),
];

/// Returns the examples in order: tool, input, output.
fn examples(page: &str) -> Vec<(String, Value, Value)> {
    let mut examples = Vec::new();
    let page = page.split("\n## Local tools").next().unwrap();
    for section in page.split("\n### ").skip(1) {
        let Some(tool) = section.strip_prefix('`').and_then(|rest| rest.split('`').next()) else {
            continue;
        };
        let blocks: Vec<Value> = section
            .split("```json\n")
            .skip(1)
            .map(|block| serde_json::from_str(block.split("```").next().unwrap()).unwrap())
            .collect();
        let [input, output] = blocks.as_slice() else {
            panic!("{tool} has {} blocks", blocks.len())
        };
        examples.push((tool.to_owned(), input.clone(), output.clone()));
    }
    examples
}

#[tokio::test(flavor = "multi_thread")]
async fn every_built_in_tool_answers_as_its_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md");
    let examples = examples(&std::fs::read_to_string(page).unwrap());
    let shown: Vec<&str> = examples.iter().map(|(tool, _, _)| tool.as_str()).collect();
    let builtin: Vec<&str> =
        gateway_adapters::BUILTIN_TOOL_DEFINITIONS.iter().map(|tool| tool.id).collect();
    assert_eq!(shown, builtin);
    let fixture = Fixture::with(WORKSPACE).await;
    for (tool, input, output) in examples {
        assert_eq!(fixture.succeeds(&tool, input).await, output, "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_http_tool_is_registered_as_it_is_printed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## Http tools").nth(1).unwrap();
    let block = section.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let definition: Value = serde_json::from_str(block).unwrap();
    let fixture = Fixture::with(&[]).await;
    fixture.register("issue.read", "", |changed| *changed = definition).await.unwrap();
}
