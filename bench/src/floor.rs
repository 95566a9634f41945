//! The two floors: an axum echo of JSON, and the same with one durable append per request.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// Bytes of the appended record: what a journal entry of the gateway takes.
const RECORD_BYTES: usize = 768;

/// Returns a server that answers with what it was sent.
pub(crate) fn echo() -> Router {
    Router::new().route("/", post(|Json(body): Json<Value>| async move { Json(answer(&body)) }))
}

/// Returns a server that appends a record durably before each answer.
pub(crate) fn append(directory: &Path) -> anyhow::Result<Router> {
    let (records, queue) = mpsc::channel(4096);
    let database = rusqlite::Connection::open(directory.join("floor.db"))?;
    database.execute_batch(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE records(seq INTEGER PRIMARY KEY, record BLOB)",
    )?;
    std::thread::spawn(move || write(database, queue));
    let handler = |State(records): State<Arc<mpsc::Sender<oneshot::Sender<()>>>>,
                   Json(body): Json<Value>| async move {
        let (done, durable) = oneshot::channel();
        if records.send(done).await.is_err() || durable.await.is_err() {
            return Json(Value::Null);
        }
        Json(answer(&body))
    };
    Ok(Router::new().route("/", post(handler)).with_state(Arc::new(records)))
}

/// One transaction for all that is waiting; no timer.
fn write(mut database: rusqlite::Connection, mut queue: mpsc::Receiver<oneshot::Sender<()>>) {
    let record = [7_u8; RECORD_BYTES];
    while let Some(first) = queue.blocking_recv() {
        let mut waiting = vec![first];
        while waiting.len() < 1024
            && let Ok(next) = queue.try_recv()
        {
            waiting.push(next);
        }
        let written = database.transaction().and_then(|transaction| {
            {
                let mut insert =
                    transaction.prepare_cached("INSERT INTO records(record) VALUES(?1)")?;
                for _ in &waiting {
                    insert.execute([&record[..]])?;
                }
            }
            transaction.commit()
        });
        if written.is_err() {
            return;
        }
        for done in waiting {
            if done.send(()).is_err() {
                return;
            }
        }
    }
}

fn answer(body: &Value) -> Value {
    json!({"success": true, "output": body.get("input"), "error": null, "io_captured": true, "policy_enforced": true})
}
