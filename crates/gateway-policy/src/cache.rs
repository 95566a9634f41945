//! Remembers decisions that cannot differ from call to call.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use gateway_model::{Decision, Digest, Principal, SafetyTier, ToolId};

use crate::request::{ActionKind, PolicyRequest};

/// How many decisions are remembered; at the bound all are forgotten.
const MAX_DECISIONS: usize = 16 * 1024;

/// Everything that a remembered decision depends on besides the rule set it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    principal: Principal,
    action: ActionKind,
    tier: SafetyTier,
    tool: Digest,
    is_approved: bool,
}

impl Key {
    fn of(request: &PolicyRequest<'_>) -> Self {
        Self {
            principal: request.principal,
            action: request.action.kind(),
            tier: request.requested_tier(),
            tool: request.tool.digest,
            is_approved: request.is_approved(),
        }
    }
}

/// The decisions of one rule set. A new rule set begins with none.
#[derive(Debug, Default)]
pub(crate) struct DecisionCache {
    decisions: RwLock<HashMap<Key, (ToolId, Arc<Decision>)>>,
}

impl DecisionCache {
    pub(crate) fn get(&self, request: &PolicyRequest<'_>) -> Option<Arc<Decision>> {
        let decisions = self.decisions.read().unwrap_or_else(PoisonError::into_inner);
        let (tool_id, decision) = decisions.get(&Key::of(request))?;
        (tool_id == request.tool.id).then(|| Arc::clone(decision))
    }

    pub(crate) fn put(&self, request: &PolicyRequest<'_>, decision: Arc<Decision>) {
        let mut decisions = self.decisions.write().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() >= MAX_DECISIONS {
            decisions.clear();
        }
        decisions.insert(Key::of(request), (request.tool.id.clone(), decision));
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.decisions.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
