//! Registering and removing tools: judged by policy, durable first, then visible.

use std::sync::Arc;

use gateway_ledger::{Ledger, LedgerError, StoredTool};
use gateway_model::wire::RegisterTool;
use gateway_model::{Decision, Effect, Principal, RegisteredTool, ToolSource, canonical_json};
use gateway_policy::{Action, PolicyRequest, RegisterContext, ToolFacts};

use super::{BuildError, ToolGateway};
use crate::executor::{confine, journal};
use crate::tool_metadata::{Registered, RegistrationError, StoredRegistration, ToolCatalog};

/// Puts every stored registration into the catalogue.
pub(super) async fn load(ledger: &Ledger, catalog: &ToolCatalog) -> Result<(), BuildError> {
    for stored in ledger.tools().await.map_err(BuildError::Ledger)? {
        let id = stored.id.to_string();
        let unreadable = |reason: String| BuildError::Stored { id: id.clone(), reason };
        let tool = StoredRegistration::from_bytes(&stored.definition)
            .map_err(unreadable)?
            .compile(stored.version, ToolSource::Registered)
            .map_err(|error| unreadable(error.to_string()))?;
        catalog.insert(Arc::new(tool));
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
        let (tool, input) = (registration.id.to_string(), canonical_json(&registration.normalised));
        let done = self.inner.calls.spawn(async move {
            let registered = gateway.register_now(principal, registration).await;
            if let Err(RegistrationError::Denied(_)) = &registered {
                journal::registration_denied(&gateway.inner.executor, principal, tool, input).await;
            }
            registered
        });
        done.await.unwrap_or_else(|_panic| Err(unexpected()))
    }

    async fn register_now(
        &self,
        principal: Principal,
        registration: RegisterTool,
    ) -> Result<Registered, RegistrationError> {
        let executor = &self.inner.executor;
        let _one_at_a_time = self.inner.registering.lock().await;
        let stored = StoredRegistration::resolve(registration, &self.inner.search_path)?;
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
        permit_secrets(principal, &candidate)?;
        self.permit(principal, &candidate)?;
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
        let done = self.inner.calls.spawn(async move {
            let removed = gateway.remove_now(principal, &id).await;
            if let Err(RegistrationError::Denied(_)) = &removed {
                journal::registration_denied(&gateway.inner.executor, principal, id, Vec::new())
                    .await;
            }
            removed
        });
        done.await.unwrap_or_else(|_panic| Err(unexpected()))
    }

    async fn remove_now(&self, principal: Principal, id: &str) -> Result<(), RegistrationError> {
        let executor = &self.inner.executor;
        let _one_at_a_time = self.inner.registering.lock().await;
        let tool = self
            .tool(principal, id)
            .ok_or_else(|| RegistrationError::NotFound(format!("no tool {id:?} is registered")))?;
        match tool.definition.source {
            ToolSource::Builtin => {
                return Err(RegistrationError::Denied(format!(
                    "{id:?} is built in and cannot be removed"
                )));
            }
            ToolSource::Registered => {}
        }
        self.permit(principal, &tool)?;
        executor.ledger.remove_tool(&tool.id, principal).await.map_err(failed)?;
        executor.catalog.remove(&tool.id);
        Ok(())
    }

    /// Asks policy whether the principal may register, or remove, this very tool.
    fn permit(&self, principal: Principal, tool: &RegisteredTool) -> Result<(), RegistrationError> {
        let request = PolicyRequest {
            principal,
            action: Action::Register(RegisterContext { replaces: false, is_enforceable: true }),
            tool: ToolFacts::from(tool),
        };
        let decision = self.inner.executor.policy.decide(&request);
        let Decision { effect, rule, reason, .. } = &*decision;
        match effect {
            Effect::Allow => Ok(()),
            Effect::Ask => Err(RegistrationError::Denied(format!(
                "an operator must do this: {reason} (rule {rule})"
            ))),
            Effect::Deny => {
                Err(RegistrationError::Denied(format!("policy denies it: {reason} (rule {rule})")))
            }
        }
    }
}

/// Refuses a caller that would give itself the operator's secrets.
fn permit_secrets(principal: Principal, tool: &RegisteredTool) -> Result<(), RegistrationError> {
    match (principal, tool.binding.secrets().first()) {
        (Principal::Operator, _) | (Principal::Local, None) => Ok(()),
        (Principal::Local, Some(secret)) => Err(RegistrationError::Denied(format!(
            "an operator must do this: the tool is given the secret {secret}"
        ))),
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
