//! The stored form of every kind of record: a change of it is a change of the format.

use gateway_ledger::{Event, Status, StoredTool};
use gateway_model::{Digest, ErrorKind, Face, Principal};
use serde_json::json;

use crate::home::{Home, call, decision, effect_free, effectful, ended, facts, lease, succeeded};

/// Cuts what is random: salts, commitments, key codes, leaf hashes.
pub(crate) fn redacted(text: &str) -> String {
    let mut text = text.to_owned();
    for prefix in ["hs256:", "hmac:", "\"leaf_hash\": \"sha256:", "\"salt\": \""] {
        let parts: Vec<&str> = text.split(prefix).collect();
        let cut = parts[1..].iter().map(|part| {
            let (random, rest) = part.split_at(64);
            assert!(random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{part}");
            format!("{prefix}…{rest}")
        });
        text = std::iter::once(parts[0].to_owned()).chain(cut).collect();
    }
    text
}

#[tokio::test]
async fn records_of_every_kind() {
    let home = Home::new();
    let ledger = home.open();
    let policy_set = Digest::of(b"policies");
    let refused = Event::Refused {
        call: call(1),
        principal: Principal::Local,
        face: Face::Rest,
        ids: ["run_1", "", "corr_1", "rm"].map(str::to_owned),
        input: b"{}".to_vec(),
        decision: Some(std::sync::Arc::new(decision())),
        error: ErrorKind::PermissionDenied,
    };
    let tool = StoredTool {
        id: "mail.send".parse().unwrap(),
        version: 0,
        digest: Digest::of(b"definition"),
        definition: b"definition".to_vec(),
        registered_by: Principal::Operator,
    };
    ledger.append(Event::IdentityRegistered).await.unwrap();
    let sandbox = json!({ "tier": "namespaces" });
    ledger.append(Event::GatewayStarted { sandbox, policy_set }).await.unwrap();
    ledger.append(Event::PolicyActivated { policy_set }).await.unwrap();
    ledger.register_tool(tool.clone()).await.unwrap();
    ledger.append(refused).await.unwrap();
    let running = lease(ledger.admit(effectful(2)).await);
    ledger.settle(running, succeeded()).await.unwrap();
    let replayed = Event::Replayed { facts: facts(3, "mail.send"), of: call(2) };
    ledger.append(replayed).await.unwrap();
    let running = lease(ledger.admit(effect_free(4)).await);
    ledger.settle(running, ended(Status::Timeout)).await.unwrap();
    ledger.remove_tool(&tool.id, Principal::Operator).await.unwrap();
    drop(lease(ledger.admit(effect_free(5)).await));
    ledger.close().await;

    let mut lines = String::new();
    for record in ledger.records(0, 100).await.unwrap() {
        lines.push_str(&redacted(&record.leaf));
        lines.push('\n');
    }
    insta::assert_snapshot!(lines);
}

#[tokio::test]
async fn records_are_read_in_order_from_after_a_position() {
    let home = Home::new();
    let ledger = home.open();
    for _ in 0..5 {
        ledger.append(Event::IdentityRegistered).await.unwrap();
    }
    let positions = async |after, limit| -> Vec<u64> {
        ledger.records(after, limit).await.unwrap().iter().map(|record| record.seq).collect()
    };
    assert_eq!(positions(0, 2).await, [1, 2]);
    assert_eq!(positions(2, 100).await, [3, 4, 5]);
    assert!(positions(5, 100).await.is_empty());
}
