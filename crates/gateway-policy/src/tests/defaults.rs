//! What the default rules answer, row by row.

use gateway_model::{Effect, NetworkLimit, Principal, SafetyTier};

use super::asked::{Asked, Verb, rule_set};
use Effect::{Allow, Ask, Deny};
use Principal::{Local, Operator};
use SafetyTier::{T0, T1, T2, T3, T4};

const EXECUTE: Verb = Verb::Execute(None);
const LIST: Verb = Verb::List;
const REGISTER: Verb = Verb::Register { is_enforceable: true, names_secrets: false };
const REGISTER_UNENFORCEABLE: Verb = Verb::Register { is_enforceable: false, names_secrets: false };
const REGISTER_WITH_SECRET: Verb = Verb::Register { is_enforceable: true, names_secrets: true };

#[track_caller]
fn check_with(home: &[(&str, &str)], asked: &Asked, effect: Effect, rule: &str) {
    let decision = rule_set(home).unwrap().decide(&asked.request());
    assert_eq!((decision.effect, decision.rule.as_str()), (effect, rule), "{asked:?}");
}

#[track_caller]
fn check(principal: Principal, verb: Verb, tier: SafetyTier, expected: (Effect, &str)) {
    check_with(&[], &Asked::new(principal, verb, "tool.x", tier), expected.0, expected.1);
}

#[test]
fn execution_is_decided_by_tier() {
    for principal in [Local, Operator] {
        for tier in [T0, T1, T2] {
            check(principal, EXECUTE, tier, (Allow, "base.t0-t2"));
        }
        check(principal, EXECUTE, T3, (Ask, "gate.t3"));
        check(principal, EXECUTE, T4, (Deny, "default"));
    }
}

#[test]
fn an_approval_lifts_a_gate_and_no_denial() {
    let approved = |tier| {
        let mut asked = Asked::new(Local, EXECUTE, "tool.x", tier);
        asked.is_approved = true;
        asked
    };
    check_with(&[], &approved(T2), Allow, "base.t0-t2");
    check_with(&[], &approved(T3), Allow, "base.t3");
    check_with(&[], &approved(T4), Deny, "default");
    let forbid =
        "@id(\"home.no\") forbid (principal, action, resource == Allternit::Tool::\"tool.x\");";
    check_with(&[("no.cedar", forbid)], &approved(T3), Deny, "home.no");
    // What is remembered of a call without an approval is not what one with it gets.
    let rules = rule_set(&[]).unwrap();
    for (is_approved, effect) in [(false, Ask), (true, Allow), (false, Ask)] {
        let asked = Asked { is_approved, ..approved(T3) };
        assert_eq!(rules.decide(&asked.request()).effect, effect);
    }
}

#[test]
fn the_shortest_time_of_the_gates_is_the_time_to_answer() {
    let gate = |seconds: &str| {
        format!(
            "@id(\"home.asks\") @ask(\"human\") @ttl(\"{seconds}\") forbid (principal, action == \
             Allternit::Action::\"execute\", resource) unless {{ context.approval.granted }};"
        )
    };
    for (seconds, expected) in [("60", 60), ("3600", 900)] {
        let rules = rule_set(&[("gate.cedar", &gate(seconds))]).unwrap();
        let decision = rules.decide(&Asked::new(Local, EXECUTE, "tool.x", T3).request());
        let time = rules.answer_time(&decision).map(|time| time.as_secs());
        assert_eq!(time, Some(expected), "{decision:?}");
    }
}

#[test]
fn a_call_is_held_to_its_own_tier_and_never_below_its_tools() {
    check(Local, Verb::Execute(Some(T3)), T2, (Ask, "gate.t3"));
    check(Local, Verb::Execute(Some(T4)), T2, (Deny, "default"));
    check(Local, Verb::Execute(Some(T1)), T2, (Deny, "deny.tier-mismatch"));
    check(Operator, Verb::Execute(Some(T0)), T4, (Deny, "deny.tier-mismatch"));
}

#[test]
fn a_tool_is_listed_unless_every_call_of_it_is_denied() {
    for principal in [Local, Operator] {
        for tier in [T0, T1, T2, T3] {
            check(principal, LIST, tier, (Allow, "list.visible"));
        }
        check(principal, LIST, T4, (Deny, "default"));
    }
}

#[test]
fn registration_is_decided_by_principal_tier_and_limits() {
    for tier in SafetyTier::ALL {
        check(Operator, REGISTER, tier, (Allow, "register.operator"));
        check(Operator, REGISTER_UNENFORCEABLE, tier, (Allow, "register.operator"));
        check(Local, REGISTER_UNENFORCEABLE, tier, (Deny, "default"));
        check(Operator, REGISTER_WITH_SECRET, tier, (Allow, "register.operator"));
        check(Local, REGISTER_WITH_SECRET, tier, (Deny, "default"));
    }
    for tier in [T0, T1, T2] {
        check(Local, REGISTER, tier, (Allow, "register.local"));
    }
    for tier in [T3, T4] {
        check(Local, REGISTER, tier, (Ask, "gate.register"));
    }
    for tier in SafetyTier::ALL {
        check(Operator, Verb::Remove, tier, (Allow, "register.remove"));
        check(Local, Verb::Remove, tier, (Deny, "default"));
    }
    let mut open = Asked::new(Local, REGISTER, "tool.x", T2);
    open.network = NetworkLimit::Unrestricted;
    check_with(&[], &open, Ask, "gate.register");
    open.principal = Operator;
    check_with(&[], &open, Allow, "register.operator");
}

const PERMIT_ROBOT: (&str, &str) = (
    "robot.cedar",
    r#"@id("home.robot") permit (principal, action == Allternit::Action::"execute", resource == Allternit::Tool::"robot.move");"#,
);
const FORBID_BASH: (&str, &str) = (
    "bash.cedar",
    r#"@id("home.no-bash") @reason("no shell here") forbid (principal, action == Allternit::Action::"execute", resource == Allternit::Tool::"bash");"#,
);

#[test]
fn a_policy_that_names_a_t4_tool_makes_it_ask_and_shows_it() {
    let robot = |verb| Asked::new(Local, verb, "robot.move", T4);
    check_with(&[PERMIT_ROBOT], &robot(EXECUTE), Ask, "gate.t3");
    check_with(&[PERMIT_ROBOT], &robot(LIST), Allow, "list.visible");
    check_with(&[PERMIT_ROBOT], &Asked::new(Local, EXECUTE, "robot.stop", T4), Deny, "default");
}

#[test]
fn a_forbidden_tool_is_neither_run_nor_listed() {
    for verb in [EXECUTE, LIST] {
        check_with(&[FORBID_BASH], &Asked::new(Operator, verb, "bash", T2), Deny, "home.no-bash");
        check_with(
            &[FORBID_BASH],
            &Asked::new(Operator, verb, "bash2", T2),
            Allow,
            match verb {
                Verb::List => "list.visible",
                Verb::Execute(_) | Verb::Register { .. } | Verb::Remove => "base.t0-t2",
            },
        );
    }
}

#[test]
fn a_forbid_that_depends_on_the_input_hides_nothing() {
    let text = r#"@id("home.keys") forbid (principal, action == Allternit::Action::"execute", resource)
        when { context.paths.contains("/workspace/w/key") };"#;
    let home = [("keys.cedar", text)];
    let write = |verb| Asked::new(Local, verb, "file_write", T2);
    check_with(&home, &write(EXECUTE), Allow, "base.t0-t2");
    check_with(&home, &write(EXECUTE).on_path("/workspace/w/key"), Deny, "home.keys");
    check_with(&home, &write(LIST), Allow, "list.visible");
    check_with(&home, &Asked::new(Local, LIST, "robot.move", T4), Deny, "default");
}

#[test]
fn decisions_say_why() {
    let set = rule_set(&[FORBID_BASH]).unwrap();
    let reason = |verb, id, tier| {
        let decision = set.decide(&Asked::new(Local, verb, id, tier).request());
        format!("{} {}: {}", decision.effect.as_str(), decision.rule, decision.reason)
    };
    insta::assert_snapshot!(
        [
            reason(EXECUTE, "echo.test", T0),
            reason(EXECUTE, "bash", T2),
            reason(EXECUTE, "wipe", T3),
            reason(EXECUTE, "robot.move", T4),
            reason(REGISTER_UNENFORCEABLE, "fetch", T0),
            reason(REGISTER, "robot.move", T4),
        ]
        .join("\n"),
        @r#"
        allow base.t0-t2: tiers T0 to T2 run up to the caller's own limit
        deny home.no-bash: no shell here
        ask gate.t3: tiers T3 and T4 run only after an operator approved the call
        deny default: no rule permits local to execute robot.move (tier T4); T4 needs a policy that names the tool
        deny default: no rule permits local to register fetch (tier T0)
        ask gate.register: a tool above the caller's tier, or with unrestricted network, is registered only after an operator approved it
        "#
    );
}

#[test]
fn an_error_in_evaluation_denies_and_is_recorded() {
    let text = r#"@id("home.overflow") forbid (principal, action == Allternit::Action::"execute", resource)
        when { context.args_bytes * 9223372036854775807 == 0 };"#;
    let set = rule_set(&[("overflow.cedar", text)]).unwrap();
    let decision = set.decide(&Asked::new(Local, EXECUTE, "echo.test", T0).request());
    assert_eq!((decision.effect, decision.rule.as_str()), (Deny, "home.overflow"));
    assert_eq!(decision.errors.len(), 1, "{decision:?}");
    assert!(decision.reason.contains("could not be evaluated"), "{decision:?}");
}

#[test]
fn the_operators_own_rule_names_the_decision() {
    let text = r#"@id("home.echo") permit (principal, action == Allternit::Action::"execute", resource == Allternit::Tool::"echo.test");"#;
    let decision = rule_set(&[("echo.cedar", text)])
        .unwrap()
        .decide(&Asked::new(Local, EXECUTE, "echo.test", T0).request());
    assert_eq!(decision.rule, "home.echo");
    assert_eq!(decision.reasons, ["base.t0-t2", "home.echo"]);
    assert_ne!(decision.policy_set, rule_set(&[]).unwrap().digest());
}
