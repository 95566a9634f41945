//! May it run? Cedar policies, and one decision that names one rule.
//!
//! The default rules lie in `defaults/`, the types they are checked against in `schema/`. An
//! operator's own rules come on top of them. Deciding reads no file and no clock: the same request
//! under the same policy set always gets the same decision.

mod cache;
mod compile;
mod lint;
mod policy;
mod problem;
mod reads;
mod request;
mod rule;
mod rule_set;
mod shape;
mod slices;
mod source;
mod world;

pub use policy::{Policy, PolicyOptions, Reload};
pub use problem::{CheckReport, LoadError, Problem, check};
pub use request::{Action, ExecuteContext, PolicyRequest, RegisterContext, ToolFacts};
pub use rule::RuleSummary;

#[cfg(test)]
mod tests;
