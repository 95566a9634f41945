//! What receipts say of a run's confinement, and which limit was enforced by what.

use std::time::Duration;

use gateway_model::SandboxTier;
use serde_json::json;

use crate::confinement::Limits;
use crate::egress::ProxyUse;
use crate::outcome::SandboxProfile;

impl SandboxProfile {
    pub(crate) fn off() -> Self {
        Self { document: json!({ "tier": "off" }) }
    }

    /// The profile of a run whose set-up ended before its program began has no version.
    pub(crate) fn namespaces(
        set_up: Option<SetUp>,
        limits: &Limits,
        network: Option<&ProxyUse>,
    ) -> Self {
        let mut document = json!({
            "tier": SandboxTier::Namespaces.as_str(),
            "landlock_abi": set_up.map(|set_up| set_up.landlock_abi),
            "seccomp": "v1",
            "userns": true,
            "pidns": true,
            "proc": "fresh",
            "user": set_up.map(|set_up| if set_up.is_root { "dedicated" } else { "own" }),
            "network": if network.is_some() { "proxy" } else { "none" },
            "limits": {
                "wall_ms": millis(limits.wall),
                "cpu": limits.cpu.map(|cpu| json!({ "ms": millis(cpu), "by": "rlimit_cpu+sum" })),
                "memory": limits.memory_bytes.map(|bytes| json!({ "bytes": bytes, "by": "rlimit_data+sum" })),
                "processes": { "count": limits.processes, "by": "rlimit_nproc/userns" },
                "open_files": limits.open_files,
                "file_bytes": limits.file_bytes,
                "tmp_bytes": limits.tmp_bytes,
                "stdout_bytes": limits.stdout_bytes,
                "stderr_bytes": limits.stderr_bytes,
            },
        });
        if let (Some(network), Some(fields)) = (network, document.as_object_mut()) {
            fields.insert("proxy".to_owned(), network.to_json());
        }
        Self { document }
    }
}

/// What the helper said it had set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetUp {
    pub(crate) landlock_abi: i32,
    pub(crate) is_root: bool,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
