//! Receipts over REST: one by its id, a run's page by page.

use serde_json::{Value, json};

use crate::fixture::Fixture;

#[tokio::test]
async fn a_runs_receipts_are_read_page_by_page() {
    let fixture = Fixture::open().await;
    let mut ids = Vec::new();
    for number in 0..11 {
        let answer =
            fixture.execute("note.read", json!({ "message": format!("n{number}") }), "k").await;
        ids.push(answer.header("x-receipt-id").to_owned());
    }
    let mut listed = Vec::new();
    let mut after = Value::Null;
    loop {
        let from = if after.is_null() { String::new() } else { format!("&after={after}") };
        let page = fixture.get(&format!("/v1/runs/run_xyz789/receipts?limit=4{from}")).await.json();
        let receipts = page["receipts"].as_array().unwrap();
        assert!(receipts.iter().all(|receipt| receipt.get("bundle").is_none()));
        listed.extend(
            receipts.iter().map(|receipt| receipt["receipt_id"].as_str().unwrap().to_owned()),
        );
        after = page["next_after"].clone();
        if after.is_null() {
            break;
        }
    }
    assert_eq!(listed, ids);
    let whole = fixture.get("/v1/runs/run_xyz789/receipts").await.json();
    assert_eq!(
        (whole["receipts"].as_array().unwrap().len(), &whole["next_after"]),
        (11, &Value::Null)
    );
    assert_eq!(
        fixture.get("/v1/runs/run_none/receipts").await.json(),
        json!({"receipts": [], "next_after": null})
    );
}

#[tokio::test]
async fn a_receipt_shows_what_the_call_did() {
    let fixture = Fixture::open().await;
    let answer = fixture.execute("note.add", json!({"message": "a"}), "k_1").await;
    let id = answer.header("x-receipt-id");
    let receipt = fixture.get(&format!("/v1/receipts/{id}")).await.json();
    assert_eq!(receipt["receipt_id"], id);
    assert_eq!(
        (&receipt["tool_id"], &receipt["status"], &receipt["decision"]),
        (&json!("note.add"), &json!("ok"), &json!("allow"))
    );
    assert!(receipt["intent"].is_object() && receipt.get("bundle").is_some(), "{receipt}");
}
