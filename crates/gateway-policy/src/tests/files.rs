//! What is said about policy files that cannot be used, and what the user page promises.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use gateway_model::{Effect, NetworkLimit, Principal, SafetyTier};
use tempfile::TempDir;

use super::asked::{Asked, Verb, rule_set};
use crate::compile::compile;
use crate::source::Source;

fn put(directory: &Path, name: &str, bytes: &[u8]) {
    File::create(directory.join(name)).and_then(|mut file| file.write_all(bytes)).unwrap();
}

/// Returns the errors and warnings about one file of this text.
fn faults(text: &str) -> String {
    let name = "x.cedar".to_owned();
    let compilation = compile(vec![Source { name, text: text.to_owned(), is_default: false }]);
    let errors = compilation.rule_set.err().map(|error| error.problems).unwrap_or_default();
    let mut lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    lines.extend(compilation.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

#[test]
fn the_fail_open_set_is_refused() {
    let text = r#"
@id("home.all") permit (principal, action, resource);
@id("home.deny") forbid (principal, action, resource) when { context.nope == 1 };
"#;
    insta::assert_snapshot!(faults(text), @r#"
    x.cedar:3: attribute `nope` in context for Allternit::Action::"execute" not found; did you mean `scope`?; what a rule may read depends on its action: name one, action == Allternit::Action::"…"
    x.cedar:3: attribute `nope` in context for Allternit::Action::"list" not found; what a rule may read depends on its action: name one, action == Allternit::Action::"…"
    x.cedar:3: attribute `nope` in context for Allternit::Action::"register" not found; did you mean `replaces`?; what a rule may read depends on its action: name one, action == Allternit::Action::"…"
    x.cedar:3: attribute `nope` in context for Allternit::Action::"remove" not found; did you mean `approval`?; what a rule may read depends on its action: name one, action == Allternit::Action::"…"
    warning: x.cedar:2: the permit names no tool and no tier, so it reaches T4 tools too, once approved; name the tool or bound resource.tier
    "#);
}

#[test]
fn each_fault_has_its_place_and_its_reason() {
    let cases = [
        "permit (principal, action, resource)",
        "@id(\"home.a\")\npermit (principal, action, resource) when {\n  resource.tier =< 2\n};",
        "permit (principal, action, resource == Allternit::Tool::\"a\");",
        "@id(\"base.mine\") permit (principal, action, resource == Allternit::Tool::\"a\");",
        "@id(\"two words\") permit (principal, action, resource == Allternit::Tool::\"a\");",
        "@id(\"h.a\") permit (principal, action, resource == Allternit::Tool::\"a\");\n@id(\"h.a\") forbid (principal, action, resource == Allternit::Tool::\"a\");",
        "@id(\"h.a\") @color(\"red\") permit (principal, action, resource == Allternit::Tool::\"a\");",
        "@id(\"h.a\") @ask(\"human\") forbid (principal, action == Allternit::Action::\"execute\", resource);",
        "@id(\"h.a\") @ask(\"human\") permit (principal, action == Allternit::Action::\"execute\", resource == Allternit::Tool::\"a\") when { context.approval.granted };",
        "@id(\"h.a\") forbid (principal, action == Allternit::Action::\"execute\", resource) unless { context.approval.granted };",
        "@id(\"h.a\") @ask(\"robot\") @approver(\"me\") @ttl(\"soon\") @reason(\"\") forbid (principal, action == Allternit::Action::\"execute\", resource) unless { context.approval.granted };",
        "@id(\"h.a\") @ttl(\"60\") permit (principal, action, resource == Allternit::Tool::\"a\");",
        "@id(\"h.a\") permit (principal == Allternit::User::\"alice\", action, resource == Allternit::Tool::\"a\");",
        "@id(\"h.a\") permit (principal, action == Allternit::Action::\"delete\", resource);",
        "@id(\"h.a\") permit (principal, action, resource == Tool::\"a\");",
        "@id(\"h.a\") forbid (principal, action, resource) when { resource.tier > 2 && resource.tier == \"T3\" };",
        "@id(\"h.a\") forbid (principal, action, resource)\nwhen { context.paths.contains(\"/x\") };",
        "@id(\"h.a\") forbid (principal, action == Allternit::Action::\"execute\", resource)\nwhen { false };",
        "@id(\"h.a\") permit (principal == ?principal, action, resource);",
        "@id(\"h.a\") permit (principal, action == Allternit::Action::\"execute\", resource);",
    ];
    let report: Vec<String> =
        cases.iter().map(|text| format!("{text}\n=> {}\n", faults(text))).collect();
    insta::assert_snapshot!("faults", report.join("\n"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let home = TempDir::new().unwrap();
    let directory = home.path();
    symlink("/etc/hostname", directory.join("a-link.cedar")).unwrap();
    fs::create_dir(directory.join("b-directory.cedar")).unwrap();
    put(directory, "c-latin.cedar", b"// caf\xe9");
    put(directory, "d-huge.cedar", &vec![b' '; 256 * 1024 + 1]);
    put(directory, "e-empty.cedar", b" \n");
    put(directory, "notes.txt", b"not a policy");
    symlink("nobody@host", directory.join(".#a.cedar")).unwrap();
    let report = crate::check(directory);
    let lines: Vec<String> = report.errors.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    a-link.cedar: is a symbolic link; put the file itself into the directory
    b-directory.cedar: is not a regular file; remove or rename it
    c-latin.cedar: is not UTF-8 at byte 6
    d-huge.cedar: is larger than 262144 bytes; split it into several files
    e-empty.cedar: is empty; write a rule into it or remove it
    "#);
    assert_eq!((report.rule_count, report.digest), (0, None));
}

#[test]
fn a_file_without_permission_is_named() {
    let home = TempDir::new().unwrap();
    put(home.path(), "a.cedar", b"// closed");
    fs::set_permissions(home.path().join("a.cedar"), Permissions::from_mode(0o000)).unwrap();
    let is_closed = File::open(home.path().join("a.cedar")).is_err();
    let report = crate::check(home.path());
    // Root reads it all the same.
    assert_eq!(report.errors.len(), usize::from(is_closed), "{report:?}");
    assert!(report.errors.iter().all(|problem| problem.file == "a.cedar"), "{report:?}");
}

#[test]
fn too_many_rules_are_refused() {
    let rule = |number, scope: &str| {
        format!(
            "@id(\"h.{number}\") forbid (principal, action == Allternit::Action::\"execute\", {scope});\n"
        )
    };
    let unscoped: String = (0..201).map(|number| rule(number, "resource")).collect();
    insta::assert_snapshot!(faults(&unscoped), @r#"x.cedar:201: this is rule number 201 that names no tool in its scope, and each costs time on every call; at most 200 may; write resource == Allternit::Tool::"…""#);
    let scoped: String =
        (0..300).map(|number| rule(number, "resource == Allternit::Tool::\"a\"")).collect();
    assert_eq!(faults(&scoped), "");
}

#[test]
fn hostile_shapes_are_refused_or_parsed_on_a_small_stack() {
    let rule = |condition: &str| {
        format!("@id(\"h.a\") forbid (principal, action, resource) when {{ {condition} }};")
    };
    let nested = |depth: usize| {
        rule(&format!("{}resource.tier > 9{}", "(".repeat(depth), ")".repeat(depth)))
    };
    let conditional = |count: usize| {
        rule(&format!("{}resource.tier > 9", "if resource.tier > 1 then true else ".repeat(count)))
    };
    let chain = |link: &str, count: usize| rule(&vec!["resource.tier > 9"; count].join(link));
    let cases = [
        (nested(31), ""),
        (nested(32), "x.cedar:1: brackets nest deeper than 32"),
        (nested(100_000), "x.cedar:1: brackets nest deeper than 32"),
        (conditional(32), ""),
        (conditional(33), "x.cedar:1: a rule holds more than 32 `if`; split it"),
        (chain(" && ", 200), ""),
        (
            chain("&&", 260),
            "x.cedar:1: a rule holds too many operators; split it, or list values in a set",
        ),
        (rule(&format!("resource.tier > 1{}", "+1".repeat(1000))), ""),
        (
            rule(&format!("resource{}", ".tier".repeat(2000))),
            "x.cedar:1: a rule holds too many operators; split it, or list values in a set",
        ),
        (
            rule(&format!("resource.tier > 9{}", " ".repeat(17_000))),
            "x.cedar:1: a rule is longer than 16384 bytes; split it",
        ),
    ];
    for (text, expected) in cases {
        let start = text.get(..90).unwrap_or_default();
        assert_eq!(faults(&text), expected, "{start} …");
    }
}

/// Returns the fenced `cedar` blocks of the user page.
fn examples() -> Vec<&'static str> {
    include_str!("../../../../docs/policy.md")
        .split("```cedar\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .collect()
}

#[test]
fn the_examples_of_the_user_page_load_and_do_what_it_says() {
    let examples = examples();
    assert_eq!(examples.len(), 4);
    let names: Vec<String> = (0..examples.len()).map(|number| format!("{number}.cedar")).collect();
    let home: Vec<(&str, &str)> =
        names.iter().map(String::as_str).zip(examples.iter().copied()).collect();
    let set = rule_set(&home).unwrap();
    let mut open = Asked::new(Principal::Operator, Verb::Execute(None), "fetch", SafetyTier::T0);
    open.network = NetworkLimit::Unrestricted;
    assert_eq!(set.decide(&open.request()).rule, "home.no-open-network");
    let check = |tool: &str, tier, path: &str, effect, rule: &str| {
        let asked = Asked::new(Principal::Local, Verb::Execute(None), tool, tier).on_path(path);
        let decision = set.decide(&asked.request());
        assert_eq!((decision.effect, decision.rule.as_str()), (effect, rule), "{tool} {path}");
    };
    check("robot.move", SafetyTier::T4, "/x", Effect::Ask, "gate.t3");
    check("bash", SafetyTier::T2, "/x", Effect::Ask, "home.bash-asks");
    check("file_write", SafetyTier::T2, "/workspace/app/x", Effect::Allow, "base.t0-t2");
    check(
        "file_write",
        SafetyTier::T2,
        "/workspace/app/Cargo.lock",
        Effect::Deny,
        "home.lock-file",
    );
}
