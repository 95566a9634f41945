//! Laws that hold for any rules and any request, with Cedar itself over the whole set as oracle.

use std::collections::BTreeSet;

use cedar_policy::{Entities, Request};
use gateway_model::{ConcurrencyClaim, NetworkLimit, Principal, SafetyTier};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::tests::asked::{Asked, Verb, rule_set};

/// Conditions that any action may have, some of which fail to evaluate.
const TOOL_CONDITIONS: [&str; 6] = [
    "resource.tier >= 0",
    "resource.tier >= 2",
    "resource.network == \"unrestricted\"",
    "principal.tier_max > 2",
    "resource.tier * 9223372036854775807 > 2",
    "Allternit::Tool::\"ghost\".tier > 1",
];
/// Conditions on a call, the last of which fails for some inputs.
const CALL_CONDITIONS: [&str; 7] = [
    "context.requested_tier >= 3",
    "context.requested_tier == resource.tier",
    "context.paths.contains(\"/p0\")",
    "context.scope == \"global\"",
    "context.run_id == \"run_1\"",
    "context.via == Allternit::Service::\"io-service\"",
    "context.args_bytes * 4611686018427387904 > 0",
];
const PRINCIPALS: [&str; 3] = [
    "principal",
    "principal == Allternit::Service::\"local\"",
    "principal in Allternit::Role::\"operator\"",
];
const TOOLS: [&str; 4] = ["t0", "t1", "t2", "t3"];

/// A policy without its name: annotations and text.
fn policy_text() -> impl Strategy<Value = String> {
    let resource = prop_oneof![
        Just("resource".to_owned()),
        select(TOOLS.as_slice()).prop_map(|id| format!("resource == Allternit::Tool::\"{id}\"")),
    ];
    let body = prop_oneof![
        4 => (select(CALL_CONDITIONS.as_slice()), Just("execute")),
        4 => (select(TOOL_CONDITIONS.as_slice()), Just("execute")),
        2 => (select(TOOL_CONDITIONS.as_slice()), Just("list")),
        1 => (Just("context.enforceable"), Just("register")),
        1 => (Just("context.names_secrets"), Just("register")),
        1 => (select(TOOL_CONDITIONS.as_slice()), Just("register")),
    ];
    (0..5_u8, select(PRINCIPALS.as_slice()), resource, body).prop_map(
        |(kind, principal, resource, (condition, action))| {
            let scope = format!("{principal}, action == Allternit::Action::\"{action}\", {resource}");
            match kind {
                0 => format!("permit ({scope}) when {{ {condition} }};"),
                1 if action != "list" => format!(
                    "@ask(\"human\") forbid ({scope}) when {{ {condition} }} unless {{ context.approval.granted }};"
                ),
                2 if action != "list" => format!(
                    "@ask(\"human\") forbid ({scope}) unless {{ context.approval.granted && {condition} }};"
                ),
                3 => format!("permit ({scope}) unless {{ {condition} }};"),
                _ => format!("forbid ({scope}) when {{ {condition} }};"),
            }
        },
    )
}

fn policies(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(policy_text(), count)
}

fn asked() -> impl Strategy<Value = Asked> {
    let tier = || select(SafetyTier::ALL.as_slice());
    let verb = prop_oneof![
        3 => prop::option::of(tier()).prop_map(Verb::Execute),
        1 => Just(Verb::List),
        1 => Just(Verb::Remove),
        1 => any::<(bool, bool)>().prop_map(|(is_enforceable, names_secrets)| Verb::Register { is_enforceable, names_secrets }),
    ];
    let paths = prop::collection::btree_set(select(["/p0", "/p1"].as_slice()), 0..3);
    (
        (
            select([Principal::Local, Principal::Operator].as_slice()),
            verb,
            select(TOOLS.as_slice()),
        ),
        (tier(), any::<bool>(), paths, select([0, 1, 2, 100].as_slice()), 1..3_u8),
    )
        .prop_map(|((principal, verb, id), (tier, is_open, paths, args_bytes, run))| Asked {
            network: if is_open { NetworkLimit::Unrestricted } else { NetworkLimit::None },
            run_id: format!("run_{run}").parse().unwrap(),
            claim: ConcurrencyClaim::on_paths(
                paths.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(),
            ),
            args_bytes,
            ..Asked::new(principal, verb, id, tier)
        })
}

fn compiled(policies: &[String]) -> RuleSet {
    let text: String = policies
        .iter()
        .enumerate()
        .map(|(number, policy)| format!("@id(\"h.{number}\") {policy}\n"))
        .collect();
    let text = format!("// generated\n{text}");
    rule_set(&[("h.cedar", &text)]).unwrap()
}

/// What Cedar says of the whole set, without slices, cache or our own combining.
struct Oracle {
    is_allowed: bool,
    has_errors: bool,
}

fn oracle(set: &RuleSet, request: &PolicyRequest<'_>, is_approved: bool) -> Oracle {
    let all: Vec<&Rule> = set.rules.iter().collect();
    let policies = Slice::new(&all).unwrap().all;
    let question = set.world.question(request, request.action.kind()).unwrap();
    let context = set.world.context(&request.action, is_approved).unwrap();
    let response = Authorizer::new().is_authorized(
        &question.with(context).unwrap(),
        &policies,
        &question.entities,
    );
    Oracle {
        is_allowed: response.decision() == CedarDecision::Allow,
        has_errors: response.diagnostics().errors().next().is_some(),
    }
}

fn expected_effect(now: &Oracle, approved: &Oracle) -> Effect {
    match (now, approved) {
        (Oracle { has_errors: true, .. }, _) => Effect::Deny,
        (Oracle { is_allowed: true, .. }, _) => Effect::Allow,
        (_, Oracle { is_allowed: true, has_errors: false }) => Effect::Ask,
        (_, Oracle { .. }) => Effect::Deny,
    }
}

fn permissiveness(effect: Effect) -> u8 {
    match effect {
        Effect::Deny => 0,
        Effect::Ask => 1,
        Effect::Allow => 2,
    }
}

/// Decides with all rules and without memory.
fn decide_afresh(set: &RuleSet, request: &PolicyRequest<'_>) -> Decision {
    let all: Vec<&Rule> = set.rules.iter().collect();
    let whole = Slice::new(&all).unwrap();
    let execute: Vec<&Rule> = set
        .rules
        .iter()
        .filter(|rule| rule.policy.to_string().contains("Action::\"execute\""))
        .collect();
    set.judge(request, &whole, &Slice::new(&execute).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_ask_is_a_denial_that_an_approval_lifts(
        policies in policies(0..8),
        calls in prop::collection::vec(asked(), 12),
    ) {
        let set = compiled(&policies);
        for asked in &calls {
            let request = asked.request();
            let now = oracle(&set, &request, false);
            let expected = expected_effect(&now, &oracle(&set, &request, true));
            let decision = set.decide(&request);
            if asked.verb == Verb::List {
                prop_assert!(permissiveness(decision.effect) <= permissiveness(expected));
            } else {
                prop_assert_eq!(decision.effect, expected, "{:?}", &decision);
            }
            prop_assert!(!now.has_errors || decision.effect == Effect::Deny);
            prop_assert!(decision.errors.is_empty() || decision.effect == Effect::Deny);
        }
    }

    #[test]
    fn memory_and_slices_change_no_decision(
        policies in policies(0..8),
        calls in prop::collection::vec(asked(), 40),
    ) {
        let set = compiled(&policies);
        for asked in calls.iter().chain(&calls) {
            let request = asked.request();
            let decision = set.decide(&request);
            let afresh = decide_afresh(&set, &request);
            if asked.verb == Verb::List {
                // The whole set counts a varying permit for another tool as one that might match.
                prop_assert!(permissiveness(decision.effect) <= permissiveness(afresh.effect));
            } else {
                prop_assert_eq!(&*decision, &afresh);
            }
        }
    }

    #[test]
    fn one_more_forbid_never_widens(
        policies in policies(0..6),
        more in policy_text().prop_filter("a forbid", |text| text.contains("forbid (")),
        calls in prop::collection::vec(asked(), 12),
    ) {
        let before = compiled(&policies);
        let after = compiled(&[policies.as_slice(), &[more]].concat());
        for asked in &calls {
            let (before, after) = (before.decide(&asked.request()), after.decide(&asked.request()));
            prop_assert!(
                permissiveness(after.effect) <= permissiveness(before.effect),
                "{before:?}\n{after:?}"
            );
        }
    }

    #[test]
    fn a_hidden_tool_runs_for_no_input(
        policies in policies(0..8),
        calls in prop::collection::vec(asked(), 24),
    ) {
        let set = compiled(&policies);
        for asked in &calls {
            let listed = Asked { verb: Verb::List, ..asked.clone() };
            let run = Asked { verb: Verb::Execute(None), ..asked.clone() };
            let by_list = oracle(&set, &listed.request(), false);
            let is_hidden = set.decide(&listed.request()).effect == Effect::Deny;
            if is_hidden && by_list.is_allowed && !by_list.has_errors {
                prop_assert_eq!(set.decide(&run.request()).effect, Effect::Deny);
            }
        }
    }

    #[test]
    fn every_request_fits_the_schema(asked in asked()) {
        let world = World::new().unwrap();
        let request = asked.request();
        let question = world.question(&request, request.action.kind()).unwrap();
        let context = world.context(&request.action, true).unwrap();
        let typed = question.with(context.clone()).unwrap();
        let (principal, action) = (typed.principal().unwrap(), typed.action().unwrap());
        let checked = Request::new(
            principal.clone(),
            action.clone(),
            typed.resource().unwrap().clone(),
            context,
            Some(&world.schema),
        );
        prop_assert!(checked.is_ok(), "{:?}", checked.err());
        let entities = question.entities.iter().cloned();
        let checked = Entities::from_entities(entities, Some(&world.schema));
        prop_assert!(checked.is_ok(), "{:?}", checked.err());
    }
}

#[test]
fn a_full_memory_forgets_and_still_decides() {
    let set = rule_set(&[]).unwrap();
    for number in 0..20_000 {
        let asked = Asked::new(
            Principal::Local,
            Verb::Execute(None),
            &format!("t{number}"),
            SafetyTier::T0,
        );
        assert_eq!(set.decide(&asked.request()).effect, Effect::Allow);
    }
    assert!(set.cache.len() <= 16 * 1024);
}
