//! `resource_limits` of a registration: quantities, network, files, time.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fields::{FieldError, Fields};
use crate::bounded_text;
use crate::limits::{FilesystemLimit, NetworkLimit, ResourceLimits};

/// The longest wall-clock time a registration may ask for, in seconds.
const MAX_TIME_LIMIT_SECONDS: u64 = 3_600;

/// Reads `resource_limits`.
pub(super) fn read_limits(value: Value) -> Result<ResourceLimits, FieldError> {
    let mut fields = Fields::of(value, "/resource_limits")?;
    let cpu_millis = match fields.optional_text("cpu")? {
        None => None,
        Some(text) => Some(parse_cpu(&text).ok_or_else(|| {
            fields.error("cpu", "expected processors such as \"500m\" or \"2\", from 1m to 64")
        })?),
    };
    let memory_bytes = match fields.optional_text("memory")? {
        None => None,
        Some(text) => Some(parse_memory(&text).ok_or_else(|| {
            fields.error("memory", "expected bytes such as \"64Mi\" or \"1Gi\", from 1Mi to 1Ti")
        })?),
    };
    let network = read_network(&mut fields)?;
    let filesystem = read_filesystem(&mut fields)?;
    let seconds = match fields.required("time_limit")? {
        Value::Number(number) => {
            number.as_u64().filter(|n| (1..=MAX_TIME_LIMIT_SECONDS).contains(n))
        }
        _ => None,
    }
    .ok_or_else(|| {
        fields.error(
            "time_limit",
            format!("expected whole seconds from 1 to {MAX_TIME_LIMIT_SECONDS}"),
        )
    })?;
    fields.finish()?;
    let time_limit = Duration::from_secs(seconds);
    Ok(ResourceLimits { cpu_millis, memory_bytes, network, filesystem, time_limit })
}

const NETWORK_FORMS: &str = "expected \"None\", {\"DomainAllowlist\": [hosts]} or \"Unrestricted\"";
const FILESYSTEM_FORMS: &str =
    "expected \"None\", {\"Allowlist\": [paths]} or {\"ReadWrite\": [paths]}";

fn unknown_key(entries: &Map<String, Value>, forms: &str) -> String {
    let key = entries.keys().next().map(|key| bounded_text(key, 100)).unwrap_or_default();
    if key.is_empty() { forms.to_owned() } else { format!("has the unknown key {key:?}; {forms}") }
}

fn read_network(fields: &mut Fields) -> Result<NetworkLimit, FieldError> {
    match fields.required("network")? {
        Value::String(word) if word == "None" => Ok(NetworkLimit::None),
        Value::String(word) if word == "Unrestricted" => Ok(NetworkLimit::Unrestricted),
        Value::Object(entries) => {
            if !entries.contains_key("DomainAllowlist") {
                return Err(fields.error("network", unknown_key(&entries, NETWORK_FORMS)));
            }
            let mut inner = Fields::of(Value::Object(entries), "/resource_limits/network")?;
            let hosts = inner.texts("DomainAllowlist", 256, 253)?;
            inner.finish()?;
            Ok(NetworkLimit::DomainAllowlist(hosts))
        }
        _ => Err(fields.error("network", NETWORK_FORMS)),
    }
}

fn read_filesystem(fields: &mut Fields) -> Result<FilesystemLimit, FieldError> {
    match fields.required("filesystem")? {
        Value::String(word) if word == "None" => Ok(FilesystemLimit::None),
        Value::Object(entries) if entries.len() == 1 => {
            let is_writable = entries.contains_key("ReadWrite");
            if !is_writable && !entries.contains_key("Allowlist") {
                return Err(fields.error("filesystem", unknown_key(&entries, FILESYSTEM_FORMS)));
            }
            let mut inner = Fields::of(Value::Object(entries), "/resource_limits/filesystem")?;
            let limit = if is_writable {
                FilesystemLimit::ReadWrite(inner.texts("ReadWrite", 64, 4_096)?)
            } else {
                FilesystemLimit::Allowlist(inner.texts("Allowlist", 64, 4_096)?)
            };
            inner.finish()?;
            if limit.paths().0.is_empty() {
                return Err(
                    fields.error("filesystem", "lists no path; expected at least one, or \"None\"")
                );
            }
            Ok(limit)
        }
        _ => Err(fields.error("filesystem", FILESYSTEM_FORMS)),
    }
}

/// Returns `resource_limits` in the wire's shape; equal limits have one form.
pub(super) fn limits_to_wire(limits: &ResourceLimits) -> Value {
    let network = match &limits.network {
        NetworkLimit::None => json!("None"),
        NetworkLimit::DomainAllowlist(hosts) => json!({ "DomainAllowlist": hosts }),
        NetworkLimit::Unrestricted => json!("Unrestricted"),
    };
    let filesystem = match &limits.filesystem {
        FilesystemLimit::None => json!("None"),
        FilesystemLimit::Allowlist(paths) => json!({ "Allowlist": paths }),
        FilesystemLimit::ReadWrite(paths) => json!({ "ReadWrite": paths }),
    };
    json!({
        "cpu": limits.cpu_millis.map(cpu_text),
        "memory": limits.memory_bytes.map(memory_text),
        "network": network,
        "filesystem": filesystem,
        "time_limit": limits.time_limit.as_secs(),
    })
}

/// Writes whole processors as such, so that equal limits have one form.
fn cpu_text(millis: u32) -> String {
    if millis.is_multiple_of(1_000) { (millis / 1_000).to_string() } else { format!("{millis}m") }
}

/// Writes the largest binary unit that divides the bytes, so that equal limits have one form.
fn memory_text(bytes: u64) -> String {
    let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
    match units.into_iter().find(|(shift, _)| bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

fn parse_cpu(text: &str) -> Option<u32> {
    let millis = match text.strip_suffix('m') {
        Some(millis) => digits(millis)?,
        None => digits(text)?.checked_mul(1_000)?,
    };
    u32::try_from(millis).ok().filter(|millis| (1..=64_000).contains(millis))
}

fn parse_memory(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 7] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("", 1),
    ];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|number| (number, *unit)))?;
    digits(number)?.checked_mul(unit).filter(|bytes| (1 << 20..=1 << 40).contains(bytes))
}

/// Parses digits alone: no sign, no space.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
