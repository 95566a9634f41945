//! The ledger at its boundary: keys, restarts, kills, damage, full disks, receipts.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod approvals;
mod child;
mod damage;
mod disk;
mod flights;
mod home;
mod keys;
mod receipts;
mod records;
mod registry;
mod restart;
