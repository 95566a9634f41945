//! The fields of a registration that only Http tools have: endpoint, method and body.

use serde_json::Value;

use super::fields::{FieldError, Fields};
use super::register::{RegisterError, ToolType};
use crate::endpoint::{EndpointTemplate, HttpBinding, HttpBody, HttpMethod};
use crate::host::HostRules;
use crate::limits::NetworkLimit;

/// Reads how an Http tool is reached; `None` for tools of other types, which may not say.
pub(super) fn read_http(
    fields: &mut Fields,
    tool_type: ToolType,
    endpoint: &str,
    input_schema: &Value,
) -> Result<Option<HttpBinding>, FieldError> {
    let method = word(fields, "method", &HttpMethod::ALL, HttpMethod::as_str)?;
    let body = word(fields, "body", &HttpBody::ALL, HttpBody::as_str)?;
    if tool_type != ToolType::Http {
        return match (method, body) {
            (None, None) => Ok(None),
            (Some(_), _) => Err(fields.error("method", "belongs to Http tools only")),
            (None, Some(_)) => Err(fields.error("body", "belongs to Http tools only")),
        };
    }
    let endpoint = EndpointTemplate::parse(endpoint, input_schema)
        .map_err(|error| fields.error("endpoint", error.to_string()))?;
    let method = method.unwrap_or(HttpMethod::Post);
    let body = body.unwrap_or_else(|| method.usual_body());
    if method == HttpMethod::Get && body != HttpBody::None {
        return Err(fields.error("body", "a GET carries no body; expected \"none\""));
    }
    Ok(Some(HttpBinding { endpoint, method, body }))
}

fn word<T: Copy>(
    fields: &mut Fields,
    name: &'static str,
    choices: &[T],
    as_str: fn(T) -> &'static str,
) -> Result<Option<T>, FieldError> {
    let Some(text) = fields.optional_text(name)? else { return Ok(None) };
    let found = choices.iter().copied().find(|choice| as_str(*choice) == text);
    found.map(Some).ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|choice| as_str(*choice)).collect();
        let text = crate::bounded_text(&text, 60);
        fields.error(name, format!("expected one of {}, got {text:?}", known.join(", ")))
    })
}

/// Refuses an endpoint that lies outside the network its own tool declares.
pub(super) fn check_reach(http: &HttpBinding, network: &NetworkLimit) -> Result<(), RegisterError> {
    let contradiction =
        |reason| RegisterError::Contradiction { path: "/resource_limits/network", reason };
    let rules = HostRules::of(network)
        .map_err(|error| contradiction(format!("DomainAllowlist: {error}")))?;
    let (host, port) = (http.endpoint.host(), http.endpoint.port());
    if rules.can_reach(host, port) {
        return Ok(());
    }
    let entry = if matches!(port, 80 | 443) { host.to_string() } else { format!("{host}:{port}") };
    Err(contradiction(format!(
        "does not admit the endpoint; expected {{\"DomainAllowlist\": [{entry:?}]}}"
    )))
}
