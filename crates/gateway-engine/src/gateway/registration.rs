//! Registering and removing tools: judged by policy, durable first, then visible.

use std::sync::Arc;

use gateway_ledger::{Ledger, LedgerError, StoredTool};
use gateway_model::wire::RegisterTool;
use gateway_model::{
    Decision, Effect, Principal, RegisteredTool, ToolBinding, ToolSource, canonical_json,
};
use gateway_policy::{Action, PolicyRequest, RegisterContext, ToolFacts};
use gateway_sandbox::SandboxState;

use super::{BuildError, ToolGateway};
use crate::executor::{confine, journal};
use crate::tool_metadata::{Registered, RegistrationError, StoredRegistration, ToolCatalog};

/// Puts the stored registrations into the catalogue, beside the built-ins, which they never
/// replace.
///
/// One that this version cannot use is left out and said so: the others still serve.
pub(super) async fn load(ledger: &Ledger, catalog: &ToolCatalog) -> Result<(), BuildError> {
    for stored in ledger.tools().await.map_err(BuildError::Ledger)? {
        if let Some(taken) = catalog.get_folded(&stored.id) {
            tracing::error!(
                tool = %stored.id, built_in = %taken.id,
                "a registered tool is left out: its id is a built-in tool's now; register it under another id"
            );
            continue;
        }
        let tool = StoredRegistration::from_bytes(&stored.definition).and_then(|registration| {
            registration
                .compile(stored.version, ToolSource::Registered)
                .map_err(|error| error.to_string())
        });
        match tool {
            Ok(tool) => catalog.insert(Arc::new(tool)),
            Err(reason) => tracing::error!(
                tool = %stored.id, %reason,
                "a registered tool is left out: its definition cannot be used; register it again"
            ),
        }
    }
    Ok(())
}

impl ToolGateway {
    /// Registers a tool; the very same registration again is a no-op.
    ///
    /// Runs in a task of its own: a caller that leaves does not leave a tool half registered.
    ///
    /// # Errors
    /// Returns why nothing was registered.
    pub async fn register(
        &self,
        principal: Principal,
        registration: RegisterTool,
    ) -> Result<Registered, RegistrationError> {
        let gateway = self.clone();
        let register = async move { gateway.register_now(principal, registration).await };
        let done = self.inner.calls.spawn(register);
        done.await.unwrap_or_else(|_panic| Err(unexpected()))
    }

    async fn register_now(
        &self,
        principal: Principal,
        registration: RegisterTool,
    ) -> Result<Registered, RegistrationError> {
        let executor = &self.inner.executor;
        let _one_at_a_time = self.inner.registering.lock().await;
        let input = canonical_json(&registration.normalised);
        let stored =
            StoredRegistration::resolve(registration, &executor.sandbox, &self.inner.search_path)?;
        let candidate = stored.compile(1, ToolSource::Registered)?;
        executor
            .adapters
            .of(&candidate.binding)
            .check_tool(&candidate)
            .map_err(RegistrationError::Invalid)?;
        confine::check_declared(&candidate.limits.filesystem)
            .map_err(RegistrationError::Invalid)?;
        if let Some(existing) = executor.catalog.get_folded(&candidate.id) {
            return already_registered(existing, &candidate);
        }
        let was_registered = executor.ledger.was_registered(&candidate.id).await;
        let context = RegisterContext {
            replaces: was_registered.map_err(failed)?,
            is_enforceable: self.is_enforceable(&candidate),
            names_secrets: !candidate.binding.secrets().is_empty(),
        };
        self.permit(principal, Action::Register(context), &candidate, input).await?;
        let mut durable = StoredTool {
            id: candidate.id.clone(),
            version: candidate.version,
            digest: candidate.digest,
            definition: stored.to_bytes(),
            registered_by: principal,
        };
        durable.version = executor.ledger.register_tool(durable.clone()).await.map_err(failed)?;
        let tool = Arc::new(RegisteredTool { version: durable.version, ..candidate });
        executor.catalog.insert(Arc::clone(&tool));
        let warnings = StoredRegistration::warnings(&tool);
        Ok(Registered { tool, is_new: true, warnings })
    }

    /// Removes a registered tool; its receipts stay. Runs in a task of its own.
    ///
    /// # Errors
    /// Returns why nothing was removed.
    pub async fn remove(&self, principal: Principal, id: &str) -> Result<(), RegistrationError> {
        let (gateway, id) = (self.clone(), id.to_owned());
        let done = self.inner.calls.spawn(async move { gateway.remove_now(principal, &id).await });
        done.await.unwrap_or_else(|_panic| Err(unexpected()))
    }

    async fn remove_now(&self, principal: Principal, id: &str) -> Result<(), RegistrationError> {
        let executor = &self.inner.executor;
        let _one_at_a_time = self.inner.registering.lock().await;
        let unknown = || RegistrationError::NotFound(format!("no tool {id:?} is registered"));
        let tool = executor.catalog.get(id).ok_or_else(unknown)?;
        let permitted = self.permit(principal, Action::Remove, &tool, Vec::new()).await;
        // Whoever may remove a tool may know of it, even where nobody can call it.
        if permitted.is_err() && !self.is_visible(principal, &tool) {
            return Err(unknown());
        }
        permitted?;
        if tool.definition.source == ToolSource::Builtin {
            let reason = format!("{id:?} is built in and cannot be removed");
            return Err(RegistrationError::Denied(reason));
        }
        executor.ledger.remove_tool(&tool.id, principal).await.map_err(failed)?;
        executor.catalog.remove(&tool.id);
        Ok(())
    }

    /// Says whether the kernel, or the gateway itself, holds this tool to what it declares.
    fn is_enforceable(&self, tool: &RegisteredTool) -> bool {
        match tool.binding {
            ToolBinding::Local { .. } | ToolBinding::Subprocess { .. } => {
                matches!(self.inner.executor.sandbox.state(), SandboxState::Enforced(_))
            }
            // The gateway makes the request, and only where the declaration and egress permit.
            ToolBinding::Http(_) => true,
            // An executor runs in this very process.
            ToolBinding::Sdk { .. } => false,
        }
    }

    /// Asks policy whether the principal may do this to this very tool; a denial is journaled.
    async fn permit(
        &self,
        principal: Principal,
        action: Action<'_>,
        tool: &RegisteredTool,
        input: Vec<u8>,
    ) -> Result<(), RegistrationError> {
        let executor = &self.inner.executor;
        let request = PolicyRequest { principal, action, tool: ToolFacts::from(tool) };
        let decision = executor.policy.decide(&request);
        let Decision { effect, rule, reason, .. } = &*decision;
        let denial = match effect {
            Effect::Allow => return Ok(()),
            Effect::Ask => format!("an operator must do this: {reason} (rule {rule})"),
            Effect::Deny => format!("policy denies it: {reason} (rule {rule})"),
        };
        let id = tool.id.to_string();
        journal::registration_denied(executor, principal, (id, input), decision).await;
        Err(RegistrationError::Denied(denial))
    }
}

fn already_registered(
    existing: Arc<RegisteredTool>,
    candidate: &RegisteredTool,
) -> Result<Registered, RegistrationError> {
    if existing.digest == candidate.digest {
        let warnings = StoredRegistration::warnings(&existing);
        return Ok(Registered { tool: existing, is_new: false, warnings });
    }
    let id = &existing.id;
    Err(RegistrationError::Conflict(if existing.id == candidate.id {
        format!("{id} is registered with another definition; remove it first")
    } else {
        format!("{} differs from the registered {id} only in case or separators", candidate.id)
    }))
}

fn unexpected() -> RegistrationError {
    RegistrationError::Failed("the gateway failed unexpectedly".to_owned())
}

fn failed(error: LedgerError) -> RegistrationError {
    tracing::error!(error = %journal::chain(&error), "registration not durable");
    RegistrationError::Failed("the registration could not be made durable".to_owned())
}
