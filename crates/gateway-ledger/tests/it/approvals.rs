//! Approvals: bound to one exact call, answered once, used once, and durable.

use std::sync::Arc;
use std::time::Duration;

use gateway_ledger::{
    Admission, Admitted, Answered, ApprovalRequest, ApprovalState, GrantedApproval, Ledger, Stage,
};
use gateway_model::{ApprovalId, Decision, Digest, Effect, Principal};
use serde_json::json;

use crate::home::{Home, call, decision, effect_free, effectful, lease, leaves, seen, succeeded};

const TIME: Duration = Duration::from_secs(900);

/// The question about a call, as the line asks it.
fn question(admission: &Admission) -> ApprovalRequest {
    ApprovalRequest {
        facts: admission.facts.clone(),
        input: admission.input.clone(),
        decision: Arc::new(Decision { effect: Effect::Ask, ..decision() }),
        reach: b"reach".as_slice().into(),
        answer_time: TIME,
    }
}

#[track_caller]
fn pending(state: ApprovalState) -> ApprovalId {
    match state {
        ApprovalState::Pending { id, .. } => id,
        other => panic!("not pending: {other:?}"),
    }
}

#[track_caller]
fn granted(state: ApprovalState) -> GrantedApproval {
    match state {
        ApprovalState::Granted(granted) => granted,
        other => panic!("not granted: {other:?}"),
    }
}

async fn answer(ledger: &Ledger, id: ApprovalId, is_approved: bool) -> Answered {
    ledger.answer_approval(id, (Principal::Operator, is_approved), None).await.unwrap()
}

/// Asks about a call and approves it.
async fn approved(ledger: &Ledger, admission: &Admission) -> GrantedApproval {
    let id = pending(ledger.ask(question(admission)).await.unwrap());
    assert_eq!(answer(ledger, id, true).await, Answered::Done);
    granted(ledger.ask(question(admission)).await.unwrap())
}

fn with(granted: &GrantedApproval, admission: Admission) -> Admission {
    Admission { approval: Some(granted.clone()), ..admission }
}

#[tokio::test]
async fn a_yes_lets_exactly_one_call_act_and_its_records_name_it() {
    let home = Home::new();
    let ledger = home.open();
    let yes = approved(&ledger, &effectful(1)).await;
    let first = lease(ledger.admit(with(&yes, effectful(1))).await);
    ledger.settle(first, succeeded()).await.unwrap();
    let other_key = Admission { key: None, ..effectful(2) };
    assert!(matches!(ledger.admit(with(&yes, other_key)).await, Ok(Admitted::Unapproved)));
    drop(seen(ledger.admit(effectful(3)).await));

    let leaves = leaves(&ledger).await;
    let kinds: Vec<&str> = leaves.iter().map(|leaf| leaf["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["approval.requested", "approval.decided", "intent", "outcome"]);
    let told = json!({
        "id": yes.id.to_string(), "by": "operator", "at": "2026-12-01T00:00:00.000Z", "scope": "once",
    });
    assert_eq!(
        (&leaves[2]["policy"]["approval"], &leaves[3]["policy"]["approval"]),
        (&told, &told)
    );
    let approval = ledger.approval(yes.id).await.unwrap().unwrap();
    assert_eq!(approval.stage, Stage::Used);
    assert_eq!(approval.to_json()["used_by"], call(1).to_string());
    assert_eq!(approval.to_json_with_input()["input"], json!({"to": "ann@example.org"}));
    ledger.verify().await.unwrap();
}

#[tokio::test]
async fn a_call_without_a_key_uses_its_approval_durably_too() {
    let home = Home::new();
    let ledger = home.open();
    let yes = approved(&ledger, &effect_free(1)).await;
    drop(lease(ledger.admit(with(&yes, effect_free(1))).await));
    assert!(matches!(ledger.admit(with(&yes, effect_free(2))).await, Ok(Admitted::Unapproved)));
    pending(ledger.ask(question(&effect_free(3))).await.unwrap());
    assert!(leaves(&ledger).await.iter().any(|leaf| leaf["kind"] == "approval.used"));
}

/// Whatever makes a call another one: the yes to the first is none to it.
#[tokio::test]
async fn a_yes_holds_for_no_other_call() {
    let other_policy = Decision { policy_set: Digest::of(b"changed"), ..decision() };
    type Change = fn(&mut Admission);
    let changes: [(&str, Change); 7] = [
        ("arguments", |call| call.input = br#"{"to":"bob@example.org"}"#.to_vec()),
        ("definition", |call| call.facts.tool.digest = Digest::of(b"changed")),
        ("version", |call| call.facts.tool.version = 2),
        ("run", |call| call.facts.run = "run_2".parse().unwrap()),
        ("workflow", |call| call.facts.wih = "wih_2".parse().unwrap()),
        ("key", |call| call.facts.correlation = Some("corr_2".parse().unwrap())),
        ("principal", |call| call.facts.principal = Principal::Operator),
    ];
    let home = Home::new();
    let ledger = home.open();
    let yes = approved(&ledger, &effectful(1)).await;
    for (what, change) in changes {
        let mut changed = effectful(2);
        change(&mut changed);
        let unapproved = ledger.admit(with(&yes, changed.clone())).await;
        assert!(matches!(unapproved, Ok(Admitted::Unapproved)), "{what}: {unapproved:?}");
        assert_ne!(pending(ledger.ask(question(&changed)).await.unwrap()), yes.id, "{what}");
    }
    let under = Admission { decision: Arc::new(other_policy.clone()), ..effectful(2) };
    assert!(matches!(ledger.admit(with(&yes, under)).await, Ok(Admitted::Unapproved)));
    let under = ApprovalRequest { decision: Arc::new(other_policy), ..question(&effectful(2)) };
    pending(ledger.ask(under).await.unwrap());
    let elsewhere =
        ApprovalRequest { reach: b"elsewhere".as_slice().into(), ..question(&effectful(2)) };
    pending(ledger.ask(elsewhere).await.unwrap());
    lease(ledger.admit(with(&yes, effectful(1))).await);
}

#[tokio::test]
async fn a_question_and_its_answer_survive_a_restart() {
    let home = Home::new();
    let ledger = home.open();
    let id = pending(ledger.ask(question(&effectful(1))).await.unwrap());
    ledger.close().await;
    drop(ledger);
    let ledger = home.open();
    assert_eq!(pending(ledger.ask(question(&effectful(2))).await.unwrap()), id, "it is found");
    answer(&ledger, id, true).await;
    ledger.close().await;
    drop(ledger);
    let ledger = home.open();
    let yes = granted(ledger.ask(question(&effectful(3))).await.unwrap());
    lease(ledger.admit(with(&yes, effectful(3))).await);
    ledger.close().await;
    drop(ledger);
    let ledger = home.open();
    assert_eq!(ledger.approval(id).await.unwrap().unwrap().stage, Stage::Used);
}

#[tokio::test]
async fn of_two_answers_at_once_one_holds_and_the_other_is_told_which() {
    let home = Home::new();
    let ledger = home.open();
    for round in 0..20 {
        let mut asked = effectful(1);
        asked.facts.run = format!("run_{round}").parse().unwrap();
        let id = pending(ledger.ask(question(&asked)).await.unwrap());
        let (yes, no) = tokio::join!(answer(&ledger, id, true), answer(&ledger, id, false));
        let stage = ledger.approval(id).await.unwrap().unwrap().stage;
        let expected = if yes == Answered::Done { Stage::Approved } else { Stage::Denied };
        assert_eq!(stage, expected);
        let (won, lost) = if yes == Answered::Done { (yes, no) } else { (no, yes) };
        assert_eq!(won, Answered::Done);
        let Answered::Ended { stage: told, by: Some(Principal::Operator), at: Some(_) } = lost
        else {
            panic!("{lost:?}")
        };
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn a_question_that_ran_out_is_told_once_and_asked_anew() {
    let home = Home::new();
    let ledger = home.open();
    let id = pending(ledger.ask(question(&effectful(1))).await.unwrap());
    home.clock.advance(TIME - Duration::from_millis(1));
    assert_eq!(pending(ledger.ask(question(&effectful(1))).await.unwrap()), id);
    home.clock.advance(Duration::from_millis(1));
    assert!(matches!(
        answer(&ledger, id, true).await,
        Answered::Ended { stage: Stage::Expired, .. }
    ));
    let told = ledger.ask(question(&effectful(1))).await.unwrap();
    assert!(matches!(told, ApprovalState::Expired { id: expired } if expired == id), "{told:?}");
    assert_ne!(pending(ledger.ask(question(&effectful(1))).await.unwrap()), id);
}

#[tokio::test]
async fn a_yes_that_is_not_used_in_time_is_none() {
    let home = Home::new();
    let ledger = home.open();
    let yes = approved(&ledger, &effectful(1)).await;
    home.clock.advance(TIME);
    assert!(matches!(ledger.admit(with(&yes, effectful(1))).await, Ok(Admitted::Unapproved)));
    let told = ledger.ask(question(&effectful(1))).await.unwrap();
    assert!(matches!(told, ApprovalState::Expired { .. }), "{told:?}");
}

#[tokio::test]
async fn a_no_holds_under_every_key_until_it_is_taken_back() {
    let home = Home::new();
    let ledger = home.open();
    let id = pending(ledger.ask(question(&effectful(1))).await.unwrap());
    answer(&ledger, id, false).await;
    let mut other_key = effectful(2);
    other_key.facts.correlation = Some("corr_2".parse().unwrap());
    for asked in [&effectful(1), &other_key] {
        let state = ledger.ask(question(asked)).await.unwrap();
        assert!(
            matches!(state, ApprovalState::Declined { by: Principal::Operator, .. }),
            "{state:?}"
        );
    }
    let mut other_input = effectful(3);
    other_input.input = b"{}".to_vec();
    pending(ledger.ask(question(&other_input)).await.unwrap());
    let revoked = ledger.revoke_approval(id, Principal::Operator).await.unwrap();
    assert_eq!(revoked, Answered::Done);
    pending(ledger.ask(question(&effectful(1))).await.unwrap());
}

#[tokio::test]
async fn a_revoked_yes_is_none() {
    let home = Home::new();
    let ledger = home.open();
    let yes = approved(&ledger, &effectful(1)).await;
    let revoke = || ledger.revoke_approval(yes.id, Principal::Operator);
    assert_eq!(revoke().await.unwrap(), Answered::Done);
    assert!(matches!(revoke().await.unwrap(), Answered::Ended { stage: Stage::Revoked, .. }));
    assert!(matches!(ledger.admit(with(&yes, effectful(1))).await, Ok(Admitted::Unapproved)));
}

#[tokio::test]
async fn nobody_approves_a_call_of_their_own() {
    let home = Home::new();
    let ledger = home.open();
    let mut own = effectful(1);
    own.facts.principal = Principal::Operator;
    let id = pending(ledger.ask(question(&own)).await.unwrap());
    assert_eq!(answer(&ledger, id, true).await, Answered::OwnCall);
    assert_eq!(answer(&ledger, id, false).await, Answered::Done);
}

#[tokio::test]
async fn three_denials_in_a_row_hold_a_run_back_but_for_one_question_every_five_minutes() {
    let home = Home::new();
    let ledger = home.open();
    let asked = |number: u8| {
        let mut asked = effectful(number);
        asked.input = format!("{{\"n\":{number}}}").into_bytes();
        question(&asked)
    };
    for number in 1..=3 {
        let id = pending(ledger.ask(asked(number)).await.unwrap());
        answer(&ledger, id, false).await;
    }
    let held_back = ledger.ask(asked(4)).await.unwrap();
    let ApprovalState::Paused { retry_after } = held_back else { panic!("{held_back:?}") };
    assert_eq!(retry_after, Duration::from_secs(300));
    let mut elsewhere = asked(4);
    elsewhere.facts.run = "run_2".parse().unwrap();
    pending(ledger.ask(elsewhere).await.unwrap());
    home.clock.advance(retry_after);
    let probe = pending(ledger.ask(asked(4)).await.unwrap());
    assert!(matches!(ledger.ask(asked(5)).await.unwrap(), ApprovalState::Paused { .. }));
    answer(&ledger, probe, true).await;
    pending(ledger.ask(asked(5)).await.unwrap());
}

#[tokio::test]
async fn a_run_has_so_many_questions_open_and_no_more() {
    let home = Home::new();
    let ledger = home.open();
    let asked = |number: u8| {
        let mut asked = effectful(number);
        asked.input = format!("{{\"n\":{number}}}").into_bytes();
        question(&asked)
    };
    for number in 0..64 {
        pending(ledger.ask(asked(number)).await.unwrap());
    }
    let full = ledger.ask(asked(64)).await.unwrap();
    assert!(matches!(full, ApprovalState::Full { most: 64, is_of_run: true }), "{full:?}");
    pending(ledger.ask(asked(63)).await.unwrap());
    let page = ledger.approvals(Some(Stage::Pending), 0, 40).await.unwrap();
    let rest = ledger.approvals(Some(Stage::Pending), page[39].position, 40).await.unwrap();
    assert_eq!((page.len(), rest.len()), (40, 24));
    home.clock.advance(TIME);
    pending(ledger.ask(asked(64)).await.unwrap());
    assert_eq!(ledger.approvals(Some(Stage::Expired), 0, 100).await.unwrap().len(), 64);
}

#[tokio::test]
async fn whoever_waits_is_told_of_an_answer() {
    let home = Home::new();
    let ledger = home.open();
    let mut changes = ledger.approval_changes();
    let id = pending(ledger.ask(question(&effectful(1))).await.unwrap());
    changes.next().await;
    let (answered, ()) = tokio::join!(answer(&ledger, id, true), changes.next());
    assert_eq!(answered, Answered::Done);
    granted(ledger.ask(question(&effectful(1))).await.unwrap());
}

#[tokio::test]
async fn a_ledger_of_the_first_format_learns_of_approvals() {
    let home = Home::new();
    let ledger = home.open();
    drop(lease(ledger.admit(effectful(1)).await));
    ledger.close().await;
    drop(ledger);
    home.database().execute_batch("DROP TABLE approvals; PRAGMA user_version = 1").unwrap();
    let ledger = home.open();
    pending(ledger.ask(question(&effectful(2))).await.unwrap());
}
