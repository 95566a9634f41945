//! Approvals: a call that asks waits for an operator, acts once after a yes, and never on another's.

use std::time::Duration;

use serde_json::{Value, json};

use crate::fixture::{Answer, Fixture, JSON, TOKEN, registration, request};

/// A tool of tier T3, which asks.
fn eraser() -> Value {
    let mut tool = registration();
    for (field, value) in [
        ("id", json!("disk.erase")),
        ("side_effects", json!(["filesystem"])),
        ("safety_tier", json!("T3")),
        ("idempotency_behavior", json!("not_idempotent")),
        ("input_schema", json!({"type": "object"})),
        ("output_schema", json!({})),
    ] {
        tool[field] = value;
    }
    tool
}

async fn open() -> Fixture {
    let fixture = Fixture::open().await;
    assert_eq!(fixture.register(&eraser()).await.status, 201);
    fixture
}

fn input() -> Value {
    json!({"message": "a"})
}

async fn erase(fixture: &Fixture, key: &str) -> Answer {
    fixture.execute("disk.erase", input(), key).await
}

/// Calls the tool and waits for an answer up to a minute.
async fn erase_patiently(fixture: &Fixture, key: &str) -> Answer {
    let mut body = request();
    body["tool_id"] = json!("disk.erase");
    body["input"] = input();
    body["correlation_id"] = json!(key);
    let headers = [JSON, ("prefer", "wait=60")];
    fixture.send("POST", "/v1/tools/execute", &headers, body.to_string()).await
}

async fn as_operator(fixture: &Fixture, method: &str, path: &str, body: &str) -> Answer {
    let token = format!("Bearer {TOKEN}");
    fixture.send(method, path, &[JSON, ("authorization", &token)], body.to_owned()).await
}

async fn decide(fixture: &Fixture, id: &str, decision: &str) -> Answer {
    let body = json!({"decision": decision, "reason": "looked at it"}).to_string();
    as_operator(fixture, "POST", &format!("/v1/approvals/{id}"), &body).await
}

#[track_caller]
fn check_kind(answer: &Answer, kind: &str) {
    assert_eq!(answer.json()["error"]["details"]["kind"], kind, "{answer:?}");
}

/// Returns the id of the approval that an answer asks for.
#[track_caller]
fn asked(answer: &Answer) -> String {
    check_kind(answer, "approval_required");
    answer.json()["error"]["details"]["approval_id"].as_str().unwrap().to_owned()
}

/// Waits until a call is asked about, and returns the approval's id.
async fn pending(fixture: &Fixture) -> String {
    loop {
        let listed = as_operator(fixture, "GET", "/v1/approvals", "").await.json();
        if let Some(id) = listed["approvals"][0]["approval_id"].as_str() {
            return id.to_owned();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_call_acts_once_after_a_yes_and_its_receipt_says_whose() {
    let fixture = open().await;
    let first = erase(&fixture, "k_1").await;
    let id = asked(&first);
    let details = first.json()["error"]["details"].clone();
    assert_eq!((&details["rule"], &details["approver"]), (&json!("gate.t3"), &json!("operator")));
    let message = first.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&format!("atg approvals approve {id}")), "{message}");
    assert_eq!(asked(&erase(&fixture, "k_1").await), id, "the same call is one question");
    let shown = as_operator(&fixture, "GET", &format!("/v1/approvals/{id}"), "").await.json();
    assert_eq!((&shown["state"], &shown["input"]), (&json!("pending"), &input()));
    assert_eq!(shown["expires_at"], details["expires_at"]);

    assert_eq!(decide(&fixture, &id, "approve").await.json()["state"], "approved");
    let acted = erase(&fixture, "k_1").await;
    assert_eq!(acted.json()["success"], true, "{acted:?}");
    let again = erase(&fixture, "k_1").await;
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(fixture.fake.runs("disk.erase"), 1);

    let receipt = fixture.get(&format!("/v1/receipts/{}", acted.header("x-receipt-id"))).await;
    for record in ["outcome", "intent"] {
        let leaf: Value =
            serde_json::from_str(receipt.json()[record]["leaf"].as_str().unwrap()).unwrap();
        let told = &leaf["policy"]["approval"];
        let expected = (&json!(id), &json!("operator"), &json!("once"));
        assert_eq!((&told["id"], &told["by"], &told["scope"]), expected);
        assert!(told["at"].is_string());
    }
    let shown = as_operator(&fixture, "GET", &format!("/v1/approvals/{id}"), "").await.json();
    assert_eq!(
        (&shown["state"], &shown["used_by"]),
        (&json!("used"), &json!(acted.header("x-call-id")))
    );
}

#[tokio::test]
async fn no_other_call_rides_on_a_yes() {
    let fixture = open().await;
    let id = asked(&erase(&fixture, "k_1").await);
    decide(&fixture, &id, "approve").await;
    let other_input = fixture.execute("disk.erase", json!({"message": "b"}), "k_1").await;
    assert_ne!(asked(&other_input), id);
    assert_ne!(asked(&erase(&fixture, "k_2").await), id);
    assert_eq!(fixture.fake.runs("disk.erase"), 0);
    assert_eq!(erase(&fixture, "k_1").await.json()["success"], true);
    // The next call with the same input asks again, whatever its key.
    asked(&erase(&fixture, "k_3").await);
    assert_eq!(fixture.fake.runs("disk.erase"), 1);
}

#[tokio::test]
async fn a_no_holds_for_the_same_call_under_any_key_until_it_is_revoked() {
    let fixture = open().await;
    let id = asked(&erase(&fixture, "k_1").await);
    assert_eq!(decide(&fixture, &id, "deny").await.json()["state"], "denied");
    for key in ["k_1", "k_2"] {
        let declined = erase(&fixture, key).await;
        check_kind(&declined, "declined");
        let message = declined.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("operator declined this call: looked at it"), "{message}");
    }
    let path = format!("/v1/approvals/{id}");
    assert_eq!(as_operator(&fixture, "DELETE", &path, "").await.json()["state"], "revoked");
    assert_eq!(as_operator(&fixture, "DELETE", &path, "").await.status, 409);
    assert_ne!(asked(&erase(&fixture, "k_1").await), id);
    assert_eq!(fixture.fake.runs("disk.erase"), 0);
}

/// Puts a changed definition in the place of the tool.
async fn redefine(fixture: &Fixture) {
    assert_eq!(as_operator(fixture, "DELETE", "/v1/tools/disk.erase", "").await.status, 204);
    let mut changed = eraser();
    changed["description"] = json!("Erases more");
    assert_eq!(fixture.register(&changed).await.status, 201);
}

#[tokio::test]
async fn a_changed_definition_asks_anew() {
    let fixture = open().await;
    let id = asked(&erase(&fixture, "k_1").await);
    decide(&fixture, &id, "approve").await;
    redefine(&fixture).await;
    assert_ne!(asked(&erase(&fixture, "k_1").await), id);
    assert_eq!(fixture.fake.runs("disk.erase"), 0);
}

#[tokio::test]
async fn a_definition_that_changes_while_a_call_waits_is_not_what_was_approved() {
    let fixture = open().await;
    let answered = async {
        let id = pending(&fixture).await;
        redefine(&fixture).await;
        decide(&fixture, &id, "approve").await
    };
    let (refused, approved) = tokio::join!(erase_patiently(&fixture, "k_1"), answered);
    assert_eq!(approved.status, 200);
    check_kind(&refused, "conflict");
    asked(&erase(&fixture, "k_1").await);
    assert_eq!(fixture.fake.runs("disk.erase"), 0);
}

/// Puts a policy file in force.
fn activate(fixture: &Fixture, text: &str) {
    let directory = fixture.home.path().join("policies");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("home.cedar"), text).unwrap();
    let reload = fixture.policy.reload_if_changed();
    assert!(matches!(reload, gateway_policy::Reload::Activated { .. }), "{reload:?}");
}

#[tokio::test]
async fn a_changed_policy_decides_again_whatever_was_approved() {
    let fixture = open().await;
    let id = asked(&erase(&fixture, "k_1").await);
    decide(&fixture, &id, "approve").await;
    activate(
        &fixture,
        "@id(\"home.quiet\") permit (principal, action == Allternit::Action::\"list\", resource);",
    );
    let anew = asked(&erase(&fixture, "k_1").await);
    assert_ne!(anew, id, "the yes was given under other rules");
    decide(&fixture, &anew, "approve").await;
    activate(
        &fixture,
        "@id(\"home.no\") forbid (principal, action == Allternit::Action::\"execute\", resource == \
         Allternit::Tool::\"disk.erase\");",
    );
    check_kind(&erase(&fixture, "k_1").await, "permission_denied");
    assert_eq!(fixture.fake.runs("disk.erase"), 0);
}

#[tokio::test]
async fn an_approval_that_ran_out_is_told_once_and_then_asked_anew() {
    let fixture = open().await;
    for is_approved in [false, true] {
        let id = asked(&erase(&fixture, "k_1").await);
        if is_approved {
            decide(&fixture, &id, "approve").await;
        }
        fixture.clock.advance(Duration::from_secs(900));
        assert_eq!(decide(&fixture, &id, "approve").await.status, 409);
        check_kind(&erase(&fixture, "k_1").await, "approval_expired");
    }
    asked(&erase(&fixture, "k_1").await);
    assert_eq!(fixture.fake.runs("disk.erase"), 0);
}

#[tokio::test]
async fn a_restart_in_between_loses_neither_question_nor_answer() {
    let fixture = open().await;
    let id = asked(&erase(&fixture, "k_1").await);
    let fixture = fixture.reopen_with(Vec::new()).await;
    assert_eq!(pending(&fixture).await, id);
    decide(&fixture, &id, "approve").await;
    let fixture = fixture.reopen_with(Vec::new()).await;
    assert_eq!(erase(&fixture, "k_1").await.json()["success"], true);
    let fixture = fixture.reopen_with(Vec::new()).await;
    assert_eq!(erase(&fixture, "k_1").await.header("idempotent-replayed"), "true");
    assert_eq!(fixture.fake.runs("disk.erase"), 0, "it ran before this start");
}

#[tokio::test]
async fn of_two_approvers_one_wins_and_the_other_is_told_who() {
    let fixture = open().await;
    let id = asked(&erase(&fixture, "k_1").await);
    let (yes, no) = tokio::join!(decide(&fixture, &id, "approve"), decide(&fixture, &id, "deny"));
    let (won, lost) = if yes.status == 200 { (&yes, &no) } else { (&no, &yes) };
    assert_eq!((won.status, lost.status), (200, 409));
    let detail = lost.json()["detail"].as_str().unwrap().to_owned();
    let state = won.json()["state"].as_str().unwrap().to_owned();
    assert!(detail.contains(&format!("was already {state} by operator at 20")), "{detail}");
}

#[tokio::test]
async fn a_caller_who_prefers_to_wait_gets_the_outcome_and_holds_no_claim_meanwhile() {
    let fixture = open().await;
    let answered = async {
        let id = pending(&fixture).await;
        // In the same run, and with side effects: it would wait for a claim that is held.
        let beside = fixture.execute("note.add", input(), "k_2").await;
        assert_eq!(beside.json()["success"], true, "{beside:?}");
        assert_eq!(fixture.fake.runs("disk.erase"), 0);
        decide(&fixture, &id, "approve").await
    };
    let (acted, approved) = tokio::join!(erase_patiently(&fixture, "k_1"), answered);
    assert_eq!(approved.status, 200);
    assert_eq!(acted.json()["success"], true, "{acted:?}");
    assert_eq!(fixture.fake.runs("disk.erase"), 1);
}

#[tokio::test]
async fn a_caller_who_waits_hears_of_a_no_and_of_a_question_taken_back() {
    let fixture = open().await;
    for (key, method) in [("k_1", "DELETE"), ("k_2", "POST")] {
        let answered = async {
            let path = format!("/v1/approvals/{}", pending(&fixture).await);
            as_operator(&fixture, method, &path, "{\"decision\":\"deny\"}").await
        };
        let (declined, answered) = tokio::join!(erase_patiently(&fixture, key), answered);
        assert_eq!(answered.status, 200, "{answered:?}");
        check_kind(&declined, "declined");
    }
}

#[tokio::test]
async fn a_caller_who_left_gets_the_answer_with_the_same_key() {
    let fixture = open().await;
    let id = tokio::select! {
        answer = erase_patiently(&fixture, "k_1") => panic!("{answer:?}"),
        id = pending(&fixture) => id,
    };
    decide(&fixture, &id, "approve").await;
    let acted = erase_patiently(&fixture, "k_1").await;
    assert_eq!(acted.json()["success"], true, "{acted:?}");
    assert_eq!(fixture.fake.runs("disk.erase"), 1);
}

#[tokio::test]
async fn a_gateway_that_closes_lets_nobody_wait() {
    let fixture = open().await;
    let closed = async {
        pending(&fixture).await;
        fixture.gateway.close().await;
    };
    let (answer, ()) = tokio::join!(erase_patiently(&fixture, "k_1"), closed);
    asked(&answer);
}

#[tokio::test]
async fn only_an_operator_answers_and_never_a_call_of_their_own() {
    let fixture = open().await;
    let id = asked(&erase(&fixture, "k_1").await);
    let path = format!("/v1/approvals/{id}");
    for (method, path) in
        [("GET", "/v1/approvals"), ("GET", &path), ("POST", &path), ("DELETE", &path)]
    {
        let answer = fixture.send(method, path, &[JSON], "{\"decision\":\"approve\"}").await;
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    let mut body = request();
    body["tool_id"] = json!("disk.erase");
    let own = as_operator(&fixture, "POST", "/v1/tools/execute", &body.to_string()).await;
    check_kind(&own, "permission_denied");
    assert!(
        own.json()["error"]["message"].as_str().unwrap().contains("without the operator's token")
    );
    assert_eq!(fixture.fake.runs("disk.erase"), 0);
    for (path, body, status) in [
        ("/v1/approvals/0190f5fe-7c00-7a00-8000-000000000000", "{\"decision\":\"approve\"}", 404),
        ("/v1/approvals/x", "{\"decision\":\"approve\"}", 404),
        (&*path, "{\"decision\":\"perhaps\"}", 422),
        (&*path, "{\"decision\":\"approve\",\"scope\":\"always\"}", 422),
        (&*path, "{", 400),
    ] {
        let answer = as_operator(&fixture, "POST", path, body).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
}
