//! The idempotency table: what a used key answers, by how its first call ended.

use std::time::Duration;

use gateway_ledger::{Admission, Admitted, KeyState, Ledger, Rerun, Resolved, Status};
use gateway_model::{Principal, canonical_json, parse_json};

use crate::home::{
    ALWAYS, Home, INPUT, NEVER, call, effect_free, effectful, ended, failure, lease, leaves,
    output, scope, seen, succeeded,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What the second call with the key gets.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Answer {
    /// It acts, as this attempt.
    Acts(u32),
    ReplaysOutput,
    ReplaysError,
    Mismatch,
    Foreign,
    Indeterminate,
    Expired,
}

/// The second use of a key.
#[derive(Debug, Clone, Copy)]
struct Second {
    input: &'static [u8],
    principal: Principal,
    rerun: Rerun,
    later: Duration,
}

const SAME: Second =
    Second { input: INPUT, principal: Principal::Local, rerun: NEVER, later: Duration::ZERO };
const RERUN: Second = Second { rerun: ALWAYS, ..SAME };
const OTHER_INPUT: Second = Second { input: br#"{"to":"bob@example.org"}"#, ..SAME };
const OPERATOR: Second = Second { principal: Principal::Operator, ..SAME };
const EIGHT_DAYS_ON: Second = Second { later: DAY.saturating_mul(8), ..SAME };
const SIX_DAYS_ON: Second = Second { later: DAY.saturating_mul(6), ..SAME };

/// How the first call ended, how the key is used again, what that gets.
const TABLE: [(Status, Second, Answer); 22] = [
    (Status::Ok, SAME, Answer::ReplaysOutput),
    (Status::Ok, RERUN, Answer::ReplaysOutput),
    (Status::Ok, OTHER_INPUT, Answer::Mismatch),
    (Status::Ok, OPERATOR, Answer::ReplaysOutput),
    (Status::Ok, SIX_DAYS_ON, Answer::ReplaysOutput),
    (Status::Ok, EIGHT_DAYS_ON, Answer::Expired),
    (Status::Ok, Second { input: b"{}", ..EIGHT_DAYS_ON }, Answer::Mismatch),
    (Status::ToolError, SAME, Answer::ReplaysError),
    (Status::ToolError, RERUN, Answer::Acts(2)),
    (Status::ToolError, Second { input: b"{}", ..RERUN }, Answer::Mismatch),
    (Status::ToolError, Second { rerun: ALWAYS, ..EIGHT_DAYS_ON }, Answer::Expired),
    (Status::OutputInvalid, SAME, Answer::ReplaysError),
    (Status::OutputInvalid, Second { rerun: ALWAYS, ..SAME }, Answer::ReplaysError),
    (Status::Timeout, SAME, Answer::Indeterminate),
    (Status::Timeout, RERUN, Answer::Acts(2)),
    (Status::Cancelled, SAME, Answer::Indeterminate),
    (Status::Cancelled, RERUN, Answer::Acts(2)),
    (Status::Indeterminate, SAME, Answer::Indeterminate),
    (Status::Indeterminate, OPERATOR, Answer::Indeterminate),
    (Status::Indeterminate, RERUN, Answer::Acts(2)),
    (Status::NotStarted, SAME, Answer::Acts(1)),
    (Status::NotStarted, OTHER_INPUT, Answer::Acts(1)),
];

/// The second call, of a caller who saw the first one end.
fn second_call(second: Second) -> Admission {
    let mut admission = effectful(2);
    admission.after = Some(call(1));
    admission.facts.principal = second.principal;
    admission.key = Some((scope("corr_1"), second.rerun));
    admission.input = second.input.to_vec();
    admission
}

#[track_caller]
fn answer(state: &KeyState) -> Answer {
    match state {
        KeyState::Replay(stored) => {
            assert_eq!(stored.call, call(1));
            match &stored.result {
                Ok(stored) if *stored == output() => Answer::ReplaysOutput,
                Err(stored) if *stored == failure() => Answer::ReplaysError,
                other => panic!("another outcome: {other:?}"),
            }
        }
        KeyState::Mismatch { first } if *first == call(1) => Answer::Mismatch,
        KeyState::Foreign => Answer::Foreign,
        KeyState::Indeterminate { call: of } if *of == call(1) => Answer::Indeterminate,
        KeyState::Resolved { .. } => panic!("nobody settled it"),
        KeyState::Expired { call: of } if *of == call(1) => Answer::Expired,
        other => panic!("an unexpected state: {other:?}"),
    }
}

/// The cheap look and the admission must agree.
async fn use_again(ledger: &Ledger, second: Second) -> Answer {
    let Second { input, principal, rerun, .. } = second;
    let looked = ledger.look_up(&scope("corr_1"), rerun, principal, input).await.unwrap();
    match ledger.admit(second_call(second)).await.unwrap() {
        Admitted::Fresh(lease) => {
            assert!(matches!(looked, KeyState::Free { .. }), "{looked:?}");
            let attempt = lease.attempt();
            ledger.settle(lease, succeeded()).await.unwrap();
            Answer::Acts(attempt)
        }
        Admitted::Unapproved => panic!("it needs no approval"),
        Admitted::Seen(state) => {
            let admitted = answer(&state);
            assert_eq!(answer(&looked), admitted);
            admitted
        }
    }
}

#[tokio::test]
async fn a_used_key_answers_by_how_its_call_ended_also_after_a_restart() {
    for is_restarted in [false, true] {
        for (status, second, expected) in TABLE {
            let home = Home::new();
            let mut ledger = home.open();
            let first = lease(ledger.admit(effectful(1)).await);
            ledger.settle(first, ended(status)).await.unwrap();
            if is_restarted {
                drop(ledger);
                ledger = home.open();
            }
            home.clock.advance(second.later);
            let found = use_again(&ledger, second).await;
            assert_eq!(found, expected, "{status:?}, {second:?}, restarted: {is_restarted}");
        }
    }
}

#[tokio::test]
async fn who_was_there_before_an_attempt_ended_gets_its_outcome() {
    let home = Home::new();
    let ledger = home.open();
    let first = lease(ledger.admit(effectful(1)).await);
    ledger.settle(first, ended(Status::ToolError)).await.unwrap();
    let beside = Admission { after: None, ..second_call(RERUN) };
    assert_eq!(answer(&seen(ledger.admit(beside).await)), Answer::ReplaysError);
    assert_eq!(use_again(&ledger, RERUN).await, Answer::Acts(2));
}

#[tokio::test]
async fn a_key_of_the_operator_is_not_replayed_to_others() {
    let home = Home::new();
    let ledger = home.open();
    let mut first = effectful(1);
    first.facts.principal = Principal::Operator;
    let first = lease(ledger.admit(first).await);
    ledger.settle(first, succeeded()).await.unwrap();
    for input in [INPUT, b"{}"] {
        assert_eq!(use_again(&ledger, Second { input, ..SAME }).await, Answer::Foreign);
    }
}

#[tokio::test]
async fn a_key_stays_its_first_callers_when_the_operator_tries_again() {
    let home = Home::new();
    let ledger = home.open();
    let first = lease(ledger.admit(effectful(1)).await);
    ledger.settle(first, ended(Status::Timeout)).await.unwrap();
    let again = Second { rerun: ALWAYS, ..OPERATOR };
    assert_eq!(use_again(&ledger, again).await, Answer::Acts(2));
    let looked = ledger.look_up(&scope("corr_1"), NEVER, Principal::Local, INPUT).await.unwrap();
    assert!(matches!(looked, KeyState::Replay(stored) if stored.call == call(2)));
}

#[tokio::test]
async fn an_attempt_that_never_began_leaves_the_key_as_it_was() {
    let home = Home::new();
    let ledger = home.open();
    let first = lease(ledger.admit(effectful(1)).await);
    ledger.settle(first, ended(Status::Timeout)).await.unwrap();
    let second = lease(ledger.admit(second_call(RERUN)).await);
    ledger.settle(second, ended(Status::NotStarted)).await.unwrap();
    assert_eq!(use_again(&ledger, SAME).await, Answer::Indeterminate);
    assert_eq!(use_again(&ledger, OTHER_INPUT).await, Answer::Mismatch);
}

#[tokio::test]
async fn keys_are_apart_by_run_and_tool_and_name() {
    let home = Home::new();
    let ledger = home.open();
    let first = lease(ledger.admit(effectful(1)).await);
    ledger.settle(first, succeeded()).await.unwrap();
    for (run, tool, key, is_free) in [
        ("run_1", "mail.send", "corr_1", false),
        ("run_2", "mail.send", "corr_1", true),
        ("run_1", "mail.draft", "corr_1", true),
        ("run_1", "mail.send", "corr_2", true),
    ] {
        let mut other = scope(key);
        (other.run, other.tool) = (run.parse().unwrap(), tool.parse().unwrap());
        let state = ledger.look_up(&other, NEVER, Principal::Local, INPUT).await.unwrap();
        assert_eq!(matches!(state, KeyState::Free { .. }), is_free, "{other:?}");
    }
}

#[tokio::test]
async fn two_texts_of_one_input_are_the_same_input() {
    for (first, second, is_same) in [
        (r#"{"a":1,"b":[true,null]}"#, r#"{ "b": [true, null], "a": 1 }"#, true),
        (r#"{"a":1}"#, r#"{"a":1.0}"#, true),
        (r#"{"a":100}"#, r#"{"a":1e2}"#, true),
        (r#"{"a":"\u00e9"}"#, r#"{"a":"é"}"#, true),
        (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992}"#, false),
        (r#"{"a":1}"#, r#"{"a":"1"}"#, false),
        (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, false),
    ] {
        let home = Home::new();
        let ledger = home.open();
        let canonical = |text: &str| canonical_json(&parse_json(text.as_bytes()).unwrap());
        let first_call = Admission { input: canonical(first), ..effectful(1) };
        let admitted = lease(ledger.admit(first_call).await);
        ledger.settle(admitted, succeeded()).await.unwrap();
        let input = canonical(second);
        let state =
            ledger.look_up(&scope("corr_1"), NEVER, Principal::Local, &input).await.unwrap();
        assert_eq!(matches!(state, KeyState::Replay(_)), is_same, "{first} {second}: {state:?}");
    }
}

#[tokio::test]
async fn a_call_without_a_key_always_runs_anew() {
    let home = Home::new();
    let ledger = home.open();
    for number in 1..4 {
        let admitted = lease(ledger.admit(effect_free(number)).await);
        assert_eq!(admitted.attempt(), 1);
        ledger.settle(admitted, succeeded()).await.unwrap();
    }
    // Only outcomes: admission wrote nothing.
    assert_eq!(ledger.records(0, 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn an_operators_word_settles_a_call_whose_outcome_is_unknown_and_no_other() {
    for has_acted in [true, false] {
        let home = Home::new();
        let ledger = home.open();
        let resolve = |number| {
            let found = (has_acted, Some("looked at the outbox".to_owned()));
            ledger.resolve_call(call(number), Principal::Operator, found)
        };
        assert_eq!(resolve(1).await.unwrap(), Resolved::Unknown);
        let first = lease(ledger.admit(effectful(1)).await);
        assert_eq!(resolve(1).await.unwrap(), Resolved::Unknown, "it still runs");
        ledger.settle(first, ended(Status::Indeterminate)).await.unwrap();
        assert_eq!(resolve(1).await.unwrap(), Resolved::Done);
        assert_eq!(resolve(1).await.unwrap(), Resolved::Settled);
        let again = Admission { after: Some(call(1)), ..effectful(2) };
        if has_acted {
            assert!(matches!(seen(ledger.admit(again).await), KeyState::Resolved { .. }));
        } else {
            let second = lease(ledger.admit(again).await);
            assert_eq!(second.attempt(), 2);
            ledger.settle(second, succeeded()).await.unwrap();
            assert_eq!(resolve(1).await.unwrap(), Resolved::Settled);
            assert_eq!(resolve(2).await.unwrap(), Resolved::Settled, "its outcome is known");
        }
        let leaves = leaves(&ledger).await;
        assert_eq!(
            (&leaves[2]["kind"], &leaves[2]["call"]),
            (&"resolution".into(), &call(1).to_string().into())
        );
        ledger.verify().await.unwrap();
    }
}
