use proptest::prelude::*;

use super::*;

fn run() -> RunId {
    "run_1".parse().unwrap()
}

#[track_caller]
fn check(glob: &str, expected: Result<&str, &str>) {
    let parsed = WriteScope::parse(&[glob], &run(), &["docs"]);
    match (parsed, expected) {
        (Ok(scope), Ok(expected)) => {
            assert_eq!(scope.globs().collect::<Vec<_>>(), [expected], "{glob}")
        }
        (Err(error), Err(expected)) => {
            assert!(error.to_string().contains(expected), "{glob:?} gave {error}")
        }
        (parsed, _) => panic!("{glob:?} gave {parsed:?}"),
    }
}

#[test]
fn a_scope_lies_beneath_its_run_or_a_granted_workspace() {
    check("/.allternit/artifacts/run_1/**", Ok("/.allternit/artifacts/run_1/**"));
    check("/.allternit/artifacts/{run_id}", Ok("/.allternit/artifacts/run_1/**"));
    check("/.allternit/artifacts/{run_id}/out//./x/", Ok("/.allternit/artifacts/run_1/out/x/**"));
    check("/.allternit/receipts/{run_id}/**", Ok("/.allternit/receipts/run_1/**"));
    check("/workspace/docs/**", Ok("/workspace/docs/**"));
    check("/workspace/docs/a", Ok("/workspace/docs/a/**"));
}

#[test]
fn everything_else_is_refused_with_its_reason() {
    let outside = "write_scope root must be under /.allternit/";
    for glob in
        ["/", "/**", "/etc/passwd", "/.allternit2/artifacts/run_1/**", "/.allternit", "/workspace"]
    {
        check(glob, Err(outside));
    }
    for tree in ["wih", "graphs", "spec", "ledger", "keys", "policies", "servers", "other"] {
        check(
            &format!("/.allternit/{tree}/{{run_id}}/**"),
            Err(&format!("/.allternit/{tree}, which no tool may touch")),
        );
    }
    for path in
        ["/.allternit/artifacts/run_12/**", "/.allternit/artifacts", "/.allternit/receipts/run_2"]
    {
        check(path, Err("is not of run run_1"));
    }
    check("/workspace/other/**", Err("\"other\" is not granted"));
    check("/workspace/docs2", Err("\"docs2\" is not granted"));
    for path in ["/.allternit/artifacts/run_1/../run_2", "/..", "/.allternit/artifacts/{run_id}/.."]
    {
        check(path, Err("holds \"..\""));
    }
    for path in [
        "/.allternit/artifacts/*/**",
        "/.allternit/artifacts/run_?",
        "/.allternit/**/run_1",
        "/{x}",
    ] {
        check(path, Err("holds a pattern"));
    }
    for path in ["", ".allternit/artifacts/run_1", "..", "C:\\x"] {
        check(path, Err("is not absolute"));
    }
    check("/.allternit/artifacts/run_1/a\0b", Err("holds a NUL"));
}

#[test]
fn a_path_is_held_by_whole_components() {
    let scope = WriteScope::of_run(&run());
    for (path, is_held) in [
        ("/.allternit/artifacts/run_1", true),
        ("/.allternit/artifacts/run_1/a/b", true),
        ("//.allternit/./artifacts/run_1//a", true),
        ("/.allternit/receipts/run_1/x.json", true),
        ("/.allternit/artifacts/run_12/a", false),
        ("/.allternit/artifacts/run_1secret", false),
        ("/.allternit/artifacts/run_1/../run_2/a", false),
        ("/.allternit/artifacts", false),
        ("artifacts/run_1/a", false),
        ("..", false),
    ] {
        assert_eq!(scope.holds(path), is_held, "{path}");
    }
}

proptest! {
    #[test]
    fn whatever_is_parsed_lies_in_the_run_or_the_grant(glob in "[/.a-z*{}_1-]{0,40}", name in "[a-z_]{1,8}") {
        let glob = glob.replace('*', &format!("/{name}/"));
        if let Ok(scope) = WriteScope::parse(&[&glob], &run(), &["docs"]) {
            let granted = WriteScope::parse(&["/workspace/docs"], &run(), &["docs"]).unwrap();
            prop_assert!(WriteScope::of_run(&run()).contains(&scope) || granted.contains(&scope), "{glob}");
            prop_assert!(scope.globs().all(|glob| scope.holds(&glob)), "{glob}");
        }
    }

    #[test]
    fn a_scope_holds_what_lies_beneath_and_no_sibling(name in "[A-Za-z0-9_-]{1,12}", rest in "(/[a-z.]{1,5}){0,3}") {
        let scope = WriteScope::of_run(&run());
        let path = format!("/.allternit/artifacts/{name}{rest}");
        let expected = name == "run_1" && !rest.split('/').any(|component| component == "..");
        prop_assert_eq!(scope.holds(&path), expected, "{}", path);
    }
}
