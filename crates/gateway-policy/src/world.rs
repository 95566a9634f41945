//! Turns requests into Cedar's principals, entities and contexts, typed by the schema.

use std::collections::{HashMap, HashSet};

use cedar_policy::{
    Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, Request, RestrictedExpression,
    Schema,
};
use gateway_model::{FilesystemLimit, NetworkLimit, Principal, SafetyTier};

use crate::request::{Action, ActionKind, ExecuteContext, PolicyRequest, ToolFacts};

/// The types that every policy is checked against.
pub(crate) const SCHEMA_TEXT: &str = include_str!("../schema/gateway.cedarschema");

const PRINCIPALS: [Principal; 2] = [Principal::Local, Principal::Operator];

/// The schema or a name of Cedar's world is not what this crate takes it for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorldError {
    /// The schema does not parse.
    #[error("the schema does not parse: {0}")]
    Schema(String),
    /// A name or an entity is malformed.
    #[error("the name {name} cannot be used: {reason}")]
    Name {
        /// The name.
        name: &'static str,
        /// What Cedar says of it.
        reason: String,
    },
}

/// The fixed part of Cedar's world: types, actions and everyone who may act.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) schema: Schema,
    tool_type: EntityTypeName,
    action_type: EntityTypeName,
    local: EntityUid,
    operator: EntityUid,
    gateway: EntityUid,
    people: Vec<Entity>,
}

/// A question in Cedar's terms, complete but for the approval.
pub(crate) struct Question {
    principal: EntityUid,
    action: EntityUid,
    resource: EntityUid,
    pub(crate) entities: Entities,
}

impl World {
    pub(crate) fn new() -> Result<Self, WorldError> {
        let (schema, _warnings) = Schema::from_cedarschema_str(SCHEMA_TEXT)
            .map_err(|error| WorldError::Schema(error.to_string()))?;
        let service = type_name("Allternit::Service")?;
        let user = type_name("Allternit::User")?;
        let role = uid(&type_name("Allternit::Role")?, "operator");
        let local = uid(&service, "local");
        let operator = uid(&user, "operator");
        let gateway = uid(&service, "io-service");
        let mut people = vec![Entity::with_uid(role.clone())];
        for principal in PRINCIPALS {
            let (uid, roles) = match principal {
                Principal::Local => (&local, HashSet::new()),
                Principal::Operator => (&operator, HashSet::from([role.clone()])),
            };
            people.push(actor(uid.clone(), tier_max(principal), roles)?);
        }
        people.push(actor(gateway.clone(), 4, HashSet::new())?);
        Ok(Self {
            schema,
            tool_type: type_name("Allternit::Tool")?,
            action_type: type_name("Allternit::Action")?,
            local,
            operator,
            gateway,
            people,
        })
    }

    /// Says whether an entity is of an actor's type and yet nobody who exists.
    pub(crate) fn is_stranger(&self, uid: &EntityUid) -> bool {
        self.people.iter().any(|entity| entity.uid().type_name() == uid.type_name())
            && !self.people.iter().any(|entity| entity.uid() == *uid)
    }

    /// Returns everyone whom a policy may name, for messages.
    pub(crate) fn known_names(&self) -> String {
        let names: Vec<String> =
            self.people.iter().map(|entity| entity.uid().to_string()).collect();
        names.join(", ")
    }

    /// Returns the id of the tool that an entity is, if it is one.
    pub(crate) fn tool_id<'a>(&self, uid: &'a EntityUid) -> Option<&'a str> {
        (*uid.type_name() == self.tool_type).then(|| uid.id().unescaped())
    }

    pub(crate) fn action(&self, kind: ActionKind) -> EntityUid {
        uid(&self.action_type, kind.as_str())
    }

    /// Puts a request into Cedar's terms, for the given action.
    pub(crate) fn question(
        &self,
        request: &PolicyRequest<'_>,
        kind: ActionKind,
    ) -> Result<Question, String> {
        let resource = uid(&self.tool_type, request.tool.id.as_str());
        let tool = tool_entity(&request.tool, resource.clone())?;
        let entities = self.people.iter().cloned().chain([tool]);
        Ok(Question {
            principal: match request.principal {
                Principal::Local => self.local.clone(),
                Principal::Operator => self.operator.clone(),
            },
            action: self.action(kind),
            resource,
            entities: Entities::from_entities(entities, None).map_err(|error| error.to_string())?,
        })
    }

    /// Returns the context of a request, with the approval granted or not.
    pub(crate) fn context(
        &self,
        action: &Action<'_>,
        is_approved: bool,
    ) -> Result<Context, String> {
        let mut pairs = match action {
            Action::List => return Ok(Context::empty()),
            Action::Register(context) => vec![
                ("replaces".to_owned(), RestrictedExpression::new_bool(context.replaces)),
                ("enforceable".to_owned(), RestrictedExpression::new_bool(context.is_enforceable)),
                ("names_secrets".to_owned(), RestrictedExpression::new_bool(context.names_secrets)),
            ],
            Action::Remove => Vec::new(),
            Action::Execute(context) => self.call_attributes(context),
        };
        pairs.push(("approval".to_owned(), approval(is_approved)?));
        Context::from_pairs(pairs).map_err(|error| error.to_string())
    }

    /// Returns what all calls of one tier share, approved: all that a fixed rule may read.
    pub(crate) fn context_of_any_call(&self, tier: SafetyTier) -> Result<Context, String> {
        let mut pairs = self.fixed_attributes(tier);
        pairs.push(("approval".to_owned(), approval(true)?));
        Context::from_pairs(pairs).map_err(|error| error.to_string())
    }

    fn fixed_attributes(&self, tier: SafetyTier) -> Vec<(String, RestrictedExpression)> {
        vec![
            ("via".to_owned(), RestrictedExpression::new_entity_uid(self.gateway.clone())),
            ("requested_tier".to_owned(), long(tier.level().into())),
        ]
    }

    fn call_attributes(&self, context: &ExecuteContext<'_>) -> Vec<(String, RestrictedExpression)> {
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        let mut pairs = self.fixed_attributes(context.requested_tier);
        pairs.extend([
            ("run_id".to_owned(), text(context.run_id.as_str())),
            ("wih_id".to_owned(), text(context.wih_id.as_str())),
            ("scope".to_owned(), text(context.claim.scope())),
            ("paths".to_owned(), texts(context.claim.paths())),
            ("args_bytes".to_owned(), long(context.args_bytes)),
        ]);
        pairs
    }
}

impl Question {
    /// Completes the question with a context.
    ///
    /// Questions are typed by construction (a test holds them against the schema), so they are
    /// not validated again on every call.
    pub(crate) fn with(&self, context: Context) -> Result<Request, String> {
        let (principal, action, resource) =
            (self.principal.clone(), self.action.clone(), self.resource.clone());
        Request::new(principal, action, resource, context, None).map_err(|error| error.to_string())
    }
}

/// The highest tier a principal runs without asking anyone.
fn tier_max(principal: Principal) -> u64 {
    match principal {
        Principal::Local => 2,
        Principal::Operator => 4,
    }
}

fn actor(uid: EntityUid, tier_max: u64, roles: HashSet<EntityUid>) -> Result<Entity, WorldError> {
    let attributes = HashMap::from([("tier_max".to_owned(), long(tier_max))]);
    Entity::new(uid, attributes, roles)
        .map_err(|error| WorldError::Name { name: "tier_max", reason: error.to_string() })
}

fn tool_entity(tool: &ToolFacts<'_>, uid: EntityUid) -> Result<Entity, String> {
    let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
    let (network, hosts) = match tool.network {
        NetworkLimit::None => ("none", [].as_slice()),
        NetworkLimit::DomainAllowlist(hosts) => ("allowlist", hosts.as_slice()),
        NetworkLimit::Unrestricted => ("unrestricted", [].as_slice()),
    };
    let filesystem = match tool.filesystem {
        FilesystemLimit::None => "none",
        FilesystemLimit::Allowlist(_) => "read",
        FilesystemLimit::ReadWrite(_) => "write",
    };
    let attributes = HashMap::from([
        ("tier".to_owned(), long(tool.tier.level().into())),
        ("kind".to_owned(), text(tool.kind)),
        ("source".to_owned(), text(tool.source.as_str())),
        ("idempotency".to_owned(), text(tool.idempotency.as_str())),
        ("effects".to_owned(), texts(tool.effects.iter().map(String::as_str))),
        ("network".to_owned(), text(network)),
        ("hosts".to_owned(), texts(hosts.iter().map(String::as_str))),
        ("filesystem".to_owned(), text(filesystem)),
    ]);
    Entity::new(uid, attributes, HashSet::new()).map_err(|error| error.to_string())
}

fn approval(is_granted: bool) -> Result<RestrictedExpression, String> {
    RestrictedExpression::new_record([(
        "granted".to_owned(),
        RestrictedExpression::new_bool(is_granted),
    )])
    .map_err(|error| error.to_string())
}

/// Cedar's numbers are i64; a size beyond it is as good as the largest.
fn long(number: u64) -> RestrictedExpression {
    RestrictedExpression::new_long(i64::try_from(number).unwrap_or(i64::MAX))
}

fn texts<'a>(texts: impl Iterator<Item = &'a str>) -> RestrictedExpression {
    RestrictedExpression::new_set(
        texts.map(|text| RestrictedExpression::new_string(text.to_owned())),
    )
}

fn type_name(name: &'static str) -> Result<EntityTypeName, WorldError> {
    name.parse().map_err(|error| WorldError::Name { name, reason: format!("{error}") })
}

fn uid(type_name: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(type_name.clone(), EntityId::new(id))
}
