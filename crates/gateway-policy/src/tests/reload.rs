//! Files that change while the gateway runs.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use gateway_model::{Effect, Principal, SafetyTier};
use tempfile::TempDir;

use super::asked::{Asked, Verb};
use crate::{Policy, PolicyOptions, Reload};

fn forbid(tool: &str) -> String {
    format!(
        r#"@id("home.no-{tool}") forbid (principal, action == Allternit::Action::"execute", resource == Allternit::Tool::"{tool}");"#
    )
}

/// Puts a file in place as editors do: written beside, then renamed.
fn put(directory: &Path, name: &str, text: &str) {
    let beside = directory.join(".new");
    File::create(&beside).and_then(|mut file| file.write_all(text.as_bytes())).unwrap();
    fs::rename(&beside, directory.join(name)).unwrap();
}

fn load(directory: &Path) -> Policy {
    Policy::load(PolicyOptions { directory: Some(directory.to_owned()) }).unwrap()
}

#[track_caller]
fn check_effect(policy: &Policy, tool: &str, expected: Effect) {
    let asked = Asked::new(Principal::Local, Verb::Execute(None), tool, SafetyTier::T2);
    assert_eq!(policy.decide(&asked.request()).effect, expected, "{tool}");
}

#[test]
fn a_changed_file_comes_into_force_and_a_broken_one_does_not() {
    let home = TempDir::new().unwrap();
    put(home.path(), "a.cedar", &forbid("bash"));
    let policy = load(home.path());
    let first = policy.digest();
    check_effect(&policy, "bash", Effect::Deny);
    check_effect(&policy, "grep", Effect::Allow);
    assert_eq!(policy.reload_if_changed(), Reload::Unchanged);

    put(home.path(), "b.cedar", "@id(\"home.x\") permit (");
    let Reload::Rejected(error) = policy.reload_if_changed() else { panic!("not rejected") };
    assert_eq!(error.problems[0].file, "b.cedar");
    assert_eq!(policy.reload_if_changed(), Reload::Unchanged, "reported once");
    assert_eq!((policy.digest(), policy.epoch()), (first, 1));
    check_effect(&policy, "bash", Effect::Deny);

    put(home.path(), "b.cedar", &forbid("grep"));
    let Reload::Activated { digest, files, warnings } = policy.reload_if_changed() else {
        panic!("not activated")
    };
    assert_eq!(files, ["a.cedar", "b.cedar"]);
    assert_eq!(warnings, []);
    assert_eq!((policy.digest(), policy.epoch()), (digest, 2));
    check_effect(&policy, "bash", Effect::Deny);
    check_effect(&policy, "grep", Effect::Deny);

    fs::remove_file(home.path().join("a.cedar")).unwrap();
    assert!(matches!(policy.reload_if_changed(), Reload::Activated { .. }));
    check_effect(&policy, "bash", Effect::Allow);
    assert_eq!(policy.epoch(), 3);
}

#[test]
fn a_fault_that_is_taken_back_is_reported_as_repaired() {
    let home = TempDir::new().unwrap();
    put(home.path(), "a.cedar", &forbid("bash"));
    let policy = load(home.path());
    put(home.path(), "a.cedar", "");
    assert!(matches!(policy.reload_if_changed(), Reload::Rejected(_)), "an empty file");
    put(home.path(), "a.cedar", &forbid("bash"));
    assert!(matches!(policy.reload_if_changed(), Reload::Activated { .. }));
    assert_eq!(policy.epoch(), 1, "the same set stayed in force");
    put(home.path(), "a.cedar", &forbid("bash"));
    assert_eq!(policy.reload_if_changed(), Reload::Unchanged, "the same text again");
}

#[test]
fn a_directory_may_come_later_but_not_vanish() {
    let home = TempDir::new().unwrap();
    let directory = home.path().join("policies");
    let policy = load(&directory);
    assert_eq!(policy.reload_if_changed(), Reload::Unchanged);
    fs::create_dir(&directory).unwrap();
    put(&directory, "a.cedar", &forbid("bash"));
    assert!(matches!(policy.reload_if_changed(), Reload::Activated { .. }));
    fs::remove_dir_all(&directory).unwrap();
    assert!(matches!(policy.reload_if_changed(), Reload::Rejected(_)));
    check_effect(&policy, "bash", Effect::Deny);
}

#[test]
fn every_rule_in_force_is_listed_with_its_place() {
    let home = TempDir::new().unwrap();
    put(home.path(), "a.cedar", &format!("// about shells\n{}", forbid("bash")));
    let policy = load(home.path());
    let listed: Vec<String> = policy
        .rules()
        .iter()
        .map(|rule| format!("{} {} {}:{}", rule.effect.as_str(), rule.id, rule.file, rule.line))
        .collect();
    insta::assert_snapshot!(listed.join("\n"), @r#"
    allow base.t0-t2 defaults/execute.cedar:1
    allow base.t3 defaults/execute.cedar:7
    ask gate.t3 defaults/execute.cedar:13
    deny deny.tier-mismatch defaults/execute.cedar:22
    allow list.visible defaults/list.cedar:2
    allow register.operator defaults/register.cedar:1
    allow register.remove defaults/register.cedar:9
    allow register.local defaults/register.cedar:17
    ask gate.register defaults/register.cedar:26
    deny home.no-bash a.cedar:2
    "#);
}

#[test]
fn a_first_load_with_a_broken_file_fails() {
    let home = TempDir::new().unwrap();
    put(home.path(), "a.cedar", "permit (principal, action, resource);");
    let error =
        Policy::load(PolicyOptions { directory: Some(home.path().to_owned()) }).unwrap_err();
    insta::assert_snapshot!(error, @r#"policy refused: a.cedar:1: the rule has no name; add @id("home.some-name") in front of it"#);
}
