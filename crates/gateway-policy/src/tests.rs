//! What policy answers, and what it says about files it cannot use.

pub(crate) mod asked;
mod defaults;
mod files;
mod measure;
mod reload;
