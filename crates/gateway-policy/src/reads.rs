//! Which attributes a policy can read, found in its text.

use std::collections::BTreeSet;

use cedar_policy::Policy;
use cedar_policy::pst::{Clause, Expr, Var};

/// The attributes that a policy's conditions read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reads {
    /// Attributes of the context; `*` where the context is used as a whole.
    context: BTreeSet<String>,
    /// Attributes of the tool; `*` where the tool is used as a whole.
    tool: BTreeSet<String>,
}

/// Attributes of the context that are the same for all calls of one principal, tool and tier.
const FIXED_ATTRIBUTES: [&str; 3] = ["approval", "requested_tier", "via"];
const WHOLE: &str = "*";

impl Reads {
    /// Reads the conditions of a policy, or says why they cannot be read.
    pub(crate) fn of(policy: &Policy) -> Result<Self, String> {
        let policy = policy.to_pst().map_err(|error| error.to_string())?;
        let mut reads = Self::default();
        for clause in policy.body().clauses() {
            let (Clause::When(condition) | Clause::Unless(condition)) = clause;
            reads.context.append(&mut attributes_of(condition, &Var::Context));
            reads.tool.append(&mut attributes_of(condition, &Var::Resource));
        }
        Ok(reads)
    }

    /// Says whether the policy reads something that differs from call to call.
    pub(crate) fn reads_call(&self) -> bool {
        self.context.iter().any(|attribute| !FIXED_ATTRIBUTES.contains(&attribute.as_str()))
    }

    /// Says whether the policy reads `context.approval`.
    pub(crate) fn reads_approval(&self) -> bool {
        self.context.contains("approval") || self.context.contains(WHOLE)
    }

    /// Says whether the policy's conditions look at a tier or at the tool's identity.
    pub(crate) fn narrows_tool(&self) -> bool {
        self.context.contains("requested_tier")
            || self.tool.contains("tier")
            || self.tool.contains(WHOLE)
    }
}

/// Returns the attributes of `variable` that the expression reads.
///
/// INVARIANT: a use of the variable that is no access to one named attribute yields [`WHOLE`], so
/// that nothing is read unseen.
fn attributes_of(expression: &Expr, variable: &Var) -> BTreeSet<String> {
    let is_variable = |expression: &Expr| matches!(expression, Expr::Var(var) if var == variable);
    expression.reduce(
        &|node| match node {
            Expr::GetAttr { expr, attr } if is_variable(expr) => {
                Some(BTreeSet::from([attr.to_string()]))
            }
            Expr::HasAttr { expr, attrs } if is_variable(expr) => {
                Some(BTreeSet::from([attrs.first().to_string()]))
            }
            Expr::Var(var) if var == variable => Some(BTreeSet::from([WHOLE.to_owned()])),
            _ => None,
        },
        &|mut one, mut other| {
            one.append(&mut other);
            one
        },
        BTreeSet::new(),
    )
}
