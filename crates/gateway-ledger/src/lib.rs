//! What happened? The durable journal, idempotency and receipts.
