//! The layout that ARCHITECTURE.md promises, held against the files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The rows of ARCHITECTURE.md, lowest first; a crate may depend only on lower rows.
const ROWS: &[&[&str]] = &[
    &["gateway-model"],
    &["gateway-policy", "gateway-sandbox", "gateway-ledger"],
    &["gateway-engine"],
    &["gateway-adapters", "gateway-http"],
    &["gateway-cli", "gateway-bench"],
];

/// Modules of the engine, lowest first; a module may use only itself and lower ones.
const ENGINE_MODULES: &[&str] = &["context", "tool_metadata", "executor", "gateway"];

fn row(name: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&name))
}

/// Rust files below a directory, without build output.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn all_rust_files() -> Vec<PathBuf> {
    let mut files = rust_files(&root().join("crates"));
    files.extend(rust_files(&root().join("bench")));
    files
}

fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn crates_depend_only_on_lower_rows() {
    let mut manifests: Vec<PathBuf> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("Cargo.toml"))
        .collect();
    manifests.push(root().join("bench/Cargo.toml"));
    for manifest in manifests {
        let text = fs::read_to_string(&manifest).unwrap();
        let name = text
            .lines()
            .find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
            .unwrap_or_else(|| panic!("{} has no name", manifest.display()));
        let own = row(name).unwrap_or_else(|| panic!("{name} stands in no row of ARCHITECTURE.md"));
        let dependencies = text.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        for line in dependencies.lines() {
            let Some(dependency) = line.split(['.', ' ', '=']).next() else { continue };
            if let Some(other) = row(dependency) {
                assert!(other < own, "{name} (row {own}) depends on {dependency} (row {other})");
            }
        }
        assert!(
            text.contains("[lints]\nworkspace = true"),
            "{name} does not take the workspace's lints"
        );
    }
}

#[test]
fn engine_modules_point_only_downwards() {
    let source = root().join("crates/gateway-engine/src");
    for file in rust_files(&source) {
        let relative = file.strip_prefix(&source).unwrap().to_str().unwrap();
        let module = relative.split(['/', '.']).next().unwrap();
        let Some(own) = ENGINE_MODULES.iter().position(|known| *known == module) else {
            assert_eq!(module, "lib", "{relative} is no module that ARCHITECTURE.md knows");
            continue;
        };
        for line in fs::read_to_string(&file).unwrap().lines() {
            let Some(used) = line.trim_start().strip_prefix("use crate::") else { continue };
            let used = used.split([':', ';', '{', ' ']).next().unwrap();
            let position = ENGINE_MODULES.iter().position(|known| *known == used);
            assert!(
                position.is_some_and(|position| position <= own),
                "{relative} uses crate::{used}"
            );
        }
    }
}

#[test]
fn every_file_says_what_it_owns_and_stays_within_its_size() {
    for file in all_rust_files() {
        let text = fs::read_to_string(&file).unwrap();
        if !file.ends_with("tests.rs") {
            assert!(text.starts_with("//!"), "{} does not open with //!", file.display());
            let lines = text.split("#[cfg(test)]").next().unwrap().lines().count();
            assert!(is_test(&file) || lines <= 800, "{} has {lines} lines", file.display());
        }
    }
}

#[test]
fn structs_stay_small() {
    for file in all_rust_files().into_iter().filter(|file| !is_test(file)) {
        let text = fs::read_to_string(&file).unwrap();
        let mut name = "";
        let mut fields = 0;
        for line in text.lines() {
            if let Some(declared) = line.split("struct ").nth(1).filter(|_| line.ends_with('{')) {
                (name, fields) = (declared.split([' ', '<']).next().unwrap(), 0);
            } else if line == "}" {
                assert!(fields <= 20, "{} in {} has {fields} fields", name, file.display());
                name = "";
            } else if !name.is_empty()
                && line.starts_with("    ")
                && line.ends_with(',')
                && line.contains(": ")
            {
                fields += 1;
            }
        }
    }
}

#[test]
fn nothing_is_left_unfinished_in_the_sources() {
    let words =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("for ", "now"), concat!("XX", "X")];
    for file in all_rust_files() {
        let text = fs::read_to_string(&file).unwrap();
        for word in words {
            assert!(!text.contains(word), "{} holds {word:?}", file.display());
        }
    }
}

/// Serde belongs to the wire, to records on disk, to configuration and to the sandbox's spec.
#[test]
fn json_forms_live_where_they_belong() {
    let homes: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("gateway-model", &["wire", "outcome.rs"][..]),
        ("gateway-ledger", &["record", "receipt"][..]),
        ("gateway-cli", &["config"][..]),
        ("gateway-sandbox", &["spec", "sys"][..]),
        ("gateway-policy", &[][..]),
        ("gateway-engine", &[][..]),
        ("gateway-adapters", &[][..]),
        ("gateway-http", &["openapi", "body"][..]),
    ]);
    for (name, allowed) in homes {
        let source = root().join("crates").join(name).join("src");
        for file in rust_files(&source).into_iter().filter(|file| !is_test(file)) {
            let relative = file.strip_prefix(&source).unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&file).unwrap();
            let derives = text.lines().any(|line| {
                line.trim_start().starts_with("#[derive(")
                    && (line.contains("Serialize") || line.contains("Deserialize"))
            });
            assert!(
                !derives || allowed.iter().any(|home| relative.starts_with(home)),
                "{name}/src/{relative} derives a JSON form"
            );
        }
    }
}

#[test]
fn every_dependency_has_a_permissive_licence() {
    const PERMISSIVE: &[&str] = &[
        "MIT",
        "MIT-0",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "ISC",
        "Unicode-3.0",
        "Zlib",
        "BSL-1.0",
        "0BSD",
        "Unlicense",
        "CC0-1.0",
        "Apache-2.0 WITH LLVM-exception",
    ];
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut refused = BTreeSet::new();
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or("none").replace('/', " OR ");
        let is_permissive = licence.split(" AND ").all(|part| {
            part.trim_matches(['(', ')'])
                .split(" OR ")
                .any(|one| PERMISSIVE.contains(&one.trim_matches(['(', ')', ' '])))
        });
        if !is_permissive {
            refused.insert(format!("{}: {licence}", package["name"].as_str().unwrap()));
        }
    }
    assert!(refused.is_empty(), "not permissive: {refused:?}");
}
