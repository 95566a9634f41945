//! Explaining a call: every verdict of the line, without running or journaling anything.

use gateway_model::{Decision, ToolError};
use serde_json::{Value, json};

use super::ToolGateway;
use crate::context::RequestContext;
use crate::executor::journal;
use crate::executor::pipeline::{Arrived, Footprint};

/// What the line would say about a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    whole: Value,
}

impl Explanation {
    /// Returns the explanation as JSON.
    pub fn to_json(&self) -> Value {
        self.whole.clone()
    }
}

impl ToolGateway {
    /// Explains a call: view, rule, policy, claim, limits and sandbox tier.
    ///
    /// # Errors
    /// Returns what the call itself would be told where it ends before policy is asked.
    pub fn explain(
        &self,
        context: &RequestContext,
        tool: &str,
        input: &Value,
    ) -> Result<Explanation, ToolError> {
        let executor = &self.inner.executor;
        let call = journal::new_call(executor);
        let arrived = Arrived::new(call, context.clone(), tool, input.clone());
        let (call, footprint, decision) = executor.judge(arrived)?;
        let Footprint { claim, reach } = &footprint;
        let Decision { effect, rule, reason, reasons, errors, policy_set } = &*decision;
        let whole = json!({
            "tool": {
                "id": call.tool.id.as_str(),
                "version": call.tool.version,
                "digest": call.tool.digest.to_string(),
                "tier": call.tool.tier.as_str(),
                "type": call.tool.binding.tool_type(),
                "side_effects": call.tool.side_effects,
            },
            "principal": context.principal.as_str(),
            "view": context.view.as_str(),
            "run_id": context.run.as_str(),
            "policy": {
                "decision": effect.as_str(),
                "rule": rule,
                "reason": reason,
                "reasons": reasons,
                "errors": errors,
                "policy_set": policy_set.to_string(),
            },
            "claim": { "scope": claim.scope(), "paths": claim.paths().collect::<Vec<_>>() },
            "reach": reach.to_json(&context.run, &call.tool.limits.network),
            "limits": call.tool.registration.get("resource_limits"),
            "sandbox": executor.sandbox.state().as_str(),
            "input_bytes": call.input_bytes.len(),
        });
        Ok(Explanation { whole })
    }
}
