//! The registry's rows: durable with their records, versioned over an id's life.

use gateway_ledger::StoredTool;
use gateway_model::{Digest, Principal};

use crate::home::{Home, leaves};

fn tool(id: &str, definition: &[u8]) -> StoredTool {
    StoredTool {
        id: id.parse().unwrap(),
        version: 0,
        digest: Digest::of(definition),
        definition: definition.to_vec(),
        registered_by: Principal::Operator,
    }
}

#[tokio::test]
async fn versions_count_over_the_life_of_an_id_also_after_removal_and_restart() {
    let home = Home::new();
    let ledger = home.open();
    assert_eq!(ledger.register_tool(tool("b", b"1")).await.unwrap(), 1);
    assert_eq!(ledger.register_tool(tool("a", b"1")).await.unwrap(), 1);
    assert_eq!(ledger.register_tool(tool("b", b"2")).await.unwrap(), 2);
    let id = "b".parse().unwrap();
    assert!(ledger.remove_tool(&id, Principal::Local).await.unwrap());
    assert!(!ledger.remove_tool(&id, Principal::Local).await.unwrap());
    drop(ledger);
    let ledger = home.open();
    assert_eq!(ledger.register_tool(tool("b", b"3")).await.unwrap(), 3);
    let stored = ledger.tools().await.unwrap();
    let expected = [
        StoredTool { version: 1, ..tool("a", b"1") },
        StoredTool { version: 3, ..tool("b", b"3") },
    ];
    assert_eq!(stored, expected);
    let told: Vec<String> = leaves(&ledger)
        .await
        .iter()
        .map(|leaf| format!("{} {} {}", leaf["kind"], leaf["tool"]["id"], leaf["tool"]["ver"]))
        .map(|line| line.replace('"', ""))
        .collect();
    let expected = [
        "tool.registered b 1",
        "tool.registered a 1",
        "tool.registered b 2",
        "tool.removed b 2",
        "tool.registered b 3",
    ];
    assert_eq!(told, expected);
}
